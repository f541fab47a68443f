//! Ports of delegated work, to the agent that does it and to the bus.

use futures_util::future::BoxFuture;
use rockbot_bus::PublishError;
use rockbot_contracts::{AgentReply, RoutingKey, SessionId, UserMessage};
use rockbot_store::StoreError;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::{
    event::{ProgressSink, TurnAnswer},
    origin::TurnOrigin,
};

/// Runs turns of the agent.
pub(crate) trait TaskHost: Send + Sync {
    /// Starts a turn. A message that is recorded already is continued, or has its recorded answer. The
    /// receiver is closed if the agent is dropped.
    fn start_turn(
        &self,
        origin: TurnOrigin,
        message: UserMessage,
        progress: ProgressSink,
    ) -> oneshot::Receiver<TurnAnswer>;

    /// Runs `task` until it ends or the agent is dropped.
    fn spawn(&self, task: BoxFuture<'static, ()>);

    /// Returns the token that is cancelled when the agent shuts down.
    fn closing(&self) -> CancellationToken;
}

/// The right of this process to run a conversation. Dropping it gives the right up.
pub(crate) type TaskHold = Box<dyn Send + Sync>;

/// Outcome of a claim on a conversation.
pub(crate) enum Claimed {
    /// This process runs it.
    Owned(TaskHold),
    /// Another process does.
    Held,
}

/// Decides which process of the agent runs a conversation.
pub(crate) trait TaskLeases: Send + Sync {
    /// Claims a conversation for this process.
    ///
    /// # Errors
    /// When the store fails.
    fn claim<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, Result<Claimed, StoreError>>;
}

/// Outcome of a message to a user or to another agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Delivered {
    /// The bus has it.
    Yes,
    /// No queue accepted it: the program of the user, or the agent, is gone.
    Gone,
    /// It was sent, and the bus did not confirm it: it may have arrived.
    Unconfirmed,
    /// The bus failed. Nothing was sent.
    Failed,
}

impl From<Result<(), PublishError>> for Delivered {
    fn from(published: Result<(), PublishError>) -> Self {
        match published {
            Ok(()) => Self::Yes,
            Err(PublishError::Unroutable { .. }) => Self::Gone,
            Err(PublishError::Unconfirmed { .. }) => Self::Unconfirmed,
            Err(error) => {
                debug!(%error, "message to a user or an agent not published");
                Self::Failed
            }
        }
    }
}

/// Sends replies to users that wait for no answer.
pub(crate) trait UserChannel: Send + Sync {
    /// Sends a reply to the address of a user.
    fn send(&self, to: RoutingKey, reply: AgentReply) -> BoxFuture<'_, Delivered>;
}
