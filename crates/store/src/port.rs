//! The store port.

use std::{fmt, time::Duration};

use bytes::Bytes;
use futures_util::future::BoxFuture;

use crate::{
    clock::Timestamp,
    key::{InvalidKey, Key, Prefix},
};

/// The largest value, in bytes: 4 MiB.
pub const MAX_VALUE_BYTES: usize = 4 * 1024 * 1024;
/// The maximum number of entries in a page of [`Store::list`].
pub const MAX_PAGE_ENTRIES: usize = 1000;
/// The size at which a page ends, in bytes of its values: 8 MiB.
pub const MAX_PAGE_BYTES: usize = 8 * 1024 * 1024;
/// The maximum number of entries of [`Store::extend`].
pub const MAX_EXTENSIONS: usize = 256;

/// A key-value store that several processes share.
///
/// An expired entry is absent: it is neither returned nor listed, and a write treats it as absent,
/// whether it was swept or not. A write is durable when it returns, except in memory.
pub trait Store: Send + Sync + 'static {
    /// Returns the entry of a key.
    fn get<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Option<Entry>, StoreError>>;

    /// Writes a value if the current entry meets [`Write::expected`]. Returns the new version, or the current
    /// entry on a conflict.
    ///
    /// # Errors
    /// Only after [`StoreError::Unconfirmed`] the value may have been written: read it, or repeat the
    /// write with the last known version as the expectation.
    ///
    /// # Cancellation
    /// Dropping the future leaves the value either written or not.
    fn write(&self, write: Write) -> BoxFuture<'_, Result<Written, StoreError>>;

    /// Removes the entry of a key if it meets `expected`. Returns whether an entry was removed: an absent
    /// entry or another version is not an error.
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

    /// Extends the time to live of entries to `ttl` from now, each if its current entry has the named version
    /// and has not expired. An extended entry keeps its value and gets a new version, as by a write. Returns
    /// the outcomes in the order of `extensions`; a conflict of one does not affect the others.
    ///
    /// Meant for many small entries, such as leases: a store extends all of them with one commit. The
    /// default reads and writes one after the other. Each key may be named once.
    ///
    /// # Errors
    /// [`StoreError::TooManyEntries`] above [`MAX_EXTENSIONS`]. After [`StoreError::Unconfirmed`] each entry
    /// may have been extended.
    ///
    /// # Cancellation
    /// Dropping the future leaves each entry either extended or not.
    fn extend(
        &self,
        extensions: Vec<Extension>,
        ttl: Duration,
    ) -> BoxFuture<'_, Result<Vec<Written>, StoreError>> {
        Box::pin(async move {
            Extension::check_number(&extensions)?;
            let (mut outcomes, mut is_changed) = (Vec::with_capacity(extensions.len()), false);
            for Extension { key, version } in extensions {
                let extended = async {
                    let expected = Expected::Version(version);
                    match self.get(&key).await? {
                        Some(entry) if entry.version == version => {
                            let write = Write::new(key, entry.value).with_ttl(ttl);
                            self.write(write.with_expected(expected)).await
                        }
                        present => Ok(Written::Conflict(present)),
                    }
                };
                let outcome = extended.await.map_err(|error| match error {
                    StoreError::Unavailable { reason } if is_changed => {
                        StoreError::Unconfirmed { reason }
                    }
                    error => error,
                })?;
                is_changed |= matches!(outcome, Written::Done(_));
                outcomes.push(outcome);
            }
            Ok(outcomes)
        })
    }

    /// Returns a page of the entries below the prefix, ordered by key, after the key `after`.
    ///
    /// A page has at most `limit` and [`MAX_PAGE_ENTRIES`] entries, and ends with the entry whose value
    /// makes it reach [`MAX_PAGE_BYTES`]. A short page may not be the last; an empty page is the end (for a
    /// limit of at least 1).
    fn list<'a>(
        &'a self,
        prefix: &'a Prefix,
        after: Option<&'a Key>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<(Key, Entry)>, StoreError>>;

    /// Removes up to `limit` expired entries, and returns their number.
    fn sweep(&self, limit: usize) -> BoxFuture<'_, Result<u64, StoreError>>;

    /// Returns the time that entries expire by.
    fn now(&self) -> BoxFuture<'_, Result<Timestamp, StoreError>>;

    /// Completes pending writes and closes the store. Later operations fail with
    /// [`StoreError::Closed`].
    fn close(&self) -> BoxFuture<'_, ()>;
}

/// A value with its metadata.
#[derive(Clone, PartialEq, Eq)]
pub struct Entry {
    /// The value.
    pub value: Bytes,
    /// The version assigned by its write.
    pub version: Version,
    /// The expiry time; `None` for entries that do not expire.
    pub expires_at: Option<Timestamp>,
}

impl Entry {
    /// Returns whether the entry has expired at `now`.
    #[must_use]
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|end| end <= now)
    }
}

// Values are private and must not be logged.
impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry")
            .field("bytes", &self.value.len())
            .field("version", &self.version)
            .field("expires_at", &self.expires_at)
            .finish()
    }
}

/// The version of an entry, assigned by its write.
///
/// Each write takes the next value of a counter of its store, which only grows. The versions of a key
/// never repeat or decrease, also not after the entry expired or was removed, or the store was reopened:
/// a reader that saw a larger version may reject a smaller one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Version(i64);

impl Version {
    /// Creates a version from its number.
    #[must_use]
    pub const fn from_number(number: i64) -> Self {
        Self(number)
    }

    /// Returns the number; at least 1 for versions from a store.
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

/// The precondition of a write or a removal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// None: the key may have any entry, or none.
    Anything,
    /// The key has no entry, or an expired one.
    Absent,
    /// The key has an entry of this version that has not expired.
    Version(Version),
}

impl Expected {
    /// Returns whether `entry`, which must not have expired, meets the precondition.
    #[must_use]
    pub fn is_met_by(self, entry: Option<&Entry>) -> bool {
        match self {
            Self::Anything => true,
            Self::Absent => entry.is_none(),
            Self::Version(version) => entry.is_some_and(|entry| entry.version == version),
        }
    }
}

/// A write to a store.
#[derive(Clone, PartialEq, Eq)]
pub struct Write {
    /// The key.
    pub key: Key,
    /// The value, at most [`MAX_VALUE_BYTES`].
    pub value: Bytes,
    /// The time to live, in whole milliseconds; `None` for no expiry.
    pub ttl: Option<Duration>,
    /// The precondition.
    pub expected: Expected,
}

impl Write {
    /// Creates an unconditional write without expiry.
    #[must_use]
    pub fn new(key: Key, value: impl Into<Bytes>) -> Self {
        Self { key, value: value.into(), ttl: None, expected: Expected::Anything }
    }

    /// Sets the time to live.
    #[must_use]
    pub fn with_ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// Sets the precondition.
    #[must_use]
    pub fn with_expected(mut self, expected: Expected) -> Self {
        self.expected = expected;
        self
    }

    /// Validates the size of the value. Every store calls it before it writes.
    ///
    /// # Errors
    /// [`StoreError::TooLarge`] above [`MAX_VALUE_BYTES`].
    pub fn check_size(&self) -> Result<(), StoreError> {
        let bytes = self.value.len();
        if bytes > MAX_VALUE_BYTES {
            return Err(StoreError::TooLarge { bytes, limit: MAX_VALUE_BYTES });
        }
        Ok(())
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

/// An entry whose time to live is to be extended. See [`Store::extend`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extension {
    /// The key.
    pub key: Key,
    /// The version that the current entry must have.
    pub version: Version,
}

impl Extension {
    /// Validates the number of extensions. Every store calls it before it extends.
    ///
    /// # Errors
    /// [`StoreError::TooManyEntries`] above [`MAX_EXTENSIONS`].
    pub fn check_number(extensions: &[Self]) -> Result<(), StoreError> {
        let (entries, limit) = (extensions.len(), MAX_EXTENSIONS);
        if entries > limit { Err(StoreError::TooManyEntries { entries, limit }) } else { Ok(()) }
    }
}

/// The outcome of a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Written {
    /// The value was written, with this version.
    Done(Version),
    /// Nothing was written, because the current entry does not meet the precondition.
    Conflict(Option<Entry>),
}

/// Why an operation of a store failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The store cannot be reached, or is too busy. Nothing was changed; a later retry may succeed.
    #[error("the store is unavailable: {reason}")]
    Unavailable {
        /// The cause, and the required action.
        reason: String,
    },
    /// The change was sent but not confirmed: it may have been made.
    #[error("the store did not confirm the change, which may have been made: {reason}")]
    Unconfirmed {
        /// The cause.
        reason: String,
    },
    /// The value exceeds the size limit.
    #[error(
        "the value has {bytes} bytes, over the limit of {limit}; store it elsewhere and keep a reference"
    )]
    TooLarge {
        /// The size, in bytes.
        bytes: usize,
        /// The limit, in bytes.
        limit: usize,
    },
    /// A change exceeds the limit on its entries.
    #[error("the change has {entries} entries, over the limit of {limit}; split it")]
    TooManyEntries {
        /// The number of entries.
        entries: usize,
        /// The limit.
        limit: usize,
    },
    /// The store is full. Nothing was changed.
    #[error("the store is full: {reason}")]
    Full {
        /// The exhausted resource, and the required action.
        reason: String,
    },
    /// The store is damaged, or incompatible with this program; a retry does not help.
    #[error("the store is unusable: {reason}")]
    Unusable {
        /// The cause, and the required action.
        reason: String,
    },
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
}

impl From<InvalidKey> for StoreError {
    /// As for an unusable store, a retry does not help.
    fn from(error: InvalidKey) -> Self {
        Self::Unusable { reason: error.to_string() }
    }
}
