//! A lease that a task renews.

use std::sync::Arc;

use metrics::counter;
use rockbot_contracts::SessionId;
use rockbot_store::{Lease, LeaseError, lease::ATTEMPT_TIMEOUT};
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::leases::LeaseFactory;

/// Called for a conversation whose lease another process has. Must not block.
pub(crate) type OnLoss = Arc<dyn Fn(&SessionId) + Send + Sync>;

/// A lease on a conversation, renewed until it is released or dropped. One that expired because the store
/// was unavailable is acquired again if no other process has taken it.
pub(crate) struct RenewedLease {
    stop: CancellationToken,
    held: watch::Receiver<bool>,
    task: JoinHandle<Option<Lease>>,
}

impl RenewedLease {
    pub(super) fn start(
        lease: Lease,
        leases: LeaseFactory,
        session: SessionId,
        on_loss: OnLoss,
    ) -> Self {
        let stop = CancellationToken::new();
        let (is_held, held) = watch::channel(true);
        let task = tokio::spawn({
            let stop = stop.clone();
            async move {
                let lease = renew(lease, leases, &session, &stop, is_held).await;
                if lease.is_none() && !stop.is_cancelled() {
                    on_loss(&session);
                }
                lease
            }
        });
        Self { stop, held, task }
    }

    /// Returns whether the lease is held, as far as this process knows.
    pub(super) fn is_held(&self) -> bool {
        *self.held.borrow() && !self.task.is_finished()
    }

    /// Returns whether the lease is held or may be held again.
    pub(super) fn is_renewing(&self) -> bool {
        !self.task.is_finished()
    }

    /// Releases the lease, in a bounded time.
    pub(super) async fn release(mut self) {
        self.stop.cancel();
        // The last attempt of the task is bounded.
        let Ok(Some(lease)) = (&mut self.task).await else { return };
        match timeout(ATTEMPT_TIMEOUT, lease.release()).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => debug!(%error, "lease release failed; it expires"),
            Err(_) => debug!("lease release timed out; it expires"),
        }
    }
}

impl Drop for RenewedLease {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Renews the lease until `stop`, and returns it then; `None` if another process has it.
async fn renew(
    mut lease: Lease,
    leases: LeaseFactory,
    session: &SessionId,
    stop: &CancellationToken,
    is_held: watch::Sender<bool>,
) -> Option<Lease> {
    let renewal = leases.renewal();
    loop {
        if let Some(lease) = lease.keep_alive_at(renewal, stop).await {
            return Some(lease);
        }
        is_held.send_replace(false);
        counter!("rockbot_agent_leases_lost_total").increment(1);
        warn!(session_id = %session, "conversation lease lost");
        lease = loop {
            stop.run_until_cancelled(sleep(renewal.interval)).await?;
            match leases.acquire(session, None).await {
                Ok(lease) => break lease,
                Err(LeaseError::Store(error)) => debug!(%error, "lease not acquired; retrying"),
                Err(LeaseError::HeldBy { owner, .. }) => {
                    info!(session_id = %session, owner, "conversation continues in another process");
                    return None;
                }
                Err(LeaseError::Lost { .. }) => {}
            }
        };
        is_held.send_replace(true);
    }
}
