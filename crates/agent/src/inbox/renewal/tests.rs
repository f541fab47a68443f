//! Tests of renewals.

use std::{sync::atomic::AtomicUsize, time::Duration};

use futures_util::future::BoxFuture;
use rockbot_contracts::{AgentName, InstanceId};
use rockbot_store::{Clock, Extension, ManualClock, MemoryStore, Store, Write, Written};
use rockbot_testkit::{InterceptedStore, StoreInterceptor};
use tokio::time::advance;

use super::*;

const TTL: Duration = Duration::from_secs(2);
const TURNS: usize = 2 * CHUNK + 1;

/// Counts the changes, and fails them while it is away.
#[derive(Default)]
struct Observed {
    writes: AtomicUsize,
    extensions: AtomicUsize,
    is_away: AtomicBool,
}

impl Observed {
    fn count(&self, counter: &AtomicUsize) -> Result<(), StoreError> {
        if self.is_away.load(Ordering::SeqCst) {
            return Err(StoreError::Unavailable { reason: "a test".to_owned() });
        }
        counter.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

impl StoreInterceptor for Observed {
    fn write<'a>(
        &'a self,
        store: &'a dyn Store,
        write: Write,
    ) -> BoxFuture<'a, Result<Written, StoreError>> {
        match self.count(&self.writes) {
            Ok(()) => store.write(write),
            Err(error) => Box::pin(async { Err(error) }),
        }
    }

    fn extend<'a>(
        &'a self,
        store: &'a dyn Store,
        extensions: Vec<Extension>,
        ttl: Duration,
    ) -> BoxFuture<'a, Result<Vec<Written>, StoreError>> {
        match self.count(&self.extensions) {
            Ok(()) => store.extend(extensions, ttl),
            Err(error) => Box::pin(async { Err(error) }),
        }
    }
}

struct Fixture {
    clock: ManualClock,
    store: Arc<InterceptedStore<Observed>>,
    factory: LeaseFactory,
    taken: Arc<AtomicUsize>,
    _renewer: LeaseRenewer,
    leases: Vec<RenewedLease>,
}

impl Fixture {
    async fn start() -> Self {
        let clock = ManualClock::new();
        let store = Arc::new(MemoryStore::new(Clock::from(&clock)));
        let store = InterceptedStore::wrap(store, Observed::default());
        let (agent, owner) = (AgentName::new("tester").unwrap(), InstanceId::new("one").unwrap());
        let factory = LeaseFactory::new(store.clone(), agent, owner, TTL);
        let taken = Arc::new(AtomicUsize::new(0));
        let on_loss: OnLoss = Arc::new({
            let taken = taken.clone();
            move |_| {
                taken.fetch_add(1, Ordering::SeqCst);
            }
        });
        let renewer = LeaseRenewer::start(factory.clone(), on_loss);
        let mut leases = Vec::new();
        for number in 0..TURNS {
            let lease = factory.acquire(&session(number), None).await.unwrap();
            leases.push(renewer.add(lease, session(number)));
        }
        Self { clock, store, factory, taken, _renewer: renewer, leases }
    }

    /// Advances the time, also that of the store.
    async fn advance(&self, time: Duration) {
        const STEP: Duration = Duration::from_millis(10);
        for _ in 0..time.as_millis() / STEP.as_millis() {
            self.clock.advance(STEP);
            advance(STEP).await;
            tokio::task::yield_now().await;
        }
    }

    fn held(&self) -> usize {
        self.leases.iter().filter(|lease| lease.is_held()).count()
    }
}

fn session(number: usize) -> SessionId {
    SessionId::new(format!("s{number}")).unwrap()
}

#[tokio::test(start_paused = true)]
async fn leases_of_a_process_are_renewed_with_one_change_for_each_chunk() {
    let fixture = Fixture::start().await;
    let Observed { writes, extensions, .. } = &fixture.store.interceptor;
    assert_eq!(writes.swap(0, Ordering::SeqCst), TURNS);
    fixture.advance(10 * TTL).await;
    assert_eq!((fixture.held(), writes.load(Ordering::SeqCst)), (TURNS, 0));
    // Each interval is a quarter of the time to live, and up to a quarter shorter.
    let rounds = 3 * 40..=3 * 54;
    let extensions = extensions.load(Ordering::SeqCst);
    assert!(rounds.contains(&extensions), "{extensions}");
}

#[tokio::test(start_paused = true)]
async fn lost_leases_are_acquired_again_unless_another_process_has_them() {
    let mut fixture = Fixture::start().await;
    fixture.store.interceptor.is_away.store(true, Ordering::SeqCst);
    fixture.advance(2 * TTL).await;
    assert_eq!(fixture.held(), 0);
    assert!(fixture.leases.iter().all(RenewedLease::is_renewing));
    fixture.store.interceptor.is_away.store(false, Ordering::SeqCst);
    let other = fixture.factory.key(&session(0)).unwrap();
    fixture.store.write(Write::new(other, "two")).await.unwrap();
    fixture.advance(TTL).await;
    assert_eq!((fixture.held(), fixture.taken.load(Ordering::SeqCst)), (TURNS - 1, 1));
    assert!(!fixture.leases[0].is_renewing());
    // A dropped lease is not renewed; a released one is free.
    let (released, dropped) = (fixture.leases.pop().unwrap(), fixture.leases.pop().unwrap());
    released.release().await;
    drop(dropped);
    fixture.advance(2 * TTL).await;
    let keys = [TURNS - 1, TURNS - 2, TURNS - 3].map(session);
    for (key, is_held) in keys.iter().zip([false, false, true]) {
        let key = fixture.factory.key(key).unwrap();
        let entry = fixture.store.get(&key).await.unwrap();
        assert_eq!(entry.is_some(), is_held, "{key}");
    }
}
