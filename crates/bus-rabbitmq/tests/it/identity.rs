//! Permissions of the generated definitions, at a real broker.

use std::{sync::Arc, time::Duration};

use lapin::{
    BasicProperties, Channel, Connection, ConnectionProperties, ExchangeKind,
    options::{
        BasicConsumeOptions, BasicPublishOptions, ConfirmSelectOptions, ExchangeBindOptions,
        ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions, QueueDeleteOptions,
        QueuePurgeOptions,
    },
    types::{AMQPValue, FieldTable, ShortString},
};
use rockbot_bus::{Bus, Publication, Request, Requester, Settlement, Subscription};
use rockbot_bus_rabbitmq::{RabbitBus, RabbitConfig};
use rockbot_contracts::{QueueSpec, RoutingKey, identity::UNSIGNED, topology::tool_invoke};
use rockbot_testkit::{
    FleetVhost,
    fixture::{
        TEST_TIMEOUT, assert_never, next_delivery, reply_address, text_message, wait_until,
        within_timeout,
    },
    vhost::OTHER_NAMESPACE_USER,
};

/// A broker with the users of all services and of the agents `assistant` and `mallory`.
pub(crate) struct SecuredBroker(FleetVhost);

impl SecuredBroker {
    pub(crate) async fn start() -> Self {
        Self(FleetVhost::create("rockbot", &["assistant", "mallory"]).await)
    }

    pub(crate) async fn bus(&self, user: &str) -> Arc<dyn Bus> {
        let config = RabbitConfig::new(self.url(user), user);
        let bus = RabbitBus::start(&config).expect("a usable URL");
        bus.connected(TEST_TIMEOUT).await.expect("connected");
        Arc::new(bus)
    }

    pub(crate) fn url(&self, user: &str) -> String {
        self.0.url_for(user)
    }

    async fn connection(&self, user: &str) -> Connection {
        Connection::connect(&self.url(user), ConnectionProperties::default())
            .await
            .expect("connected")
    }
}

/// A client that tries operations, each on its own channel.
struct Intruder(Connection);

const VICTIM: &str = "rockbot.tool.result.assistant.victim";
const OWN: &str = "rockbot.tool.result.mallory.1";

impl Intruder {
    async fn channel(&self) -> Channel {
        self.0.create_channel().await.expect("a channel")
    }

    async fn consumes(&self, queue: &str) -> lapin::Result<()> {
        let channel = self.channel().await;
        let options = BasicConsumeOptions::default();
        channel.basic_consume(queue.into(), "".into(), options, FieldTable::default()).await?;
        Ok(())
    }

    async fn binds(&self, queue: &str, exchange: &str, key: &str) -> lapin::Result<()> {
        let (channel, options) = (self.channel().await, QueueBindOptions::default());
        let none = FieldTable::default();
        channel.queue_bind(queue.into(), exchange.into(), key.into(), options, none).await
    }

    async fn declares(&self, queue: &str, arguments: FieldTable) -> lapin::Result<()> {
        let durable = QueueDeclareOptions { durable: true, ..Default::default() };
        self.channel().await.queue_declare(queue.into(), durable, arguments).await.map(drop)
    }

    async fn publishes(&self, exchange: &str, key: &str, user: Option<&str>) -> lapin::Result<()> {
        let channel = self.channel().await;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        let mut properties = BasicProperties::default();
        properties = properties.with_correlation_id("the-call".into());
        if let Some(user) = user {
            properties = properties.with_user_id(ShortString::try_new(user).expect("short"));
        }
        let options = BasicPublishOptions::default();
        let sent = channel.basic_publish(exchange.into(), key.into(), options, b"{}", properties);
        sent.await?.await.map(drop)
    }
}

/// Asserts that the broker refused an operation with the reply text `code`.
#[track_caller]
fn assert_refused(operation: &str, result: lapin::Result<()>, code: &str) {
    let error = result.expect_err(operation).to_string();
    assert!(error.contains(code), "{operation}: {error}");
}

fn text(text: &str) -> AMQPValue {
    AMQPValue::LongString(text.into())
}

fn request_to(key: RoutingKey) -> Request {
    Request {
        key,
        envelope: text_message("?").with_correlation_id("the-call"),
        timeout: Duration::from_secs(10),
        grace: Duration::ZERO,
        on_interim: None,
        retry: false,
        abandoned: None,
    }
}

#[tokio::test]
async fn broker_refuses_operations_of_an_intruder() {
    let broker = SecuredBroker::start().await;

    // Permitted operations: an agent sends a request, and a handler replies.
    let handler = broker.bus("rockbot.tool-handler").await;
    let agent = broker.bus("rockbot.agent.assistant").await;
    let work = Subscription::new(QueueSpec::work(&tool_invoke()), 1);
    let mut requests = handler.consume(work).await.expect("a handler may consume");
    let requester = Requester::new(agent.clone(), reply_address("assistant", "victim"));
    let pending = tokio::spawn(async move {
        let reply = requester.request(request_to(tool_invoke())).await;
        (requester, reply)
    });
    let request = next_delivery(&mut requests).await;
    assert_eq!(request.envelope().user_id.as_deref(), Some("rockbot.agent.assistant"));
    let reply_to = request.envelope().reply_to.clone().expect("an address");
    let reply = text_message("!").with_correlation_id("the-call");
    handler.publish(Publication::mandatory(reply_to, reply)).await.expect("a handler may reply");
    request.settle(Settlement::Ack).await.expect("settled");
    let (requester, reply) = pending.await.expect("no panic");
    assert_eq!(reply.expect("a reply").user_id.as_deref(), Some("rockbot.tool-handler"));

    let mallory = Intruder(broker.connection("rockbot.agent.mallory").await);
    mallory.declares(OWN, FieldTable::default()).await.expect("its own queue");
    mallory.binds(OWN, "rockbot", "tool.result.mallory.1").await.expect("its own replies");
    mallory.publishes("rockbot", "tool.cancel", None).await.expect("agents may publish it");

    for queue in [
        VICTIM,
        "rockbot.tool.invoke",
        "rockbot.tool.invoke.mcp",
        "rockbot.tool.invoke.dlq",
        "rockbot.user.message.assistant",
        "rockbot.user.message.mallory.dlq",
    ] {
        assert_refused(queue, mallory.consumes(queue).await, "ACCESS_REFUSED");
        let channel = mallory.channel().await;
        let purged = channel.queue_purge(queue.into(), QueuePurgeOptions::default()).await;
        assert_refused(queue, purged.map(drop), "ACCESS_REFUSED");
        let channel = mallory.channel().await;
        let deleted = channel.queue_delete(queue.into(), QueueDeleteOptions::default()).await;
        assert_refused(queue, deleted.map(drop), "ACCESS_REFUSED");
    }
    for key in [
        "tool.result.#",
        "tool.result.assistant.#",
        "tool.result.assistant.victim",
        "tool.result.mallory.#",
        "tool.progress.assistant.victim",
        "tool.invoke",
        "tool.cancel",
        "user.message.assistant",
        "user.response.proxy",
        "#",
    ] {
        assert_refused(key, mallory.binds(OWN, "rockbot", key).await, "ACCESS_REFUSED");
    }
    let dead_letters = mallory.binds(OWN, "rockbot.dlx", "rockbot.tool.invoke").await;
    assert_refused("reads dead letters", dead_letters, "ACCESS_REFUSED");
    let others = mallory.binds(VICTIM, "rockbot", "tool.result.mallory.1").await;
    assert_refused("binds another's queue", others, "ACCESS_REFUSED");
    for key in [
        "tool.result.assistant.victim",
        "tool.result.mallory.1",
        "tool.progress.assistant.victim",
        "tool.result",
        "tool.catalog.announce",
        "tool.meta.mcp",
        "user.message.assistant",
        "anything",
    ] {
        assert_refused(key, mallory.publishes("rockbot", key, None).await, "ACCESS_REFUSED");
    }
    for exchange in ["", "amq.topic", "amq.direct", "amq.fanout"] {
        let published = mallory.publishes(exchange, VICTIM, None).await;
        assert_refused(exchange, published, "ACCESS_REFUSED");
    }
    for queue in [
        "anything",
        "rockbot.anything",
        "rockbot.tool.invoke",
        "rockbot.tool.invoke.evil",
        "rockbot.tool.result.assistant.evil",
        "rockbot.user.message.assistant",
        "rockbot.user.message.mallory.dlq",
    ] {
        assert_refused(
            queue,
            mallory.declares(queue, FieldTable::default()).await,
            "ACCESS_REFUSED",
        );
    }
    for exchange in ["rockbot", "rockbot.evil", "rockbot.dlx"] {
        let (kind, options) = (ExchangeKind::Topic, ExchangeDeclareOptions::default());
        let none = FieldTable::default();
        let channel = mallory.channel().await;
        let declared = channel.exchange_declare(exchange.into(), kind, options, none).await;
        assert_refused(exchange, declared, "ACCESS_REFUSED");
    }
    let (channel, options) = (mallory.channel().await, ExchangeBindOptions::default());
    let (to, from, key) = ("rockbot.dlx".into(), "rockbot".into(), "tool.invoke".into());
    let bound = channel.exchange_bind(to, from, key, options, FieldTable::default()).await;
    assert_refused("binds an exchange", bound, "ACCESS_REFUSED");
    for user in ["rockbot.agent.assistant", "rockbot.tool-handler", "guest"] {
        let forged = mallory.publishes("rockbot", "tool.invoke", Some(user)).await;
        assert_refused(user, forged, "PRECONDITION_FAILED");
    }

    // The broker routes dead letters without checking permissions, so requesters must drop them.
    let mut trap = FieldTable::default();
    trap.insert("x-dead-letter-exchange".into(), text("rockbot"));
    trap.insert("x-dead-letter-routing-key".into(), text("tool.result.assistant.victim"));
    trap.insert("x-message-ttl".into(), AMQPValue::LongLongInt(0));
    mallory.declares("rockbot.tool.result.mallory.2", trap).await.expect("its own queue");
    let key = "tool.result.mallory.2";
    mallory.binds("rockbot.tool.result.mallory.2", "rockbot", key).await.expect("its own replies");
    let mut pending = Box::pin(requester.request(request_to(tool_invoke())));
    let request = tokio::select! {
        request = next_delivery(&mut requests) => request,
        reply = &mut pending => panic!("a reply before the request was received: {reply:?}"),
    };
    let trap = RoutingKey::new(key).expect("a key");
    let forged = text_message("forged").with_correlation_id("the-call");
    handler.publish(Publication::mandatory(trap, forged)).await.expect("a reply to mallory");
    assert_never("a forged reply", &mut pending).await;
    let reply_to = request.envelope().reply_to.clone().expect("an address");
    let honest = text_message("honest").with_correlation_id("the-call");
    handler.publish(Publication::mandatory(reply_to, honest)).await.expect("replied");
    let reply = within_timeout("the honest reply", pending).await.expect("a reply");
    assert_eq!(reply.body, text_message("honest").body);
    assert_eq!(requester.stats().late(), 0, "the forged reply reached the requester");
}

#[tokio::test]
async fn unknown_agent_gets_an_error_with_the_remedy() {
    let broker = SecuredBroker::start().await;
    assert_stranger_gets_the_remedy(&*broker.bus("rockbot.agent.assistant").await).await;
}

/// Asserts that the queues of an agent for which the broker was not prepared are refused with the remedy.
pub(crate) async fn assert_stranger_gets_the_remedy(bus: &dyn Bus) {
    let stranger = reply_address("stranger", "1").queue();
    let refused = bus.consume(Subscription::new(stranger, 1)).await;
    let refused = refused.expect_err("not its queue").to_string();
    assert!(refused.contains("rockbot admin broker-users"), "{refused}");
    let work = QueueSpec::work(&RoutingKey::new("user.message.stranger").expect("a key"));
    let refused = bus.consume(Subscription::new(work, 1)).await;
    let refused = refused.expect_err("no dead-letter queue").to_string();
    assert!(refused.contains("rockbot admin broker-users"), "{refused}");
}

#[tokio::test]
async fn message_of_no_fleet_user_is_unsigned() {
    let broker = SecuredBroker::start().await;
    let handler = broker.bus("rockbot.tool-handler").await;
    let work = Subscription::new(QueueSpec::work(&tool_invoke()), 1);
    let mut requests = handler.consume(work).await.expect("a handler may consume");
    let mallory = Intruder(broker.connection("rockbot.agent.mallory").await);
    let elsewhere = Intruder(broker.connection(OTHER_NAMESPACE_USER).await);
    let foreign = Intruder(broker.connection("rockbot.foreign").await);
    for (sender, user, expected) in [
        (&mallory, None, UNSIGNED),
        (&mallory, Some("rockbot.agent.mallory"), "rockbot.agent.mallory"),
        (&elsewhere, Some(OTHER_NAMESPACE_USER), UNSIGNED),
        (&foreign, Some("rockbot.foreign"), "rockbot.foreign"),
    ] {
        sender.publishes("rockbot", "tool.invoke", user).await.expect("published");
        let request = next_delivery(&mut requests).await;
        assert_eq!(request.envelope().user_id.as_deref(), Some(expected), "{user:?}");
        request.settle(Settlement::Ack).await.expect("settled");
    }

    let agent = broker.bus("rockbot.agent.assistant").await;
    let requester = Requester::new(agent, reply_address("assistant", "victim"));
    let stats = requester.stats().clone();
    let mut pending = Box::pin(requester.request(request_to(tool_invoke())));
    let request = tokio::select! {
        request = next_delivery(&mut requests) => request,
        reply = &mut pending => panic!("a reply before the request was received: {reply:?}"),
    };
    let reply_to = request.envelope().reply_to.clone().expect("an address");
    request.settle(Settlement::Ack).await.expect("settled");
    for (sender, user) in [(&foreign, None), (&elsewhere, Some(OTHER_NAMESPACE_USER))] {
        sender.publishes("rockbot", reply_to.as_str(), user).await.expect("published");
    }
    let dropped = wait_until("the forged replies", || stats.foreign() == 2);
    tokio::select! {
        () = dropped => {}
        reply = &mut pending => panic!("a forged reply was accepted: {reply:?}"),
    }
    let honest = text_message("honest").with_correlation_id("the-call");
    handler.publish(Publication::mandatory(reply_to, honest)).await.expect("replied");
    let reply = within_timeout("the honest reply", pending).await.expect("a reply");
    assert_eq!(reply.body, text_message("honest").body);
}
