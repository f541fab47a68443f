//! A consumer that survives the loss of its channel and connection.

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
    consumer_status::ConsumerStatus,
    publish_channel::PublishChannel,
    refusal,
    settler::{AmqpSettler, DeadLetters},
    supervisor::{ConnectionUnavailable, OPERATION_TIMEOUT, Supervisor},
    topology::Namespace,
};

/// Deliveries of one queue across channels and connections.
pub(crate) struct RabbitConsumer {
    subscriber: Arc<Subscriber>,
    dead_letters: Option<Arc<DeadLetters>>,
    session: Option<Session>,
    /// Resubscribes after the loss of the session. A task, so that dropping the future of a wait does not
    /// interrupt it.
    resubscribing: Option<AbortOnDropHandle<Option<Session>>>,
    /// `None` once the consumer is cancelled.
    status: Option<Arc<ConsumerStatus>>,
    reconnects: watch::Sender<u64>,
}

/// Opens sessions.
struct Subscriber {
    supervisor: Supervisor,
    namespace: Arc<Namespace>,
    subscription: Subscription,
}

/// A subscription on one channel.
struct Session {
    generation: u64,
    channel: Arc<Channel>,
    consumer: lapin::Consumer,
    /// Cancelled when the channel is found closed, or its connection lost.
    ended: CancellationToken,
    /// Completes when `ended` is cancelled; kept across deliveries.
    end: Pin<Box<WaitForCancellationFutureOwned>>,
    /// Deliveries settled on receipt that are not acknowledged yet.
    unacked: Option<Unacked>,
}

/// A series of deliveries that one ack covers.
struct Unacked {
    last: u64,
    count: u16,
}

impl Session {
    /// Returns the next delivery. Acknowledges received deliveries once there are `max_unacked`, and
    /// before it waits.
    async fn next(&mut self, max_unacked: u16) -> Option<lapin::Result<lapin::message::Delivery>> {
        if self.unacked.as_ref().is_some_and(|unacked| unacked.count >= max_unacked) {
            self.ack_received();
        }
        if let Some(next) = self.consumer.next().now_or_never() {
            return next;
        }
        self.ack_received();
        tokio::select! {
            biased;
            next = self.consumer.next() => next,
            () = &mut self.end => self.consumer.next().now_or_never().flatten(),
        }
    }

    /// Converts a delivery that is settled on receipt. Returns `None` for an invalid routing key, which
    /// only a foreign publisher can use, and for a dead letter of another queue: the broker routes dead
    /// letters without checking permissions, so such a message may be forged.
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
            warn!("dead letter of another queue dropped: it may be a forged reply");
            return None;
        }
        let key = RoutingKey::new(routing_key.as_str()).ok()?;
        Some(Delivery::received(codec::decode(&properties, data), key, attempt))
    }

    /// Acknowledges received deliveries, without waiting for the write: a broker that is low on memory may
    /// not read for a long time.
    fn ack_received(&mut self) {
        if let Some(Unacked { last, .. }) = self.unacked.take() {
            let all = BasicAckOptions { multiple: true };
            if let Some(Err(error)) = self.channel.basic_ack(last, all).now_or_never() {
                debug!(%error, "ack failed; received messages may be redelivered");
            }
        }
    }
}

/// Timeout of one attempt to resubscribe.
const RESUBSCRIBE_TIMEOUT: Duration = Duration::from_secs(4);

impl Subscriber {
    /// Opens a session. Retries while disconnected, for at most [`OPERATION_TIMEOUT`].
    async fn open_with_retries(&self) -> Result<Session, ConsumeError> {
        let mut waits = backoff::waits();
        let opened = timeout(OPERATION_TIMEOUT, async {
            loop {
                match self.open().await {
                    // The connection was lost meanwhile; retry on the next one.
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
        let connection = self.supervisor.connection().await.map_err(|error| match error {
            ConnectionUnavailable::Closed => ConsumeError::Closed,
            ConnectionUnavailable::Disconnected { reason } => ConsumeError::Disconnected { reason },
        })?;
        let disconnected = |reason| ConsumeError::Disconnected { reason };
        let refused_or_lost = |error: lapin::Error| {
            if connection.is_connected() {
                refused(self.queue(), &error)
            } else {
                disconnected(error.to_string())
            }
        };
        let queue = &self.subscription.queue;
        if self.namespace.expects_dead_letters(queue) {
            // On a channel of its own: the broker closes it if the queue is missing or the user may not
            // inspect it.
            let channel = connection.open_channel().await.map_err(disconnected)?;
            let checked =
                connection.until_lost(self.namespace.expect_dead_letters(&channel, queue)).await;
            checked.map_err(disconnected)?.map_err(refused_or_lost)?;
        }
        let channel = connection.open_channel().await.map_err(disconnected)?;
        let consumer = connection.until_lost(self.declare_and_consume(&channel)).await;
        let consumer = consumer.map_err(disconnected)?.map_err(refused_or_lost)?;
        let ended = connection.ended();
        Ok(Session {
            generation: connection.generation,
            channel: Arc::new(channel),
            consumer,
            end: Box::pin(ended.clone().cancelled_owned()),
            ended,
            unacked: None,
        })
    }

    async fn declare_and_consume(&self, channel: &Channel) -> lapin::Result<lapin::Consumer> {
        let queue = &self.subscription.queue;
        self.namespace.declare_exchanges(channel).await?;
        self.namespace.declare(channel, queue).await?;
        channel.basic_qos(self.subscription.prefetch, BasicQosOptions::default()).await?;
        let exclusive = queue.kind == QueueKind::Exclusive;
        let options = BasicConsumeOptions { exclusive, ..Default::default() };
        let name = self.namespace.queue(&queue.name)?;
        channel.basic_consume(name, ShortString::default(), options, FieldTable::default()).await
    }

    /// Resubscribes, with retries without a limit; returns `None` once the bus is closed.
    async fn resubscribe(self: Arc<Self>, status: Arc<ConsumerStatus>) -> Option<Session> {
        let mut waits = backoff::waits();
        let mut last_reason = String::new();
        loop {
            // Waiting for the connection has no limit; the timeout applies once connected.
            self.supervisor.connection().await.ok()?;
            let reason = match timeout(RESUBSCRIBE_TIMEOUT, self.open()).await {
                Ok(Ok(session)) => {
                    status.set_consuming(session.generation, &session.channel, &session.ended);
                    info!(queue = self.queue(), "consumer resubscribed");
                    return Some(session);
                }
                Ok(Err(ConsumeError::Closed)) => return None,
                Ok(Err(error)) => error.to_string(),
                Err(_) => format!("no response within {RESUBSCRIBE_TIMEOUT:?}"),
            };
            if reason != last_reason {
                warn!(queue = self.queue(), %reason, "consumer failed to subscribe; retrying");
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
    /// Declares the queue and subscribes. After a disconnect, `next` resubscribes.
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
        let session = subscriber.open_with_retries().await?;
        let queue = subscriber.subscription.queue.clone();
        let status = subscriber.supervisor.consumers().register(queue);
        status.set_consuming(session.generation, &session.channel, &session.ended);
        Ok(Self {
            subscriber,
            dead_letters: dead_letters.map(Arc::new),
            session: Some(session),
            resubscribing: None,
            status: Some(status),
            reconnects: watch::Sender::new(0),
        })
    }

    async fn next_delivery(&mut self) -> Option<Delivery> {
        let Subscription { prefetch, settling, .. } = self.subscriber.subscription;
        loop {
            let Some(session) = &mut self.session else {
                self.session = Some(self.resubscribed().await?);
                self.reconnects.send_modify(|count| *count += 1);
                continue;
            };
            // Acks at half the prefetch, so that the broker never waits for them.
            match session.next((prefetch / 2).max(1)).await {
                Some(Ok(delivery)) if settling == Settling::OnReceipt => {
                    let received = session.receive(delivery);
                    if received.is_some() {
                        return received;
                    }
                }
                Some(Ok(delivery)) => {
                    let channel = session.channel.clone();
                    if let Some(delivery) = self.convert(delivery, channel) {
                        return Some(delivery);
                    }
                }
                Some(Err(error)) => {
                    warn!(queue = self.subscriber.queue(), %error, "consumer lost its channel");
                    self.interrupt();
                }
                // Cancelled by this process, or by the broker because the queue was deleted.
                None => self.interrupt(),
            }
        }
    }

    fn interrupt(&mut self) {
        self.session = None;
        if let Some(status) = &self.status {
            status.set_interrupted();
        }
    }

    /// Waits for a new session; returns `None` once cancelled or closed. Dropping the future does not
    /// interrupt the resubscription.
    async fn resubscribed(&mut self) -> Option<Session> {
        let status = self.status.as_ref()?;
        if self.subscriber.supervisor.is_closed() {
            return None;
        }
        let resubscribing = self.resubscribing.get_or_insert_with(|| {
            let resubscribing = self.subscriber.clone().resubscribe(status.clone());
            AbortOnDropHandle::new(tokio::spawn(resubscribing))
        });
        let session = resubscribing.await;
        self.resubscribing = None;
        // The task fails only when the runtime stops.
        session.ok().flatten()
    }

    /// Converts a delivery that its handler settles. One with an invalid routing key is dead-lettered.
    fn convert(
        &self,
        delivery: lapin::message::Delivery,
        channel: Arc<Channel>,
    ) -> Option<Delivery> {
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
                // Only a foreign publisher can cause this.
                warn!(%error, "message with an invalid routing key dead-lettered");
                let reject = rockbot_bus::Settler::dead_letter(
                    Box::new(settler),
                    envelope,
                    "invalid routing key".into(),
                );
                tokio::spawn(reject);
                None
            }
        }
    }

    async fn stop(&mut self) {
        self.status = None;
        self.resubscribing = None;
        if let Some(session) = &self.session {
            let tag = session.consumer.tag();
            let cancelled = {
                let cancel = pin!(session.channel.basic_cancel(tag, BasicCancelOptions::default()));
                let deadline = Instant::now() + OPERATION_TIMEOUT;
                matches!(wait_on_channel(&session.channel, deadline, cancel).await, Ok(Ok(())))
            };
            if !cancelled {
                // The channel is closed, and its prefetched deliveries are lost.
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
