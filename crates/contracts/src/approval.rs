//! Approvals of tool calls by users.
//!
//! An agent requests approval with the reply [`ReplyBody::ApprovalAsked`](crate::ReplyBody).

use serde::{Deserialize, Serialize};

use crate::{
    ids::{ApprovalId, SessionId},
    message::Message,
};

/// A user's decision on an approval request. It is delivered to every process of the agent, and retained at the broker
/// for the next one. The process that runs the turn of the request accepts one decision, also if another process sent the
/// request or received the decision, and only if session, request and hash match.
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

    /// Returns the reason without surrounding whitespace, cut to [`MAX_REASON_BYTES`](Self::MAX_REASON_BYTES);
    /// `None` if it is empty.
    #[must_use]
    pub fn bounded_reason(&self) -> Option<&str> {
        let reason = self.reason.as_deref().map(str::trim).filter(|reason| !reason.is_empty())?;
        Some(&reason[..reason.floor_char_boundary(Self::MAX_REASON_BYTES)])
    }

    /// Returns the decision with its [`bounded_reason`](Self::bounded_reason).
    #[must_use]
    pub fn bounded(&self) -> Self {
        Self {
            session_id: self.session_id.clone(),
            approval_id: self.approval_id.clone(),
            call_hash: self.call_hash.clone(),
            decision: self.decision,
            reason: self.bounded_reason().map(str::to_owned),
        }
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reason_is_trimmed_and_cut_at_a_character() {
        let answer = |reason: &str| ApprovalAnswer {
            session_id: SessionId::new("s").unwrap(),
            approval_id: ApprovalId::generate(),
            call_hash: "0".repeat(64),
            decision: ApprovalDecision::Deny,
            reason: Some(reason.to_owned()),
        };
        assert_eq!(answer("  ").bounded().reason, None);
        assert_eq!(answer(" Ask Ada. ").bounded().reason.as_deref(), Some("Ask Ada."));
        // A character of two bytes lies across the limit.
        let long = format!("x{}", "\u{e9}".repeat(ApprovalAnswer::MAX_REASON_BYTES));
        let bounded = answer(&long).bounded().reason.unwrap();
        assert_eq!(bounded.len(), ApprovalAnswer::MAX_REASON_BYTES - 1);
    }
}
