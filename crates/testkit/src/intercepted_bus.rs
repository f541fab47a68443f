//! A bus whose publishes a test intercepts, and whose consumers report reconnects on command.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use rockbot_bus::{
    Bus, BusReport, ConsumeError, Consumer, Delivery, DeliverySource, Publication, PublishError,
    Reconnects, Subscription,
};
use rockbot_contracts::QueueName;
use tokio::sync::watch;

/// A wrapper of a bus that replaces [`Bus::publish`]; everything else is delegated.
pub struct InterceptedBus<F> {
    bus: Arc<dyn Bus>,
    publish: F,
    reconnects: Option<watch::Receiver<Reconnects>>,
}

/// A consumer that reports the test's reconnects.
struct Reconnecting {
    consumer: Consumer,
    reconnects: watch::Receiver<Reconnects>,
}

impl<F, P> InterceptedBus<F>
where
    F: Fn(Arc<dyn Bus>, Publication) -> P + Send + Sync + 'static,
    P: Future<Output = Result<(), PublishError>> + Send + 'static,
{
    /// Wraps `bus`. `publish` receives it with each publication, and publishes what and when it wants.
    pub fn wrap(bus: Arc<dyn Bus>, publish: F) -> Arc<dyn Bus> {
        Arc::new(Self { bus, publish, reconnects: None })
    }

    /// Wraps `bus` with consumers that report `reconnects`.
    pub fn with_reconnects(
        bus: Arc<dyn Bus>,
        reconnects: watch::Receiver<Reconnects>,
        publish: F,
    ) -> Arc<dyn Bus> {
        Arc::new(Self { bus, publish, reconnects: Some(reconnects) })
    }
}

impl<F, P> Bus for InterceptedBus<F>
where
    F: Fn(Arc<dyn Bus>, Publication) -> P + Send + Sync + 'static,
    P: Future<Output = Result<(), PublishError>> + Send + 'static,
{
    fn publish(&self, publication: Publication) -> BoxFuture<'_, Result<(), PublishError>> {
        Box::pin((self.publish)(self.bus.clone(), publication))
    }

    fn consume(&self, subscription: Subscription) -> BoxFuture<'_, Result<Consumer, ConsumeError>> {
        Box::pin(async move {
            let consumer = self.bus.consume(subscription).await?;
            Ok(match self.reconnects.clone() {
                Some(reconnects) => Consumer::new(Reconnecting { consumer, reconnects }),
                None => consumer,
            })
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

impl DeliverySource for Reconnecting {
    fn next(&mut self) -> BoxFuture<'_, Option<Delivery>> {
        Box::pin(self.consumer.next())
    }

    fn cancel(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(self.consumer.cancel())
    }

    fn reconnects(&self) -> Option<watch::Receiver<Reconnects>> {
        Some(self.reconnects.clone())
    }
}
