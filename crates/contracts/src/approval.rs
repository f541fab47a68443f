//! A person is asked whether a tool call may run, and answers.
//!
//! The question is a reply of the agent: [`ReplyBody::ApprovalAsked`](crate::ReplyBody).

use serde::{Deserialize, Serialize};

use crate::{
    ids::{ApprovalId, SessionId},
    message::Message,
};

/// What a person says to the question whether a call may run. It goes to every process of the agent;
/// the one that asked takes it, once, when all of it fits what was asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalAnswer {
    /// The conversation in which was asked.
    pub session_id: SessionId,
    /// The question.
    pub approval_id: ApprovalId,
    /// The call that the person saw: its tool and the hash of its exact arguments, as in the
    /// question.
    pub call_hash: String,
    /// What the person says.
    pub decision: ApprovalDecision,
}

impl Message for ApprovalAnswer {
    const TYPE: &'static str = "ApprovalAnswer";
}

/// What a person says about a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalDecision {
    /// It may run, once.
    Allow,
    /// It may run, and so may later calls of the same tool in this conversation.
    AllowInSession,
    /// It may not run. Also what this build does not know.
    #[serde(other)]
    Deny,
}
