//! A consumer that survives the loss of its channel and connection.

use std::{
    pin::{Pin, pin},
    sync::Arc,
    time::{Duration, SystemTime},
};

use futures_util::{FutureExt, StreamExt, future::BoxFuture};
use lapin::{
    BasicProperties, Channel,
    options::{BasicAckOptions, BasicCancelOptions, BasicConsumeOptions, BasicQosOptions},
    types::{AMQPValue, FieldTable, ShortString},
};
use rockbot_bus::{ConsumeError, Delivery, DeliverySource, Reconnects, Settling, Subscription};
use rockbot_contracts::{
    Envelope, QueueKind, RoutingKey, identity::UNSIGNED, topology::MAX_DELIVERIES,
};
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
    clock_skew::{SkewEstimate, TICK, WaitClock},
    codec,
    consumer_status::ConsumerStatus,
    dead_letter_budget::DeadLetterBudget,
    publish_channel::PublishChannel,
    refusal,
    settler::{AmqpSettler, DeadLetters, UnsettledCount, UnsettledGuard},
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
    reconnects: watch::Sender<Reconnects>,
    skew: SkewEstimate,
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
    /// Set when the queue had been deleted before this session.
    queue_was_lost: bool,
    unsettled: UnsettledCount,
    wait_clock: WaitClock,
}

/// A series of deliveries that one ack covers.
struct Unacked {
    last: u64,
    count: u16,
}

impl Session {
    /// Returns the next delivery. Acknowledges received deliveries once there are many, and before it
    /// waits.
    async fn next(
        &mut self,
        subscription: &Subscription,
    ) -> Option<lapin::Result<lapin::message::Delivery>> {
        // Acks at half the prefetch, so that the broker never waits for them.
        let max_unacked = (subscription.prefetch / 2).max(1);
        if self.unacked.as_ref().is_some_and(|unacked| unacked.count >= max_unacked) {
            self.ack_received();
        }
        if let Some(next) = self.consumer.next().now_or_never() {
            return next;
        }
        self.ack_received();
        loop {
            let may_receive = self.unsettled.get() < usize::from(subscription.prefetch);
            self.wait_clock.tick(may_receive);
            tokio::select! {
                biased;
                next = self.consumer.next() => return next,
                () = &mut self.end => return self.consumer.next().now_or_never().flatten(),
                () = tokio::time::sleep(TICK), if subscription.settling == Settling::Explicit => {}
            }
        }
    }

    /// Converts a delivery that is settled on receipt. Returns `None` for an invalid routing key, which
    /// only a foreign publisher can use, and for a dead letter of another queue: the broker routes dead
    /// letters without checking permissions, so such a message may be forged.
    fn receive(
        &mut self,
        delivery: lapin::message::Delivery,
        subscriber: &Subscriber,
    ) -> Option<Delivery> {
        let lapin::message::Delivery {
            delivery_tag,
            routing_key,
            redelivered,
            properties,
            data,
            ..
        } = delivery;
        let count = self.unacked.as_ref().map_or(0, |unacked| unacked.count).saturating_add(1);
        self.unacked = Some(Unacked { last: delivery_tag, count });
        let attempt = codec::delivery_attempt(&properties, redelivered, MAX_DELIVERIES);
        if codec::was_dead_letter(&properties) {
            warn!("dead letter of another queue dropped: it may be a forged reply");
            return None;
        }
        let key = RoutingKey::new(routing_key.as_str()).ok()?;
        let envelope = subscriber.decode(&properties, data);
        Some(Delivery::received(envelope, key, attempt))
    }

    /// Closes the channel, without waiting for the broker, which requeues its unsettled deliveries.
    fn close(mut self) {
        self.ack_received();
        let Self { channel, consumer, .. } = self;
        drop(consumer);
        let mut closing =
            Box::pin(async move { channel.close(REPLY_SUCCESS, "consumer ended".into()).await });
        // The first poll marks the channel as closing, so that its deliveries are no longer open.
        if closing.as_mut().now_or_never().is_none() {
            tokio::spawn(timeout(OPERATION_TIMEOUT, closing));
        }
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

/// Reply code of a channel that is closed in order.
const REPLY_SUCCESS: u16 = 200;

/// Timeout of one attempt to resubscribe.
const RESUBSCRIBE_TIMEOUT: Duration = Duration::from_secs(4);

impl Subscriber {
    /// Decodes a message. In a fleet whose services have users, one without a user or with that of another
    /// namespace is marked as unsigned.
    fn decode(&self, properties: &BasicProperties, data: Vec<u8>) -> Envelope {
        let mut envelope = codec::decode(properties, data);
        if self.namespace.has_user(self.supervisor.user().as_str()) {
            let user = envelope.user_id.as_deref();
            if user.is_none_or(|user| self.namespace.is_foreign_user(user)) {
                debug!(queue = self.queue(), user, "message is not signed by a user of the fleet");
                envelope.user_id = Some(UNSIGNED.into());
            }
        }
        envelope
    }

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
                refused(&self.namespace, self.queue(), &error)
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
            queue_was_lost: false,
            unsettled: UnsettledCount::default(),
            wait_clock: WaitClock::new(),
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
        channel
            .basic_consume(name, ShortString::default(), options, self.consumer_arguments())
            .await
    }

    /// Returns the arguments of the consumer. RabbitMQ before 4.3 ignores the timeout and applies its setting
    /// `consumer_timeout`; 4.3 refuses the argument for classic queues, and limits no delivery of theirs.
    fn consumer_arguments(&self) -> FieldTable {
        let mut arguments = FieldTable::default();
        let Subscription { queue, settle_timeout, .. } = &self.subscription;
        if matches!(queue.kind, QueueKind::Work | QueueKind::DeadLetters | QueueKind::Retained) {
            let millis = i64::try_from(settle_timeout.as_millis()).unwrap_or(i64::MAX);
            arguments.insert("x-consumer-timeout".into(), AMQPValue::LongLongInt(millis));
        }
        arguments
    }

    /// Returns whether the reply queue of a lost session was deleted, with the replies in it.
    async fn reply_queue_was_lost(&self) -> bool {
        let queue = &self.subscription.queue;
        if queue.kind != QueueKind::Reply {
            return false;
        }
        let Some(connection) = self.supervisor.current_connection() else { return false };
        // On a channel of its own: the broker closes it if the queue is missing.
        let Ok(channel) = connection.open_channel().await else { return false };
        connection.until_lost(self.namespace.is_missing(&channel, queue)).await.unwrap_or_default()
    }

    /// Resubscribes, with retries without a limit; returns `None` once the bus is closed.
    async fn resubscribe(self: Arc<Self>, status: Arc<ConsumerStatus>) -> Option<Session> {
        let mut waits = backoff::waits();
        let mut last_reason = String::new();
        let mut queue_was_lost = false;
        loop {
            // Waiting for the connection has no limit; the timeout applies once connected.
            self.supervisor.connection().await.ok()?;
            let opened = async {
                queue_was_lost |= self.reply_queue_was_lost().await;
                self.open().await
            };
            let reason = match timeout(RESUBSCRIBE_TIMEOUT, opened).await {
                Ok(Ok(session)) => {
                    let session = Session { queue_was_lost, ..session };
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
        let named = |name| {
            let refused = |error| refused(&namespace, queue.name.as_str(), &error);
            namespace.queue(name).map_err(refused)
        };
        named(&queue.name)?;
        let dead_letters_as = named(&queue.dead_letters_as)?;
        let dead_letters = (queue.kind == QueueKind::Work).then(|| DeadLetters {
            queue: dead_letters_as,
            channel: dead_letter_channel.clone(),
            budget: DeadLetterBudget::new(),
        });
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
            reconnects: watch::Sender::default(),
            skew: SkewEstimate::default(),
        })
    }

    async fn next_delivery(&mut self) -> Option<Delivery> {
        let settling = self.subscriber.subscription.settling;
        loop {
            let Some(session) = &mut self.session else {
                let session = self.resubscribed().await?;
                self.reconnects.send_modify(|reconnects| {
                    reconnects.count += 1;
                    reconnects.queue_losses += u64::from(session.queue_was_lost);
                });
                self.session = Some(session);
                continue;
            };
            match session.next(&self.subscriber.subscription).await {
                Some(Ok(delivery)) if settling == Settling::OnReceipt => {
                    let received = session.receive(delivery, &self.subscriber);
                    if received.is_some() {
                        return received;
                    }
                }
                Some(Ok(delivery)) => {
                    let fresh = session.wait_clock.receive();
                    let (channel, unsettled) = (session.channel.clone(), session.unsettled.count());
                    if let Some(delivery) = self.convert(delivery, channel, unsettled, fresh) {
                        return Some(delivery);
                    }
                }
                Some(Err(error)) => {
                    warn!(queue = self.subscriber.queue(), %error, "consumer lost its channel");
                    self.give_up();
                }
                // Cancelled by the broker, because the queue was deleted or a delivery was held too long.
                None if self.status.is_some() => self.give_up(),
                // Cancelled by this process, which may still settle what it received.
                None => self.session = None,
            }
        }
    }

    /// Ends the session, with its channel: the broker would hold back its unsettled deliveries, and may
    /// send more.
    fn give_up(&mut self) {
        if let Some(session) = self.session.take() {
            session.close();
        }
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
        match session {
            Ok(session) => session,
            // Caught by the owner of the consumer, which then tries again.
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            // The runtime stops.
            Err(_) => None,
        }
    }

    /// Converts a delivery that its handler settles. One with an invalid routing key is dead-lettered.
    fn convert(
        &mut self,
        delivery: lapin::message::Delivery,
        channel: Arc<Channel>,
        unsettled: UnsettledGuard,
        fresh: bool,
    ) -> Option<Delivery> {
        let lapin::message::Delivery {
            delivery_tag: tag,
            routing_key,
            redelivered,
            properties,
            data,
            ..
        } = delivery;
        let dead_letters = self.dead_letters.clone();
        let settler = AmqpSettler { tag, channel, dead_letters, _unsettled: unsettled };
        let attempt = codec::delivery_attempt(&properties, redelivered, MAX_DELIVERIES);
        let mut envelope = self.subscriber.decode(&properties, data);
        self.skew.correct(&mut envelope, fresh && attempt == 1, SystemTime::now());
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

    fn reconnects(&self) -> Option<watch::Receiver<Reconnects>> {
        Some(self.reconnects.subscribe())
    }

    fn interrupt(&mut self) {
        self.give_up();
    }
}

impl Drop for RabbitConsumer {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.subscriber.supervisor.consumers().set_failed();
        }
    }
}

fn refused(namespace: &Namespace, queue: &str, error: &lapin::Error) -> ConsumeError {
    let queue = queue.to_owned();
    if refusal::is_in_use(error) {
        return ConsumeError::InUse { queue };
    }
    ConsumeError::Refused { queue, reason: namespace.explain(error) }
}
