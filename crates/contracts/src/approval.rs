//! Approvals of tool calls by users.
//!
//! An agent requests approval with the reply [`ReplyBody::ApprovalAsked`](crate::ReplyBody).

use serde::{Deserialize, Serialize};

use crate::{
    ids::{ApprovalId, SessionId},
    message::Message,
};

/// A user's decision on an approval request. It is delivered to every process of the agent. The process
/// that sent the request accepts one decision, and only if all fields match the request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalAnswer {
    /// Conversation of the approval request.
    pub session_id: SessionId,
    /// The approval request.
    pub approval_id: ApprovalId,
    /// Hash of the tool and its exact arguments, copied from the approval request: identifies the call
    /// that the user saw.
    pub call_hash: String,
    /// The decision.
    pub decision: ApprovalDecision,
    /// Reason of a denial, which the model reads: at most [`MAX_REASON_BYTES`](Self::MAX_REASON_BYTES) of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl ApprovalAnswer {
    /// Maximum size of a reason in bytes.
    pub const MAX_REASON_BYTES: usize = 1024;
    /// Length of a call hash.
    const HASH_CHARS: usize = 64;

    /// Returns whether the call hash has the length of one. A decision with another one matches no request.
    #[must_use]
    pub fn has_valid_hash(&self) -> bool {
        self.call_hash.len() == Self::HASH_CHARS
    }
}

impl Message for ApprovalAnswer {
    const TYPE: &'static str = "ApprovalAnswer";
}

/// Outcome of an approval request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalOutcome {
    /// The call may run, once.
    Allow,
    /// The call may run, and so may later calls of the same tool in this conversation.
    AllowInSession,
    /// The call may not run.
    Deny,
    /// No decision arrived in time; the call may not run.
    Expired,
    /// The call no longer waits: its turn was cancelled, or another process continues it. Unknown outcomes
    /// parse as this one.
    #[serde(other)]
    Cancelled,
}

impl From<ApprovalDecision> for ApprovalOutcome {
    fn from(decision: ApprovalDecision) -> Self {
        match decision {
            ApprovalDecision::Allow => Self::Allow,
            ApprovalDecision::AllowInSession => Self::AllowInSession,
            ApprovalDecision::Deny => Self::Deny,
        }
    }
}

/// Decision on a tool call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalDecision {
    /// The call may run, once.
    Allow,
    /// The call may run, and so may later calls of the same tool in this conversation.
    AllowInSession,
    /// The call may not run. Unknown decisions parse as this one.
    #[serde(other)]
    Deny,
}
