//! Errors of sending to an agent.

use rockbot_bus::PublishError;
use rockbot_contracts::AgentName;

use super::pending::MAX_PENDING;

/// Error of sending a message.
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
    /// The broker did not accept the message, or did not confirm it.
    #[error("publishing the message failed: {0}")]
    Publish(#[source] PublishError),
}

impl SendError {
    /// Returns the error of a failed publish to `agent`.
    pub(super) fn from_publish(agent: &AgentName, error: PublishError) -> Self {
        match error {
            PublishError::Unroutable { .. } => Self::AgentUnavailable { agent: agent.clone() },
            error => Self::Publish(error),
        }
    }
}
