//! A fleet with a broker user per process, and an agent that tries to impersonate another.

use std::{sync::Arc, time::Duration};

use rockbot_bus::{Bus, Publication, Settlement, Subscription};
use rockbot_bus_rabbitmq::{RabbitBus, RabbitConfig};
use rockbot_contracts::{
    AgentName, AgentReply, Envelope, InstanceId, QueueName, QueueSpec, ReplyBody, SessionId,
    ToolCallId, ToolInvokeRequest, UserMessage,
    json::Limits,
    topology::{ReplyAddress, tool_invoke, user_message},
    user::TurnOutcome,
};
use rockbot_testkit::{
    FleetVhost,
    fixture::{TEST_TIMEOUT, next_delivery, within_timeout},
    vhost::PASSWORD,
};
use tokio::{process::Command, sync::OnceCell};

use crate::{
    agents,
    fleet::{Fleet, assert_contains},
    process::Running,
};

/// A fleet on a virtual host with a user and permissions for each process.
pub(crate) struct SecuredFleet {
    pub(crate) vhost: FleetVhost,
    pub(crate) fleet: Fleet,
    /// The connection of a user with all rights: current brokers let few users inspect a queue.
    inspector: OnceCell<Arc<dyn Bus>>,
}

impl SecuredFleet {
    pub(crate) async fn start() -> Self {
        Self::with_users(&["assistant", "mallory"], &["files", "web"]).await
    }

    /// Creates a fleet with users for these agents and pools.
    pub(crate) async fn with_users(agents: &[&str], pools: &[&str]) -> Self {
        let fleet = Fleet::new();
        let vhost = FleetVhost::create_with_pools(&fleet.namespace, agents, pools).await;
        Self { vhost, fleet, inspector: OnceCell::new() }
    }

    /// Returns the URL of the broker for `user`.
    pub(crate) fn url(&self, user: &str) -> String {
        self.vhost.url_for(&self.name(user))
    }

    /// Returns the name of a user or a queue on the broker.
    pub(crate) fn name(&self, name: &str) -> String {
        format!("{}.{name}", self.fleet.namespace)
    }

    /// Returns a program with the URL of `user` and the production profile.
    pub(crate) fn program(&self, name: &str, user: &str) -> Command {
        let mut command = self.program_at(name, self.url(user));
        command.env("ROCKBOT_SERVICE__PROFILE", "production");
        command
    }

    /// Returns a program with the namespace of the fleet and this URL.
    pub(crate) fn program_at(&self, name: &str, url: String) -> Command {
        let mut command = self.fleet.program_without_bus(name);
        command.env("ROCKBOT_BUS__URL", url).env("ROCKBOT_BUS__NAMESPACE", &self.fleet.namespace);
        command
    }

    /// Connects the test as `user`.
    pub(crate) async fn bus(&self, user: &str) -> Arc<dyn Bus> {
        self.bus_with_limit(user, Limits::default()).await
    }

    /// Connects the test as `user`, with another limit for the size of messages.
    pub(crate) async fn bus_with_limit(&self, user: &str, limits: Limits) -> Arc<dyn Bus> {
        let config = RabbitConfig::new(self.url(user), user).with_namespace(&self.fleet.namespace);
        let config = RabbitConfig { limits, ..config };
        let bus = RabbitBus::start(&config).expect("a usable URL");
        bus.connected(TEST_TIMEOUT).await.expect("connected");
        Arc::new(bus)
    }

    pub(crate) async fn cli(&self, arguments: &[&str]) -> crate::process::Exit {
        let mut command = self.program("rockbot", "cli");
        command.args(arguments);
        Running::start(command).wait().await
    }

    /// Limits the length of a queue, as an operator can with a policy.
    pub(crate) async fn limit_queue(&self, queue: &str, messages: u32) {
        self.vhost.limit_queue(&self.name(queue), messages).await;
    }

    /// Returns the number of messages that wait in a queue.
    pub(crate) async fn waiting(&self, queue: &str) -> u32 {
        let bus = self.inspector.get_or_init(|| self.bus("foreign")).await;
        let queue = QueueName::new(queue).expect("a name");
        let report = bus.inspect(&[queue]).await.expect("a report");
        report.queues[0].depth().expect("the queue exists").ready
    }
}

fn request(source: &str, reply_to: &str) -> Envelope {
    let reply_to = ReplyAddress::new(
        AgentName::new(reply_to).expect("a name"),
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
        .reply_to(reply_to.tool_result())
        .within(Duration::from_secs(10))
}

#[tokio::test]
async fn processes_use_own_users_and_handler_rejects_impostor() {
    let secured = SecuredFleet::start().await;
    secured.fleet.write("notes.md", "# Notes\n\nThe bus carries each call.\n");
    let mut handler = Running::start(secured.program("rockbot-tool-handler", "tool-handler"));
    handler.expect_log("ready").await;
    let mut agent = secured.program("rockbot-agent", "agent.assistant");
    agents::use_demo_script(&mut agent);
    let mut agent = Running::start(agent);
    agent.expect_log("ready").await;

    let called = secured.cli(&["tools", "call", "read_file", r#"{"path": "notes.md"}"#]).await;
    called.assert_code(0);
    assert_contains(&called.stdout, &["The bus carries each call."]);
    let chat = secured.cli(&["chat", "What is in this folder?"]).await;
    chat.assert_code(0);
    assert_contains(&chat.stdout, &["← bash ran on tool-handler/", "And notes.md says:"]);
    secured.cli(&["doctor"]).await.assert_code(0);

    let mallory = secured.bus("agent.mallory").await;
    let requests = [
        ("mallory", "assistant", "reply-to does not belong to"),
        ("assistant", "mallory", "source does not belong to"),
    ];
    for (dead_letters, (source, reply_to, text)) in (1..).zip(requests) {
        let forged = request(source, reply_to);
        mallory.publish(Publication::mandatory(tool_invoke(), forged)).await.expect("queued");
        handler.expect_log(text).await;
        let mut ticks = tokio::time::interval(Duration::from_millis(20));
        within_timeout("a dead letter", async {
            while secured.waiting("tool.invoke.dlq").await < dead_letters {
                ticks.tick().await;
            }
        })
        .await;
    }
    let valid = request("mallory", "mallory");
    mallory.publish(Publication::mandatory(tool_invoke(), valid)).await.expect("queued");
    secured.fleet.wait_for_file("forged").await;
    assert!(agent.is_alive() && handler.is_alive());
}

#[tokio::test]
async fn operator_does_not_replay_forged_request() {
    let secured = SecuredFleet::start().await;
    let mut handler = Running::start(secured.program("rockbot-tool-handler", "tool-handler"));
    handler.expect_log("ready").await;
    let mallory = secured.bus("agent.mallory").await;
    let forged = request("assistant", "mallory");
    mallory.publish(Publication::mandatory(tool_invoke(), forged)).await.expect("queued");
    // The dead letter is signed by the handler, which refused the request.
    handler.expect_log("source does not belong to").await;
    let operator = |arguments: &'static [&str]| {
        let mut command = secured.program("rockbot", "operator");
        command.args(arguments);
        Running::start(command).wait()
    };
    let mut ticks = tokio::time::interval(Duration::from_millis(20));
    within_timeout("a dead letter", async {
        while secured.waiting("tool.invoke.dlq").await == 0 {
            ticks.tick().await;
        }
    })
    .await;

    let replayed = operator(&["--json", "dlq", "replay", "tool.invoke"]).await;
    replayed.assert_code(1);
    let report = replayed.json();
    assert_eq!((&report["left"], &report["replayed"]), (&1.into(), &serde_json::json!([])));
    let handler_user = format!("{}.tool-handler", secured.fleet.namespace);
    assert_eq!(report["refused"][0]["user"], *handler_user);
    assert_contains(&replayed.stderr, &["dlq show tool.invoke", "--any-sender"]);
    let shown = operator(&["dlq", "show", "tool.invoke"]).await;
    assert_contains(&shown.stdout, &[&handler_user, "source does not belong to"]);
    assert!(!secured.fleet.path("forged").exists(), "the forged request ran");

    operator(&["dlq", "replay", "tool.invoke", "--any-sender"]).await.assert_code(0);
    secured.fleet.wait_for_file("forged").await;
}

#[tokio::test]
async fn handler_may_quarantine_request_under_own_user() {
    let secured = SecuredFleet::start().await;
    let crashed = secured.bus("tool-handler").await;
    let work = Subscription::new(QueueSpec::work(&tool_invoke()), 1);
    let requests = within_timeout("subscribe", crashed.consume(work)).await;
    let mut requests = requests.expect("subscribed");
    let caller = secured.bus("agent.assistant").await;
    let publication = Publication::mandatory(tool_invoke(), request("assistant", "assistant"));
    caller.publish(publication).await.expect("queued");
    for _ in 0..2 {
        let delivery = next_delivery(&mut requests).await;
        within_timeout("a settlement", delivery.settle(Settlement::Retry)).await.expect("settled");
    }
    requests.cancel().await;
    drop(requests);
    let mut handler = secured.program("rockbot-tool-handler", "tool-handler");
    // With a journal of its own, the handler cannot know that no handler held the deliveries.
    handler.env("ROCKBOT_FILES__ROOT", secured.fleet.path(""));
    let mut handler = Running::start(handler);
    handler.expect_log("call moved to the quarantine queue").await;
    secured.fleet.wait_for_file("forged").await;
    assert_eq!(secured.waiting("tool.invoke.dlq").await, 0);
}

#[tokio::test]
async fn unknown_user_gets_access_refused_error() {
    let secured = SecuredFleet::start().await;
    for user in ["agent.stranger", "tool-handler"] {
        let url = secured.url(user).replace(PASSWORD, "guessed");
        let mut command = secured.program_at("rockbot", url);
        command.args(["tools", "list"]);
        let exit = Running::start(command).wait().await;
        exit.assert_code(69);
        assert_contains(&exit.stderr, &["the broker refused the user"]);
        assert!(!exit.stderr.contains("guessed"), "{}", exit.stderr);
    }
}

#[tokio::test]
async fn chat_shows_no_reply_from_another_agents_user() {
    let secured = SecuredFleet::start().await;
    let assistant = secured.bus("agent.assistant").await;
    let mallory = secured.bus("agent.mallory").await;
    let name = AgentName::new("assistant").expect("a name");
    let inbox = Subscription::new(QueueSpec::work(&user_message(&name)), 1);
    let mut inbox = assistant.consume(inbox).await.expect("an agent may consume its inbox");
    let mut chat = secured.program("rockbot", "cli");
    chat.args(["chat", "Who are you?"]);
    let chat = Running::start(chat);

    let delivery = next_delivery(&mut inbox).await;
    let message: UserMessage = delivery.envelope().decode(Limits::default()).expect("a message");
    let reply_to = delivery.envelope().reply_to.clone().expect("a reply-to");
    for (bus, agent, text) in [
        (&mallory, "assistant", "A forged answer."),
        (&mallory, "mallory", "An answer to another."),
        (&assistant, "assistant", "A genuine answer."),
    ] {
        let (text, outcome) = (text.to_owned(), TurnOutcome::Completed);
        let reply = AgentReply {
            session_id: message.session_id.clone(),
            in_reply_to: delivery.envelope().message_id.clone(),
            agent: AgentName::new(agent).expect("a name"),
            sequence: 1,
            is_final: true,
            body: ReplyBody::Answer { text, outcome, usage: None },
        };
        let envelope = Envelope::from_payload(&reply).with_source(agent);
        let reply = Publication::mandatory(reply_to.clone(), envelope);
        within_timeout("publish", bus.publish(reply)).await.expect("agents may reply");
    }
    delivery.settle(Settlement::Ack).await.expect("settled");
    let chat = chat.wait().await;
    chat.assert_code(0);
    assert_contains(&chat.stdout, &["A genuine answer."]);
    assert!(!chat.stdout.contains("forged") && !chat.stdout.contains("another"), "{}", chat.stdout);
}
