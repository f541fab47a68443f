//! Restart of the broker under running processes.

use std::time::Duration;

use rockbot_testkit::broker::PrivateBroker;
use tokio::time::{Instant, timeout_at};

use crate::{
    agents::use_demo_script,
    fleet::{Fleet, assert_contains},
    process::Running,
};

/// Minimum downtime of the broker, which exceeds the longest reconnect delay.
const DOWNTIME: Duration = Duration::from_secs(10);

/// Limit for reconnects after the broker accepts AMQP connections.
const RECONNECT_LIMIT: Duration = Duration::from_secs(5);

/// Limit for the next announcement of a handler.
const ANNOUNCE_LIMIT: Duration = Duration::from_secs(40);

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
