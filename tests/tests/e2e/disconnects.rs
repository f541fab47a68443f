//! A thousand calls under repeated disconnects.

use std::{collections::HashMap, fs, sync::Arc, time::Duration};

use rockbot_contracts::{Executed, ToolErrorCode};
use rockbot_testkit::{FaultProxy, fixture};
use rockbot_tools::ToolFailure;
use serde_json::json;
use tokio::task::JoinSet;

use crate::{caller::Caller, fleet::Fleet};

const CALLS: usize = 1000;
const IN_FLIGHT: usize = 100;
const DISCONNECTS: usize = 100;
/// Maximum number of calls that fail. A handler that is cut off again and again may lose its lease on a busy
/// machine or find its store too slow, and the caller's time limit may pass before or while the tool runs.
const MAX_FAILED: usize = CALLS / 20;

#[tokio::test(flavor = "multi_thread")]
async fn repeated_disconnects_lose_and_duplicate_no_call() {
    let fleet = Fleet::new();
    let proxy = FaultProxy::start(&fixture::test_broker_url()).await;
    let settings = [("ROCKBOT_BUS__URL", proxy.url()), ("ROCKBOT_STORE__SHARED", "true")];
    let _handlers = (
        fleet.handler_with("handler-1", &settings).await,
        fleet.handler_with("handler-2", &settings).await,
    );
    let bus = fleet.bus(|config| config.url = proxy.url().to_owned().into()).await;
    let caller = Caller::new(bus.clone(), Duration::from_secs(120));
    let outcomes = Arc::new(tokio::sync::Mutex::new(Vec::new()));
    let mut calls = JoinSet::new();
    for number in 0..CALLS {
        if calls.len() >= IN_FLIGHT {
            calls.join_next().await.expect("a call").expect("no panic");
        }
        let period = CALLS / DISCONNECTS;
        if number % period == period / 2 {
            proxy.cut_all();
        }
        let (caller, outcomes) = (caller.clone(), outcomes.clone());
        calls.spawn(async move {
            let command = json!({"command": format!("echo {number} >> ran")});
            let outcome = caller.call("bash", command).await;
            outcomes.lock().await.push((number, outcome));
        });
    }
    while calls.join_next().await.is_some() {}

    let ran = fs::read_to_string(fleet.path("ran")).expect("side effects");
    let mut runs = HashMap::<usize, usize>::new();
    for line in ran.lines() {
        *runs.entry(line.parse().expect("a number")).or_default() += 1;
    }
    let outcomes = outcomes.lock().await;
    assert_eq!(outcomes.len(), CALLS, "every call has one outcome");
    let mut counts = [0; 3];
    for (number, outcome) in &*outcomes {
        let ran = runs.get(number).copied().unwrap_or_default();
        assert!(ran <= 1, "call {number} ran {ran} times");
        let executed = outcome.as_ref().map_or_else(ToolFailure::executed, |_| Executed::Yes);
        match executed {
            Executed::Yes => assert_eq!(ran, 1, "call {number} did not run: {outcome:?}"),
            Executed::No => assert_eq!(ran, 0, "call {number} ran: {outcome:?}"),
            Executed::Unknown => {}
        }
        counts[executed as usize] += 1;
    }
    let failed: Vec<_> = outcomes.iter().filter(|(_, outcome)| outcome.is_err()).collect();
    let succeeded = CALLS - failed.len();
    let (waiting, dead) = fleet.waiting_and_dead(&bus).await;
    println!(
        "{succeeded} of {CALLS} calls succeeded; executed: {counts:?}; connections: {}; retries: {}; \
         late replies: {}; dead: {dead}; waiting: {waiting}",
        proxy.connections(),
        caller.requester.stats().retries(),
        caller.requester.stats().late(),
    );
    assert!(proxy.connections() > 3, "no connection was closed");
    assert_eq!(caller.requester.pending(), 0);
    let is_late = |failure: &ToolFailure| match failure {
        ToolFailure::Remote { error, .. } => {
            matches!(error.code, ToolErrorCode::Timeout | ToolErrorCode::Unavailable)
        }
        ToolFailure::TimedOut { .. } => true,
        _ => false,
    };
    for (number, outcome) in &failed {
        let failure = outcome.as_ref().expect_err("a failed call");
        assert!(
            is_late(failure) || failure.executed() == Executed::Unknown,
            "call {number} failed although no process died: {failure:?}",
        );
    }
    assert!(failed.len() <= MAX_FAILED, "{} calls failed: {failed:?}", failed.len());
}
