//! Restart of the broker under running processes.

use std::time::Duration;

use rockbot_testkit::broker::PrivateBroker;
use tokio::time::{Instant, timeout_at};

use crate::{
    agents::scripted,
    fleet::{Fleet, assert_says},
    process::Running,
};

/// How long the broker is away at least: longer than every wait between two attempts.
const AWAY: Duration = Duration::from_secs(10);

/// How long the processes have, once the broker speaks AMQP again.
const BACK_WITHIN: Duration = Duration::from_secs(5);

/// How long a handler may take to announce itself again.
const KNOWN_WITHIN: Duration = Duration::from_secs(40);

/// Broker operations of the test, run on a blocking thread.
async fn act<T: Send + 'static>(
    mut broker: PrivateBroker,
    act: impl FnOnce(&mut PrivateBroker) -> anyhow::Result<T> + Send + 'static,
) -> (PrivateBroker, T) {
    tokio::task::spawn_blocking(move || {
        let done = act(&mut broker).expect("the broker obeys");
        (broker, done)
    })
    .await
    .expect("no panic")
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_recover_within_five_seconds_of_broker_restart() {
    let fleet = Fleet::new();
    fleet.write("notes.md", "# Notes\n\nThe bus carries each call.\n");
    let broker = tokio::task::spawn_blocking(PrivateBroker::start).await.expect("no panic");
    let (broker, url) = act(broker.expect("a broker"), |broker| Ok(broker.amqp_url())).await;
    let at = ("ROCKBOT_BUS__URL", url.as_str());
    let mut handler = fleet.handler_with("handler-1", &[at]).await;
    let mut agent = fleet.program("rockbot-agent");
    agent.env(at.0, at.1);
    scripted(&mut agent);
    let mut agent = Running::start(agent);
    agent.says("ready").await;
    chat(&fleet, &url).await;

    let (broker, ()) = act(broker, PrivateBroker::shut_down).await;
    let back = Instant::now() + AWAY;
    for process in [&mut handler, &mut agent] {
        process.says("broker connection lost").await;
    }
    let during = fleet.run(&["--bus", &url, "tools", "call", "list_files"]).await;
    during.assert_code(69);
    let dies = async {
        tokio::select! {
            () = handler.dies() => {}
            () = agent.dies() => {}
        }
    };
    assert!(timeout_at(back, dies).await.is_err(), "a process ended with the broker");
    let (_broker, ()) = act(broker, PrivateBroker::restart).await;
    let since = Instant::now();
    handler.says("consumer resubscribed queue=\"tool.invoke\"").await;
    agent.says("consumer resubscribed queue=\"user.message.assistant\"").await;
    assert!(since.elapsed() < BACK_WITHIN, "{:?}", since.elapsed());
    chat(&fleet, &url).await;
    assert!(handler.is_alive() && agent.is_alive());
}

/// A conversation in which the agent has the handler run tools. Where the broker took long to come
/// back, the agent forgot the handler and knows it again when it announces itself.
async fn chat(fleet: &Fleet, url: &str) {
    let until = Instant::now() + KNOWN_WITHIN;
    loop {
        let chat = fleet.run(&["--bus", url, "chat", "What is in this folder?"]).await;
        chat.assert_code(0);
        if !chat.out.contains("tool_not_found") || Instant::now() > until {
            return assert_says(&chat.out, &["← read_file ran on tool-handler/handler-1"]);
        }
    }
}
