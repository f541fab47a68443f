//! Who a fault happens to: a bus with a consumer that remembers what it received.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use rockbot_bus::{Bus, Publication, PublishError, Subscription};
use rockbot_bus_rabbitmq::{RabbitBus, RabbitConfig};
use rockbot_contracts::QueueSpec;
use rockbot_testkit::fixture::{
    self, TEST_TIMEOUT, fresh_namespace, key, text_message, text_of, within_timeout, work_queue,
};
use tokio::{
    sync::watch,
    time::{Instant, interval, timeout},
};
use tokio_util::task::AbortOnDropHandle;

/// Limit for a reconnect after the broker is reachable again. On an idle machine it takes under 5 s.
pub(crate) const BACK_WITHIN: Duration = Duration::from_secs(20);

/// The timeout of publishes that are expected to fail.
pub(crate) const SHORT: Duration = Duration::from_secs(1);

/// One process of a fleet of its own.
pub(crate) struct Fleet {
    pub(crate) bus: Arc<RabbitBus>,
    pub(crate) namespace: String,
    url: String,
}

impl Fleet {
    /// Connects to a fresh namespace.
    pub(crate) async fn connect(url: &str) -> Self {
        Self::in_namespace(url, fresh_namespace()).await
    }

    /// Another process of the same fleet, at `url`.
    pub(crate) async fn join(&self, url: &str) -> Self {
        Self::in_namespace(url, self.namespace.clone()).await
    }

    async fn in_namespace(url: &str, namespace: String) -> Self {
        let bus = start(url, &namespace);
        bus.connected(TEST_TIMEOUT).await.expect("the broker answers");
        Self { bus: Arc::new(bus), namespace, url: url.to_owned() }
    }

    /// Consumes a work queue, and remembers.
    pub(crate) async fn record(&self, queue: &str) -> Recorder {
        self.record_queue(work_queue(queue)).await
    }

    pub(crate) async fn record_queue(&self, queue: QueueSpec) -> Recorder {
        let subscription = Subscription::new(queue, 16);
        let consumer = within_timeout("subscribe", self.bus.consume(subscription)).await;
        let mut consumer = consumer.expect("subscribed");
        let (sender, seen) = watch::channel(BTreeSet::new());
        let task = tokio::spawn(async move {
            while let Some(delivery) = consumer.next().await {
                let text = text_of(&delivery);
                sender.send_modify(|seen: &mut BTreeSet<String>| {
                    seen.insert(text);
                });
                // When it is lost, the message comes again.
                let _ = delivery.settle(rockbot_bus::Settlement::Ack).await;
            }
        });
        Recorder { seen, _task: AbortOnDropHandle::new(task) }
    }

    /// Publishes once, within `within`, and proves that it ends in that time.
    pub(crate) async fn say(
        &self,
        queue: &str,
        text: &str,
        within: Duration,
    ) -> Result<(), PublishError> {
        let publication = Publication::mandatory(key(queue), text_message(text)).within(within);
        let published = timeout(within + SHORT, self.bus.publish(publication)).await;
        published.expect("a publish never outlives its time-out")
    }

    /// Publishes again until it is confirmed.
    pub(crate) async fn insist(&self, queue: &str, text: &str) {
        within_timeout("a confirmed publish", async {
            let mut again = interval(Duration::from_millis(20));
            while self.say(queue, text, SHORT).await.is_err() {
                again.tick().await;
            }
        })
        .await;
    }

    /// Publishes many, each until it is confirmed; returns their texts.
    pub(crate) async fn insist_on(&self, queue: &str, name: &str, count: usize) -> Vec<String> {
        let texts: Vec<String> = (0..count).map(|number| format!("{name} {number}")).collect();
        for text in &texts {
            self.insist(queue, text).await;
        }
        texts
    }

    /// Waits until the bus says that it is ready, at most as long as was promised.
    pub(crate) async fn back(&self, after: &str) {
        let mut look = interval(Duration::from_millis(5));
        let ready = async {
            while !self.bus.is_ready() {
                look.tick().await;
            }
        };
        let back = timeout(BACK_WITHIN, ready).await;
        assert!(back.is_ok(), "not back within {BACK_WITHIN:?} after {after}");
    }

    /// Waits until the bus notices that it is interrupted.
    pub(crate) async fn interrupted(&self) {
        fixture::wait_until("the loss is noticed", || !self.bus.is_ready()).await;
    }

    /// What an operator does to the broker behind its back.
    pub(crate) async fn operator(&self) -> lapin::Channel {
        operator(&self.url).await
    }

    /// The name of a queue on the broker.
    pub(crate) fn on_broker(&self, queue: &str) -> lapin::types::ShortString {
        format!("{}.{queue}", self.namespace).into()
    }
}

/// Starts a bus without waiting for it.
pub(crate) fn start(url: &str, namespace: &str) -> RabbitBus {
    let config = RabbitConfig::new(url, "fault test").with_namespace(namespace);
    RabbitBus::start(&config).expect("a usable URL")
}

/// A channel of the client library alone.
pub(crate) async fn operator(url: &str) -> lapin::Channel {
    let properties = lapin::ConnectionProperties::default();
    let connection = lapin::Connection::connect(url, properties).await.expect("connected");
    connection.create_channel().await.expect("a channel")
}

/// A consumer that remembers what it received.
pub(crate) struct Recorder {
    seen: watch::Receiver<BTreeSet<String>>,
    _task: AbortOnDropHandle<()>,
}

impl Recorder {
    /// Waits until all of these were received.
    pub(crate) async fn received(&mut self, texts: &[String]) {
        let all = |seen: &BTreeSet<String>| texts.iter().all(|text| seen.contains(text));
        if timeout(TEST_TIMEOUT, self.seen.wait_for(all)).await.is_err() {
            let seen = self.seen.borrow();
            let missing: Vec<_> = texts.iter().filter(|text| !seen.contains(*text)).collect();
            panic!("confirmed and not received: {missing:?}");
        }
    }

    /// Waits until this was received, and returns how long that took.
    pub(crate) async fn receives(&mut self, text: &str) -> Duration {
        let since = Instant::now();
        self.received(&[text.to_owned()]).await;
        since.elapsed()
    }
}

/// The message did not go out, and the error says why.
pub(crate) fn reason_not_sent(published: Result<(), PublishError>) -> String {
    match published {
        Err(PublishError::Disconnected { reason }) => reason,
        other => panic!("expected `Disconnected`, and got {other:?}"),
    }
}
