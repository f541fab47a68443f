//! What every store can do.

use std::{fmt, time::Duration};

use bytes::Bytes;
use futures_util::future::BoxFuture;

use crate::{
    clock::Timestamp,
    key::{Key, Prefix},
};

/// The largest value, in bytes: 4 MiB.
pub const MAX_VALUE_BYTES: usize = 4 * 1024 * 1024;
/// The most entries that one [`Store::list`] returns.
pub const MAX_PAGE_ENTRIES: usize = 1000;
/// When the values of a page reach this many bytes, the page ends: 8 MiB.
pub const MAX_PAGE_BYTES: usize = 8 * 1024 * 1024;

/// State that several processes share, entry by entry.
///
/// What has expired is not there: it is not returned, not listed, and counts as absent for a
/// write, whether it was swept or not. A write is durable when it returns, except in memory.
pub trait Store: Send + Sync + 'static {
    /// The entry of a key, if there is one.
    fn get<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Option<Entry>, StoreError>>;

    /// Writes if the key is as expected, and returns the new version, or what is there instead.
    ///
    /// # Errors
    /// Only [`StoreError::Unconfirmed`] leaves open whether the value was written; read it, or
    /// write again expecting the version known before.
    ///
    /// # Cancellation
    /// Dropping the future leaves the value either written or not.
    fn write(&self, write: Write) -> BoxFuture<'_, Result<Written, StoreError>>;

    /// Removes the entry of a key if it is as expected. Returns whether an entry was removed: an
    /// entry that is absent or has another version is no error.
    ///
    /// # Errors
    /// As for [`Store::write`].
    ///
    /// # Cancellation
    /// Dropping the future leaves the entry either removed or not.
    fn remove<'a>(
        &'a self,
        key: &'a Key,
        expected: Expected,
    ) -> BoxFuture<'a, Result<bool, StoreError>>;

    /// A page of the entries below the prefix, in order of their keys, beginning after the key
    /// `after`: at most `limit`, at most [`MAX_PAGE_ENTRIES`], and no further than the entry with
    /// which the values reach [`MAX_PAGE_BYTES`]. So a short page is not the last one; an empty
    /// page is the end (for a limit of at least 1).
    fn list<'a>(
        &'a self,
        prefix: &'a Prefix,
        after: Option<&'a Key>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<(Key, Entry)>, StoreError>>;

    /// Removes what has expired, at most `limit` entries, and returns how many it were.
    fn sweep(&self, limit: usize) -> BoxFuture<'_, Result<u64, StoreError>>;

    /// The time that entries expire by.
    fn now(&self) -> BoxFuture<'_, Result<Timestamp, StoreError>>;

    /// Finishes the writes that wait and gives the store up. Everything afterwards fails with
    /// [`StoreError::Closed`].
    fn close(&self) -> BoxFuture<'_, ()>;
}

/// What is kept under a key.
#[derive(Clone, PartialEq, Eq)]
pub struct Entry {
    /// The value as it was written.
    pub value: Bytes,
    /// Which write it comes from.
    pub version: Version,
    /// When it is gone; never when `None`.
    pub expires_at: Option<Timestamp>,
}

impl Entry {
    /// Returns whether the entry has expired at `now`.
    #[must_use]
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|end| end <= now)
    }
}

// The value is somebody's data and must not get into a log.
impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry")
            .field("bytes", &self.value.len())
            .field("version", &self.version)
            .field("expires_at", &self.expires_at)
            .finish()
    }
}

/// Which write of a store made an entry.
///
/// Each write takes it from a counter of its store that only grows. For a key it never comes
/// again and never gets smaller, also not after the entry expired or was removed, nor when the
/// store is opened again: whoever saw a larger version may refuse a smaller one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Version(i64);

impl Version {
    /// The version with this number.
    #[must_use]
    pub const fn from_number(number: i64) -> Self {
        Self(number)
    }

    /// Its number, at least 1 for what a store returns.
    #[must_use]
    pub const fn number(self) -> i64 {
        self.0
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// What must be under a key for a write or a removal to happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// Anything, or nothing.
    Anything,
    /// Nothing, or what has expired.
    Absent,
    /// The entry of that write, not expired.
    Version(Version),
}

impl Expected {
    /// Returns whether `entry`, which has not expired, meets the expectation.
    #[must_use]
    pub fn is_met_by(self, entry: Option<&Entry>) -> bool {
        match self {
            Self::Anything => true,
            Self::Absent => entry.is_none(),
            Self::Version(version) => entry.is_some_and(|entry| entry.version == version),
        }
    }
}

/// A value on its way into a store.
#[derive(Clone, PartialEq, Eq)]
pub struct Write {
    /// Where it goes.
    pub key: Key,
    /// At most [`MAX_VALUE_BYTES`].
    pub value: Bytes,
    /// How long it is kept, to the millisecond; `None` for ever.
    pub ttl: Option<Duration>,
    /// What must be there.
    pub expected: Expected,
}

impl Write {
    /// A value that is kept for ever, in place of whatever is there.
    #[must_use]
    pub fn new(key: Key, value: impl Into<Bytes>) -> Self {
        Self { key, value: value.into(), ttl: None, expected: Expected::Anything }
    }

    /// The same, gone after `ttl`.
    #[must_use]
    pub fn for_a_time(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// The same, if the key is as expected.
    #[must_use]
    pub fn expecting(mut self, expected: Expected) -> Self {
        self.expected = expected;
        self
    }

    /// Checks the size of the value; every store calls it before it writes.
    ///
    /// # Errors
    /// [`StoreError::TooLarge`] above [`MAX_VALUE_BYTES`].
    pub fn check_size(&self) -> Result<(), StoreError> {
        match self.value.len() {
            bytes if bytes > MAX_VALUE_BYTES => {
                Err(StoreError::TooLarge { bytes, limit: MAX_VALUE_BYTES })
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Write")
            .field("key", &self.key)
            .field("bytes", &self.value.len())
            .field("ttl", &self.ttl)
            .field("expected", &self.expected)
            .finish()
    }
}

/// What became of a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Written {
    /// The value is there, with this version.
    Done(Version),
    /// Nothing was written, because this is there (or nothing is): never what was expected.
    Conflict(Option<Entry>),
}

/// Why a store did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The store can't be reached, or is too busy. Nothing was changed; trying again later may
    /// help.
    #[error("the store can't be reached: {reason}")]
    Unavailable {
        /// What happened, and what to do.
        reason: String,
    },
    /// The change was handed over and no answer came: it was made or not.
    #[error("the store did not confirm the change, which was made or not: {reason}")]
    Unconfirmed {
        /// What happened instead.
        reason: String,
    },
    /// The value is larger than a store keeps.
    #[error(
        "the value has {bytes} bytes, over the limit of {limit}; keep it elsewhere and store where it is"
    )]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// There is no room. Nothing was changed.
    #[error("the store is full: {reason}")]
    Full {
        /// What is used up, and what to do.
        reason: String,
    },
    /// What is there can't be used by this program, or is damaged; trying again does not help.
    #[error("the store can't be used: {reason}")]
    Unusable {
        /// What is wrong with it, and what to do.
        reason: String,
    },
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
}
