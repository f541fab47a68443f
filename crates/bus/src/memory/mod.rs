//! An in-process bus, for deployments without a broker and for tests.
//!
//! It behaves like a broker (competing consumers, topic bindings, prefetch, redelivery, dead letters,
//! bounded queues) but has no disk: its messages are lost when the process ends.

mod queue;
mod router;

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use parking_lot::{Mutex, MutexGuard};

use futures_util::future::BoxFuture;
use rockbot_contracts::{QueueName, json::Limits};

use crate::{
    delivery::Delivery,
    port::{Bus, ConsumeError, Consumer, DeliverySource, Publication, PublishError, Subscription},
    report::{BusReport, QueueReport, QueueState},
};

use self::{
    queue::{Queue, QueueConsumer},
    router::Router,
};

/// A bus within one process. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct MemoryBus {
    broker: Arc<Broker>,
}

#[derive(Debug, Default)]
struct Broker {
    router: Mutex<Router>,
    limits: Limits,
    closed: AtomicBool,
    /// Set once the owner of a consumer panicked.
    failed: AtomicBool,
}

impl MemoryBus {
    /// Creates an empty bus that carries bodies up to the default limit.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn publish_now(&self, publication: Publication) -> Result<(), PublishError> {
        let Publication { key, envelope, mandatory, .. } = publication;
        let bytes = envelope.body.len();
        if bytes > self.broker.limits.bytes {
            return Err(PublishError::TooLarge { bytes, limit: self.broker.limits.bytes });
        }
        if self.broker.closed.load(Ordering::Acquire) {
            return Err(PublishError::Closed);
        }
        let mut queues = self.broker.router().route(&key);
        let Some(last) = queues.pop() else {
            return if mandatory { Err(PublishError::Unroutable { key }) } else { Ok(()) };
        };
        let mut accepted = true;
        for queue in queues {
            accepted &= queue.push(key.clone(), envelope.clone());
        }
        // The last queue receives the envelope itself, so that a single queue needs no copy.
        accepted &= last.push(key.clone(), envelope);
        if accepted { Ok(()) } else { Err(PublishError::Refused { key }) }
    }

    fn consume_now(&self, subscription: &Subscription) -> Result<Consumer, ConsumeError> {
        if self.broker.closed.load(Ordering::Acquire) {
            return Err(ConsumeError::Closed);
        }
        let queue = self.broker.router().declare(&subscription.queue).map_err(|reason| {
            ConsumeError::Refused { queue: subscription.queue.name.to_string(), reason }
        })?;
        let consumer = queue.subscribe(subscription);
        Ok(Consumer::new(MemoryConsumer { broker: self.broker.clone(), consumer }))
    }
}

impl Broker {
    fn router(&self) -> MutexGuard<'_, Router> {
        self.router.lock()
    }
}

impl Bus for MemoryBus {
    fn publish(&self, publication: Publication) -> BoxFuture<'_, Result<(), PublishError>> {
        Box::pin(std::future::ready(self.publish_now(publication)))
    }

    fn consume(&self, subscription: Subscription) -> BoxFuture<'_, Result<Consumer, ConsumeError>> {
        Box::pin(std::future::ready(self.consume_now(&subscription)))
    }

    fn inspect<'a>(
        &'a self,
        queues: &'a [QueueName],
    ) -> BoxFuture<'a, Result<BusReport, ConsumeError>> {
        let router = self.broker.router();
        let queues = queues
            .iter()
            .map(|name| QueueReport {
                name: name.to_string(),
                state: router
                    .find(name)
                    .map_or(QueueState::Missing, |queue| QueueState::Present(queue.depth())),
            })
            .collect();
        let product = format!("in-memory bus {}", env!("CARGO_PKG_VERSION"));
        Box::pin(std::future::ready(Ok(BusReport { product, address: None, queues })))
    }

    fn is_ready(&self) -> bool {
        let Broker { closed, failed, .. } = &*self.broker;
        !closed.load(Ordering::Acquire) && !failed.load(Ordering::Acquire)
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.broker.closed.store(true, Ordering::Release);
        self.broker.router().close();
        Box::pin(std::future::ready(()))
    }
}

struct MemoryConsumer {
    broker: Arc<Broker>,
    consumer: QueueConsumer,
}

impl DeliverySource for MemoryConsumer {
    fn next(&mut self) -> BoxFuture<'_, Option<Delivery>> {
        Box::pin(self.consumer.next())
    }

    fn cancel(&mut self) -> BoxFuture<'_, ()> {
        // As at a broker, a cancelled consumer no longer counts as one.
        if self.consumer.cancel() {
            self.broker.router().remove_consumer(&self.consumer);
        }
        Box::pin(std::future::ready(()))
    }
}

impl Drop for MemoryConsumer {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.broker.failed.store(true, Ordering::Release);
        }
        if self.consumer.cancel() {
            self.broker.router().remove_consumer(&self.consumer);
        }
    }
}

/// Dead-letter queue of a work queue.
type DeadLetters = Option<Arc<Queue>>;
