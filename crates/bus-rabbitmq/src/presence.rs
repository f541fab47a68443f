//! Which consumers were subscribed, and whether each is consuming now.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use lapin::Channel;
use rockbot_contracts::QueueSpec;

/// The consumers of one bus; cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Subscribers(Arc<Mutex<Vec<Weak<Presence>>>>);

/// One consumer, for as long as its owner keeps this.
pub(crate) struct Presence {
    pub(crate) queue: QueueSpec,
    /// The channel it consumes on, and the connection of that; none while it is interrupted.
    consuming: Mutex<Option<(u64, Weak<Channel>)>>,
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

    /// The queues that are subscribed.
    pub(crate) fn queues(&self) -> Vec<QueueSpec> {
        self.all().iter().map(|presence| presence.queue.clone()).collect()
    }

    fn all(&self) -> Vec<Arc<Presence>> {
        lock(&self.0).iter().filter_map(Weak::upgrade).collect()
    }
}

impl Presence {
    pub(crate) fn consuming(&self, generation: u64, channel: &Arc<Channel>) {
        *lock(&self.consuming) = Some((generation, Arc::downgrade(channel)));
    }

    pub(crate) fn interrupted(&self) {
        *lock(&self.consuming) = None;
    }

    fn consumes_on(&self, current: u64) -> bool {
        let Some((generation, channel)) = lock(&self.consuming).clone() else { return false };
        let lives = channel.upgrade().is_some_and(|channel| channel.status().connected());
        generation == current && lives
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
