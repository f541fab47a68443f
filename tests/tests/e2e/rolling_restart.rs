//! Replacement of a handler under load.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;
use tokio::task::JoinSet;

use crate::{caller::Caller, fleet::Fleet};

#[tokio::test(flavor = "multi_thread")]
async fn rolling_restart_under_load_fails_no_call() {
    let fleet = Fleet::new();
    let first = fleet.handler("handler-1").await;
    let _second = fleet.handler("handler-2").await;
    let caller = Caller::new(fleet.bus(|_| {}).await, Duration::from_secs(20));
    let mut ticks = tokio::time::interval(Duration::from_millis(5));
    let mut calls = JoinSet::new();
    for number in 0..600 {
        ticks.tick().await;
        if number == 200 {
            first.send(Signal::TERM);
        }
        let caller = caller.clone();
        calls.spawn(async move {
            let file = json!({"path": format!("file-{number}"), "content": "x"});
            caller.call("write_file", file).await
        });
    }
    let mut by_first = 0;
    while let Some(call) = calls.join_next().await {
        let result = call.expect("no panic").expect("a result");
        assert!(!result.is_error, "{}", result.to_text());
        by_first += u32::from(result.ran_on.as_deref() == Some("tool-handler/handler-1"));
    }
    first.wait().await.assert_code(0);
    assert!((1..600).contains(&by_first), "{by_first} of 600 calls ran on the first handler");
    assert_eq!(caller.requester.stats().late(), 0);
}
