//! Liveness of handler processes: each holds a lease in the store.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;

use rockbot_contracts::{InstanceId, MessageId};
use rockbot_store::{Key, Lease, LeaseError, Renewal, Store, StoreError, lease::ATTEMPT_TIMEOUT};
use tokio::{sync::watch, task::JoinHandle, time::timeout};
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

    /// Waits up to 4 s until the process with this incarnation renews its lease. Returns whether it did. A
    /// lease that is only held does not prove that the process is alive: it outlives a crash.
    pub(super) async fn renews(store: &dyn Store, incarnation: &str) -> Result<bool, StoreError> {
        let key = key(incarnation)?;
        let Some(held) = store.get(&key).await? else { return Ok(false) };
        let renewal = async {
            loop {
                tokio::time::sleep(POLL_INTERVAL).await;
                match store.get(&key).await? {
                    None => return Ok(false),
                    Some(lease) if lease.version != held.version => return Ok(true),
                    Some(_) => {}
                }
            }
        };
        timeout(RENEWAL_TIMEOUT, renewal).await.unwrap_or(Ok(false))
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

/// Acquires and renews the lease of this process.
struct LeaseKeeper {
    store: Arc<dyn Store>,
    instance: InstanceId,
    incarnation: watch::Sender<Option<Arc<str>>>,
}

impl LeaseKeeper {
    async fn run(self, stop: CancellationToken) {
        while let Some(lease) = stop.run_until_cancelled(self.acquire_with_retry()).await {
            let kept = lease.keep_alive(Renewal::new(LEASE_TTL), &stop).await;
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
