//! A fleet with a broker user per process, and an agent that impersonates another.

use std::{sync::Arc, time::Duration};

use rockbot_bus::{Bus, Publication, Settlement, Subscription};
use rockbot_bus_rabbitmq::{RabbitBus, RabbitConfig};
use rockbot_contracts::{
    AgentName, Envelope, InstanceId, QueueName, QueueSpec, SessionId, ToolCallId,
    ToolInvokeRequest,
    topology::{ReplyAddress, tool_invoke},
};
use rockbot_testkit::{
    FleetVhost,
    fixture::{TEST_TIMEOUT, next_delivery, within_timeout},
    vhost::PASSWORD,
};
use tokio::process::Command;

use crate::{
    agents,
    fleet::{Fleet, assert_says},
    process::Running,
};

/// A fleet whose broker admits its own users only, each with its own permissions.
pub(crate) struct Guarded {
    vhost: FleetVhost,
    pub(crate) fleet: Fleet,
}

impl Guarded {
    pub(crate) async fn start() -> Self {
        let fleet = Fleet::new();
        let vhost = FleetVhost::create(&fleet.namespace, &["assistant", "mallory"]).await;
        Self { vhost, fleet }
    }

    fn url(&self, user: &str) -> String {
        self.vhost.url_for(&format!("{}.{user}", self.fleet.namespace))
    }

    /// A program as `user`, with the rules of production.
    pub(crate) fn program(&self, name: &str, user: &str) -> Command {
        let mut command = self.bare_program(name, self.url(user));
        command.env("ROCKBOT_SERVICE__PROFILE", "production");
        command
    }

    fn bare_program(&self, name: &str, url: String) -> Command {
        let mut command = self.fleet.bare_program(name);
        command.env("ROCKBOT_BUS__URL", url).env("ROCKBOT_BUS__NAMESPACE", &self.fleet.namespace);
        command
    }

    /// A connection of the test itself as `user`.
    pub(crate) async fn bus(&self, user: &str) -> Arc<dyn Bus> {
        let config = RabbitConfig::new(self.url(user), user).with_namespace(&self.fleet.namespace);
        let bus = RabbitBus::start(&config).expect("a usable URL");
        bus.connected(TEST_TIMEOUT).await.expect("let in");
        Arc::new(bus)
    }

    pub(crate) async fn cli(&self, arguments: &[&str]) -> crate::process::Ended {
        let mut command = self.program("rockbot", "cli");
        command.args(arguments);
        Running::start(command).ended().await
    }

    /// How many messages wait in a queue.
    async fn waiting(&self, bus: &dyn Bus, queue: &str) -> u32 {
        let queue = QueueName::new(queue).expect("a name");
        let report = bus.inspect(&[queue]).await.expect("the broker answers");
        report.queues[0].depth().expect("it exists").ready
    }
}

fn request(source: &str, answer_to: &str) -> Envelope {
    let answer_to = ReplyAddress::new(
        AgentName::new(answer_to).expect("a name"),
        InstanceId::new("victim").expect("an id"),
    );
    let request = ToolInvokeRequest {
        tool_call_id: ToolCallId::generate(),
        tool_name: "write_file".to_owned(),
        arguments: r#"{"path": "forged", "content": "x"}"#.to_owned(),
        session_id: SessionId::generate(),
    };
    Envelope::from_payload(&request)
        .with_correlation_id(request.tool_call_id.as_str())
        .with_source(source)
        .reply_to(answer_to.tool_result())
        .within(Duration::from_secs(10))
}

#[tokio::test]
async fn processes_use_own_users_and_handler_rejects_impostor() {
    let guarded = Guarded::start().await;
    guarded.fleet.write("notes.md", "# Notes\n\nThe bus carries each call.\n");
    let mut handler = Running::start(guarded.program("rockbot-tool-handler", "tool-handler"));
    handler.says("ready").await;
    let mut agent = guarded.program("rockbot-agent", "agent.assistant");
    agents::scripted(&mut agent);
    let mut agent = Running::start(agent);
    agent.says("ready").await;

    let called = guarded.cli(&["tools", "call", "read_file", r#"{"path": "notes.md"}"#]).await;
    called.assert_code(0);
    assert_says(&called.out, &["The bus carries each call."]);
    let chat = guarded.cli(&["chat", "What is in this folder?"]).await;
    chat.assert_code(0);
    assert_says(&chat.out, &["← bash ran on tool-handler/", "And notes.md says:"]);
    guarded.cli(&["doctor"]).await.assert_code(0);

    let mallory = guarded.bus("agent.mallory").await;
    let requests = [
        ("mallory", "assistant", "reply-to does not belong to"),
        ("assistant", "mallory", "source does not belong to"),
    ];
    for (given_up, (source, answer_to, words)) in (1..).zip(requests) {
        let forged = request(source, answer_to);
        mallory.publish(Publication::mandatory(tool_invoke(), forged)).await.expect("queued");
        handler.says(words).await;
        let mut look = tokio::time::interval(Duration::from_millis(20));
        within_timeout("a dead letter", async {
            while guarded.waiting(mallory.as_ref(), "tool.invoke.dlq").await < given_up {
                look.tick().await;
            }
        })
        .await;
    }
    let honest = request("mallory", "mallory");
    mallory.publish(Publication::mandatory(tool_invoke(), honest)).await.expect("queued");
    guarded.fleet.exists("forged").await;
    assert!(agent.is_alive() && handler.is_alive());
}

#[tokio::test]
async fn handler_may_quarantine_request_under_own_user() {
    let guarded = Guarded::start().await;
    let lost = guarded.bus("tool-handler").await;
    let work = Subscription::new(QueueSpec::work(&tool_invoke()), 1);
    let mut requests = within_timeout("subscribe", lost.consume(work)).await.expect("subscribed");
    let asker = guarded.bus("agent.assistant").await;
    let asked = Publication::mandatory(tool_invoke(), request("assistant", "assistant"));
    asker.publish(asked).await.expect("queued");
    for _ in 0..2 {
        let delivery = next_delivery(&mut requests).await;
        within_timeout("a settlement", delivery.settle(Settlement::Retry)).await.expect("settled");
    }
    requests.cancel().await;
    drop(requests);
    let mut handler = guarded.program("rockbot-tool-handler", "tool-handler");
    handler.env("ROCKBOT_STORE__SHARED", "true").env("ROCKBOT_FILES__ROOT", guarded.fleet.path(""));
    let mut handler = Running::start(handler);
    handler.says("call moved to the quarantine queue").await;
    guarded.fleet.exists("forged").await;
    assert_eq!(guarded.waiting(asker.as_ref(), "tool.invoke.dlq").await, 0);
}

#[tokio::test]
async fn unknown_user_gets_access_refused_error() {
    let guarded = Guarded::start().await;
    for user in ["agent.stranger", "tool-handler"] {
        let url = guarded.url(user).replace(PASSWORD, "guessed");
        let mut command = guarded.bare_program("rockbot", url);
        command.args(["tools", "list"]);
        let ended = Running::start(command).ended().await;
        ended.assert_code(69);
        assert_says(&ended.err, &["the broker refused the user"]);
        assert!(!ended.err.contains("guessed"), "{}", ended.err);
    }
}
