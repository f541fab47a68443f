//! The log port.

use std::{fmt, time::Duration};

use bytes::Bytes;
use futures_util::future::BoxFuture;

use super::name::LogName;
use crate::{clock::Timestamp, key::Prefix, port::StoreError};

/// The largest entry of a log, in bytes: 1 MiB.
pub const MAX_LOG_ENTRY_BYTES: usize = 1024 * 1024;
/// The maximum number of entries in one append.
pub const MAX_APPEND_ENTRIES: usize = 256;
/// The maximum size of one append, in bytes of its entries: 4 MiB.
pub const MAX_APPEND_BYTES: usize = 4 * 1024 * 1024;

/// Append-only logs that several processes share.
///
/// The entries of a log are numbered from 1 without gaps. An append names the number of its first entry,
/// and fails with a conflict unless it is the next one: of two writers that consider a log their own, one
/// is fenced. The time to live applies to a whole log and starts with each append. An expired log is
/// absent, whether it was swept or not. An append is durable when it returns, except in memory.
///
/// A log that expired or was deleted starts again from 1, as another log with another [`LogId`]. An append
/// that names the id fails with a conflict if the log of that name is another one.
pub trait Log: Send + Sync + 'static {
    /// Appends all entries or none. `at` is the position of the first: the number 1 without a log creates
    /// the log.
    ///
    /// The log expires `ttl` (in whole milliseconds) after this append, and never with `None`. An append
    /// without entries only checks the fence.
    ///
    /// # Errors
    /// [`StoreError::TooLarge`] and [`StoreError::TooManyEntries`] above the limits of [`check_append`].
    /// Only after [`StoreError::Unconfirmed`] the entries may have been appended, also later: append them
    /// again, and after a conflict read the entries from `at` and compare them.
    ///
    /// # Cancellation
    /// Dropping the future leaves all entries appended or none.
    fn append<'a>(
        &'a self,
        name: &'a LogName,
        at: LogPosition,
        entries: Vec<Bytes>,
        ttl: Option<Duration>,
    ) -> BoxFuture<'a, Result<Appended, StoreError>>;

    /// Returns a page of the entries with the number `from` or a larger one, ordered by number.
    ///
    /// A page has at most `limit` and [`MAX_PAGE_ENTRIES`](crate::MAX_PAGE_ENTRIES) entries, and ends with
    /// the entry that makes it reach [`MAX_PAGE_BYTES`](crate::MAX_PAGE_BYTES). A short page may not be the
    /// last; an empty page is the end (for a limit of at least 1). A page that starts with a larger number
    /// than `from` means that the log was truncated.
    fn read<'a>(
        &'a self,
        name: &'a LogName,
        from: u64,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<LogEntry>, StoreError>>;

    /// Returns the state of a log; `None` if it does not exist.
    fn state<'a>(
        &'a self,
        name: &'a LogName,
    ) -> BoxFuture<'a, Result<Option<LogState>, StoreError>>;

    /// Returns a page of the logs below the prefix, ordered by name, after the name `after`. It has at most
    /// `limit` and [`MAX_PAGE_ENTRIES`](crate::MAX_PAGE_ENTRIES) logs; an empty page is the end (for a
    /// limit of at least 1).
    fn logs<'a>(
        &'a self,
        prefix: &'a Prefix,
        after: Option<&'a LogName>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<LogState>, StoreError>>;

    /// Removes the entries with numbers below `before`, and returns how many. The next number does not
    /// change, and an absent log is not an error.
    ///
    /// # Errors
    /// After [`StoreError::Unconfirmed`] the entries may have been removed: repeat it.
    ///
    /// # Cancellation
    /// Dropping the future leaves the log either truncated or not.
    fn truncate<'a>(
        &'a self,
        name: &'a LogName,
        before: u64,
    ) -> BoxFuture<'a, Result<u64, StoreError>>;

    /// Removes a log with its entries. Returns whether it existed.
    ///
    /// # Errors
    /// After [`StoreError::Unconfirmed`] the log may have been removed: repeat it.
    ///
    /// # Cancellation
    /// Dropping the future leaves the log either removed or not.
    fn delete<'a>(&'a self, name: &'a LogName) -> BoxFuture<'a, Result<bool, StoreError>>;

    /// Removes up to `limit` entries of expired logs, and logs of which no entry is left. Returns how many
    /// entries and logs were removed.
    fn sweep(&self, limit: usize) -> BoxFuture<'_, Result<u64, StoreError>>;

    /// Completes pending appends and closes the log, together with a store on the same database. Later
    /// operations fail with [`StoreError::Closed`].
    fn close(&self) -> BoxFuture<'_, ()>;
}

/// The outcome of an append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Appended {
    /// All entries were appended.
    Done {
        /// The position of the next entry.
        next: LogPosition,
    },
    /// Nothing was appended: another writer changed the log.
    Conflict {
        /// The position of the next entry; [`LogPosition::START`] if the log does not exist.
        next: LogPosition,
    },
}

impl Appended {
    /// Returns the number of the next entry, as an error after a conflict.
    ///
    /// # Errors
    /// When nothing was appended.
    pub fn number(self) -> Result<u64, u64> {
        match self {
            Self::Done { next } => Ok(next.number),
            Self::Conflict { next } => Err(next.number),
        }
    }
}

/// Distinguishes the logs that have a name one after the other. A store never uses an id twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LogId(i64);

impl LogId {
    /// Creates an id from its number, in the implementation of a log.
    #[must_use]
    pub const fn from_number(number: i64) -> Self {
        Self(number)
    }

    /// Returns the number.
    #[must_use]
    pub const fn number(self) -> i64 {
        self.0
    }
}

/// A position in a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogPosition {
    /// The log. `None` is any log of the name or a new one in an append, and no log in its outcome.
    pub log: Option<LogId>,
    /// The number of an entry.
    pub number: u64,
}

impl LogPosition {
    /// The first entry of a new log.
    pub const START: Self = Self { log: None, number: 1 };

    /// Returns `true` if an append at this position may be made in a log whose next entry has the position
    /// `next`. Every log decides about an append in this way.
    #[must_use]
    pub fn accepts(self, next: Self) -> bool {
        self.number == next.number && self.log.is_none_or(|log| next.log == Some(log))
    }
}

impl From<u64> for LogPosition {
    /// Returns the position of this number in any log.
    fn from(number: u64) -> Self {
        Self { log: None, number }
    }
}

/// An entry of a log.
#[derive(Clone, PartialEq, Eq)]
pub struct LogEntry {
    /// The number: 1 for the first entry of a log, and without gaps.
    pub number: u64,
    /// The value.
    pub value: Bytes,
}

// Values are private and must not be logged.
impl fmt::Debug for LogEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogEntry")
            .field("number", &self.number)
            .field("bytes", &self.value.len())
            .finish()
    }
}

/// The state of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogState {
    /// The name.
    pub name: LogName,
    /// The id.
    pub id: LogId,
    /// The number of the first entry; larger than 1 after a truncation, and equal to `next` in an empty
    /// log.
    pub first: u64,
    /// The number of the next entry.
    pub next: u64,
    /// The size of all entries, in bytes.
    pub bytes: u64,
    /// The number of entries.
    pub entries: u64,
    /// The time of the last append, by the clock of the store.
    pub appended_at: Timestamp,
}

impl LogState {
    /// Returns the position of the next entry.
    #[must_use]
    pub fn end(&self) -> LogPosition {
        LogPosition { log: Some(self.id), number: self.next }
    }
}

/// Validates the size of an append, and returns it in bytes. Every log calls it before it appends.
///
/// # Errors
/// [`StoreError::TooLarge`] for an entry above [`MAX_LOG_ENTRY_BYTES`] or an append above
/// [`MAX_APPEND_BYTES`], [`StoreError::TooManyEntries`] above [`MAX_APPEND_ENTRIES`].
pub fn check_append(entries: &[Bytes]) -> Result<usize, StoreError> {
    let within = |bytes, limit| {
        if bytes > limit { Err(StoreError::TooLarge { bytes, limit }) } else { Ok(()) }
    };
    if entries.len() > MAX_APPEND_ENTRIES {
        let (entries, limit) = (entries.len(), MAX_APPEND_ENTRIES);
        return Err(StoreError::TooManyEntries { entries, limit });
    }
    for entry in entries {
        within(entry.len(), MAX_LOG_ENTRY_BYTES)?;
    }
    let bytes = entries.iter().map(Bytes::len).sum();
    within(bytes, MAX_APPEND_BYTES)?;
    Ok(bytes)
}
