//! Which consumers were subscribed, and whether each is consuming now.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use lapin::Channel;
use rockbot_contracts::QueueSpec;
use tokio_util::sync::CancellationToken;

/// The consumers of one bus; cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Subscribers(Arc<Mutex<Vec<Weak<Presence>>>>);

/// One consumer, for as long as its owner keeps this.
pub(crate) struct Presence {
    pub(crate) queue: QueueSpec,
    /// None while it is interrupted.
    consuming: Mutex<Option<Consuming>>,
}

/// What a consumer consumes on.
#[derive(Clone)]
struct Consuming {
    generation: u64,
    channel: Weak<Channel>,
    ended: CancellationToken,
}

impl Consuming {
    fn lives(&self) -> bool {
        self.channel.upgrade().is_some_and(|channel| channel.status().connected())
    }
}

impl Subscribers {
    /// Adds a consumer that does not consume yet.
    pub(crate) fn enter(&self, queue: QueueSpec) -> Arc<Presence> {
        let presence = Arc::new(Presence { queue, consuming: Mutex::default() });
        let mut all = lock(&self.0);
        all.retain(|presence| presence.strong_count() > 0);
        all.push(Arc::downgrade(&presence));
        presence
    }

    /// Whether every consumer consumes on connection number `generation`.
    pub(crate) fn all_consume_on(&self, generation: u64) -> bool {
        self.all().iter().all(|presence| presence.consumes_on(generation))
    }

    /// Tells consumers whose channel is closed that it is: one that subscribed just as it closed
    /// is not told by the client library.
    pub(crate) fn end_the_dead(&self) {
        for presence in self.all() {
            if let Some(consuming) = &*lock(&presence.consuming)
                && !consuming.lives()
            {
                consuming.ended.cancel();
            }
        }
    }

    /// The queues that are subscribed.
    pub(crate) fn queues(&self) -> Vec<QueueSpec> {
        self.all().iter().map(|presence| presence.queue.clone()).collect()
    }

    fn all(&self) -> Vec<Arc<Presence>> {
        lock(&self.0).iter().filter_map(Weak::upgrade).collect()
    }
}

impl Presence {
    /// It consumes on `channel` of connection number `generation`, until that ends or `ended` is
    /// cancelled.
    pub(crate) fn consuming(
        &self,
        generation: u64,
        channel: &Arc<Channel>,
        ended: &CancellationToken,
    ) {
        let (channel, ended) = (Arc::downgrade(channel), ended.clone());
        *lock(&self.consuming) = Some(Consuming { generation, channel, ended });
    }

    pub(crate) fn interrupted(&self) {
        *lock(&self.consuming) = None;
    }

    fn consumes_on(&self, generation: u64) -> bool {
        let consuming = lock(&self.consuming).clone();
        consuming.is_some_and(|consuming| consuming.generation == generation && consuming.lives())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
