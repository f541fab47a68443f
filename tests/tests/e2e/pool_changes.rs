//! Handlers of a pool that are killed or replaced while calls of this and other pools run.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use rockbot_contracts::{Executed, HandlerPool, PoolName, RoutingKey};
use rustix::process::Signal;
use serde_json::json;
use tokio::task::JoinSet;

use crate::{
    caller::Caller,
    fleet::{Fleet, assert_contains},
    rest::{get, rest_handler, write_tools},
    site::{Reply, Site},
};

const TIMEOUT: Duration = Duration::from_secs(20);

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
            let mut calls = JoinSet::new();
            while !is_replaced.load(Ordering::Relaxed) {
                for tool in ["kept", "removed"] {
                    let caller = caller.clone();
                    calls.spawn(async move { (tool, caller.call(tool, json!({})).await) });
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
    assert_eq!(caller.requester.stats().late(), 0);
    let added = fleet.run(&["tools", "call", "added"]).await;
    added.assert_code(0);
    let removed = fleet.run(&["tools", "call", "removed"]).await;
    removed.assert_code(69);
    assert_contains(&removed.stderr, &["no handler is available for tool removed"]);
}

/// Returns the 50th and 99th percentile of the durations of calls, made at a steady rate, none of which
/// fails.
async fn measure(caller: &Caller, calls: u32) -> [Duration; 2] {
    let mut ticks = tokio::time::interval(Duration::from_millis(5));
    let mut running = JoinSet::new();
    for _ in 0..calls {
        ticks.tick().await;
        let caller = caller.clone();
        running.spawn(async move {
            let started = Instant::now();
            let result = caller.call("read_file", json!({"path": "notes.md"})).await;
            assert!(!result.expect("a result").is_error);
            started.elapsed()
        });
    }
    let mut durations = running.join_all().await;
    durations.sort();
    [50, 99].map(|percent| durations[durations.len() * percent / 100])
}

/// Kills the busy handlers of a pool while another pool is called. Measures the effect on the latter's
/// latency, which depends on the machine.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement"]
async fn latency_of_a_pool_without_the_handlers_of_another() {
    let fleet = Fleet::new();
    fleet.write("notes.md", "The bus carries each call.");
    let start = async |pool: &'static str| {
        let store = format!("sqlite:{}", fleet.path(pool).with_extension("db").display());
        let settings = [
            ("ROCKBOT_HANDLER__POOL", pool),
            ("ROCKBOT_HANDLER__FAMILIES", r#"["files"]"#),
            ("ROCKBOT_STORE__URL", &store),
        ];
        fleet.handler_with(&format!("{pool}-1"), &settings).await
    };
    let _files = start("files").await;
    let tools = |pool| [("read_file", invoke_key(pool)), ("bash", invoke_key(pool))];
    let caller = Caller::with_tools("caller", fleet.bus(|_| {}).await, TIMEOUT, tools("files"));
    let other = Caller::with_tools("other", fleet.bus(|_| {}).await, TIMEOUT, tools("code"));
    measure(&caller, 200).await;
    for round in 1..=3 {
        let code = start("code").await;
        let before = measure(&caller, 2000).await;
        let mut hanging = JoinSet::new();
        for _ in 0..20 {
            let other = other.clone();
            hanging.spawn(async move { other.call("bash", json!({"command": "sleep 20"})).await });
        }
        code.send(Signal::KILL);
        code.wait().await;
        let after = measure(&caller, 2000).await;
        println!("round {round}: p50, p99 before {before:?}, after {after:?}");
        hanging.shutdown().await;
    }
}
