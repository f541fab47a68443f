//! Registry of consumers and the status of each.

use std::sync::{
    Arc, Weak,
    atomic::{AtomicBool, Ordering},
};

use parking_lot::{Mutex, MutexGuard};

use lapin::Channel;
use rockbot_contracts::QueueSpec;
use tokio_util::sync::CancellationToken;

/// The consumers of a bus; cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct ConsumerRegistry {
    consumers: Arc<Mutex<Vec<Weak<ConsumerStatus>>>>,
    /// Set once the owner of a consumer panicked.
    failed: Arc<AtomicBool>,
}

/// Status of one consumer, owned by the consumer.
pub(crate) struct ConsumerStatus {
    pub(crate) queue: QueueSpec,
    /// `None` while interrupted.
    consuming: Mutex<Option<Consuming>>,
}

/// Connection and channel of a consumer.
#[derive(Clone)]
struct Consuming {
    generation: u64,
    channel: Weak<Channel>,
    ended: CancellationToken,
}

impl Consuming {
    fn is_open(&self) -> bool {
        self.channel.upgrade().is_some_and(|channel| channel.status().connected())
    }
}

impl ConsumerRegistry {
    /// Adds a consumer, interrupted at first.
    pub(crate) fn register(&self, queue: QueueSpec) -> Arc<ConsumerStatus> {
        let status = Arc::new(ConsumerStatus { queue, consuming: Mutex::default() });
        let mut all = lock(&self.consumers);
        all.retain(|status| status.strong_count() > 0);
        all.push(Arc::downgrade(&status));
        status
    }

    /// Records that a task that owned a consumer ended by a panic: its queue is no longer consumed.
    pub(crate) fn set_failed(&self) {
        self.failed.store(true, Ordering::Release);
    }

    /// Returns whether every consumer consumes on connection number `generation`.
    pub(crate) fn all_consume_on(&self, generation: u64) -> bool {
        !self.failed.load(Ordering::Acquire)
            && self.all().iter().all(|status| status.consumes_on(generation))
    }

    /// Ends the sessions of consumers whose channel is closed. The client library does not report this to
    /// a consumer that subscribed while its channel closed.
    pub(crate) fn end_closed_sessions(&self) {
        for status in self.all() {
            if let Some(consuming) = &*lock(&status.consuming)
                && !consuming.is_open()
            {
                consuming.ended.cancel();
            }
        }
    }

    /// Returns the queues of all consumers.
    pub(crate) fn queues(&self) -> Vec<QueueSpec> {
        self.all().iter().map(|status| status.queue.clone()).collect()
    }

    fn all(&self) -> Vec<Arc<ConsumerStatus>> {
        lock(&self.consumers).iter().filter_map(Weak::upgrade).collect()
    }
}

impl ConsumerStatus {
    /// Records that the consumer consumes on `channel` of connection number `generation`, until the
    /// channel closes or `ended` is cancelled.
    pub(crate) fn set_consuming(
        &self,
        generation: u64,
        channel: &Arc<Channel>,
        ended: &CancellationToken,
    ) {
        let (channel, ended) = (Arc::downgrade(channel), ended.clone());
        *lock(&self.consuming) = Some(Consuming { generation, channel, ended });
    }

    pub(crate) fn set_interrupted(&self) {
        *lock(&self.consuming) = None;
    }

    fn consumes_on(&self, generation: u64) -> bool {
        let consuming = lock(&self.consuming).clone();
        consuming.is_some_and(|consuming| consuming.generation == generation && consuming.is_open())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}
