//! The origin of a turn.

use std::sync::Arc;

use rockbot_contracts::{MessageId, RoutingKey, SessionId};
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
    /// messages that were sent before a cancel but arrive after it. An id that was answered before gets the
    /// recorded answer.
    pub message: Option<MessageId>,
    /// Address of the replies, which is recorded for the process that continues the turn. A message with
    /// an address stays marked as unfinished until its answer was published.
    pub reply_to: Option<RoutingKey>,
    /// User of the message that the broker vouches for.
    pub sender: Option<Arc<str>>,
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
    /// Cancelled when another process continues the turn, and this turn with it.
    pub handover: CancellationToken,
}

impl TurnOrigin {
    /// Creates an origin without a parent.
    #[must_use]
    pub const fn new(entry: EntryPoint) -> Self {
        Self { entry, parent: None, message: None, reply_to: None, sender: None }
    }

    /// Sets the bus message that started the turn.
    #[must_use]
    pub fn with_message(self, message: MessageId) -> Self {
        Self { message: Some(message), ..self }
    }

    /// Sets the address of the replies.
    #[must_use]
    pub fn with_reply_to(self, reply_to: RoutingKey) -> Self {
        Self { reply_to: Some(reply_to), ..self }
    }

    /// Sets the user that the broker vouches for.
    #[must_use]
    pub fn with_sender(self, sender: Arc<str>) -> Self {
        Self { sender: Some(sender), ..self }
    }

    /// Creates the origin of a turn that another agent calls.
    #[must_use]
    pub fn from_parent(parent: ParentTurn) -> Self {
        Self { parent: Some(parent), ..Self::new(EntryPoint::Subagent) }
    }

    /// Waits until another process continues the parent. Never returns without a parent.
    pub(crate) async fn parent_handed_over(&self) {
        match &self.parent {
            Some(parent) => parent.handover.cancelled().await,
            None => std::future::pending().await,
        }
    }

    /// Waits until the parent cancels. Never returns without a parent.
    pub(crate) async fn parent_cancelled(&self) {
        match &self.parent {
            Some(parent) => parent.cancellation.cancelled().await,
            None => std::future::pending().await,
        }
    }
}
