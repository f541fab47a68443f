//! Where a store is tested: opened twice, with a clock that the test moves.

use std::{future::Future, panic::resume_unwind, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::{FutureExt, future::BoxFuture};
use rockbot_store::{
    Clock, Entry, Expected, Key, ManualClock, MemoryStore, Prefix, Store, StoreError, Version,
    Write, Written,
};

use crate::bed::soon;

/// Opens the store once more, as another process would.
pub type Opener = Arc<dyn Fn() -> BoxFuture<'static, Arc<dyn Store>> + Send + Sync>;
/// Removes what the test left.
pub type Cleaner = Arc<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>;

/// A store that no other test has.
#[derive(Clone)]
pub struct StoreBed {
    /// One process's end.
    pub here: Arc<dyn Store>,
    /// Another process's end.
    pub there: Arc<dyn Store>,
    /// What the time is for both.
    pub hand: ManualClock,
    open: Opener,
    clean: Cleaner,
}

impl StoreBed {
    /// A bed on a fresh store in memory. Opening it again gives the same store, closed or not.
    pub async fn memory() -> Self {
        let hand = ManualClock::new();
        let store = MemoryStore::new(Clock::from(&hand));
        let open: Opener = Arc::new(move || {
            let store: Arc<dyn Store> = Arc::new(store.clone());
            async { store }.boxed()
        });
        Self::new(hand, open, Arc::new(|| async {}.boxed())).await
    }

    /// A bed on the store that `open` opens, whose time is `hand`.
    pub async fn new(hand: ManualClock, open: Opener, clean: Cleaner) -> Self {
        Self { here: open().await, there: open().await, hand, open, clean }
    }

    /// Opens the store once more.
    pub async fn open(&self) -> Arc<dyn Store> {
        soon("open the store", (self.open)()).await
    }

    /// Runs a promise, and cleans up also when it is broken.
    pub async fn run<F>(self, promise: impl FnOnce(Self) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let kept = tokio::spawn(promise(self.clone())).await;
        self.here.close().await;
        self.there.close().await;
        (self.clean)().await;
        if let Err(broken) = kept {
            resume_unwind(broken.into_panic());
        }
    }

    /// Writes on this end, which must succeed.
    pub async fn put(&self, name: &str, value: &'static str) -> Version {
        done(self.write(name, value, Expected::Anything).await)
    }

    /// Writes on this end for a time, which must succeed.
    pub async fn put_for(&self, name: &str, value: &'static str, ttl: Duration) -> Version {
        let write = Write::new(key(name), value).for_a_time(ttl);
        done(soon("a write", self.here.write(write)).await)
    }

    /// Writes on this end.
    pub async fn write(
        &self,
        name: &str,
        value: &'static str,
        expected: Expected,
    ) -> Result<Written, StoreError> {
        let write = Write::new(key(name), value).expecting(expected);
        soon("a write", self.here.write(write)).await
    }

    /// Reads on the other end.
    pub async fn get(&self, name: &str) -> Option<Entry> {
        soon("a read", self.there.get(&key(name))).await.expect("read")
    }

    /// The value on the other end.
    pub async fn value(&self, name: &str) -> Option<Bytes> {
        self.get(name).await.map(|entry| entry.value)
    }

    /// Removes on this end.
    pub async fn remove(&self, name: &str, expected: Expected) -> bool {
        soon("a removal", self.here.remove(&key(name), expected)).await.expect("removed or not")
    }

    /// The names below a prefix, as one page on the other end.
    pub async fn names(&self, below: &str) -> Vec<String> {
        let page = soon("a page", self.there.list(&prefix(below), None, usize::MAX)).await;
        page.expect("listed").into_iter().map(|(key, _)| name_of(&key)).collect()
    }
}

/// The key with these segments, joined by slashes.
pub fn key(name: &str) -> Key {
    Key::new(name.split('/')).expect("a key")
}

/// The prefix with these segments, joined by slashes.
pub fn prefix(name: &str) -> Prefix {
    Prefix::new(name.split('/')).expect("a prefix")
}

/// The segments of a key, joined by slashes.
pub fn name_of(key: &Key) -> String {
    key.segments().collect::<Vec<_>>().join("/")
}

/// The version of a write that was made.
#[track_caller]
pub fn done(outcome: Result<Written, StoreError>) -> Version {
    match outcome.expect("the store takes it") {
        Written::Done(version) => version,
        Written::Conflict(present) => panic!("in conflict with {present:?}"),
    }
}

/// What a write that was not made was in conflict with.
#[track_caller]
pub fn conflict(outcome: Result<Written, StoreError>) -> Option<Entry> {
    match outcome.expect("the store answers") {
        Written::Conflict(present) => present,
        Written::Done(version) => panic!("written as {version}"),
    }
}

/// The PostgreSQL server that `cargo xtask test` provides, or the one its environment names.
///
/// # Panics
/// Without one: a test that needs a database and has none fails, and says what to do.
pub fn test_postgres_url() -> String {
    std::env::var("ROCKBOT_TEST_POSTGRES_URL").expect(
        "this test needs PostgreSQL: run `cargo xtask test`, or set ROCKBOT_TEST_POSTGRES_URL to a \
         database that tests may write to",
    )
}
