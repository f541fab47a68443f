//! The part of a call that a server may have executed.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rockbot_egress::ConnectionSignal;
use rockbot_tools::Executed;

/// Attempts that a server may have executed.
#[derive(Default)]
pub(super) struct Exposure {
    /// One of the earlier attempts.
    earlier: AtomicBool,
    /// The connection of the current attempt.
    current: Mutex<Option<ConnectionSignal>>,
}

impl Exposure {
    /// Records the beginning of an attempt. A server may have executed it once it has a connection.
    pub(super) fn begin(&self) -> ConnectionSignal {
        let signal = ConnectionSignal::default();
        *self.current.lock() = Some(signal.clone());
        signal
    }

    /// Records the end of the attempt.
    pub(super) fn end(&self, may_have_run: bool) {
        *self.current.lock() = None;
        self.earlier.fetch_or(may_have_run, Ordering::Relaxed);
    }

    pub(super) fn is_running(&self) -> bool {
        self.current.lock().is_some()
    }

    pub(super) fn executed(&self) -> Executed {
        let earlier = self.earlier.load(Ordering::Relaxed);
        let current = self.current.lock().as_ref().is_some_and(ConnectionSignal::is_connected);
        if earlier || current { Executed::Unknown } else { Executed::No }
    }
}
