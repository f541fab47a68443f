//! The bus inside one process: the whole fleet of the embedded default, and of the tests.
//!
//! It keeps the promises of a broker (competing consumers, topic bindings, prefetch, redelivery,
//! dead letters, bounded queues) without its disk: what is in it ends with the process.

mod queue;
mod router;

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use futures_util::future::BoxFuture;
use rockbot_contracts::{QueueName, json::Limits};

use crate::{
    delivery::Delivery,
    port::{Bus, ConsumeError, Consumer, DeliverySource, Publication, PublishError, Subscription},
    report::{BusReport, QueueReport, QueueState},
};

use self::{
    queue::{Lease, Queue},
    router::Router,
};

/// A bus inside one process. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct MemoryBus {
    broker: Arc<Broker>,
}

#[derive(Debug, Default)]
struct Broker {
    router: Mutex<Router>,
    limits: Limits,
    closed: AtomicBool,
}

impl MemoryBus {
    /// An empty bus that carries bodies up to the default limit.
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
        let mut taken = true;
        for queue in queues {
            taken &= queue.offer(key.clone(), envelope.clone());
        }
        // The last queue takes the envelope itself; with one queue nothing is copied.
        taken &= last.offer(key.clone(), envelope);
        if taken { Ok(()) } else { Err(PublishError::Refused { key }) }
    }

    fn consume_now(&self, subscription: &Subscription) -> Result<Consumer, ConsumeError> {
        if self.broker.closed.load(Ordering::Acquire) {
            return Err(ConsumeError::Closed);
        }
        let queue = self.broker.router().declare(&subscription.queue).map_err(|reason| {
            ConsumeError::Refused { queue: subscription.queue.name.to_string(), reason }
        })?;
        let lease = queue.subscribe(subscription);
        Ok(Consumer::new(MemoryConsumer { broker: self.broker.clone(), lease }))
    }
}

impl Broker {
    fn router(&self) -> MutexGuard<'_, Router> {
        self.router.lock().unwrap_or_else(PoisonError::into_inner)
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
        !self.broker.closed.load(Ordering::Acquire)
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.broker.closed.store(true, Ordering::Release);
        self.broker.router().close();
        Box::pin(std::future::ready(()))
    }
}

struct MemoryConsumer {
    broker: Arc<Broker>,
    lease: Lease,
}

impl DeliverySource for MemoryConsumer {
    fn next(&mut self) -> BoxFuture<'_, Option<Delivery>> {
        Box::pin(self.lease.next())
    }

    fn cancel(&mut self) -> BoxFuture<'_, ()> {
        // A broker counts a cancelled consumer out as well.
        if self.lease.cancel() {
            self.broker.router().release(&self.lease);
        }
        Box::pin(std::future::ready(()))
    }
}

impl Drop for MemoryConsumer {
    fn drop(&mut self) {
        if self.lease.cancel() {
            self.broker.router().release(&self.lease);
        }
    }
}

/// Where dead letters of a queue go; shared with the queue that produces them.
type DeadLetters = Option<Arc<Queue>>;
