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
    let mut pace = tokio::time::interval(Duration::from_millis(5));
    let mut calls = JoinSet::new();
    let mut stopping = None;
    for number in 0..600 {
        pace.tick().await;
        if number == 200 {
            first.send(Signal::TERM);
            stopping = Some(());
        }
        let caller = caller.clone();
        calls.spawn(async move {
            let file = json!({"path": format!("file-{number}"), "content": "x"});
            caller.call("write_file", file).await
        });
    }
    assert!(stopping.is_some());
    let mut by_first = 0;
    while let Some(call) = calls.join_next().await {
        let result = call.expect("no panic").expect("a result");
        assert!(!result.is_error, "{}", result.to_text());
        by_first += u32::from(result.ran_on.as_deref() == Some("tool-handler/handler-1"));
    }
    first.ended().await.assert_code(0);
    assert!((1..600).contains(&by_first), "both worked: {by_first} of 600 by the first");
    assert_eq!(caller.requester.stats().late(), 0);
}
