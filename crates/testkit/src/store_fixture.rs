//! The store fixture: a store that is open twice, with a clock under the test's control.

use std::{future::Future, panic::resume_unwind, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::{FutureExt, future::BoxFuture};
use rockbot_store::{
    Appended, Clock, Entry, Expected, Key, Log, LogName, LogPosition, LogState, ManualClock,
    Prefix, Store, StoreError, Stores, Version, Write, Written,
};

use crate::fixture::within_timeout;

/// Opens another connection to the store, as another process would.
pub type Opener = Arc<dyn Fn() -> BoxFuture<'static, Stores> + Send + Sync>;
/// Removes the data of the test.
pub type Cleaner = Arc<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>;

/// An isolated store.
#[derive(Clone)]
pub struct StoreFixture {
    /// The connection of one process; tests write on it.
    pub local: Arc<dyn Store>,
    /// The connection of another process; tests read on it.
    pub remote: Arc<dyn Store>,
    /// The logs of the local connection; tests append on it.
    pub local_log: Arc<dyn Log>,
    /// The logs of the remote connection; tests read on it.
    pub remote_log: Arc<dyn Log>,
    /// The clock of both connections.
    pub clock: ManualClock,
    open: Opener,
    clean: Cleaner,
}

impl StoreFixture {
    /// Creates a fixture on a new in-memory store. Opening it again returns the same store, closed or
    /// not.
    pub async fn memory() -> Self {
        let clock = ManualClock::new();
        let stores = Stores::memory(Clock::from(&clock));
        let open: Opener = Arc::new(move || {
            let stores = stores.clone();
            async { stores }.boxed()
        });
        Self::new(clock, open, Arc::new(|| async {}.boxed())).await
    }

    /// Creates a fixture on the store that `open` opens, with `clock` as its time.
    pub async fn new(clock: ManualClock, open: Opener, clean: Cleaner) -> Self {
        let (local, remote) = (open().await, open().await);
        Self {
            local: local.store,
            remote: remote.store,
            local_log: local.log,
            remote_log: remote.log,
            clock,
            open,
            clean,
        }
    }

    /// Opens another connection to the store.
    pub async fn open(&self) -> Arc<dyn Store> {
        self.open_stores().await.store
    }

    /// Opens another connection to the store and its logs.
    pub async fn open_stores(&self) -> Stores {
        within_timeout("open the store", (self.open)()).await
    }

    /// Runs `test`, and cleans up even when it fails.
    pub async fn run<F>(self, test: impl FnOnce(Self) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let outcome = tokio::spawn(test(self.clone())).await;
        for log in [&self.local_log, &self.remote_log] {
            log.close().await;
        }
        for store in [&self.local, &self.remote] {
            store.close().await;
        }
        (self.clean)().await;
        if let Err(failure) = outcome {
            resume_unwind(failure.into_panic());
        }
    }

    /// Writes on the local connection; the write must succeed.
    pub async fn put(&self, name: &str, value: &'static str) -> Version {
        expect_written(self.write(name, value, Expected::Anything).await)
    }

    /// Writes an entry that expires after `ttl` on the local connection; the write must succeed.
    pub async fn put_with_ttl(&self, name: &str, value: &'static str, ttl: Duration) -> Version {
        let write = Write::new(key(name), value).with_ttl(ttl);
        expect_written(within_timeout("a write", self.local.write(write)).await)
    }

    /// Writes on the local connection.
    pub async fn write(
        &self,
        name: &str,
        value: &'static str,
        expected: Expected,
    ) -> Result<Written, StoreError> {
        let write = Write::new(key(name), value).with_expected(expected);
        within_timeout("a write", self.local.write(write)).await
    }

    /// Reads on the remote connection.
    pub async fn get(&self, name: &str) -> Option<Entry> {
        within_timeout("a read", self.remote.get(&key(name))).await.expect("read")
    }

    /// Reads a value on the remote connection.
    pub async fn value(&self, name: &str) -> Option<Bytes> {
        self.get(name).await.map(|entry| entry.value)
    }

    /// Removes an entry on the local connection.
    pub async fn remove(&self, name: &str, expected: Expected) -> bool {
        within_timeout("a removal", self.local.remove(&key(name), expected))
            .await
            .expect("removed or not")
    }

    /// Lists the names below a prefix as one page, on the remote connection.
    pub async fn names(&self, below: &str) -> Vec<String> {
        let page =
            within_timeout("a page", self.remote.list(&prefix(below), None, usize::MAX)).await;
        page.expect("listed").into_iter().map(|(key, _)| name_of(&key)).collect()
    }

    /// Appends entries without a time to live, on the local connection.
    pub async fn append(&self, name: &str, at: u64, values: &[&'static str]) -> Appended {
        let outcome = self.append_with_ttl(name, at, values, None).await;
        outcome.expect("the log accepts the append")
    }

    /// Appends entries on the local connection.
    pub async fn append_with_ttl(
        &self,
        name: &str,
        at: impl Into<LogPosition>,
        values: &[&'static str],
        ttl: Option<Duration>,
    ) -> Result<Appended, StoreError> {
        let entries = values.iter().map(|value| Bytes::from_static(value.as_bytes())).collect();
        let name = log_name(name);
        within_timeout("an append", self.local_log.append(&name, at.into(), entries, ttl)).await
    }

    /// Returns the numbers and values of the first page of a log, on the remote connection.
    pub async fn log_entries(&self, name: &str) -> Vec<(u64, String)> {
        let name = log_name(name);
        let page = within_timeout("a page", self.remote_log.read(&name, 1, usize::MAX)).await;
        let entries = page.expect("read").into_iter();
        entries
            .map(|entry| (entry.number, String::from_utf8_lossy(&entry.value).into_owned()))
            .collect()
    }

    /// Returns the state of a log, on the remote connection.
    pub async fn log_state(&self, name: &str) -> Option<LogState> {
        within_timeout("a state", self.remote_log.state(&log_name(name))).await.expect("read")
    }
}

/// Parses a name of a log whose segments are joined by slashes.
pub fn log_name(name: &str) -> LogName {
    LogName::new(name.split('/')).expect("a name")
}

/// Parses a key whose segments are joined by slashes.
pub fn key(name: &str) -> Key {
    Key::new(name.split('/')).expect("a key")
}

/// Parses a prefix whose segments are joined by slashes.
pub fn prefix(name: &str) -> Prefix {
    Prefix::new(name.split('/')).expect("a prefix")
}

/// Returns the segments of a key, joined by slashes.
pub fn name_of(key: &Key) -> String {
    key.segments().collect::<Vec<_>>().join("/")
}

/// Returns the version of a write, which must have succeeded.
#[track_caller]
pub fn expect_written(outcome: Result<Written, StoreError>) -> Version {
    match outcome.expect("the store accepts the write") {
        Written::Done(version) => version,
        Written::Conflict(present) => panic!("conflict with {present:?}"),
    }
}

/// Returns the entry that a write, which must have failed with a conflict, conflicted with.
#[track_caller]
pub fn expect_conflict(outcome: Result<Written, StoreError>) -> Option<Entry> {
    match outcome.expect("the store replies") {
        Written::Conflict(present) => present,
        Written::Done(version) => panic!("written as {version}"),
    }
}

/// Returns the URL of the PostgreSQL server that `cargo xtask test` provides, or that the environment
/// names.
///
/// # Panics
/// When there is no database; the message says what to do.
pub fn test_postgres_url() -> String {
    std::env::var("ROCKBOT_TEST_POSTGRES_URL").expect(
        "this test needs PostgreSQL: run `cargo xtask test`, or set ROCKBOT_TEST_POSTGRES_URL to a \
         database that tests may write to",
    )
}
