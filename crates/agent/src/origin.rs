//! The origin of a turn.

use std::sync::Arc;

use rockbot_contracts::{MessageId, SessionId};
use rockbot_tools::{EntryPoint, ToolScope};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Reason and requester of a turn. The origin determines which tools the turn may use.
#[derive(Debug, Clone)]
pub struct TurnOrigin {
    /// The reason for the turn.
    pub entry: EntryPoint,
    /// The calling turn, if another agent called this agent.
    pub parent: Option<ParentTurn>,
    /// The bus message that started the turn. Message ids are ordered by time, so a conversation can detect
    /// messages that were sent before a cancel but arrive after it.
    pub message: Option<MessageId>,
}

/// A turn that calls another agent.
#[derive(Debug, Clone)]
pub struct ParentTurn {
    /// The conversation of the turn.
    pub session: SessionId,
    /// The tools that the turn may use, and its own parents. The sub-agent may use no other tool.
    pub scope: Arc<ToolScope>,
    /// Deadline for the answer.
    pub deadline: Instant,
    /// Cancelled when the turn no longer needs the answer.
    pub cancellation: CancellationToken,
}

impl TurnOrigin {
    /// Creates an origin without a parent.
    #[must_use]
    pub const fn new(entry: EntryPoint) -> Self {
        Self { entry, parent: None, message: None }
    }

    /// Sets the bus message that started the turn.
    #[must_use]
    pub fn with_message(self, message: MessageId) -> Self {
        Self { message: Some(message), ..self }
    }

    /// Creates the origin of a turn that another agent calls.
    #[must_use]
    pub const fn from_parent(parent: ParentTurn) -> Self {
        Self { entry: EntryPoint::Subagent, parent: Some(parent), message: None }
    }

    /// Waits until the parent cancels. Never returns without a parent.
    pub(crate) async fn parent_cancelled(&self) {
        match &self.parent {
            Some(parent) => parent.cancellation.cancelled().await,
            None => std::future::pending().await,
        }
    }
}
