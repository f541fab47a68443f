//! Chat over RabbitMQ with client, agent and tool handler in separate processes.

use std::{path::Path, time::Duration};

use rockbot_bus::{Settlement, Subscription};
use rockbot_contracts::{AgentName, QueueSpec, UserMessage, json::Limits, topology::user_message};
use rockbot_testkit::fixture::within_timeout;
use rustix::process::{Signal, kill_process};
use tokio::process::Command;

use crate::{
    fleet::{Fleet, assert_says},
    process::Running,
};

/// A fleet with files that the script of the demo finds something in.
fn fleet() -> Fleet {
    let fleet = Fleet::new();
    fleet.write("notes.md", "# Notes\n\nThe bus carries each call.\n");
    fleet
}

/// The script of the demo.
fn script() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the root of the repository");
    root.join("examples").join("demo.toml").display().to_string()
}

fn with_script(fleet: &Fleet, program: &str, arguments: &[&str]) -> Running {
    let mut command = fleet.program(program);
    command.args(arguments);
    scripted(&mut command);
    Running::start(command)
}

/// Has a program play the script of the demo.
pub(crate) fn scripted(command: &mut Command) {
    command.env("ROCKBOT_LLM__PROVIDER", "scripted").env("ROCKBOT_LLM__SCRIPT", script());
}

/// Has a conversation; what it shows, for a handler whose place begins with `place`.
async fn check_chat(fleet: &Fleet, place: &str) {
    let chat = fleet.run(&["chat", "What is in this folder?"]).await;
    chat.assert_code(0);
    for tool in ["list_files", "search", "bash", "read_file"] {
        let crossed = format!("← {tool} ran on {place}");
        assert_says(&chat.out, &[&format!("→ {tool} "), &crossed]);
    }
    assert_says(&chat.out, &["notes.md:3: The bus carries each call.", "And notes.md says:"]);
}

#[tokio::test]
async fn up_on_broker_serves_other_processes() {
    let fleet = fleet();
    let mut up = with_script(&fleet, "rockbot", &["up"]);
    up.says("ready; stop with Ctrl-C").await;
    check_chat(&fleet, "tool-handler/").await;
    fleet.run(&["tools", "call", "list_files"]).await.assert_code(0);
    up.send(Signal::TERM);
    up.ended().await.assert_code(0);
    let chat = fleet.run(&["chat", "Are you there?"]).await;
    chat.assert_code(69);
    assert_says(&chat.err, &["is not available", "assistant"]);
}

#[tokio::test]
async fn chat_with_silent_agent_can_be_interrupted() {
    let fleet = fleet();
    let bus = fleet.bus(|_| {}).await;
    let assistant = AgentName::new("assistant").expect("a name");
    let queue = QueueSpec::work(&user_message(&assistant));
    let mut agent = bus.consume(Subscription::new(queue, 16)).await.expect("a queue");
    let mut heard = async || {
        let delivery = within_timeout("a message", agent.next()).await.expect("a delivery");
        let message: UserMessage =
            delivery.envelope().decode(Limits::default()).expect("a message");
        delivery.settle(Settlement::Ack).await.expect("settled");
        message
    };
    let mut chat = fleet.start(&["chat", "Are you there?"]);
    let said = heard().await;
    chat.send(Signal::INT);
    let cancelled = heard().await;
    assert_eq!((cancelled.session_id, cancelled.cancel), (said.session_id, true));
    chat.says("cancelling; press Ctrl-C again").await;
    // Until it listens again.
    let pid = chat.pid();
    let pressing = async {
        let mut again = tokio::time::interval(Duration::from_millis(50));
        loop {
            again.tick().await;
            let _ = kill_process(pid, Signal::INT);
        }
    };
    let ended = tokio::select! {
        ended = chat.ended() => ended,
        () = pressing => unreachable!(),
    };
    ended.assert_code(75);
    assert_says(&ended.err, &["no answer yet; the turn is being cancelled"]);
}

#[tokio::test]
async fn agent_discovers_and_calls_handler_tools() {
    let fleet = fleet();
    let mut agent = with_script(&fleet, "rockbot-agent", &[]);
    agent.says("ready").await;
    // Later than the agent: it learns of the tools as they are announced.
    let handler = fleet.handler("handler-1").await;
    check_chat(&fleet, "tool-handler/handler-1").await;
    for process in [agent, handler] {
        process.send(Signal::TERM);
        process.ended().await.assert_code(0);
    }
}
