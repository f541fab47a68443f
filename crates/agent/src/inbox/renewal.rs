//! Renewal of the leases of a process: all of them together, so that their number does not multiply the
//! writes to the store.

use std::{
    collections::HashMap,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use futures_util::StreamExt;
use metrics::counter;
use parking_lot::Mutex;
use rockbot_contracts::SessionId;
use rockbot_store::{Lease, LeaseError, LeaseRenewal, StoreError, lease::ATTEMPT_TIMEOUT};
use tokio::{
    sync::{Mutex as AsyncMutex, Notify, OwnedMutexGuard},
    task::JoinHandle,
    time::{Instant, sleep, timeout, timeout_at},
};
use tracing::{debug, info, warn};

use super::{jitter::jittered, leases::LeaseFactory};

/// Leases that are renewed with one statement.
const CHUNK: usize = 128;
/// Statements, or lost leases that are acquired again, at a time.
const CONCURRENT: usize = 4;
/// Shortest and longest time between two renewals, in intervals. Other processes expect a renewal within one
/// interval.
const JITTER: Range<f64> = 0.75..1.0;

/// Called for a conversation whose lease another process has. Must not block.
pub(crate) type OnLoss = Arc<dyn Fn(&SessionId) + Send + Sync>;

/// Renews the leases of a process until it is dropped. One that expired because the store was unavailable is
/// acquired again if no other process has taken it.
pub(super) struct LeaseRenewer {
    table: Arc<Table>,
    task: JoinHandle<()>,
}

/// The leases that are renewed.
#[derive(Default)]
struct Table {
    next_id: AtomicU64,
    leases: Mutex<HashMap<u64, Arc<Renewed>>>,
    added: Notify,
    lost: Notify,
}

/// A lease on a conversation. It is renewed until it is released or dropped.
pub(crate) struct RenewedLease {
    id: u64,
    renewed: Arc<Renewed>,
    table: Arc<Table>,
}

struct Renewed {
    session: SessionId,
    /// Locked while it is renewed or acquired; `None` while it is lost.
    lease: Arc<AsyncMutex<Option<Lease>>>,
    status: Mutex<Status>,
}

/// State of a lease, as far as this process knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Status {
    Held {
        renewed: Instant,
    },
    /// It expired, and may be acquired again.
    Lost {
        tried: Instant,
    },
    /// Another process has it.
    Taken,
}

/// A lease that is being renewed.
struct Locked {
    id: u64,
    renewed: Arc<Renewed>,
    at: Instant,
    lease: OwnedMutexGuard<Option<Lease>>,
}

impl LeaseRenewer {
    /// Starts to renew. `on_loss` is called for a conversation that another process has taken.
    pub(super) fn start(leases: LeaseFactory, on_loss: OnLoss) -> Self {
        let table = Arc::<Table>::default();
        let worker = Worker { table: table.clone(), leases, on_loss };
        let task = tokio::spawn(async move {
            tokio::join!(worker.renew(), worker.reacquire());
        });
        Self { table, task }
    }

    /// Adds a lease that was just acquired.
    pub(super) fn add(&self, lease: Lease, session: SessionId) -> RenewedLease {
        let id = self.table.next_id.fetch_add(1, Ordering::Relaxed);
        let renewed = Arc::new(Renewed {
            session,
            lease: Arc::new(AsyncMutex::new(Some(lease))),
            status: Mutex::new(Status::Held { renewed: Instant::now() }),
        });
        self.table.leases.lock().insert(id, renewed.clone());
        self.table.added.notify_one();
        RenewedLease { id, renewed, table: self.table.clone() }
    }
}

impl Drop for LeaseRenewer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl RenewedLease {
    /// Returns whether the lease is held, as far as this process knows.
    pub(super) fn is_held(&self) -> bool {
        matches!(*self.renewed.status.lock(), Status::Held { .. })
    }

    /// Returns whether the lease is held or may be held again.
    pub(super) fn is_renewing(&self) -> bool {
        *self.renewed.status.lock() != Status::Taken
    }

    /// Releases the lease, in a bounded time.
    pub(super) async fn release(self) {
        self.table.leases.lock().remove(&self.id);
        // An attempt that holds the lock is bounded.
        let Some(lease) = self.renewed.lease.lock().await.take() else { return };
        match timeout(ATTEMPT_TIMEOUT, lease.release()).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => debug!(%error, "lease release failed; it expires"),
            Err(_) => debug!("lease release timed out; it expires"),
        }
    }
}

impl Drop for RenewedLease {
    fn drop(&mut self) {
        self.table.leases.lock().remove(&self.id);
    }
}

impl Table {
    /// Locks the leases that are held, except those that are being released.
    fn held(&self) -> Vec<Locked> {
        let leases = self.leases.lock();
        let held = leases.iter().filter_map(|(id, renewed)| {
            let Status::Held { renewed: at } = *renewed.status.lock() else { return None };
            let lease = renewed.lease.clone().try_lock_owned().ok()?;
            lease.is_some().then(|| Locked { id: *id, renewed: renewed.clone(), at, lease })
        });
        held.collect()
    }

    /// Returns the lost leases, those first that were tried the longest time ago.
    fn lost(&self) -> Vec<(u64, Arc<Renewed>)> {
        let leases = self.leases.lock();
        let mut lost: Vec<_> = leases
            .iter()
            .filter_map(|(id, renewed)| match *renewed.status.lock() {
                Status::Lost { tried } => Some((tried, *id, renewed.clone())),
                Status::Held { .. } | Status::Taken => None,
            })
            .collect();
        lost.sort_by_key(|(tried, id, _)| (*tried, *id));
        lost.into_iter().map(|(_, id, renewed)| (id, renewed)).collect()
    }
}

struct Worker {
    table: Arc<Table>,
    leases: LeaseFactory,
    on_loss: OnLoss,
}

impl Worker {
    async fn renew(&self) {
        let LeaseRenewal { interval, retry_delay, .. } = self.leases.renewal();
        let mut delay = jittered(interval, JITTER);
        loop {
            if self.table.leases.lock().is_empty() {
                self.table.added.notified().await;
            }
            sleep(delay).await;
            let is_renewed = self.renew_all().await;
            delay = if is_renewed { jittered(interval, JITTER) } else { retry_delay };
        }
    }

    /// Renews all leases. Returns `false` if the store failed.
    async fn renew_all(&self) -> bool {
        let (mut held, mut chunks) = (self.table.held(), Vec::new());
        while !held.is_empty() {
            chunks.push(held.split_off(held.len().saturating_sub(CHUNK)));
        }
        let chunks = futures_util::stream::iter(chunks).map(|chunk| self.renew_chunk(chunk));
        let renewed = chunks.buffer_unordered(CONCURRENT);
        renewed.fold(true, |all, one| async move { all && one }).await
    }

    async fn renew_chunk(&self, mut chunk: Vec<Locked>) -> bool {
        let LeaseRenewal { attempt_timeout, give_up, .. } = self.leases.renewal();
        let start = Instant::now();
        let oldest = chunk.iter().map(|one| one.at).min().unwrap_or(start);
        let deadline = (start + attempt_timeout).min(oldest + give_up);
        let mut leases: Vec<&mut Lease> =
            chunk.iter_mut().filter_map(|one| one.lease.as_mut()).collect();
        let number = leases.len();
        let attempt = timeout_at(deadline, Lease::renew_all(&mut leases)).await;
        let late = || StoreError::Unavailable { reason: "no response in time".to_owned() };
        let outcomes = attempt.unwrap_or_else(|_| vec![Err(late().into()); number]);
        let mut failure = None;
        for (one, outcome) in chunk.into_iter().zip(outcomes) {
            match outcome {
                Ok(()) => *one.renewed.status.lock() = Status::Held { renewed: start },
                Err(LeaseError::Store(error)) => {
                    failure = Some(error);
                    if one.at.elapsed() >= give_up {
                        self.lose(one);
                    }
                }
                Err(_) => self.lose(one),
            }
        }
        if let Some(error) = &failure {
            warn!(leases = number, %error, "lease renewal failed");
        }
        failure.is_none()
    }

    /// Notes that a lease is lost. It is acquired again, unless another process has it.
    fn lose(&self, mut locked: Locked) {
        let session = &locked.renewed.session;
        counter!("rockbot_agent_leases_lost_total").increment(1);
        warn!(session_id = %session, lease = locked.id, "conversation lease lost");
        *locked.lease = None;
        *locked.renewed.status.lock() = Status::Lost { tried: Instant::now() };
        self.table.lost.notify_one();
    }

    async fn reacquire(&self) {
        let interval = self.leases.renewal().interval;
        loop {
            if self.table.lost().is_empty() {
                self.table.lost.notified().await;
            }
            sleep(jittered(interval, JITTER)).await;
            // The others would fail too, and keep the store busy.
            let has_failed = AtomicBool::new(false);
            let lost = futures_util::stream::iter(self.table.lost());
            lost.for_each_concurrent(CONCURRENT, |(id, renewed)| {
                let has_failed = &has_failed;
                async move {
                    if !has_failed.load(Ordering::Relaxed) && !self.try_acquire(id, &renewed).await
                    {
                        has_failed.store(true, Ordering::Relaxed);
                    }
                }
            })
            .await;
        }
    }

    /// Acquires a lost lease. Returns `false` if the store failed.
    async fn try_acquire(&self, id: u64, renewed: &Renewed) -> bool {
        let mut lease = renewed.lease.lock().await;
        if !self.table.leases.lock().contains_key(&id) {
            return true;
        }
        let session = &renewed.session;
        let mut is_reachable = true;
        match self.leases.acquire(session, None).await {
            Ok(acquired) => {
                *lease = Some(acquired);
                *renewed.status.lock() = Status::Held { renewed: Instant::now() };
                return true;
            }
            Err(LeaseError::HeldBy { owner, version: Some(_), .. }) => {
                *renewed.status.lock() = Status::Taken;
                info!(session_id = %session, owner, "conversation continues in another process");
                if self.table.leases.lock().remove(&id).is_some() {
                    (self.on_loss)(session);
                }
                return true;
            }
            Err(LeaseError::HeldBy { .. } | LeaseError::Lost { .. }) => {}
            Err(LeaseError::Store(error)) => {
                debug!(%error, "lease not acquired; retrying");
                is_reachable = false;
            }
        }
        *renewed.status.lock() = Status::Lost { tried: Instant::now() };
        is_reachable
    }
}

#[cfg(test)]
mod tests;
