//! A bus whose consumers are disconnected on command.

use std::{
    borrow::Cow,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
};

use futures_util::future::BoxFuture;
use rockbot_bus::{
    Bus, BusReport, ConsumeError, Consumer, Delivery, DeliverySource, Publication, PublishError,
    SettleError, Settlement, Settler, Subscription,
};
use rockbot_contracts::{Envelope, QueueName};
use tokio_util::sync::CancellationToken;

/// Connection of the consumers of a [`LossyBus`].
#[derive(Default)]
pub(crate) struct Connection {
    lost: CancellationToken,
    unsettled: Mutex<Vec<Weak<Mutex<Option<Delivery>>>>>,
    retries: AtomicU32,
    loses_acks: AtomicBool,
    lost_acks: Mutex<Vec<Arc<Mutex<Option<Delivery>>>>>,
}

impl Connection {
    /// Makes acks succeed without an effect, as those that a broker drops when a channel closes.
    pub(crate) fn lose_acks(&self) {
        self.loses_acks.store(true, Ordering::SeqCst);
    }

    /// Disconnects the consumers for good: the bus redelivers their unsettled messages to others.
    pub(crate) fn lose(&self) {
        self.lost.cancel();
        for delivery in self.unsettled.lock().expect("no panic").drain(..) {
            if let Some(delivery) = delivery.upgrade() {
                delivery.lock().expect("no panic").take();
            }
        }
    }

    /// Returns the number of deliveries that their handler returned to the bus.
    pub(crate) fn retries(&self) -> u32 {
        self.retries.load(Ordering::SeqCst)
    }
}

/// A wrapper of a bus; everything but the settlement of deliveries is delegated.
pub(crate) struct LossyBus {
    bus: Arc<dyn Bus>,
    connection: Arc<Connection>,
}

impl LossyBus {
    pub(crate) fn wrap(bus: Arc<dyn Bus>) -> (Arc<dyn Bus>, Arc<Connection>) {
        let connection = Arc::<Connection>::default();
        (Arc::new(Self { bus, connection: connection.clone() }), connection)
    }
}

impl Bus for LossyBus {
    fn publish(&self, publication: Publication) -> BoxFuture<'_, Result<(), PublishError>> {
        self.bus.publish(publication)
    }

    fn consume(&self, subscription: Subscription) -> BoxFuture<'_, Result<Consumer, ConsumeError>> {
        Box::pin(async move {
            let consumer = self.bus.consume(subscription).await?;
            Ok(Consumer::new(LossyConsumer { consumer, connection: self.connection.clone() }))
        })
    }

    fn inspect<'a>(
        &'a self,
        queues: &'a [QueueName],
    ) -> BoxFuture<'a, Result<BusReport, ConsumeError>> {
        self.bus.inspect(queues)
    }

    fn is_ready(&self) -> bool {
        self.bus.is_ready()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.bus.close()
    }
}

struct LossyConsumer {
    consumer: Consumer,
    connection: Arc<Connection>,
}

impl LossyConsumer {
    async fn next_delivery(&mut self) -> Option<Delivery> {
        let delivery = tokio::select! {
            biased;
            () = self.connection.lost.cancelled() => std::future::pending().await,
            delivery = self.consumer.next() => delivery?,
        };
        let (envelope, key) = (delivery.envelope().clone(), delivery.routing_key().clone());
        let attempt = delivery.attempt();
        let delivery = Arc::new(Mutex::new(Some(delivery)));
        let mut unsettled = self.connection.unsettled.lock().expect("no panic");
        unsettled.push(Arc::downgrade(&delivery));
        drop(unsettled);
        let settler = LossySettler { delivery, connection: self.connection.clone() };
        Some(Delivery::new(envelope, key, attempt, settler))
    }
}

impl DeliverySource for LossyConsumer {
    fn next(&mut self) -> BoxFuture<'_, Option<Delivery>> {
        Box::pin(self.next_delivery())
    }

    fn cancel(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(self.consumer.cancel())
    }
}

struct LossySettler {
    /// `None` once the connection is lost.
    delivery: Arc<Mutex<Option<Delivery>>>,
    connection: Arc<Connection>,
}

impl LossySettler {
    async fn settle(self, settlement: Settlement) -> Result<(), SettleError> {
        if settlement == Settlement::Ack && self.connection.loses_acks.load(Ordering::SeqCst) {
            let mut lost = self.connection.lost_acks.lock().expect("no panic");
            lost.push(self.delivery);
            return Ok(());
        }
        let delivery = self.delivery.lock().expect("no panic").take();
        let Some(delivery) = delivery else {
            return Err(SettleError { reason: "the connection is lost".to_owned() });
        };
        if settlement == Settlement::Retry {
            self.connection.retries.fetch_add(1, Ordering::SeqCst);
        }
        delivery.settle(settlement).await
    }
}

impl Settler for LossySettler {
    fn ack(self: Box<Self>) -> BoxFuture<'static, Result<(), SettleError>> {
        Box::pin((*self).settle(Settlement::Ack))
    }

    fn retry(self: Box<Self>, _: Envelope) -> BoxFuture<'static, Result<(), SettleError>> {
        Box::pin((*self).settle(Settlement::Retry))
    }

    fn dead_letter(
        self: Box<Self>,
        _: Envelope,
        reason: Cow<'static, str>,
    ) -> BoxFuture<'static, Result<(), SettleError>> {
        Box::pin((*self).settle(Settlement::DeadLetter { reason }))
    }

    fn is_open(&self) -> bool {
        !self.connection.lost.is_cancelled()
    }

    fn abandon(self: Box<Self>, _: Envelope) {
        self.delivery.lock().expect("no panic").take();
    }
}
