//! Approval requests of a turn, recorded.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;

use rockbot_contracts::{ApprovalDecision, ApprovalId, ToolCallId};

use super::{
    entry::{ApprovalRequestEntry, ConversationEntry, DecisionEntry},
    error::ConversationError,
    open_turn::{RecordedApproval, RecordedOutcome},
    recorder::Recorder,
};

/// The approval requests of a turn. A process that continues the turn makes open ones again under their
/// ids, and none that were decided.
#[derive(Debug)]
pub(crate) struct TurnApprovals {
    recorder: Arc<Recorder>,
    /// Requests of earlier processes, by the hash of their call.
    recorded: Mutex<HashMap<String, RecordedApproval>>,
}

impl TurnApprovals {
    pub(crate) fn new(
        recorder: Arc<Recorder>,
        recorded: HashMap<String, RecordedApproval>,
    ) -> Self {
        Self { recorder, recorded: Mutex::new(recorded) }
    }

    /// Returns whether earlier processes of the turn requested approvals.
    pub(crate) fn has_recorded(&self) -> bool {
        !self.recorded.lock().is_empty()
    }

    /// Returns the request of an earlier process for the call of this hash.
    pub(crate) fn recorded(&self, hash: &str) -> Option<RecordedApproval> {
        self.recorded.lock().get(hash).cloned()
    }

    /// Records a request before a user sees it. Returns its id, and the outcome that an earlier process
    /// recorded; `None` if the request is new.
    pub(crate) async fn ask(
        &self,
        call: &ToolCallId,
        hash: &str,
    ) -> Result<(ApprovalId, Option<RecordedOutcome>), ConversationError> {
        if let Some(RecordedApproval { id, outcome, .. }) = self.recorded(hash) {
            return Ok((id, Some(outcome)));
        }
        let approval = ApprovalId::generate();
        let (call, hash) = (call.clone(), hash.to_owned());
        let request = ApprovalRequestEntry { approval: approval.clone(), call, hash };
        self.recorder.record(&mut ConversationEntry::ApprovalRequest(request)).await?;
        Ok((approval, None))
    }

    /// Records the outcome of a request before the call runs. `allowed` is the tool and its fingerprint if
    /// it was allowed for the whole conversation.
    pub(crate) async fn decide(
        &self,
        approval: ApprovalId,
        decision: Option<ApprovalDecision>,
        allowed: Option<(String, String)>,
    ) -> Result<(), ConversationError> {
        let decision = DecisionEntry { approval, decision, allowed };
        self.recorder.record(&mut ConversationEntry::Decision(decision)).await?;
        Ok(())
    }
}
