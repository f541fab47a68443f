//! The SQLite store, for processes on one machine.
//!
//! The file is in WAL mode with `synchronous=FULL`: a value is on disk when [`Store::write`] returns, and
//! survives a power loss. Entries expire by the time of this machine.

mod failure;
mod file;
mod log;
mod log_appends;
mod log_changes;
mod presence;
mod transaction;
mod writer;

use std::{future::Future, path::Path, time::Duration};

use futures_util::{FutureExt, future::BoxFuture};
use rockbot_store::{
    Clock, Entry, Expected, Extension, Key, MAX_PAGE_ENTRIES, Prefix, Store, StoreError, Timestamp,
    Write, Written,
};
use sqlx::{SqlitePool, sqlite::SqlitePoolOptions};
use tokio::time::timeout;

use self::{failure::explain, presence::Presence, writer::Writer};
use crate::row::{self, EntryRow, KeyedRow};

/// The maximum number of read connections.
const READERS: u32 = 4;
/// The timeout for a free read connection.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);
/// The timeout of a read.
const READ_TIMEOUT: Duration = Duration::from_secs(15);

/// A store in a SQLite file on a local disk. Several processes of one machine may open the same file.
///
/// One connection writes. It commits all queued changes together, so that concurrent writers share one
/// disk flush. When the file was removed or replaced, changes and reads fail as [`StoreError::Unavailable`] until the
/// store is opened again.
#[derive(Debug)]
pub struct SqliteStore {
    clock: Clock,
    readers: SqlitePool,
    presence: Presence,
    writer: Writer,
}

impl SqliteStore {
    /// Opens the file. Creates it and its folder if they are missing, readable only by the owner. SQLite adds
    /// two files with the suffixes `-wal` and `-shm`.
    ///
    /// # Errors
    /// [`StoreError::Unusable`] when the file cannot be opened or created, belongs to another program, is
    /// damaged, or has a newer version; [`StoreError::Unavailable`] when another process locks it for
    /// longer than 5 s.
    pub async fn open(path: impl AsRef<Path>, clock: Clock) -> Result<Self, StoreError> {
        let (options, presence) = file::prepare(path.as_ref()).await?;
        let readers = SqlitePoolOptions::new()
            .max_connections(READERS)
            .acquire_timeout(ACQUIRE_TIMEOUT)
            .test_before_acquire(false)
            .connect_lazy_with(options.clone().pragma("query_only", "ON"));
        let writer = Writer::start(options, presence.clone(), clock.clone());
        Ok(Self { clock, readers, presence, writer })
    }

    async fn read(&self, key: &Key) -> Result<Option<Entry>, StoreError> {
        const GET: &str = "SELECT value, version, expires_at FROM rockbot_entries \
             WHERE key = ?1 AND (expires_at IS NULL OR expires_at > ?2)";
        let row = sqlx::query_as(GET)
            .bind(key.as_str())
            .bind(self.clock.now().as_millis())
            .fetch_optional(&self.readers);
        let row: Option<EntryRow> = self.checked_read(row.map(|row| row.map_err(explain))).await?;
        Ok(row.map(row::entry))
    }

    async fn page(
        &self,
        prefix: &Prefix,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<Vec<(Key, Entry)>, StoreError> {
        const LIST: &str = "SELECT key, value, version, expires_at FROM rockbot_entries \
             WHERE key > ?1 AND key < ?2 AND (expires_at IS NULL OR expires_at > ?3) \
             ORDER BY key LIMIT ?4";
        let rows = sqlx::query_as::<_, KeyedRow>(LIST)
            .bind(prefix.start_after(after).to_owned())
            .bind(prefix.end().to_owned())
            .bind(self.clock.now().as_millis())
            .bind(i64::try_from(limit.min(MAX_PAGE_ENTRIES)).unwrap_or(0))
            .fetch(&self.readers);
        self.checked_read(row::page(rows, explain)).await
    }

    /// Awaits a read of the file, which must still be at its path.
    async fn checked_read<T>(
        &self,
        read: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        self.presence.check().await?;
        let outcome = with_timeout(read).await;
        if outcome.is_err() {
            // SQLite only reports that it cannot open a missing file.
            self.presence.check_now().await?;
        }
        outcome
    }
}

/// Awaits a read with [`READ_TIMEOUT`].
async fn with_timeout<T>(
    read: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let seconds = READ_TIMEOUT.as_secs();
    timeout(READ_TIMEOUT, read).await.unwrap_or_else(|_| {
        Err(StoreError::Unavailable {
            reason: format!("the disk did not respond within {seconds} s"),
        })
    })
}

impl Store for SqliteStore {
    fn get<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Option<Entry>, StoreError>> {
        self.read(key).boxed()
    }

    fn write(&self, write: Write) -> BoxFuture<'_, Result<Written, StoreError>> {
        self.writer.write(write).boxed()
    }

    fn extend(
        &self,
        extensions: Vec<Extension>,
        ttl: Duration,
    ) -> BoxFuture<'_, Result<Vec<Written>, StoreError>> {
        self.writer.extend(extensions, ttl).boxed()
    }

    fn remove<'a>(
        &'a self,
        key: &'a Key,
        expected: Expected,
    ) -> BoxFuture<'a, Result<bool, StoreError>> {
        self.writer.remove(key.clone(), expected).boxed()
    }

    fn list<'a>(
        &'a self,
        prefix: &'a Prefix,
        after: Option<&'a Key>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<(Key, Entry)>, StoreError>> {
        self.page(prefix, after, limit).boxed()
    }

    fn sweep(&self, limit: usize) -> BoxFuture<'_, Result<u64, StoreError>> {
        self.writer.sweep(limit).boxed()
    }

    fn now(&self) -> BoxFuture<'_, Result<Timestamp, StoreError>> {
        async {
            if self.readers.is_closed() { Err(StoreError::Closed) } else { Ok(self.clock.now()) }
        }
        .boxed()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        async {
            self.writer.close().await;
            self.readers.close().await;
        }
        .boxed()
    }
}
