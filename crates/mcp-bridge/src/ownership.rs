//! Ownership of stdio servers: a program has state of its own, so one bridge at a time serves it.

use std::{sync::Arc, time::Duration};

use rockbot_contracts::{InstanceId, MessageId};
use rockbot_store::{Key, Lease, LeaseError, Renewal, Store, StoreError, lease::ATTEMPT_TIMEOUT};
use tokio::{
    task::JoinHandle,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

/// The lease duration: how long an unresponsive bridge keeps its servers.
const LEASE: Duration = Duration::from_secs(15);
/// An owner that could not renew its lease for this long stops serving. The rest of the lease is for
/// the program to end before another bridge starts it.
const RENEW_TIMEOUT: Duration = Duration::from_secs(8);
/// The interval between attempts to acquire a lease that another bridge holds.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);

/// Leases on servers, `mcp-servers/<namespace>/<server>` in the store.
#[derive(Clone)]
pub(crate) struct Ownership {
    store: Arc<dyn Store>,
    namespace: Arc<str>,
    /// Identifies this incarnation of the bridge.
    owner: Arc<str>,
}

impl Ownership {
    pub(crate) fn new(store: Arc<dyn Store>, namespace: &str, instance: &InstanceId) -> Self {
        let owner = format!("{instance}/{}", MessageId::generate()).into();
        Self { store, namespace: namespace.into(), owner }
    }

    /// Waits until this bridge owns the server. `on_held` is called with the current owner after each
    /// failed attempt.
    ///
    /// # Cancellation
    /// A lease that was just acquired expires by itself.
    pub(crate) async fn acquire(&self, server: &str, on_held: impl Fn(&str)) -> OwnershipGuard {
        loop {
            match self.try_acquire(server).await {
                Ok(lease) => return OwnershipGuard::new(lease, server),
                Err(LeaseError::HeldBy { owner, .. }) => {
                    debug!(%server, %owner, "server is owned by another bridge");
                    on_held(&owner);
                    sleep(RETRY_INTERVAL).await;
                }
                Err(error) => {
                    // The server is not started: another bridge may own it.
                    warn!(%server, %error, "ownership lookup failed");
                    sleep(RETRY_INTERVAL).await;
                }
            }
        }
    }

    async fn try_acquire(&self, server: &str) -> Result<Lease, LeaseError> {
        let key = Key::new(["mcp-servers", &self.namespace, &server.to_lowercase()]);
        let unusable = |reason: String| StoreError::Unusable { reason };
        let key = key.map_err(|error| unusable(error.to_string()))?;
        let acquired = Lease::acquire(self.store.clone(), key, &self.owner, LEASE);
        let late = || StoreError::Unavailable {
            reason: format!("no response within {ATTEMPT_TIMEOUT:?}"),
        };
        timeout(ATTEMPT_TIMEOUT, acquired).await.unwrap_or_else(|_| Err(late().into()))
    }
}

/// Ownership of a server. Released when dropped.
pub(crate) struct OwnershipGuard {
    lost: CancellationToken,
    release: CancellationToken,
    task: Option<JoinHandle<()>>,
}

impl OwnershipGuard {
    fn new(lease: Lease, server: &str) -> Self {
        info!(%server, "server ownership acquired");
        let (lost, release) = (CancellationToken::new(), CancellationToken::new());
        let task = tokio::spawn(renew(lease, lost.clone(), release.clone()));
        Self { lost, release, task: Some(task) }
    }

    /// Completes when ownership is lost, or can no longer be confirmed.
    pub(crate) async fn lost(&self) {
        self.lost.cancelled().await;
    }

    /// Returns whether ownership is lost.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.is_cancelled()
    }

    /// Releases ownership, so that another bridge can acquire it at once.
    pub(crate) async fn release(mut self) {
        self.release.cancel();
        if let Some(task) = self.task.take() {
            // Its last attempt is bounded.
            let _ = task.await;
        }
    }
}

impl Drop for OwnershipGuard {
    fn drop(&mut self) {
        // The task ends with one attempt to release the lease.
        self.release.cancel();
    }
}

async fn renew(lease: Lease, lost: CancellationToken, release: CancellationToken) {
    match lease.keep_alive(Renewal::new(RENEW_TIMEOUT), &release).await {
        Some(lease) => {
            let _ = timeout(ATTEMPT_TIMEOUT, lease.release()).await;
        }
        None => lost.cancel(),
    }
}
