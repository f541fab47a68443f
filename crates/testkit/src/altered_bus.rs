//! A bus that does something else with what is published, or says that it was interrupted.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use rockbot_bus::{
    Bus, BusReport, ConsumeError, Consumer, Delivery, DeliverySource, Publication, PublishError,
    Subscription,
};
use rockbot_contracts::QueueName;
use tokio::sync::watch;

/// Another bus whose [`Bus::publish`] is the test's own; all else is passed on.
pub struct AlteredBus<F> {
    bus: Arc<dyn Bus>,
    publish: F,
    resumptions: Option<watch::Receiver<u64>>,
}

/// A consumer that says how often it was interrupted, whatever it was.
struct Interrupted {
    consumer: Consumer,
    resumptions: watch::Receiver<u64>,
}

impl<F, P> AlteredBus<F>
where
    F: Fn(Arc<dyn Bus>, Publication) -> P + Send + Sync + 'static,
    P: Future<Output = Result<(), PublishError>> + Send + 'static,
{
    /// `publish` is given the bus below, to publish there what and when it wants.
    pub fn over(bus: Arc<dyn Bus>, publish: F) -> Arc<dyn Bus> {
        Arc::new(Self { bus, publish, resumptions: None })
    }

    /// The same with consumers that say that they were interrupted as often as `resumptions` does.
    pub fn interrupted(
        bus: Arc<dyn Bus>,
        resumptions: watch::Receiver<u64>,
        publish: F,
    ) -> Arc<dyn Bus> {
        Arc::new(Self { bus, publish, resumptions: Some(resumptions) })
    }
}

impl<F, P> Bus for AlteredBus<F>
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
            Ok(match self.resumptions.clone() {
                Some(resumptions) => Consumer::new(Interrupted { consumer, resumptions }),
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

impl DeliverySource for Interrupted {
    fn next(&mut self) -> BoxFuture<'_, Option<Delivery>> {
        Box::pin(self.consumer.next())
    }

    fn cancel(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(self.consumer.cancel())
    }

    fn resumptions(&self) -> Option<watch::Receiver<u64>> {
        Some(self.resumptions.clone())
    }
}
