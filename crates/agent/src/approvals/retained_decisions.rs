//! Decisions on approval requests in the store of the conversations.
//!
//! A decision reaches the processes that run at that moment. If none does, or the broker drops the queue of the one that
//! waits, the broker retains the decision, and the next process that consumes it records it here. A process that
//! continues the turn finds it.

use std::{sync::Arc, time::Duration};

use rockbot_contracts::{AgentName, ApprovalAnswer, ApprovalId, SessionId};
use rockbot_store::{DocumentError, DocumentStore, Expected, PutOutcome, Store};
use sha2::{Digest, Sha256};
use tokio::time::{sleep, timeout};
use tracing::{debug, warn};

/// Maximum number of recorded decisions of an agent. The oldest one beyond them is dropped.
const MAX_DECISIONS: usize = 256;
/// Time limit of an operation on the store.
const STORE_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval at which an open request looks for its decision.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Time after which the decision on a closed request is removed: a copy of a decision that came directly may be
/// recorded a little later.
const REMOVE_DELAY: Duration = Duration::from_secs(2);

/// The recorded decisions of an agent's users. Each expires with its approval.
#[derive(Debug, Clone)]
pub(crate) struct RetainedDecisions(DocumentStore<ApprovalAnswer>);

impl RetainedDecisions {
    pub(crate) fn new(store: Arc<dyn Store>, agent: &AgentName) -> Self {
        Self(DocumentStore::new(store, ["approval-decisions", agent.as_str()]))
    }

    /// Records a decision for a time, with a bounded reason. The first decision on a request counts. When too many are
    /// recorded, the oldest ones are dropped.
    ///
    /// # Errors
    /// When the store is unavailable.
    pub(crate) async fn record(
        &self,
        decision: &ApprovalAnswer,
        lifetime: Duration,
    ) -> Result<(), DocumentError> {
        let ApprovalAnswer { approval_id, session_id, call_hash, .. } = decision;
        let name = [name(approval_id, session_id, call_hash)];
        let bounded = decision.bounded();
        match self.0.put(&name, &bounded, Some(lifetime), Expected::Absent).await? {
            PutOutcome::Done(_) => self.drop_oldest().await,
            PutOutcome::Conflict(_) => Ok(()),
        }
    }

    /// Drops the oldest decisions above the maximum number.
    async fn drop_oldest(&self) -> Result<(), DocumentError> {
        // Processes that record at the same time may exceed the maximum.
        let mut recorded = self.0.versions::<&str>(&[], 2 * MAX_DECISIONS).await?;
        let excess = recorded.len().saturating_sub(MAX_DECISIONS);
        if excess == 0 {
            return Ok(());
        }
        recorded.sort_unstable_by_key(|(_, version)| *version);
        for (name, version) in recorded.into_iter().take(excess) {
            self.0.remove(&name, Expected::Version(version)).await?;
        }
        warn!(dropped = excess, "too many recorded decisions; oldest dropped");
        Ok(())
    }

    /// Removes the decision on a closed request after 2 s, in the background. If that fails, the decision expires.
    pub(super) fn remove(&self, approval: ApprovalId, session: &SessionId, call_hash: &str) {
        let (decisions, name) = (self.0.clone(), [name(&approval, session, call_hash)]);
        tokio::spawn(async move {
            sleep(REMOVE_DELAY).await;
            match timeout(STORE_TIMEOUT, decisions.remove(&name, Expected::Anything)).await {
                Ok(Ok(_)) => {}
                Ok(Err(error)) => {
                    debug!(approval_id = %approval, %error, "recorded decision not removed");
                }
                Err(_) => debug!(approval_id = %approval, "recorded decision not removed in time"),
            }
        });
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

#[cfg(test)]
mod tests {
    use rockbot_contracts::ApprovalDecision;
    use rockbot_store::{Clock, Stores};

    use super::*;

    const LIFETIME: Duration = Duration::from_secs(60);

    fn decisions() -> RetainedDecisions {
        let agent = AgentName::new("tester").unwrap();
        RetainedDecisions::new(Stores::memory(Clock::System).store, &agent)
    }

    fn decision() -> ApprovalAnswer {
        ApprovalAnswer {
            session_id: SessionId::new("s").unwrap(),
            approval_id: ApprovalId::generate(),
            call_hash: "0".repeat(64),
            decision: ApprovalDecision::Deny,
            reason: Some("x".repeat(2 * ApprovalAnswer::MAX_REASON_BYTES)),
        }
    }

    async fn find(
        decisions: &RetainedDecisions,
        decision: &ApprovalAnswer,
    ) -> Option<ApprovalAnswer> {
        let ApprovalAnswer { approval_id, session_id, call_hash, .. } = decision;
        decisions.find(approval_id, session_id, call_hash).await
    }

    #[tokio::test]
    async fn oldest_decision_is_dropped_above_the_maximum() {
        let (decisions, first) = (decisions(), decision());
        decisions.record(&first, LIFETIME).await.unwrap();
        let found = find(&decisions, &first).await.unwrap();
        assert_eq!(found, first.bounded());
        let second = decision();
        decisions.record(&second, LIFETIME).await.unwrap();
        for _ in 1..MAX_DECISIONS {
            decisions.record(&decision(), LIFETIME).await.unwrap();
        }
        assert_eq!(find(&decisions, &first).await, None);
        assert!(find(&decisions, &second).await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn decision_on_closed_request_is_removed() {
        let (decisions, given) = (decisions(), decision());
        decisions.remove(given.approval_id.clone(), &given.session_id, &given.call_hash);
        // A copy of the decision that comes a little later.
        decisions.record(&given, LIFETIME).await.unwrap();
        assert!(find(&decisions, &given).await.is_some());
        sleep(2 * REMOVE_DELAY).await;
        assert_eq!(find(&decisions, &given).await, None);
    }
}
