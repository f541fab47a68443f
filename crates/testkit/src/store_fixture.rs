//! The store fixture: a store that is open twice, with a clock under the test's control.

use std::{future::Future, panic::resume_unwind, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::{FutureExt, future::BoxFuture};
use rockbot_store::{
    Clock, Entry, Expected, Key, ManualClock, MemoryStore, Prefix, Store, StoreError, Version,
    Write, Written,
};

use crate::fixture::within_timeout;

/// Opens another connection to the store, as another process would.
pub type Opener = Arc<dyn Fn() -> BoxFuture<'static, Arc<dyn Store>> + Send + Sync>;
/// Removes the data of the test.
pub type Cleaner = Arc<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>;

/// An isolated store.
#[derive(Clone)]
pub struct StoreFixture {
    /// The connection of one process; tests write on it.
    pub local: Arc<dyn Store>,
    /// The connection of another process; tests read on it.
    pub remote: Arc<dyn Store>,
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
        let store = MemoryStore::new(Clock::from(&clock));
        let open: Opener = Arc::new(move || {
            let store: Arc<dyn Store> = Arc::new(store.clone());
            async { store }.boxed()
        });
        Self::new(clock, open, Arc::new(|| async {}.boxed())).await
    }

    /// Creates a fixture on the store that `open` opens, with `clock` as its time.
    pub async fn new(clock: ManualClock, open: Opener, clean: Cleaner) -> Self {
        Self { local: open().await, remote: open().await, clock, open, clean }
    }

    /// Opens another connection to the store.
    pub async fn open(&self) -> Arc<dyn Store> {
        within_timeout("open the store", (self.open)()).await
    }

    /// Runs `test`, and cleans up even when it fails.
    pub async fn run<F>(self, test: impl FnOnce(Self) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let outcome = tokio::spawn(test(self.clone())).await;
        self.local.close().await;
        self.remote.close().await;
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
