//! Restart of the broker under running processes.

use std::{fs, time::Duration};

use rockbot_testkit::{
    broker::PrivateBroker,
    fixture::{wait_until, within_timeout},
};
use serde_json::json;
use tokio::{
    task::JoinSet,
    time::{Instant, interval, timeout_at},
};

use crate::{
    agents::use_demo_script,
    caller::Caller,
    fleet::{Fleet, assert_contains},
    process::Running,
};

/// Minimum downtime of the broker, which exceeds the longest reconnect delay.
const DOWNTIME: Duration = Duration::from_secs(10);

/// Limit for reconnects after the broker accepts AMQP connections.
const RECONNECT_LIMIT: Duration = Duration::from_secs(5);

/// Limit for the next announcement of a handler.
const ANNOUNCE_LIMIT: Duration = Duration::from_secs(40);

/// Calls during the restarts: more than the handlers run at once.
const CALLS: usize = 12;

/// Time limit of calls that wait for two restarts.
const CALL_TIMEOUT: Duration = Duration::from_secs(120);

/// Runs an operation on the broker on a blocking thread.
async fn with_broker<T: Send + 'static>(
    mut broker: PrivateBroker,
    operation: impl FnOnce(&mut PrivateBroker) -> anyhow::Result<T> + Send + 'static,
) -> (PrivateBroker, T) {
    tokio::task::spawn_blocking(move || {
        let result = operation(&mut broker).expect("the operation succeeds");
        (broker, result)
    })
    .await
    .expect("no panic")
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_recover_within_five_seconds_of_broker_restart() {
    let fleet = Fleet::new();
    fleet.write("notes.md", "# Notes\n\nThe bus carries each call.\n");
    let broker = tokio::task::spawn_blocking(PrivateBroker::start).await.expect("no panic");
    let (broker, url) =
        with_broker(broker.expect("a broker"), |broker| Ok(broker.amqp_url())).await;
    let setting = ("ROCKBOT_BUS__URL", url.as_str());
    let mut handler = fleet.handler_with("handler-1", &[setting]).await;
    let mut agent = fleet.program("rockbot-agent");
    agent.env(setting.0, setting.1);
    use_demo_script(&mut agent);
    let mut agent = Running::start(agent);
    agent.expect_log("ready").await;
    chat(&fleet, &url).await;

    let (broker, ()) = with_broker(broker, PrivateBroker::shut_down).await;
    let restart = Instant::now() + DOWNTIME;
    for process in [&mut handler, &mut agent] {
        process.expect_log("broker connection lost").await;
    }
    let call = fleet.run(&["--bus", &url, "tools", "call", "list_files"]).await;
    call.assert_code(69);
    let exit = async {
        tokio::select! {
            () = handler.wait_for_exit() => {}
            () = agent.wait_for_exit() => {}
        }
    };
    assert!(timeout_at(restart, exit).await.is_err(), "a process exited during the outage");
    let (_broker, ()) = with_broker(broker, PrivateBroker::restart).await;
    let restarted = Instant::now();
    handler.expect_log("consumer resubscribed queue=\"tool.invoke\"").await;
    agent.expect_log("consumer resubscribed queue=\"user.message.assistant\"").await;
    assert!(restarted.elapsed() < RECONNECT_LIMIT, "{:?}", restarted.elapsed());
    chat(&fleet, &url).await;
    assert!(handler.is_alive() && agent.is_alive());
}

/// Runs a chat with tool calls. After a long outage the agent has dropped the handler from its catalog
/// until the next announcement.
async fn chat(fleet: &Fleet, url: &str) {
    let deadline = Instant::now() + ANNOUNCE_LIMIT;
    loop {
        let chat = fleet.run(&["--bus", url, "chat", "What is in this folder?"]).await;
        chat.assert_code(0);
        if !chat.stdout.contains("tool_not_found") || Instant::now() > deadline {
            return assert_contains(&chat.stdout, &["← read_file ran on tool-handler/handler-1"]);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn broker_restarts_neither_lose_nor_quarantine_calls_in_progress() {
    let fleet = Fleet::new();
    let broker = tokio::task::spawn_blocking(PrivateBroker::start).await.expect("no panic");
    let (mut broker, url) =
        with_broker(broker.expect("a broker"), |broker| Ok(broker.amqp_url())).await;
    let settings = [
        ("ROCKBOT_BUS__URL", url.as_str()),
        ("ROCKBOT_STORE__SHARED", "true"),
        ("ROCKBOT_HANDLER__CONCURRENCY", "4"),
    ];
    let handlers = [
        fleet.handler_with("handler-1", &settings).await,
        fleet.handler_with("handler-2", &settings).await,
    ];
    let caller = Caller::new(fleet.bus(|bus| bus.url = url.clone().into()).await, CALL_TIMEOUT);
    let mut calls = JoinSet::new();
    for number in 0..CALLS {
        let caller = caller.clone();
        let command =
            format!("echo {number} >> lines; until [ -e gate ]; do sleep 0.05; done; echo done");
        // By default, a command is stopped after 30 s.
        let arguments = json!({"command": command, "timeout_seconds": 120});
        calls.spawn(async move { caller.call("bash", arguments).await });
    }
    let lines = || fs::read_to_string(fleet.path("lines")).unwrap_or_default();
    wait_until("running calls", || lines().lines().count() >= handlers.len()).await;
    wait_until_empty(&fleet, &url).await;

    let stops: [fn(&mut PrivateBroker) -> anyhow::Result<()>; 2] =
        [PrivateBroker::shut_down, PrivateBroker::crash];
    for (restarts, stop) in (1..).zip(stops) {
        (broker, ()) = with_broker(broker, stop).await;
        (broker, ()) = with_broker(broker, PrivateBroker::restart).await;
        let resubscribed = "consumer resubscribed queue=\"tool.invoke\"";
        let is_resubscribed = |one: &Running| one.log().matches(resubscribed).count() >= restarts;
        wait_until("consumers", || handlers.iter().all(is_resubscribed)).await;
        wait_until_empty(&fleet, &url).await;
    }
    fleet.write("gate", "");
    while let Some(call) = calls.join_next().await {
        let result = call.expect("no panic").expect("a result");
        assert_eq!(result.to_text(), "done\n");
    }
    let mut ran: Vec<usize> = lines().lines().map(|line| line.parse().expect("a number")).collect();
    ran.sort_unstable();
    assert_eq!(ran, Vec::from_iter(0..CALLS));
    wait_until_empty(&fleet, &url).await;
    for handler in &handlers {
        assert!(!handler.log().contains("call moved to the quarantine queue"), "{}", handler.log());
    }
}

/// Waits until handlers hold every request. Fails if there is a dead letter.
async fn wait_until_empty(fleet: &Fleet, url: &str) {
    let bus = fleet.bus(|bus| bus.url = url.to_owned().into()).await;
    let mut ticks = interval(Duration::from_millis(50));
    within_timeout("empty queues", async {
        loop {
            ticks.tick().await;
            let (waiting, dead) = fleet.waiting_and_dead(&bus).await;
            assert_eq!(dead, 0, "dead letters");
            if waiting == 0 {
                return;
            }
        }
    })
    .await;
}
