//! Fixture of fault tests: processes that share a namespace, and consumers that record received messages.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use rockbot_bus::{Bus, Consumer, Publication, PublishError, Settlement, Subscription};
use rockbot_bus_rabbitmq::{RabbitBus, RabbitConfig};
use rockbot_contracts::{Envelope, QueueSpec};
use rockbot_testkit::fixture::{
    self, TEST_TIMEOUT, fresh_namespace, key, next_delivery, text_message, text_of, within_timeout,
    work_queue,
};
use tokio::{
    sync::watch,
    time::{Instant, interval, timeout},
};
use tokio_util::task::AbortOnDropHandle;

/// Limit for a reconnect after the broker is reachable again. On an idle machine it takes under 5 s.
pub(crate) const BACK_WITHIN: Duration = Duration::from_secs(20);

/// Timeout of operations that may fail.
pub(crate) const SHORT: Duration = Duration::from_secs(1);

/// Timeout of publishes that must succeed.
pub(crate) const PUBLISH_TIMEOUT: Duration = Duration::from_secs(10);

/// A process of the tested fleet, with its own connection.
pub(crate) struct TestProcess {
    pub(crate) bus: Arc<RabbitBus>,
    pub(crate) namespace: String,
    url: String,
}

impl TestProcess {
    /// Receives the retry of the request `the-call`, replies to it, and returns it.
    pub(crate) async fn reply_to_retry(&self, requests: &mut Consumer) -> Envelope {
        let retried = next_delivery(requests).await;
        let retry = retried.envelope().clone();
        retried.settle(Settlement::Ack).await.expect("acked");
        let to = retry.reply_to.clone().expect("a reply-to");
        let reply = Publication::mandatory(to, text_message("!").with_correlation_id("the-call"));
        self.bus.publish(reply).await.expect("published");
        retry
    }

    /// Connects the first process of a fleet in a new namespace.
    pub(crate) async fn connect(url: &str) -> Self {
        Self::in_namespace(url, fresh_namespace()).await
    }

    /// Connects another process of the fleet through `url`.
    pub(crate) async fn join(&self, url: &str) -> Self {
        Self::in_namespace(url, self.namespace.clone()).await
    }

    async fn in_namespace(url: &str, namespace: String) -> Self {
        let bus = start(url, &namespace);
        bus.connected(TEST_TIMEOUT).await.expect("connected");
        Self { bus: Arc::new(bus), namespace, url: url.to_owned() }
    }

    /// Consumes a work queue and records its messages.
    pub(crate) async fn start_recorder(&self, queue: &str) -> Recorder {
        self.start_queue_recorder(work_queue(queue)).await
    }

    /// Consumes a queue and records its messages.
    pub(crate) async fn start_queue_recorder(&self, queue: QueueSpec) -> Recorder {
        let subscription = Subscription::new(queue, 16);
        let consumer = within_timeout("subscribe", self.bus.consume(subscription)).await;
        let mut consumer = consumer.expect("subscribed");
        let (sender, received) = watch::channel(BTreeSet::new());
        let task = tokio::spawn(async move {
            while let Some(delivery) = consumer.next().await {
                let text = text_of(&delivery);
                sender.send_modify(|received: &mut BTreeSet<String>| {
                    received.insert(text);
                });
                // If the ack is lost, the message is redelivered.
                let _ = delivery.settle(rockbot_bus::Settlement::Ack).await;
            }
        });
        Recorder { received, _task: AbortOnDropHandle::new(task) }
    }

    /// Publishes with the timeout `within`, and checks that the publish completes in time.
    pub(crate) async fn publish(
        &self,
        queue: &str,
        text: &str,
        within: Duration,
    ) -> Result<(), PublishError> {
        let publication = Publication::mandatory(key(queue), text_message(text)).within(within);
        let published = timeout(within + SHORT, self.bus.publish(publication)).await;
        published.expect("a publish completes within its timeout")
    }

    /// Publishes until confirmed.
    pub(crate) async fn publish_until_confirmed(&self, queue: &str, text: &str) {
        within_timeout("a confirmed publish", async {
            let mut retry = interval(Duration::from_millis(20));
            while self.publish(queue, text, SHORT).await.is_err() {
                retry.tick().await;
            }
        })
        .await;
    }

    /// Publishes `count` messages, each until confirmed; returns their texts.
    pub(crate) async fn publish_all_until_confirmed(
        &self,
        queue: &str,
        name: &str,
        count: usize,
    ) -> Vec<String> {
        let texts: Vec<String> = (0..count).map(|number| format!("{name} {number}")).collect();
        for text in &texts {
            self.publish_until_confirmed(queue, text).await;
        }
        texts
    }

    /// Waits until the bus is ready, for at most [`BACK_WITHIN`].
    pub(crate) async fn wait_until_ready(&self, after: &str) {
        let mut poll = interval(Duration::from_millis(5));
        let ready = async {
            while !self.bus.is_ready() {
                poll.tick().await;
            }
        };
        let ready = timeout(BACK_WITHIN, ready).await;
        assert!(ready.is_ok(), "not ready within {BACK_WITHIN:?} after {after}");
    }

    /// Waits until the bus is no longer ready.
    pub(crate) async fn wait_until_interrupted(&self) {
        fixture::wait_until("the disconnect", || !self.bus.is_ready()).await;
    }

    /// Opens a plain channel, to act as an operator.
    pub(crate) async fn operator(&self) -> lapin::Channel {
        operator(&self.url).await
    }

    /// Returns the name of a queue at the broker.
    pub(crate) fn queue_name(&self, queue: &str) -> lapin::types::ShortString {
        format!("{}.{queue}", self.namespace).into()
    }
}

/// Starts a bus without waiting for the connection.
pub(crate) fn start(url: &str, namespace: &str) -> RabbitBus {
    let config = RabbitConfig::new(url, "fault test").with_namespace(namespace);
    RabbitBus::start(&config).expect("a usable URL")
}

/// Opens a channel with the plain client library.
pub(crate) async fn operator(url: &str) -> lapin::Channel {
    let properties = lapin::ConnectionProperties::default();
    let connection = lapin::Connection::connect(url, properties).await.expect("connected");
    connection.create_channel().await.expect("a channel")
}

/// A consumer that records received messages.
pub(crate) struct Recorder {
    received: watch::Receiver<BTreeSet<String>>,
    _task: AbortOnDropHandle<()>,
}

impl Recorder {
    /// Waits until all of `texts` were received.
    pub(crate) async fn received(&mut self, texts: &[String]) {
        let all = |received: &BTreeSet<String>| texts.iter().all(|text| received.contains(text));
        if timeout(TEST_TIMEOUT, self.received.wait_for(all)).await.is_err() {
            let received = self.received.borrow();
            let missing: Vec<_> = texts.iter().filter(|text| !received.contains(*text)).collect();
            panic!("confirmed and not received: {missing:?}");
        }
    }

    /// Waits until `text` was received and returns the time that it took.
    pub(crate) async fn receives(&mut self, text: &str) -> Duration {
        let since = Instant::now();
        self.received(&[text.to_owned()]).await;
        since.elapsed()
    }
}

/// Returns the reason why a message was not sent.
pub(crate) fn reason_not_sent(published: Result<(), PublishError>) -> String {
    match published {
        Err(PublishError::Disconnected { reason }) => reason,
        other => panic!("expected `Disconnected`, got {other:?}"),
    }
}
