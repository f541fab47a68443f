//! A validated append to a log.

use std::time::Duration;

use bytes::Bytes;
use rockbot_store::{Appended, LogName, StoreError, log::check_append};

/// An append within the limits.
pub(crate) struct Append {
    pub(crate) name: LogName,
    /// The number of the first entry.
    pub(crate) at: u64,
    pub(crate) entries: Vec<Bytes>,
    /// The size of all entries.
    pub(crate) bytes: usize,
    pub(crate) ttl: Option<Duration>,
}

impl Append {
    pub(crate) fn new(
        name: &LogName,
        at: u64,
        entries: Vec<Bytes>,
        ttl: Option<Duration>,
    ) -> Result<Self, StoreError> {
        let bytes = check_append(&entries)?;
        Ok(Self { name: name.clone(), at, entries, bytes, ttl })
    }

    /// Returns the outcome of an append without entries.
    pub(crate) fn check_fence(&self, next: u64) -> Appended {
        if self.at == next { Appended::Done { next } } else { Appended::Conflict { next } }
    }

    /// Returns the outcome of a successful append.
    pub(crate) fn done(&self) -> Appended {
        Appended::Done { next: self.at.saturating_add(self.entries.len() as u64) }
    }
}
