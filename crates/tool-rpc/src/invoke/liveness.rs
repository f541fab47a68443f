//! Liveness of handler processes: each holds a lease in the store.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;

use rockbot_contracts::{InstanceId, MessageId};
use rockbot_store::{Key, Lease, LeaseError, Store, StoreError, Version, lease::ATTEMPT_TIMEOUT};
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

/// Time after its last renewal until a process counts as dead.
const LEASE_TTL: Duration = Duration::from_secs(10);
/// Pause after a failed attempt to acquire the lease.
const RETRY_DELAY: Duration = Duration::from_millis(500);
/// Time in which a process that is alive renews its lease: every 3 s.
const RENEWAL_TIMEOUT: Duration = Duration::from_secs(4);
/// Interval between checks of another process's lease.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Maximum time that a call waits for the lease of this process.
const INCARNATION_TIMEOUT: Duration = Duration::from_secs(2);

/// Holds the lease `handlers/<incarnation>` while the process runs.
///
/// A lease that is lost because the store was unavailable for too long is replaced by one of a new
/// incarnation: other handlers may have taken over the calls of the old one.
#[derive(Debug)]
pub(super) struct Liveness {
    incarnation: watch::Receiver<Option<Arc<str>>>,
    stop: CancellationToken,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Liveness {
    pub(super) fn start(store: Arc<dyn Store>, instance: InstanceId) -> Self {
        let (sender, incarnation) = watch::channel(None);
        let stop = CancellationToken::new();
        let keeper = LeaseKeeper { store, instance, incarnation: sender };
        let task = tokio::spawn(keeper.run(stop.clone()));
        Self { incarnation, stop, task: Mutex::new(Some(task)) }
    }

    /// Returns the incarnation of this process; waits up to 2 s for its lease.
    pub(super) async fn incarnation(&self) -> Result<Arc<str>, StoreError> {
        if let Some(incarnation) = self.incarnation.borrow().clone() {
            return Ok(incarnation);
        }
        let mut incarnation = self.incarnation.clone();
        let acquired = timeout(INCARNATION_TIMEOUT, incarnation.wait_for(Option::is_some)).await;
        acquired.ok().and_then(|incarnation| incarnation.ok()?.clone()).ok_or_else(|| {
            StoreError::Unavailable { reason: "recent writes of this process failed".to_owned() }
        })
    }

    /// Returns whether the process with this incarnation is alive.
    pub(super) async fn is_alive(store: &dyn Store, incarnation: &str) -> Result<bool, StoreError> {
        Ok(store.get(&key(incarnation)?).await?.is_some())
    }

    /// Releases the lease.
    pub(super) async fn stop(&self) {
        self.stop.cancel();
        let task = self.task.lock().take();
        if let Some(task) = task {
            // The release of the lease has a timeout.
            let _ = task.await;
        }
    }
}

impl Drop for Liveness {
    fn drop(&mut self) {
        if let Some(task) = self.task.lock().take() {
            task.abort();
        }
    }
}

/// Reads of the leases of other processes. Concurrent readers of a lease share one read, because after a lost
/// connection every request that a process held asks for the same lease.
#[derive(Debug, Default)]
pub(super) struct LeaseReads {
    newest: Mutex<HashMap<Box<str>, Arc<NewestRead>>>,
}

/// The newest read of one lease. Locked during a read.
type NewestRead = tokio::sync::Mutex<Option<LeaseRead>>;

/// The newest read of a lease.
#[derive(Debug, Clone, Copy)]
struct LeaseRead {
    began: Instant,
    /// `None` if no process holds the lease.
    version: Option<Version>,
}

impl LeaseReads {
    /// Number of leases from which on those without readers are dropped.
    const MAX_IDLE: usize = 64;

    /// Waits up to 4 s until the process with this incarnation renews its lease. Returns whether it did. A
    /// lease that is only held does not prove that the process is alive: it outlives a crash.
    ///
    /// # Errors
    /// When the store fails, or does not respond a second time.
    pub(super) async fn renews(
        &self,
        store: &dyn Store,
        incarnation: &str,
    ) -> Result<bool, StoreError> {
        let Some(held) = self.version(store, incarnation).await? else { return Ok(false) };
        let mut is_unchanged = false;
        let renewal = async {
            loop {
                tokio::time::sleep(POLL_INTERVAL).await;
                match self.version(store, incarnation).await? {
                    None => return Ok(false),
                    Some(version) if version != held => return Ok(true),
                    Some(_) => is_unchanged = true,
                }
            }
        };
        match timeout(RENEWAL_TIMEOUT, renewal).await {
            Ok(renewed) => renewed,
            Err(_) if is_unchanged => Ok(false),
            Err(_) => {
                let reason = format!("no response within {RENEWAL_TIMEOUT:?}");
                Err(StoreError::Unavailable { reason })
            }
        }
    }

    /// Returns the version of the lease by a read that began after this call; `None` if no process holds
    /// the lease.
    async fn version(
        &self,
        store: &dyn Store,
        incarnation: &str,
    ) -> Result<Option<Version>, StoreError> {
        let asked = Instant::now();
        let newest = self.newest_of(incarnation);
        let mut newest = newest.lock().await;
        if let Some(read) = newest.filter(|read| read.began >= asked) {
            return Ok(read.version);
        }
        let began = Instant::now();
        let version = store.get(&key(incarnation)?).await?.map(|lease| lease.version);
        *newest = Some(LeaseRead { began, version });
        Ok(version)
    }

    fn newest_of(&self, incarnation: &str) -> Arc<NewestRead> {
        let mut newest = self.newest.lock();
        if let Some(read) = newest.get(incarnation) {
            return read.clone();
        }
        if newest.len() >= Self::MAX_IDLE {
            newest.retain(|_, read| Arc::strong_count(read) > 1);
        }
        newest.entry(incarnation.into()).or_default().clone()
    }
}

/// Acquires and renews the lease of this process.
struct LeaseKeeper {
    store: Arc<dyn Store>,
    instance: InstanceId,
    incarnation: watch::Sender<Option<Arc<str>>>,
}

impl LeaseKeeper {
    async fn run(self, stop: CancellationToken) {
        while let Some(lease) = stop.run_until_cancelled(self.acquire_with_retry()).await {
            let kept = lease.keep_alive(LEASE_TTL, &stop).await;
            self.incarnation.send_replace(None);
            let Some(lease) = kept else { continue };
            // Without the lease, handlers that wait for a call of this process proceed at once.
            let _ = timeout(ATTEMPT_TIMEOUT, lease.release()).await;
            return;
        }
    }

    async fn acquire_with_retry(&self) -> Lease {
        loop {
            let incarnation: Arc<str> =
                format!("{}-{}", self.instance, MessageId::generate()).into();
            match self.acquire(&incarnation).await {
                Ok(lease) => {
                    debug!(%incarnation, "handler lease acquired");
                    self.incarnation.send_replace(Some(incarnation));
                    return lease;
                }
                Err(error) => {
                    warn!(%error, "handler lease not acquired; calls that are not read-only wait");
                    tokio::time::sleep(RETRY_DELAY).await;
                }
            }
        }
    }

    async fn acquire(&self, incarnation: &str) -> Result<Lease, LeaseError> {
        let acquired =
            Lease::acquire(self.store.clone(), key(incarnation)?, incarnation, LEASE_TTL);
        timeout(ATTEMPT_TIMEOUT, acquired).await.unwrap_or_else(|_| Err(timed_out().into()))
    }
}

fn timed_out() -> StoreError {
    StoreError::Unavailable { reason: format!("no reply within {ATTEMPT_TIMEOUT:?}") }
}

fn key(incarnation: &str) -> Result<Key, StoreError> {
    Key::new(["handlers", incarnation])
        .map_err(|error| StoreError::Unusable { reason: error.to_string() })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use futures_util::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
    use rockbot_store::{Clock, Entry, MemoryStore, Write};
    use rockbot_testkit::{InterceptedStore, StoreInterceptor};

    use super::*;

    /// Counts reads.
    #[derive(Default)]
    struct CountedReads(AtomicU32);

    impl StoreInterceptor for CountedReads {
        fn get<'a>(
            &'a self,
            store: &'a dyn Store,
            key: &'a Key,
        ) -> BoxFuture<'a, Result<Option<Entry>, StoreError>> {
            self.0.fetch_add(1, Ordering::SeqCst);
            store.get(key)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn readers_of_a_lease_share_reads() {
        let store = Arc::new(MemoryStore::new(Clock::System));
        let store = InterceptedStore::wrap(store, CountedReads::default());
        let (first, second) = ("first", "second");
        for incarnation in [first, second] {
            store.write(Write::new(key(incarnation).unwrap(), "held")).await.unwrap();
        }
        let reads = LeaseReads::default();
        let renew = async {
            tokio::time::sleep(RENEWAL_TIMEOUT / 2).await;
            store.write(Write::new(key(first).unwrap(), "renewed")).await.unwrap();
        };
        let ask = |incarnation| {
            let asked = (0..100).map(|_| reads.renews(&*store, incarnation));
            let asked: FuturesUnordered<_> = asked.collect();
            asked.map(Result::unwrap).collect::<Vec<_>>()
        };
        let (renewed, lost, ()) = tokio::join!(ask(first), ask(second), renew);
        assert_eq!((renewed, lost), (vec![true; 100], vec![false; 100]));
        let read = store.interceptor.0.load(Ordering::SeqCst);
        assert!((10..100).contains(&read), "{read} reads");
    }
}
