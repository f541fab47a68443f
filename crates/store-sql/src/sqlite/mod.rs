//! A store in one file, for the processes of one machine.
//!
//! The file is in WAL mode with `synchronous=FULL`: what was written is on disk when
//! [`Store::write`] returns, and survives a loss of power. Its time is this machine's.

mod failure;
mod file;
mod writer;

use std::{future::Future, path::Path, time::Duration};

use futures_util::{FutureExt, future::BoxFuture};
use rockbot_store::{
    Clock, Entry, Expected, Key, MAX_PAGE_ENTRIES, Prefix, Store, StoreError, Timestamp, Write,
    Written,
};
use sqlx::{SqlitePool, sqlite::SqlitePoolOptions};
use tokio::time::timeout;

use self::{failure::explain, writer::Writer};
use crate::row::{self, EntryRow, KeyedRow};

const READERS: u32 = 4;
/// How long to wait for a connection that reads.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long to wait for the disk.
const READ_TIMEOUT: Duration = Duration::from_secs(15);

/// A store in a SQLite file on a local disk. Several processes of one machine may open the same
/// file.
///
/// One connection writes. It takes all changes that wait, commits them at once, and then answers
/// all of them, so that many writers share one wait for the disk.
#[derive(Debug)]
pub struct SqliteStore {
    clock: Clock,
    readers: SqlitePool,
    writer: Writer,
}

impl SqliteStore {
    /// Opens the file, and creates it when it is missing, readable for its owner only, in a folder
    /// that is created too. Two more files appear beside it, named like it with `-wal` and `-shm`.
    ///
    /// # Errors
    /// [`StoreError::Unusable`] when it can't be opened or created, belongs to another program, is
    /// damaged or was made by a newer version; [`StoreError::Unavailable`] when another process
    /// holds it for longer than five seconds.
    pub async fn open(path: impl AsRef<Path>, clock: Clock) -> Result<Self, StoreError> {
        let options = file::prepare(path.as_ref()).await?;
        let readers = SqlitePoolOptions::new()
            .max_connections(READERS)
            .acquire_timeout(ACQUIRE_TIMEOUT)
            .test_before_acquire(false)
            .connect_lazy_with(options.clone().pragma("query_only", "ON"));
        let writer = Writer::start(options, clock.clone());
        Ok(Self { clock, readers, writer })
    }

    async fn read(&self, key: &Key) -> Result<Option<Entry>, StoreError> {
        const GET: &str = "SELECT value, version, expires_at FROM rockbot_entries \
             WHERE key = ?1 AND (expires_at IS NULL OR expires_at > ?2)";
        let row = sqlx::query_as(GET)
            .bind(key.as_str())
            .bind(self.clock.now().as_millis())
            .fetch_optional(&self.readers);
        let row: Option<EntryRow> = in_time(row.map(|row| row.map_err(explain))).await?;
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
        in_time(row::page(rows, explain)).await
    }
}

async fn in_time<T>(read: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    let seconds = READ_TIMEOUT.as_secs();
    timeout(READ_TIMEOUT, read).await.unwrap_or_else(|_| {
        Err(StoreError::Unavailable { reason: format!("the disk gave no answer in {seconds} s") })
    })
}

impl Store for SqliteStore {
    fn get<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Option<Entry>, StoreError>> {
        self.read(key).boxed()
    }

    fn write(&self, write: Write) -> BoxFuture<'_, Result<Written, StoreError>> {
        self.writer.write(write).boxed()
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
