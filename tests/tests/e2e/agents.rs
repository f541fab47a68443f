//! Chat over RabbitMQ with client, agent and tool handler in separate processes.

use std::{path::Path, time::Duration};

use rockbot_bus::{Publication, Settlement, Subscription};
use rockbot_contracts::{
    AgentName, AgentReply, Envelope, QueueSpec, ReplyBody, UserMessage, json::Limits,
    topology::user_message, user::TurnOutcome,
};
use rockbot_testkit::fixture::within_timeout;
use rustix::process::{Signal, kill_process};
use serde_json::Value;
use tokio::process::Command;

use crate::{
    fleet::{Fleet, assert_contains},
    process::{Exit, Running},
};

/// Returns a fleet with the file that the demo script searches.
fn fleet() -> Fleet {
    let fleet = Fleet::new();
    fleet.write("notes.md", "# Notes\n\nThe bus carries each call.\n");
    fleet
}

/// Returns the path of the demo script.
fn demo_script() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the root of the repository");
    root.join("examples").join("demo.toml").display().to_string()
}

/// Starts a program with the demo script as its model.
pub(crate) fn start_scripted(fleet: &Fleet, program: &str, arguments: &[&str]) -> Running {
    let mut command = fleet.program(program);
    command.args(arguments);
    use_demo_script(&mut command);
    Running::start(command)
}

/// Configures a program to use the demo script as its model.
pub(crate) fn use_demo_script(command: &mut Command) {
    command.env("ROCKBOT_LLM__PROVIDER", "scripted").env("ROCKBOT_LLM__SCRIPT", demo_script());
}

/// Runs a chat, and checks that its tools ran on a handler whose name starts with `handler`.
async fn check_chat(fleet: &Fleet, handler: &str) {
    let chat = fleet.run(&["chat", "What is in this folder?"]).await;
    chat.assert_code(0);
    for tool in ["list_files", "search", "bash", "read_file"] {
        let finished = format!("← {tool} ran on {handler}");
        assert_contains(&chat.stdout, &[&format!("→ {tool} "), &finished]);
    }
    assert_contains(
        &chat.stdout,
        &["notes.md:3: The bus carries each call.", "And notes.md says:"],
    );
}

#[tokio::test]
async fn up_on_broker_serves_other_processes() {
    let fleet = fleet();
    let mut up = start_scripted(&fleet, "rockbot", &["up"]);
    up.expect_log("ready; stop with Ctrl-C").await;
    check_chat(&fleet, "tool-handler/").await;
    fleet.run(&["tools", "call", "list_files"]).await.assert_code(0);
    up.send(Signal::TERM);
    up.wait().await.assert_code(0);
    let chat = fleet.run(&["chat", "Are you there?"]).await;
    chat.assert_code(69);
    assert_contains(&chat.stderr, &["is not available", "assistant"]);
}

#[tokio::test]
async fn chat_with_silent_agent_can_be_interrupted() {
    let fleet = fleet();
    let bus = fleet.bus(|_| {}).await;
    let assistant = AgentName::new("assistant").expect("a name");
    let queue = QueueSpec::work(&user_message(&assistant));
    let mut agent = bus.consume(Subscription::new(queue, 16)).await.expect("a queue");
    let mut next_message = async || {
        let delivery = within_timeout("a message", agent.next()).await.expect("a delivery");
        let message: UserMessage =
            delivery.envelope().decode(Limits::default()).expect("a message");
        delivery.settle(Settlement::Ack).await.expect("settled");
        message
    };
    let mut chat = fleet.start(&["chat", "Are you there?"]);
    let message = next_message().await;
    chat.send(Signal::INT);
    let cancel = next_message().await;
    assert_eq!((cancel.session_id, cancel.cancel), (message.session_id, true));
    chat.expect_log("cancelling; press Ctrl-C again").await;
    // The second Ctrl-C is repeated until the process handles it.
    let pid = chat.pid();
    let interrupts = async {
        let mut ticks = tokio::time::interval(Duration::from_millis(50));
        loop {
            ticks.tick().await;
            let _ = kill_process(pid, Signal::INT);
        }
    };
    let exit = tokio::select! {
        exit = chat.wait() => exit,
        () = interrupts => unreachable!(),
    };
    exit.assert_code(75);
    assert_contains(&exit.stderr, &["no answer yet; the turn is being cancelled"]);
}

/// Replies to a message as an agent would, without two of its replies. Returns the exit of the chat.
async fn chat_with_missing_replies(fleet: &Fleet, arguments: &[&str]) -> Exit {
    let bus = fleet.bus(|_| {}).await;
    let assistant = AgentName::new("assistant").expect("a name");
    let queue = QueueSpec::work(&user_message(&assistant));
    let mut agent = bus.consume(Subscription::new(queue, 16)).await.expect("a queue");
    let chat = fleet.start(arguments);
    let delivery = within_timeout("a message", agent.next()).await.expect("a delivery");
    let message: UserMessage = delivery.envelope().decode(Limits::default()).expect("a message");
    let reply_to = delivery.envelope().reply_to.clone().expect("a reply-to");
    let answer = ReplyBody::Answer {
        text: "Once upon a time, and an end.".to_owned(),
        outcome: TurnOutcome::Completed,
        usage: None,
    };
    let text = ReplyBody::TextDelta { text: "Once upon a time".to_owned() };
    for (sequence, body) in [(1, text), (4, answer)] {
        let reply = AgentReply {
            session_id: message.session_id.clone(),
            in_reply_to: delivery.envelope().message_id.clone(),
            agent: assistant.clone(),
            sequence,
            is_final: sequence == 4,
            body,
        };
        let envelope = Envelope::from_payload(&reply).with_source("assistant");
        let publication = Publication::mandatory(reply_to.clone(), envelope);
        within_timeout("publish", bus.publish(publication)).await.expect("confirmed");
    }
    delivery.settle(Settlement::Ack).await.expect("settled");
    let chat = chat.wait().await;
    agent.cancel().await;
    chat
}

#[tokio::test]
async fn chat_reports_missing_replies() {
    let fleet = fleet();
    let chat = chat_with_missing_replies(&fleet, &["chat", "Tell a tale."]).await;
    chat.assert_code(0);
    assert_contains(
        &chat.stdout,
        &["Once upon a time", "(2 progress messages lost: calls or text may be missing here)"],
    );
    let chat = chat_with_missing_replies(&fleet, &["--json", "chat", "Tell a tale."]).await;
    chat.assert_code(0);
    let lines: Vec<Value> =
        chat.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let lost = lines.iter().find(|line| line["kind"] == "replies_lost").expect("a report");
    assert_eq!(lost["count"], 2);
}

#[tokio::test]
async fn agent_discovers_and_calls_handler_tools() {
    let fleet = fleet();
    let mut agent = start_scripted(&fleet, "rockbot-agent", &[]);
    agent.expect_log("ready").await;
    // Started after the agent, which learns the tools from the announcement.
    let handler = fleet.handler("handler-1").await;
    agent.expect_log("handler announced its tools").await;
    check_chat(&fleet, "tool-handler/handler-1").await;
    for process in [agent, handler] {
        process.send(Signal::TERM);
        process.wait().await.assert_code(0);
    }
}
