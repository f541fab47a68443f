//! Why a turn begins, and for whom.

use std::sync::Arc;

use rockbot_contracts::{MessageId, SessionId};
use rockbot_tools::{EntryPoint, ToolScope};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Why a turn begins, and for whom. What it may use follows from it.
#[derive(Debug, Clone)]
pub struct TurnOrigin {
    /// Why it begins.
    pub entry: EntryPoint,
    /// The turn that handed the work over, when another agent's did.
    pub asking: Option<Asking>,
    /// The message on the bus that begins it. By these ids, which grow with time, a conversation knows
    /// what was said before a cancel that overtook it.
    pub message: Option<MessageId>,
}

/// The turn that hands work over to another agent.
#[derive(Debug, Clone)]
pub struct Asking {
    /// Its conversation.
    pub session: SessionId,
    /// What it may use, and who asked for it in turn. The work may use nothing that this does not.
    pub scope: Arc<ToolScope>,
    /// When it needs the answer.
    pub deadline: Instant,
    /// Cancelled when it does not want the answer any more.
    pub cancellation: CancellationToken,
}

impl TurnOrigin {
    /// Begun so, and for nobody else.
    #[must_use]
    pub const fn new(entry: EntryPoint) -> Self {
        Self { entry, asking: None, message: None }
    }

    /// The same, begun by a message on the bus.
    #[must_use]
    pub fn said_in(self, message: MessageId) -> Self {
        Self { message: Some(message), ..self }
    }

    /// Work that another agent's turn hands over.
    #[must_use]
    pub const fn asked_by(asking: Asking) -> Self {
        Self { entry: EntryPoint::Subagent, asking: Some(asking), message: None }
    }

    /// Returns when whoever asked does not want the answer any more; never, when nobody can say so.
    pub(crate) async fn withdrawn(&self) {
        match &self.asking {
            Some(asking) => asking.cancellation.cancelled().await,
            None => std::future::pending().await,
        }
    }
}
