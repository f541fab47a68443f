//! A consumer that survives its channel and its connection.

use std::{
    pin::{Pin, pin},
    sync::Arc,
    time::Duration,
};

use futures_util::{FutureExt, StreamExt, future::BoxFuture};
use lapin::{
    Channel,
    options::{BasicAckOptions, BasicCancelOptions, BasicConsumeOptions, BasicQosOptions},
    types::{FieldTable, ShortString},
};
use rockbot_bus::{ConsumeError, Delivery, DeliverySource, Settling, Subscription};
use rockbot_contracts::{QueueKind, RoutingKey};
use tokio::{
    sync::watch,
    time::{Instant, timeout},
};
use tokio_util::{
    sync::{CancellationToken, WaitForCancellationFutureOwned},
    task::AbortOnDropHandle,
};
use tracing::{debug, info, warn};

use crate::{
    backoff,
    channel_wait::wait_on_channel,
    codec,
    presence::Presence,
    publish_channel::PublishChannel,
    refusal,
    settler::{AmqpSettler, DeadLetters},
    supervisor::{NoChannel, OPERATION_TIMEOUT, Supervisor},
    topology::Namespace,
};

/// Hands out the deliveries of one queue, on whichever channel they come.
pub(crate) struct RabbitConsumer {
    subscriber: Arc<Subscriber>,
    dead_letters: Option<Arc<DeadLetters>>,
    session: Option<Session>,
    /// Subscribes again, once the session is lost. A task, so that whoever waits for a delivery
    /// may stop and come back.
    reopening: Option<AbortOnDropHandle<Option<Session>>>,
    /// None when the consumer was cancelled.
    presence: Option<Arc<Presence>>,
    reconnects: watch::Sender<u64>,
}

/// What it takes to subscribe.
struct Subscriber {
    supervisor: Supervisor,
    namespace: Arc<Namespace>,
    subscription: Subscription,
}

/// One subscription, as long as its channel lasts.
struct Session {
    generation: u64,
    channel: Arc<Channel>,
    consumer: lapin::Consumer,
    /// Cancelled when the channel is found to be closed, or its connection lost.
    ended: CancellationToken,
    /// The wait for that, kept from one delivery to the next.
    end: Pin<Box<WaitForCancellationFutureOwned>>,
    /// Handed out and done, but the broker has not been told yet.
    unacked: Option<Unacked>,
}

/// A run of deliveries that one ack covers.
struct Unacked {
    last: u64,
    count: u16,
}

impl Session {
    /// The next delivery. Before it waits, or when `most` are done, it tells the broker of them.
    async fn next(&mut self, most: u16) -> Option<lapin::Result<lapin::message::Delivery>> {
        if self.unacked.as_ref().is_some_and(|unacked| unacked.count >= most) {
            self.tell();
        }
        if let Some(here) = self.consumer.next().now_or_never() {
            return here;
        }
        self.tell();
        tokio::select! {
            biased;
            next = self.consumer.next() => next,
            () = &mut self.end => self.consumer.next().now_or_never().flatten(),
        }
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
        let count = self.unacked.as_ref().map_or(0, |unacked| unacked.count) + 1;
        self.unacked = Some(Unacked { last: delivery_tag, count });
        let attempt = 1 + codec::earlier_deliveries(&properties, redelivered);
        if codec::was_dead_letter(&properties) {
            warn!("dropped a dead letter of another queue: somebody may be forging answers");
            return None;
        }
        let key = RoutingKey::new(routing_key.as_str()).ok()?;
        Some(Delivery::received(codec::decode(&properties, data), key, attempt))
    }

    /// Tells the broker of everything that is done, without waiting until the words are written:
    /// a broker that is short of memory may not read them for a long time.
    fn tell(&mut self) {
        if let Some(Unacked { last, .. }) = self.unacked.take() {
            let all = BasicAckOptions { multiple: true };
            if let Some(Err(error)) = self.channel.basic_ack(last, all).now_or_never() {
                debug!(%error, "messages that were taken may come again");
            }
        }
    }
}

/// How long one attempt to subscribe again may take.
const RESUBSCRIBE_WITHIN: Duration = Duration::from_secs(4);

impl Subscriber {
    /// Tries until it works or is refused, for at most [`OPERATION_TIMEOUT`].
    async fn open_patiently(&self) -> Result<Session, ConsumeError> {
        let mut waits = backoff::waits();
        let opened = timeout(OPERATION_TIMEOUT, async {
            loop {
                match self.open().await {
                    // The connection went away meanwhile; the next one will do.
                    Err(ConsumeError::Disconnected { .. }) => {
                        tokio::time::sleep(waits.next_wait()).await;
                    }
                    opened => return opened,
                }
            }
        });
        let late = |_| ConsumeError::Disconnected { reason: self.supervisor.reason() };
        opened.await.map_err(late)?
    }

    async fn open(&self) -> Result<Session, ConsumeError> {
        let link = self.supervisor.link().await.map_err(|error| match error {
            NoChannel::Closed => ConsumeError::Closed,
            NoChannel::Disconnected { reason } => ConsumeError::Disconnected { reason },
        })?;
        let disconnected = |reason| ConsumeError::Disconnected { reason };
        let refused_or_lost = |error: lapin::Error| {
            if link.is_connected() {
                refused(self.queue(), &error)
            } else {
                disconnected(error.to_string())
            }
        };
        let queue = &self.subscription.queue;
        if self.namespace.expects_dead_letters(queue) {
            // The broker closes a channel that asks for what is missing, or may not be looked at.
            let channel = link.open_channel().await.map_err(disconnected)?;
            let looked = link.until_lost(self.namespace.expect_dead_letters(&channel, queue)).await;
            looked.map_err(disconnected)?.map_err(refused_or_lost)?;
        }
        let channel = link.open_channel().await.map_err(disconnected)?;
        let consumer = link.until_lost(self.declare_and_consume(&channel)).await;
        let consumer = consumer.map_err(disconnected)?.map_err(refused_or_lost)?;
        let ended = link.ended();
        Ok(Session {
            generation: link.generation,
            channel: Arc::new(channel),
            consumer,
            end: Box::pin(ended.clone().cancelled_owned()),
            ended,
            unacked: None,
        })
    }

    async fn declare_and_consume(&self, channel: &Channel) -> lapin::Result<lapin::Consumer> {
        let queue = &self.subscription.queue;
        self.namespace.provide_exchanges(channel).await?;
        self.namespace.declare(channel, queue).await?;
        channel.basic_qos(self.subscription.prefetch, BasicQosOptions::default()).await?;
        let exclusive = queue.kind == QueueKind::Exclusive;
        let options = BasicConsumeOptions { exclusive, ..Default::default() };
        let name = self.namespace.queue(&queue.name)?;
        channel.basic_consume(name, ShortString::default(), options, FieldTable::default()).await
    }

    /// Subscribes again, however long it takes; `None` when the bus was closed meanwhile.
    async fn reopen(self: Arc<Self>, presence: Arc<Presence>) -> Option<Session> {
        let mut waits = backoff::waits();
        let mut last_reason = String::new();
        loop {
            // However long it takes to connect; then the broker has so long to answer.
            self.supervisor.link().await.ok()?;
            let reason = match timeout(RESUBSCRIBE_WITHIN, self.open()).await {
                Ok(Ok(session)) => {
                    presence.consuming(session.generation, &session.channel, &session.ended);
                    info!(queue = self.queue(), "consuming again");
                    return Some(session);
                }
                Ok(Err(ConsumeError::Closed)) => return None,
                Ok(Err(error)) => error.to_string(),
                Err(_) => format!("no answer within {RESUBSCRIBE_WITHIN:?}"),
            };
            if reason != last_reason {
                warn!(queue = self.queue(), %reason, "cannot subscribe; trying again");
                last_reason = reason;
            }
            tokio::time::sleep(waits.next_wait()).await;
        }
    }

    fn queue(&self) -> &str {
        self.subscription.queue.name.as_str()
    }
}

impl RabbitConsumer {
    /// Declares the queue and subscribes once; later losses are healed in `next`.
    pub(crate) async fn subscribe(
        supervisor: Supervisor,
        namespace: Arc<Namespace>,
        dead_letter_channel: &Arc<PublishChannel>,
        subscription: Subscription,
    ) -> Result<Self, ConsumeError> {
        let queue = &subscription.queue;
        let named =
            |name| namespace.queue(name).map_err(|error| refused(queue.name.as_str(), &error));
        named(&queue.name)?;
        let dead_letters_as = named(&queue.dead_letters_as)?;
        let dead_letters = (queue.kind == QueueKind::Work)
            .then(|| DeadLetters { queue: dead_letters_as, channel: dead_letter_channel.clone() });
        let subscriber = Arc::new(Subscriber { supervisor, namespace, subscription });
        let session = subscriber.open_patiently().await?;
        let queue = subscriber.subscription.queue.clone();
        let presence = subscriber.supervisor.subscribers().enter(queue);
        presence.consuming(session.generation, &session.channel, &session.ended);
        Ok(Self {
            subscriber,
            dead_letters: dead_letters.map(Arc::new),
            session: Some(session),
            reopening: None,
            presence: Some(presence),
            reconnects: watch::Sender::new(0),
        })
    }

    async fn next_delivery(&mut self) -> Option<Delivery> {
        let Subscription { prefetch, settling, .. } = self.subscriber.subscription;
        loop {
            let Some(session) = &mut self.session else {
                self.session = Some(self.reopened().await?);
                self.reconnects.send_modify(|times| *times += 1);
                continue;
            };
            // Half the prefetch, so that the broker never waits to be told.
            match session.next((prefetch / 2).max(1)).await {
                Some(Ok(delivery)) if settling == Settling::OnReceipt => {
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
                    warn!(queue = self.subscriber.queue(), %error, "lost the subscription");
                    self.interrupt();
                }
                // Cancelled by us, or by the broker because the queue was deleted.
                None => self.interrupt(),
            }
        }
    }

    fn interrupt(&mut self) {
        self.session = None;
        if let Some(presence) = &self.presence {
            presence.interrupted();
        }
    }

    /// Waits for a new session; `None` when none will come. Dropping the future does not stop the
    /// work on it.
    async fn reopened(&mut self) -> Option<Session> {
        let presence = self.presence.as_ref()?;
        if self.subscriber.supervisor.is_closed() {
            return None;
        }
        let reopening = self.reopening.get_or_insert_with(|| {
            let reopening = self.subscriber.clone().reopen(presence.clone());
            AbortOnDropHandle::new(tokio::spawn(reopening))
        });
        let reopened = reopening.await;
        self.reopening = None;
        // A task fails only when the runtime ends.
        reopened.ok().flatten()
    }

    fn take(&self, delivery: lapin::message::Delivery, channel: Arc<Channel>) -> Option<Delivery> {
        let lapin::message::Delivery {
            delivery_tag: tag,
            routing_key,
            redelivered,
            properties,
            data,
            ..
        } = delivery;
        let settler = AmqpSettler { tag, channel, dead_letters: self.dead_letters.clone() };
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
        self.presence = None;
        self.reopening = None;
        if let Some(session) = &self.session {
            let tag = session.consumer.tag();
            let cancelled = {
                let cancel = pin!(session.channel.basic_cancel(tag, BasicCancelOptions::default()));
                let deadline = Instant::now() + OPERATION_TIMEOUT;
                matches!(wait_on_channel(&session.channel, deadline, cancel).await, Ok(Ok(())))
            };
            if !cancelled {
                // The channel is gone, and with it what was prefetched.
                self.session = None;
            }
        }
    }
}

impl DeliverySource for RabbitConsumer {
    fn next(&mut self) -> BoxFuture<'_, Option<Delivery>> {
        Box::pin(self.next_delivery())
    }

    fn cancel(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(self.stop())
    }

    fn reconnects(&self) -> Option<watch::Receiver<u64>> {
        Some(self.reconnects.subscribe())
    }
}

fn refused(queue: &str, error: &lapin::Error) -> ConsumeError {
    ConsumeError::Refused { queue: queue.to_owned(), reason: refusal::explain(error) }
}
