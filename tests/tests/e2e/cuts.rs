//! A thousand calls under repeated disconnects.

use std::{collections::HashMap, fs, sync::Arc, time::Duration};

use rockbot_contracts::Executed;
use rockbot_testkit::{FaultProxy, fixture};
use serde_json::json;
use tokio::task::JoinSet;

use crate::{caller::Caller, fleet::Fleet};

const CALLS: usize = 1000;
const IN_FLIGHT: usize = 100;
const CUTS: usize = 100;

#[tokio::test(flavor = "multi_thread")]
async fn repeated_disconnects_lose_and_duplicate_no_call() {
    let fleet = Fleet::new();
    let proxy = FaultProxy::start(&fixture::test_broker_url()).await;
    let through = [("ROCKBOT_BUS__URL", proxy.url()), ("ROCKBOT_STORE__SHARED", "true")];
    let _handlers = (
        fleet.handler_with("handler-1", &through).await,
        fleet.handler_with("handler-2", &through).await,
    );
    let bus = fleet.bus(|config| config.url = proxy.url().to_owned().into()).await;
    let caller = Caller::new(bus.clone(), Duration::from_secs(60));
    let ended = Arc::new(tokio::sync::Mutex::new(Vec::new()));
    let mut calls = JoinSet::new();
    for number in 0..CALLS {
        if calls.len() >= IN_FLIGHT {
            calls.join_next().await.expect("one ended").expect("no panic");
        }
        let cut_every = CALLS / CUTS;
        if number % cut_every == cut_every / 2 {
            proxy.cut_all();
        }
        let (caller, ended) = (caller.clone(), ended.clone());
        calls.spawn(async move {
            let command = json!({"command": format!("echo {number} >> ran")});
            let outcome = caller.call("bash", command).await;
            ended.lock().await.push((number, outcome));
        });
    }
    while calls.join_next().await.is_some() {}

    let ran = fs::read_to_string(fleet.path("ran")).expect("side effects");
    let mut runs = HashMap::<usize, usize>::new();
    for line in ran.lines() {
        *runs.entry(line.parse().expect("a number")).or_default() += 1;
    }
    let ended = ended.lock().await;
    assert_eq!(ended.len(), CALLS, "every call is answered once");
    let mut told = [0; 3];
    for (number, outcome) in &*ended {
        let ran = runs.get(number).copied().unwrap_or_default();
        assert!(ran <= 1, "call {number} ran {ran} times");
        let executed =
            outcome.as_ref().map_or_else(rockbot_tools::ToolFailure::executed, |_| Executed::Yes);
        match executed {
            Executed::Yes => assert_eq!(ran, 1, "call {number} did not run: {outcome:?}"),
            Executed::No => assert_eq!(ran, 0, "call {number} ran: {outcome:?}"),
            Executed::Unknown => {}
        }
        told[executed as usize] += 1;
    }
    let failed: Vec<_> = ended.iter().filter(|(_, outcome)| outcome.is_err()).collect();
    let answered = CALLS - failed.len();
    let (waiting, dead) = fleet.waiting_and_dead(&bus).await;
    println!(
        "{answered} of {CALLS} calls have their result; executed: {told:?}; connections: {}; asked \
         again: {}; late answers: {}; dead: {dead}; waiting: {waiting}",
        proxy.connections(),
        caller.requester.stats().retries(),
        caller.requester.stats().late(),
    );
    assert!(proxy.connections() > 3, "the connections were cut");
    assert_eq!(caller.requester.pending(), 0);
    assert!(failed.is_empty(), "no process died and there was time: {failed:?}");
}
