//! Errors of sending to an agent.

use rockbot_bus::PublishError;
use rockbot_contracts::{AgentName, MessageId};

/// Maximum number of messages that wait for their final reply.
pub(super) const MAX_PENDING: usize = 1024;

/// Why a message was not sent.
#[derive(Debug, Clone, thiserror::Error)]
pub enum SendError {
    /// No process consumes the inbox of the agent.
    #[error(
        "agent {agent} is not available: no process consumes its inbox; check its name and start it"
    )]
    AgentUnavailable {
        /// The agent.
        agent: AgentName,
    },
    /// Too many messages are pending.
    #[error(
        "too many pending messages: {MAX_PENDING} await their final reply; wait for one of them"
    )]
    TooManyPending,
    /// A message of this client with the same id and another text awaits its final reply.
    #[error(
        "message was not sent: another text with the id {id} awaits its final reply; send it with a new id"
    )]
    OtherText {
        /// The id.
        id: MessageId,
    },
    /// The broker did not accept the message, or did not confirm it.
    #[error("message {}: {}", arrival(.0), .0)]
    Publish(#[source] PublishError),
}

impl SendError {
    /// Returns whether the agent may have received the message: the broker did not confirm it.
    #[must_use]
    pub fn may_have_arrived(&self) -> bool {
        matches!(self, Self::Publish(error) if is_unconfirmed(error))
    }

    /// Returns the error of a failed publish to `agent`.
    pub(super) fn from_publish(agent: &AgentName, error: PublishError) -> Self {
        match error {
            PublishError::Unroutable { .. } => Self::AgentUnavailable { agent: agent.clone() },
            error => Self::Publish(error),
        }
    }
}

fn is_unconfirmed(error: &PublishError) -> bool {
    matches!(error, PublishError::Unconfirmed { .. })
}

/// Returns the fate of the message, for the text of the error.
fn arrival(error: &PublishError) -> &'static str {
    if is_unconfirmed(error) { "may have arrived" } else { "was not sent" }
}
