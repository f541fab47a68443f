//! The bus fixture: two connections to one isolated fleet, and what tests do with them.

use std::{future::Future, sync::Arc, time::Duration};

use rockbot_bus::{
    Bus, Consumer, Delivery, MemoryBus, Publication, PublishError, Settlement, Subscription,
};
use rockbot_contracts::{
    AgentName, BindingPattern, Envelope, InstanceId, QueueSpec, RoutingKey, topology::ReplyAddress,
};
use tokio::time::timeout;

/// The time limit for one event of a test, long enough for a busy machine.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Period during which an event must not happen.
pub const QUIET_PERIOD: Duration = Duration::from_millis(300);

/// Two connections to one fleet.
#[derive(Clone)]
pub struct BusFixture {
    /// The connection of one process; tests publish on it.
    pub local: Arc<dyn Bus>,
    /// The connection of another process; tests consume on it.
    pub remote: Arc<dyn Bus>,
}

/// Waits for `event`, and fails the test after [`TEST_TIMEOUT`].
pub async fn within_timeout<T>(what: &str, event: impl Future<Output = T>) -> T {
    match timeout(TEST_TIMEOUT, event).await {
        Ok(value) => value,
        Err(_) => panic!("did not happen within {TEST_TIMEOUT:?}: {what}"),
    }
}

/// Fails the test when `event` happens within [`QUIET_PERIOD`].
pub async fn assert_never<T>(what: &str, event: impl Future<Output = T>) {
    assert!(timeout(QUIET_PERIOD, event).await.is_err(), "must not happen: {what}");
}

/// Polls `condition` every 5 ms until it holds, and fails the test after [`TEST_TIMEOUT`].
pub async fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let mut poll = tokio::time::interval(Duration::from_millis(5));
    within_timeout(what, async {
        while !condition() {
            poll.tick().await;
        }
    })
    .await;
}

impl BusFixture {
    /// Creates a fixture on a new in-memory bus.
    pub fn memory() -> Self {
        let bus = MemoryBus::new();
        Self { local: Arc::new(bus.clone()), remote: Arc::new(bus) }
    }

    /// Consumes a queue on the remote connection.
    pub async fn consume(&self, queue: QueueSpec, prefetch: u16) -> Consumer {
        let subscription = Subscription::new(queue, prefetch);
        within_timeout("subscribe", self.remote.consume(subscription)).await.expect("subscribe")
    }

    /// Publishes `text` as a mandatory, confirmed message.
    pub async fn publish(&self, to: &RoutingKey, text: &str) -> Result<(), PublishError> {
        let publication = Publication::mandatory(to.clone(), text_message(text));
        within_timeout("publish", self.local.publish(publication)).await
    }

    /// Publishes each of `texts`; all must be confirmed.
    pub async fn publish_all(&self, to: &RoutingKey, texts: impl IntoIterator<Item = String>) {
        for text in texts {
            self.publish(to, &text).await.expect("confirmed");
        }
    }
}

/// Parses a routing key; an invalid one fails the test.
pub fn key(text: &str) -> RoutingKey {
    RoutingKey::new(text).expect("a routing key")
}

/// Returns the work queue for `name`.
pub fn work_queue(name: &str) -> QueueSpec {
    QueueSpec::work(&key(name))
}

/// Returns an exclusive queue of the instance `owner` with one binding.
pub fn exclusive_queue(owner: &str, pattern: &str) -> QueueSpec {
    let instance = InstanceId::new(owner).expect("an instance");
    let mut queue = QueueSpec::exclusive(&key("announcements"), &instance);
    queue.bindings = vec![BindingPattern::new(pattern)];
    queue
}

/// Returns the reply address of one instance of an agent.
pub fn reply_address(agent: &str, instance: &str) -> ReplyAddress {
    let agent = AgentName::new(agent).expect("an agent name");
    ReplyAddress::new(agent, InstanceId::new(instance).expect("an instance"))
}

/// Returns a message with a JSON string as its body.
pub fn text_message(text: &str) -> Envelope {
    Envelope::raw("Text", serde_json::to_vec(text).expect("a string is JSON"))
}

/// Returns the text of a [`text_message`].
pub fn text_of(delivery: &Delivery) -> String {
    serde_json::from_slice(&delivery.envelope().body).expect("the body is as it was sent")
}

/// Returns the next delivery, which must arrive.
pub async fn next_delivery(consumer: &mut Consumer) -> Delivery {
    within_timeout("a delivery", consumer.next()).await.expect("the consumer is alive")
}

/// Acks the next delivery and returns its text.
pub async fn ack_next(consumer: &mut Consumer) -> String {
    let delivery = next_delivery(consumer).await;
    let text = text_of(&delivery);
    within_timeout("an ack", delivery.settle(Settlement::Ack)).await.expect("acked");
    text
}

/// Acks the next `count` deliveries and returns their texts.
pub async fn ack_many(consumer: &mut Consumer, count: usize) -> Vec<String> {
    let mut texts = Vec::with_capacity(count);
    for _ in 0..count {
        texts.push(ack_next(consumer).await);
    }
    texts
}

/// Returns the URL of the broker that `cargo xtask test` provides, or that the environment names.
///
/// # Panics
/// When there is no broker; the message says what to do.
pub fn test_broker_url() -> String {
    std::env::var("ROCKBOT_TEST_AMQP_URL").expect(
        "this test needs a broker: run `cargo xtask test`, or set ROCKBOT_TEST_AMQP_URL to a \
         RabbitMQ that tests may write to",
    )
}

/// Returns a namespace that no other test uses, so that tests can share a broker.
pub fn fresh_namespace() -> String {
    format!("test-{}", InstanceId::generate())
}
