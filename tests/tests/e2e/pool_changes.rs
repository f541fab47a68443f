//! Replacement of a pool's handler by one with other tools, under load.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use rockbot_contracts::{Executed, HandlerPool, PoolName, RoutingKey};
use rustix::process::Signal;
use serde_json::json;
use tokio::{sync::Semaphore, task::JoinSet};

use crate::{
    caller::Caller,
    fleet::{Fleet, assert_contains},
    rest::{get, rest_handler, write_tools},
    site::{Reply, Site},
};

const TIMEOUT: Duration = Duration::from_secs(20);
/// Calls in flight. A slow machine has no backlog that reaches the timeout.
const IN_FLIGHT: usize = 32;

fn invoke_key(pool: &str) -> RoutingKey {
    HandlerPool::Named(PoolName::new(pool).expect("a name")).invoke_key()
}

#[tokio::test(flavor = "multi_thread")]
async fn replaced_handler_with_other_tools_answers_every_call() {
    let site = Site::start([
        ("/v1", vec![Reply::json(&json!({"version": 1}))]),
        ("/v2", vec![Reply::json(&json!({"version": 2}))]),
    ])
    .await;
    let (v1, v2) = (get(&site.url("/v1")), get(&site.url("/v2")));
    let fleet = Fleet::new();
    write_tools(&fleet, "v1.json", &json!({"kept": v1, "removed": v1}));
    write_tools(&fleet, "v2.json", &json!({"kept": v2, "added": v2}));
    let first = rest_handler(&fleet, "api-1", "v1.json").await;
    let key = invoke_key("api");
    let tools = ["kept", "removed"].map(|tool| (tool, key.clone()));
    let caller = Caller::with_tools("caller", fleet.bus(|_| {}).await, TIMEOUT, tools);

    let is_replaced = Arc::new(AtomicBool::new(false));
    let calls = tokio::spawn({
        let (is_replaced, caller) = (is_replaced.clone(), caller.clone());
        async move {
            let mut ticks = tokio::time::interval(Duration::from_millis(5));
            let permits = Arc::new(Semaphore::new(IN_FLIGHT));
            let mut calls = JoinSet::new();
            while !is_replaced.load(Ordering::Relaxed) {
                for tool in ["kept", "removed"] {
                    let caller = caller.clone();
                    let permit = permits.clone().acquire_owned().await.expect("open");
                    calls.spawn(async move {
                        let outcome = caller.call(tool, json!({})).await;
                        drop(permit);
                        (tool, outcome)
                    });
                }
                ticks.tick().await;
            }
            calls.join_all().await
        }
    });
    let _second = rest_handler(&fleet, "api-2", "v2.json").await;
    first.send(Signal::TERM);
    first.wait().await.assert_code(0);
    is_replaced.store(true, Ordering::Relaxed);

    let (mut old, mut new, mut refused) = (0, 0, 0);
    for (tool, outcome) in calls.await.expect("no panic") {
        match outcome {
            Ok(result) if result.to_text().contains(r#""version":1"#) => old += 1,
            Ok(result) => {
                assert_eq!((tool, result.to_text().as_ref()), ("kept", r#"{"version":2}"#));
                new += 1;
            }
            // The new handler does not have the tool. Of a call that was delivered before, it does not know
            // whether it ran.
            Err(failure) => {
                assert!(failure.to_string().contains("tool not found: removed"), "{failure}");
                assert_ne!((tool, failure.executed()), ("removed", Executed::Yes), "{failure}");
                refused += 1;
            }
        }
    }
    assert!(old > 0 && new > 0 && refused > 0, "{old} old, {new} new, {refused} refused");
    // The broker may lose the last acks of a handler that stops: read-only calls then run again, and the
    // second reply is dropped.
    assert_eq!(caller.requester.pending(), 0);
    let added = fleet.run(&["tools", "call", "added"]).await;
    added.assert_code(0);
    let removed = fleet.run(&["tools", "call", "removed"]).await;
    removed.assert_code(69);
    assert_contains(&removed.stderr, &["no handler is available for tool removed"]);
}
