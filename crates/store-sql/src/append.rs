//! A validated append to a log.

use std::time::Duration;

use bytes::Bytes;
use rockbot_store::{Appended, LogId, LogName, LogPosition, StoreError, log::check_append};

/// An append within the limits.
pub(crate) struct Append {
    pub(crate) name: LogName,
    /// The position of the first entry.
    pub(crate) at: LogPosition,
    pub(crate) entries: Vec<Bytes>,
    /// The size of all entries.
    pub(crate) bytes: usize,
    pub(crate) ttl: Option<Duration>,
}

impl Append {
    pub(crate) fn new(
        name: &LogName,
        at: LogPosition,
        entries: Vec<Bytes>,
        ttl: Option<Duration>,
    ) -> Result<Self, StoreError> {
        let bytes = check_append(&entries)?;
        Ok(Self { name: name.clone(), at, entries, bytes, ttl })
    }

    /// Returns whether only the fence is checked: there are no entries, or no log has this number.
    pub(crate) fn is_check(&self) -> bool {
        const MAX_NUMBER: u64 = i64::MAX as u64 / 2;
        self.entries.is_empty() || !(1..=MAX_NUMBER).contains(&self.at.number)
    }

    /// Returns `true` if the log is created if it does not exist.
    pub(crate) fn may_create(&self) -> bool {
        self.at == LogPosition::START
    }

    /// Returns the outcome of a check against the next position.
    pub(crate) fn check_fence(&self, next: LogPosition) -> Appended {
        if self.at.accepts(next) { Appended::Done { next } } else { Appended::Conflict { next } }
    }

    /// Returns the outcome of a successful append to this log.
    pub(crate) fn done(&self, log: LogId) -> Appended {
        let number = self.at.number.saturating_add(self.entries.len() as u64);
        Appended::Done { next: LogPosition { log: Some(log), number } }
    }
}
