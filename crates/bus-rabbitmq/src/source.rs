//! A consumer that survives its channel and its connection.

use std::{sync::Arc, time::Duration};

use futures_util::{FutureExt, StreamExt, future::BoxFuture};
use lapin::{
    Channel,
    options::{BasicAckOptions, BasicCancelOptions, BasicConsumeOptions, BasicQosOptions},
    types::{FieldTable, ShortString},
};
use rockbot_bus::{ConsumeError, Delivery, DeliverySource, Settling, Subscription};
use rockbot_contracts::{QueueKind, RoutingKey};
use tokio::time::timeout;
use tracing::{debug, info, warn};

use crate::{
    codec,
    lane::Lane,
    settler::AmqpSettler,
    supervisor::{NoChannel, OPERATION_TIMEOUT, Supervisor},
    topology::Namespace,
};

pub(crate) struct Source {
    supervisor: Supervisor,
    namespace: Arc<Namespace>,
    subscription: Subscription,
    dead_letters: Option<(ShortString, Arc<Lane>)>,
    session: Option<Session>,
    cancelled: bool,
}

/// One subscription, as long as its channel lasts.
struct Session {
    channel: Arc<Channel>,
    consumer: lapin::Consumer,
    /// Handed out and done, but the broker has not been told yet.
    untold: Option<Untold>,
}

/// A run of deliveries that one ack covers.
struct Untold {
    last: u64,
    count: u16,
}

impl Session {
    /// The next delivery. Before it waits, or when `most` are done, it tells the broker of them.
    async fn next(&mut self, most: u16) -> Option<lapin::Result<lapin::message::Delivery>> {
        if self.untold.as_ref().is_some_and(|untold| untold.count >= most) {
            self.tell().await;
        }
        if let Some(here) = self.consumer.next().now_or_never() {
            return here;
        }
        self.tell().await;
        self.consumer.next().await
    }

    /// Takes a delivery that is done once it is handed out. Nothing when its routing key is not
    /// one: only somebody who publishes to the queue by hand can do that. And nothing when it is a
    /// dead letter of another queue: the broker does not ask who sends those here.
    fn receive(&mut self, delivery: lapin::message::Delivery) -> Option<Delivery> {
        let lapin::message::Delivery {
            delivery_tag,
            routing_key,
            redelivered,
            properties,
            data,
            ..
        } = delivery;
        let count = self.untold.as_ref().map_or(0, |untold| untold.count) + 1;
        self.untold = Some(Untold { last: delivery_tag, count });
        let attempt = 1 + codec::earlier_deliveries(&properties, redelivered);
        if codec::was_dead_letter(&properties) {
            warn!("dropped a dead letter of another queue: somebody may be forging answers");
            return None;
        }
        let key = RoutingKey::new(routing_key.as_str()).ok()?;
        Some(Delivery::received(codec::decode(&properties, data), key, attempt))
    }

    /// Tells the broker of everything that is done.
    async fn tell(&mut self) {
        if let Some(Untold { last, .. }) = self.untold.take() {
            let all = BasicAckOptions { multiple: true };
            if let Err(error) = self.channel.basic_ack(last, all).await {
                debug!(%error, "messages that were taken may come again");
            }
        }
    }
}

/// How long to wait before subscribing again after it failed on a live connection.
const RESUBSCRIBE_AFTER: Duration = Duration::from_millis(500);

impl Source {
    /// Declares the queue and subscribes once; later losses are healed in `next`.
    pub(crate) async fn subscribe(
        supervisor: Supervisor,
        namespace: Arc<Namespace>,
        dead_letter_lane: &Arc<Lane>,
        subscription: Subscription,
    ) -> Result<Self, ConsumeError> {
        let queue = &subscription.queue;
        let name =
            namespace.queue(&queue.name).map_err(|error| refused(queue.name.as_str(), &error))?;
        let dead_letters =
            (queue.kind == QueueKind::Work).then(|| (name, dead_letter_lane.clone()));
        let mut source = Self {
            supervisor,
            namespace,
            subscription,
            dead_letters,
            session: None,
            cancelled: false,
        };
        let opened = timeout(OPERATION_TIMEOUT, source.open())
            .await
            .map_err(|_| ConsumeError::Disconnected { reason: source.supervisor.reason() })?;
        source.session = Some(opened?);
        Ok(source)
    }

    async fn open(&self) -> Result<Session, ConsumeError> {
        let link = self.supervisor.link().await.map_err(|error| match error {
            NoChannel::Closed => ConsumeError::Closed,
            NoChannel::Disconnected { reason } => ConsumeError::Disconnected { reason },
        })?;
        let disconnected = |reason| ConsumeError::Disconnected { reason };
        let channel = link.open_channel().await.map_err(disconnected)?;
        let bare = self.subscription.queue.name.as_str();
        let consumer = self.declare_and_consume(&channel).await;
        let consumer = consumer.map_err(|error| refused(bare, &error))?;
        Ok(Session { channel: Arc::new(channel), consumer, untold: None })
    }

    async fn declare_and_consume(&self, channel: &Channel) -> lapin::Result<lapin::Consumer> {
        let queue = &self.subscription.queue;
        self.namespace.declare(channel, queue).await?;
        channel.basic_qos(self.subscription.prefetch, BasicQosOptions::default()).await?;
        let exclusive = queue.kind == QueueKind::Exclusive;
        let options = BasicConsumeOptions { exclusive, ..Default::default() };
        let name = self.namespace.queue(&queue.name)?;
        channel.basic_consume(name, ShortString::default(), options, FieldTable::default()).await
    }

    async fn next_delivery(&mut self) -> Option<Delivery> {
        loop {
            let Some(session) = &mut self.session else {
                if self.cancelled || self.supervisor.is_closed() {
                    return None;
                }
                self.reopen().await?;
                continue;
            };
            // Half the prefetch, so that the broker never waits to be told.
            match session.next((self.subscription.prefetch / 2).max(1)).await {
                Some(Ok(delivery)) if self.subscription.settling == Settling::OnReceipt => {
                    let received = session.receive(delivery);
                    if received.is_some() {
                        return received;
                    }
                }
                Some(Ok(delivery)) => {
                    let channel = session.channel.clone();
                    if let Some(delivery) = self.take(delivery, channel) {
                        return Some(delivery);
                    }
                }
                Some(Err(error)) => {
                    warn!(queue = %self.subscription.queue.name, %error, "lost the subscription");
                    self.session = None;
                }
                None => self.session = None,
            }
        }
    }

    /// Subscribes again; `None` when the bus was closed meanwhile.
    async fn reopen(&mut self) -> Option<()> {
        // However long it takes to connect; then the broker has so long to answer.
        self.supervisor.link().await.ok()?;
        let late = || ConsumeError::Disconnected { reason: self.supervisor.reason() };
        let opened = timeout(OPERATION_TIMEOUT, self.open()).await;
        match opened.unwrap_or_else(|_| Err(late())) {
            Ok(session) => {
                info!(queue = %self.subscription.queue.name, "consuming again");
                self.session = Some(session);
            }
            Err(ConsumeError::Closed) => return None,
            Err(error) => {
                warn!(%error, "cannot subscribe; trying again");
                tokio::time::sleep(RESUBSCRIBE_AFTER).await;
            }
        }
        Some(())
    }

    fn take(&self, delivery: lapin::message::Delivery, channel: Arc<Channel>) -> Option<Delivery> {
        let lapin::message::Delivery { routing_key, redelivered, properties, data, acker, .. } =
            delivery;
        let settler = AmqpSettler { acker, channel, dead_letters: self.dead_letters.clone() };
        let attempt = 1 + codec::earlier_deliveries(&properties, redelivered);
        let envelope = codec::decode(&properties, data);
        match RoutingKey::new(routing_key.as_str()) {
            Ok(key) => Some(Delivery::new(envelope, key, attempt, settler)),
            Err(error) => {
                // Only somebody who publishes to the queue by hand can do this.
                warn!(%error, "dead-lettering a message");
                let reject = rockbot_bus::Settler::dead_letter(
                    Box::new(settler),
                    envelope,
                    "its routing key is not one".into(),
                );
                tokio::spawn(reject);
                None
            }
        }
    }

    async fn stop(&mut self) {
        self.cancelled = true;
        if let Some(session) = &self.session {
            let tag = session.consumer.tag();
            let cancel = session.channel.basic_cancel(tag, BasicCancelOptions::default());
            if !matches!(timeout(OPERATION_TIMEOUT, cancel).await, Ok(Ok(()))) {
                // The channel is gone, and with it what was prefetched.
                self.session = None;
            }
        }
    }
}

impl DeliverySource for Source {
    fn next(&mut self) -> BoxFuture<'_, Option<Delivery>> {
        Box::pin(self.next_delivery())
    }

    fn cancel(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(self.stop())
    }
}

fn refused(queue: &str, error: &lapin::Error) -> ConsumeError {
    let mut reason = error.to_string();
    if reason.contains("PRECONDITION_FAILED") || reason.contains("PRECONDITION-FAILED") {
        reason.push_str(
            "; the queue exists with other arguments: drain it, delete it, and start this process \
             again, or use another namespace",
        );
    }
    ConsumeError::Refused { queue: queue.to_owned(), reason }
}
