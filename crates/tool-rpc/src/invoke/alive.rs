//! A lease that says that a process lives.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rockbot_contracts::{InstanceId, MessageId};
use rockbot_store::{Key, Lease, LeaseError, Store, StoreError, lease::ATTEMPT_TIMEOUT};
use tokio::{sync::watch, task::JoinHandle, time::timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

/// How long a process counts as alive after it last said so.
const LEASE: Duration = Duration::from_secs(10);
/// The pause after the store failed.
const AFTER_FAILURE: Duration = Duration::from_millis(500);
/// How long a call waits for a life to begin.
const LIFE_WITHIN: Duration = Duration::from_secs(2);

/// Holds the lease `handlers/<life>` for as long as the process lives.
///
/// When the lease is lost, because the store was out of reach for too long, a new life begins:
/// others may have taken over what ran in the old one.
#[derive(Debug)]
pub(super) struct Alive {
    life: watch::Receiver<Option<Arc<str>>>,
    stop: CancellationToken,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Alive {
    pub(super) fn start(store: Arc<dyn Store>, instance: InstanceId) -> Self {
        let (sender, life) = watch::channel(None);
        let stop = CancellationToken::new();
        let keeper = Keeper { store, instance, life: sender };
        let task = tokio::spawn(keeper.run(stop.clone()));
        Self { life, stop, task: Mutex::new(Some(task)) }
    }

    /// The life of this process; waits a little for it to begin.
    pub(super) async fn life(&self) -> Result<Arc<str>, StoreError> {
        if let Some(life) = self.life.borrow().clone() {
            return Ok(life);
        }
        let mut life = self.life.clone();
        let begun = timeout(LIFE_WITHIN, life.wait_for(Option::is_some)).await;
        begun.ok().and_then(|life| life.ok()?.clone()).ok_or_else(|| StoreError::Unavailable {
            reason: "this process could not write to it lately".to_owned(),
        })
    }

    /// Whether the process with that life lives.
    pub(super) async fn has(store: &dyn Store, life: &str) -> Result<bool, StoreError> {
        Ok(store.get(&key(life)?).await?.is_some())
    }

    /// Gives the lease back.
    pub(super) async fn stop(&self) {
        self.stop.cancel();
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(task) = task {
            // Its last act is bounded.
            let _ = task.await;
        }
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        if let Some(task) = self.task.lock().unwrap_or_else(PoisonError::into_inner).take() {
            task.abort();
        }
    }
}

struct Keeper {
    store: Arc<dyn Store>,
    instance: InstanceId,
    life: watch::Sender<Option<Arc<str>>>,
}

impl Keeper {
    async fn run(self, stop: CancellationToken) {
        while let Some(lease) = stop.run_until_cancelled(self.begin()).await {
            let kept = lease.keep_alive(LEASE, &stop).await;
            self.life.send_replace(None);
            let Some(lease) = kept else { continue };
            // Nothing runs here any more: whoever has a call of ours need not wait.
            let _ = timeout(ATTEMPT_TIMEOUT, lease.release()).await;
            return;
        }
    }

    async fn begin(&self) -> Lease {
        loop {
            let life: Arc<str> = format!("{}-{}", self.instance, MessageId::generate()).into();
            match self.acquire(&life).await {
                Ok(lease) => {
                    debug!(%life, "a life of this process begins");
                    self.life.send_replace(Some(life));
                    return lease;
                }
                Err(error) => {
                    warn!(%error, "cannot write to the store; calls that change something wait");
                    tokio::time::sleep(AFTER_FAILURE).await;
                }
            }
        }
    }

    async fn acquire(&self, life: &str) -> Result<Lease, LeaseError> {
        let acquired = Lease::acquire(self.store.clone(), key(life)?, life, LEASE);
        timeout(ATTEMPT_TIMEOUT, acquired).await.unwrap_or_else(|_| Err(late().into()))
    }
}

fn late() -> StoreError {
    StoreError::Unavailable { reason: format!("no answer within {ATTEMPT_TIMEOUT:?}") }
}

fn key(life: &str) -> Result<Key, StoreError> {
    Key::new(["handlers", life]).map_err(|error| StoreError::Unusable { reason: error.to_string() })
}
