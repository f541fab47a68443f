//! Changes of a record, as its runner sees them.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// Reports changes of a record to the task that works on it.
#[derive(Debug, Default)]
pub(super) struct Change {
    is_set: AtomicBool,
    notify: Notify,
}

impl Change {
    pub(super) fn set(&self) {
        self.is_set.store(true, Ordering::Release);
        self.notify.notify_one();
    }

    pub(super) fn take(&self) -> bool {
        self.is_set.swap(false, Ordering::AcqRel)
    }

    /// Waits for a change.
    ///
    /// # Cancellation
    /// No change is lost.
    pub(super) async fn wait(&self) {
        while !self.take() {
            self.notify.notified().await;
        }
    }
}
