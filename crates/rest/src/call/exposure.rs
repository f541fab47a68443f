//! The part of a call that a server may have executed.

use std::sync::atomic::{AtomicBool, Ordering};

use rockbot_tools::Executed;

/// Attempts that a server may have executed.
#[derive(Default)]
pub(super) struct Exposure {
    /// One of the earlier attempts.
    earlier: AtomicBool,
    /// The current attempt.
    current: AtomicBool,
}

impl Exposure {
    pub(super) fn begin(&self) {
        self.current.store(true, Ordering::Relaxed);
    }

    /// Records the end of the attempt.
    pub(super) fn end(&self, may_have_run: bool) {
        self.current.store(false, Ordering::Relaxed);
        self.earlier.fetch_or(may_have_run, Ordering::Relaxed);
    }

    pub(super) fn is_running(&self) -> bool {
        self.current.load(Ordering::Relaxed)
    }

    pub(super) fn executed(&self) -> Executed {
        let earlier = self.earlier.load(Ordering::Relaxed);
        if earlier || self.is_running() { Executed::Unknown } else { Executed::No }
    }
}
