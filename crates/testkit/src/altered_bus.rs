//! A bus that does something else with what is published.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use rockbot_bus::{
    Bus, BusReport, ConsumeError, Consumer, Publication, PublishError, Subscription,
};
use rockbot_contracts::QueueName;

/// Another bus whose [`Bus::publish`] is the test's own; all else is passed on.
pub struct AlteredBus<F> {
    bus: Arc<dyn Bus>,
    publish: F,
}

impl<F, P> AlteredBus<F>
where
    F: Fn(Arc<dyn Bus>, Publication) -> P + Send + Sync + 'static,
    P: Future<Output = Result<(), PublishError>> + Send + 'static,
{
    /// `publish` is given the bus below, to publish there what and when it wants.
    pub fn over(bus: Arc<dyn Bus>, publish: F) -> Arc<dyn Bus> {
        Arc::new(Self { bus, publish })
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
        self.bus.consume(subscription)
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
