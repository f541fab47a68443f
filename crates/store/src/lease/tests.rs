use std::{
    future::pending,
    sync::atomic::{AtomicBool, Ordering},
};

use futures_util::future::BoxFuture;

use super::*;
use crate::{Clock, ManualClock, MemoryStore, Prefix};

const TTL: Duration = Duration::from_secs(10);
const GIVE_UP: Duration = Duration::from_secs(8);

/// A store that makes writes, but does not confirm them while it is silent.
struct SilentStore {
    store: MemoryStore,
    silent: AtomicBool,
}

impl Store for SilentStore {
    fn get<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Option<Entry>, StoreError>> {
        self.store.get(key)
    }

    fn write(&self, write: Write) -> BoxFuture<'_, Result<Written, StoreError>> {
        Box::pin(async {
            let written = self.store.write(write).await;
            if self.silent.load(Ordering::Relaxed) { pending().await } else { written }
        })
    }

    fn remove<'a>(
        &'a self,
        key: &'a Key,
        expected: Expected,
    ) -> BoxFuture<'a, Result<bool, StoreError>> {
        self.store.remove(key, expected)
    }

    fn list<'a>(
        &'a self,
        prefix: &'a Prefix,
        after: Option<&'a Key>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<(Key, Entry)>, StoreError>> {
        self.store.list(prefix, after, limit)
    }

    fn sweep(&self, limit: usize) -> BoxFuture<'_, Result<u64, StoreError>> {
        self.store.sweep(limit)
    }

    fn now(&self) -> BoxFuture<'_, Result<Timestamp, StoreError>> {
        self.store.now()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.store.close()
    }
}

struct Fixture {
    store: Arc<SilentStore>,
    clock: ManualClock,
    start: Instant,
    stop: CancellationToken,
    renewal: tokio::task::JoinHandle<Option<Lease>>,
}

impl Fixture {
    /// Starts to renew a new lease.
    async fn start() -> Self {
        Self::start_with(TTL, LeaseRenewal::new(GIVE_UP)).await
    }

    async fn start_with(ttl: Duration, intervals: LeaseRenewal) -> Self {
        let clock = ManualClock::new();
        let store = MemoryStore::new(Clock::from(&clock));
        let store = Arc::new(SilentStore { store, silent: AtomicBool::new(false) });
        let lease = Lease::acquire(store.clone(), key(), "one", ttl).await.unwrap();
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let renewal = tokio::spawn(async move { lease.keep_alive_at(intervals, &stopped).await });
        Self { store, clock, start: Instant::now(), stop, renewal }
    }

    /// Advances the time, also that of the store.
    async fn advance(&self, seconds: u64) {
        for _ in 0..seconds {
            sleep(Duration::from_secs(1)).await;
            self.clock.advance(Duration::from_secs(1));
        }
    }

    /// Returns the time after which the lease was lost.
    async fn lost_after(self) -> Duration {
        assert!(self.renewal.await.unwrap().is_none());
        self.start.elapsed()
    }
}

fn key() -> Key {
    Key::new(["lease"]).unwrap()
}

#[tokio::test(start_paused = true)]
async fn renewed_lease_outlives_its_ttl() {
    let fixture = Fixture::start().await;
    fixture.advance(60).await;
    fixture.stop.cancel();
    let lease = fixture.renewal.await.unwrap().expect("the lease");
    assert!(lease.release().await.unwrap(), "the lease was still held");
}

#[tokio::test(start_paused = true)]
async fn expired_lease_is_lost_at_next_renewal() {
    let fixture = Fixture::start().await;
    fixture.clock.advance(TTL);
    Lease::acquire(fixture.store.clone(), key(), "two", TTL).await.expect("it has expired");
    assert_eq!(fixture.lost_after().await, RENEWAL_INTERVAL);
}

#[tokio::test(start_paused = true)]
async fn short_lease_is_renewed_in_time() {
    let ttl = Duration::from_secs(2);
    let fixture = Fixture::start_with(ttl, LeaseRenewal::from_ttl(ttl)).await;
    fixture.advance(20).await;
    fixture.stop.cancel();
    let lease = fixture.renewal.await.unwrap().expect("the lease");
    assert!(lease.release().await.unwrap(), "the lease was still held");
}

#[tokio::test(start_paused = true)]
async fn short_lease_is_lost_before_it_expires() {
    let ttl = Duration::from_secs(2);
    let fixture = Fixture::start_with(ttl, LeaseRenewal::from_ttl(ttl)).await;
    fixture.store.silent.store(true, Ordering::Relaxed);
    assert_eq!(fixture.lost_after().await, Duration::from_millis(1500));
}

#[tokio::test(start_paused = true)]
async fn failing_store_is_retried_until_give_up() {
    let fixture = Fixture::start().await;
    fixture.store.close().await;
    assert_eq!(fixture.lost_after().await, GIVE_UP);
}

#[tokio::test(start_paused = true)]
async fn silent_store_loses_lease_at_give_up() {
    let fixture = Fixture::start().await;
    fixture.store.silent.store(true, Ordering::Relaxed);
    assert_eq!(fixture.lost_after().await, GIVE_UP);
}

#[tokio::test(start_paused = true)]
async fn unconfirmed_renewal_keeps_lease() {
    let fixture = Fixture::start().await;
    fixture.store.silent.store(true, Ordering::Relaxed);
    fixture.advance(4).await;
    fixture.store.silent.store(false, Ordering::Relaxed);
    fixture.advance(20).await;
    fixture.stop.cancel();
    assert!(fixture.renewal.await.unwrap().is_some());
}

#[tokio::test]
async fn taken_lease_is_lost_to_its_holder() {
    let store = Arc::new(MemoryStore::new(Clock::System));
    let mut first = Lease::acquire(store.clone(), key(), "one", TTL).await.unwrap();
    let held = async |owner| match Lease::acquire(store.clone(), key(), owner, TTL).await {
        Err(LeaseError::HeldBy { version: Some(version), .. }) => version,
        _ => panic!("the lease is held"),
    };
    let stale = held("two").await;
    first.renew().await.unwrap();
    let late = Lease::take_over(store.clone(), key(), "two", TTL, stale).await;
    assert!(matches!(late, Err(LeaseError::HeldBy { .. })), "the holder lives");
    let current = held("two").await;
    let second = Lease::take_over(store.clone(), key(), "two", TTL, current).await.unwrap();
    assert!(second.token() > first.token());
    assert!(matches!(first.renew().await, Err(LeaseError::Lost { .. })));
}

#[tokio::test]
async fn renewing_all_reports_each_lease() {
    let clock = ManualClock::new();
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Clock::from(&clock)));
    let mut leases = Vec::new();
    for number in 0..=MAX_EXTENSIONS {
        let key = Key::new(["lease", &number.to_string()]).unwrap();
        leases.push(Lease::acquire(store.clone(), key, "one", TTL).await.unwrap());
    }
    store.remove(leases[7].key(), Expected::Anything).await.unwrap();
    clock.advance(TTL / 2);
    let mut all: Vec<_> = leases.iter_mut().collect();
    for (number, outcome) in Lease::renew_all(&mut all).await.into_iter().enumerate() {
        assert_eq!(outcome.is_err(), number == 7, "{number}: {outcome:?}");
    }
    clock.advance(TTL / 2 + TTL / 4);
    leases.remove(7);
    for mut lease in leases {
        lease.renew().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn renewing_all_adopts_unconfirmed_renewals() {
    let store = MemoryStore::new(Clock::System);
    let store = Arc::new(SilentStore { store, silent: AtomicBool::new(false) });
    let mut leases = Vec::new();
    for name in ["a", "b"] {
        let key = Key::new(["lease", name]).unwrap();
        leases.push(Lease::acquire(store.clone(), key, "one", TTL).await.unwrap());
    }
    store.silent.store(true, Ordering::Relaxed);
    for round in 0..2 {
        let mut all: Vec<_> = leases.iter_mut().collect();
        let late = tokio::time::timeout(TTL / 10, Lease::renew_all(&mut all)).await;
        assert!(late.is_err(), "round {round}");
    }
    store.silent.store(false, Ordering::Relaxed);
    let mut all: Vec<_> = leases.iter_mut().collect();
    assert_eq!(Lease::renew_all(&mut all).await, [Ok(()), Ok(())]);
    // Another process took it meanwhile.
    let taken = Write::new(leases[0].key().clone(), "two");
    store.store.write(taken).await.unwrap();
    let mut all: Vec<_> = leases.iter_mut().collect();
    let outcomes = Lease::renew_all(&mut all).await;
    assert!(matches!(outcomes[..], [Err(LeaseError::Lost { .. }), Ok(())]), "{outcomes:?}");
}
