//! Decisions on approval requests in the store of the conversations.
//!
//! A decision reaches the processes that run at that moment. If none does, or the broker drops the queue of the one that
//! waits, the broker retains the decision, and the next process that consumes it records it here. A process that
//! continues the turn finds it.

use std::{sync::Arc, time::Duration};

use rockbot_contracts::{AgentName, ApprovalAnswer, ApprovalId, SessionId};
use rockbot_store::{DocumentError, DocumentStore, Expected, Store};
use sha2::{Digest, Sha256};
use tokio::time::{sleep, timeout};
use tracing::{debug, warn};

/// Maximum number of recorded decisions of an agent. Further ones are dropped.
const MAX_DECISIONS: usize = 256;
/// Time limit of an operation on the store.
const STORE_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval at which an open request looks for its decision.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The recorded decisions of an agent's users. Each expires with its approval.
#[derive(Debug, Clone)]
pub(crate) struct RetainedDecisions(DocumentStore<ApprovalAnswer>);

impl RetainedDecisions {
    pub(crate) fn new(store: Arc<dyn Store>, agent: &AgentName) -> Self {
        Self(DocumentStore::new(store, ["approval-decisions", agent.as_str()]))
    }

    /// Records a decision for a time. The first decision on a request counts.
    ///
    /// # Errors
    /// When the store is unavailable.
    pub(crate) async fn record(
        &self,
        decision: &ApprovalAnswer,
        lifetime: Duration,
    ) -> Result<(), DocumentError> {
        if self.0.list::<&str>(&[], MAX_DECISIONS).await?.len() >= MAX_DECISIONS {
            warn!(approval_id = %decision.approval_id, "too many recorded decisions; decision dropped");
            return Ok(());
        }
        let ApprovalAnswer { approval_id, session_id, call_hash, .. } = decision;
        let name = [name(approval_id, session_id, call_hash)];
        let recorded = self.0.put(&name, decision, Some(lifetime), Expected::Absent);
        recorded.await.map(drop)
    }

    /// Returns the decision on a request; `None` without one, and if the store does not respond within 5 s.
    pub(super) async fn find(
        &self,
        approval: &ApprovalId,
        session: &SessionId,
        call_hash: &str,
    ) -> Option<ApprovalAnswer> {
        let name = [name(approval, session, call_hash)];
        match timeout(STORE_TIMEOUT, self.0.get(&name)).await {
            Ok(Ok(found)) => found.map(|found| found.value),
            Ok(Err(error)) => {
                debug!(approval_id = %approval, %error, "recorded decision not read");
                None
            }
            Err(_) => {
                debug!(approval_id = %approval, "recorded decision not read in time");
                None
            }
        }
    }

    /// Waits until the decision on a request is recorded.
    pub(super) async fn wait_for(
        &self,
        approval: &ApprovalId,
        session: &SessionId,
        call_hash: &str,
    ) -> ApprovalAnswer {
        loop {
            sleep(POLL_INTERVAL).await;
            if let Some(decision) = self.find(approval, session, call_hash).await {
                return decision;
            }
        }
    }
}

/// Returns the name of a decision in the store: a hash of everything that must match the request.
fn name(approval: &ApprovalId, session: &SessionId, call_hash: &str) -> String {
    let mut hash = Sha256::new();
    for part in [approval.as_str(), session.as_str(), call_hash] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}
