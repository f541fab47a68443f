//! Which bridge serves a server that only one can serve: a program has a state of its own.

use std::{sync::Arc, time::Duration};

use rockbot_contracts::{InstanceId, MessageId};
use rockbot_store::{Key, Lease, LeaseError, Store, StoreError, lease::ATTEMPT_TIMEOUT};
use tokio::{
    task::JoinHandle,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

/// How long a bridge that says nothing any more still owns its servers.
const LEASE: Duration = Duration::from_secs(15);
/// After so long without having said it, the owner stops to serve. What is left of the lease is for
/// the program to end, before anybody else begins.
const GIVE_UP: Duration = Duration::from_secs(8);
/// How often somebody who is not the owner asks to be.
const ASK_EVERY: Duration = Duration::from_secs(2);

/// The right to serve a server alone, by a lease `mcp-servers/<namespace>/<server>` in the store.
#[derive(Clone)]
pub(crate) struct Ownership {
    store: Arc<dyn Store>,
    namespace: Arc<str>,
    /// This bridge, and nobody else; also not another life of it.
    owner: Arc<str>,
}

impl Ownership {
    pub(crate) fn new(store: Arc<dyn Store>, namespace: &str, instance: &InstanceId) -> Self {
        let owner = format!("{instance}/{}", MessageId::generate()).into();
        Self { store, namespace: namespace.into(), owner }
    }

    /// Waits until this bridge owns the server. `elsewhere` is told who does meanwhile, each time
    /// that it is asked.
    ///
    /// # Cancellation
    /// A lease that was just had ends by itself.
    pub(crate) async fn of(&self, server: &str, elsewhere: impl Fn(&str)) -> Owned {
        loop {
            match self.acquire(server).await {
                Ok(lease) => return Owned::hold(lease, server),
                Err(LeaseError::HeldBy { owner, .. }) => {
                    debug!(%server, %owner, "another bridge serves it");
                    elsewhere(&owner);
                    sleep(ASK_EVERY).await;
                }
                Err(error) => {
                    // Nobody starts it: another bridge may have.
                    warn!(%server, %error, "cannot find out who serves it");
                    sleep(ASK_EVERY).await;
                }
            }
        }
    }

    async fn acquire(&self, server: &str) -> Result<Lease, LeaseError> {
        let key = Key::new(["mcp-servers", &self.namespace, &server.to_lowercase()]);
        let unusable = |reason: String| StoreError::Unusable { reason };
        let key = key.map_err(|error| unusable(error.to_string()))?;
        let acquired = Lease::acquire(self.store.clone(), key, &self.owner, LEASE);
        let late =
            || StoreError::Unavailable { reason: format!("no answer within {ATTEMPT_TIMEOUT:?}") };
        timeout(ATTEMPT_TIMEOUT, acquired).await.unwrap_or_else(|_| Err(late().into()))
    }
}

/// A server that is ours. Given back when dropped.
pub(crate) struct Owned {
    lost: CancellationToken,
    release: CancellationToken,
    task: Option<JoinHandle<()>>,
}

impl Owned {
    fn hold(lease: Lease, server: &str) -> Self {
        info!(%server, "this bridge serves it");
        let (lost, release) = (CancellationToken::new(), CancellationToken::new());
        let task = tokio::spawn(keep(lease, lost.clone(), release.clone()));
        Self { lost, release, task: Some(task) }
    }

    /// Returns when it is ours no longer, or can't be known to be.
    pub(crate) async fn lost(&self) {
        self.lost.cancelled().await;
    }

    /// Whether that is so.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.is_cancelled()
    }

    /// Gives it back, so that another bridge can have it at once.
    pub(crate) async fn give_back(mut self) {
        self.release.cancel();
        if let Some(task) = self.task.take() {
            // Its last act is bounded.
            let _ = task.await;
        }
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // The task ends with one attempt to give the lease back.
        self.release.cancel();
    }
}

async fn keep(lease: Lease, lost: CancellationToken, release: CancellationToken) {
    match lease.keep_alive(GIVE_UP, &release).await {
        Some(lease) => {
            let _ = timeout(ATTEMPT_TIMEOUT, lease.release()).await;
        }
        None => lost.cancel(),
    }
}
