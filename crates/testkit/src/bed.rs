//! Where a bus is tested: two connections to one fleet that nobody else uses.

use std::{future::Future, sync::Arc, time::Duration};

use rockbot_bus::{
    Bus, Consumer, Delivery, MemoryBus, Publication, PublishError, Settlement, Subscription,
};
use rockbot_contracts::{
    AgentName, BindingPattern, Envelope, InstanceId, QueueSpec, RoutingKey, topology::ReplyAddress,
};
use tokio::time::timeout;

/// No event of a test takes longer, even on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// How long to look for something that must not happen.
pub const QUIET: Duration = Duration::from_millis(300);

/// Two connections to one fleet.
#[derive(Clone)]
pub struct Bed {
    /// One process's end.
    pub here: Arc<dyn Bus>,
    /// Another process's end.
    pub there: Arc<dyn Bus>,
}

/// Waits for an event, and fails the test when it does not come.
pub async fn soon<T>(what: &str, event: impl Future<Output = T>) -> T {
    match timeout(PATIENCE, event).await {
        Ok(value) => value,
        Err(_) => panic!("did not happen within {PATIENCE:?}: {what}"),
    }
}

/// Fails the test when the event happens.
pub async fn never<T>(what: &str, event: impl Future<Output = T>) {
    assert!(timeout(QUIET, event).await.is_err(), "must not happen: {what}");
}

/// Looks again until the condition holds.
pub async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let mut look = tokio::time::interval(Duration::from_millis(5));
    soon(what, async {
        while !holds() {
            look.tick().await;
        }
    })
    .await;
}

impl Bed {
    /// A bed on a fresh in-memory bus.
    pub fn memory() -> Self {
        let bus = MemoryBus::new();
        Self { here: Arc::new(bus.clone()), there: Arc::new(bus) }
    }

    /// Consumes a queue on the far end.
    pub async fn consume(&self, queue: QueueSpec, prefetch: u16) -> Consumer {
        let subscription = Subscription::new(queue, prefetch);
        soon("subscribe", self.there.consume(subscription)).await.expect("subscribe")
    }

    /// Publishes text as a mandatory, confirmed message.
    pub async fn say(&self, to: &RoutingKey, text: &str) -> Result<(), PublishError> {
        let publication = Publication::mandatory(to.clone(), message(text));
        soon("publish", self.here.publish(publication)).await
    }

    /// Publishes texts, all of which must be taken.
    pub async fn say_all(&self, to: &RoutingKey, texts: impl IntoIterator<Item = String>) {
        for text in texts {
            self.say(to, &text).await.expect("taken");
        }
    }
}

/// A routing key; the test fails when it is not one.
pub fn key(text: &str) -> RoutingKey {
    RoutingKey::new(text).expect("a routing key")
}

/// A work queue for `name`.
pub fn work(name: &str) -> QueueSpec {
    QueueSpec::work(&key(name))
}

/// An exclusive queue of `owner` with one binding.
pub fn exclusive(owner: &str, pattern: &str) -> QueueSpec {
    let instance = InstanceId::new(owner).expect("an instance");
    let mut queue = QueueSpec::exclusive(&key("announcements"), &instance);
    queue.bindings = vec![BindingPattern::new(pattern)];
    queue
}

/// The address of one process of an agent.
pub fn address(agent: &str, instance: &str) -> ReplyAddress {
    let agent = AgentName::new(agent).expect("an agent name");
    ReplyAddress::new(agent, InstanceId::new(instance).expect("an instance"))
}

/// A message with a JSON string as its body.
pub fn message(text: &str) -> Envelope {
    Envelope::raw("Text", serde_json::to_vec(text).expect("a string is JSON"))
}

/// The text of a [`message`].
pub fn text_of(delivery: &Delivery) -> String {
    serde_json::from_slice(&delivery.envelope().body).expect("the body is as it was sent")
}

/// The next delivery, which must come.
pub async fn next(consumer: &mut Consumer) -> Delivery {
    soon("a delivery", consumer.next()).await.expect("the consumer is alive")
}

/// Takes and acks the next delivery, and returns its text.
pub async fn take(consumer: &mut Consumer) -> String {
    let delivery = next(consumer).await;
    let text = text_of(&delivery);
    soon("an ack", delivery.settle(Settlement::Ack)).await.expect("acked");
    text
}

/// Takes and acks `count` deliveries.
pub async fn take_many(consumer: &mut Consumer, count: usize) -> Vec<String> {
    let mut texts = Vec::with_capacity(count);
    for _ in 0..count {
        texts.push(take(consumer).await);
    }
    texts
}

/// The broker that `cargo xtask test` provides, or the one its environment names.
///
/// # Panics
/// Without one: a test that needs a broker and has none fails, and says what to do.
pub fn test_broker_url() -> String {
    std::env::var("ROCKBOT_TEST_AMQP_URL").expect(
        "this test needs a broker: run `cargo xtask test`, or set ROCKBOT_TEST_AMQP_URL to a \
         RabbitMQ that tests may write to",
    )
}

/// A namespace that no other test has, so that tests can share a broker.
pub fn fresh_namespace() -> String {
    format!("test-{}", InstanceId::generate())
}
