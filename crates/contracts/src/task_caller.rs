//! The caller of an agent task.

use crate::{
    envelope::Envelope,
    identity::{CallerError, CallerPolicy},
    ids::AgentName,
    topology::{RoutingKey, caller_of, is_agent_response, key_segment},
};

/// The sender of a message about an agent task, and its address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskCaller {
    /// Its name, as validated by the broker.
    pub name: AgentName,
    /// Its broker user, if the message has one.
    pub user: Option<String>,
    /// Its address below `agent.response`.
    pub reply_to: RoutingKey,
}

/// Why a message about an agent task must not be processed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TaskCallerError {
    /// The broker user may not send it.
    #[error(transparent)]
    Caller(#[from] CallerError),
    /// It has neither a user nor a source.
    #[error("the message names no caller")]
    Unnamed,
    /// Responses of agents must not go to its address.
    #[error("reply-to is not an address for responses of agents")]
    NoResponseAddress,
    /// Its address is that of another caller.
    #[error("reply-to does not belong to the caller")]
    ReplyTo,
}

impl TaskCaller {
    /// Returns the caller of a message about an agent task.
    ///
    /// # Errors
    /// When the message must not be processed; see [`TaskCallerError`].
    pub fn admit(envelope: &Envelope) -> Result<Self, TaskCallerError> {
        let name = CallerPolicy::Any.admit(envelope)?.ok_or(TaskCallerError::Unnamed)?;
        let reply_to = envelope.reply_to.clone().filter(is_agent_response);
        let reply_to = reply_to.ok_or(TaskCallerError::NoResponseAddress)?;
        if caller_of(&reply_to) != Some(key_segment(name.as_str()).as_str()) {
            return Err(TaskCallerError::ReplyTo);
        }
        let user = envelope.user_id.as_deref().map(ToOwned::to_owned);
        Ok(Self { name, user, reply_to })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reply_to_of_another_caller_is_rejected() {
        let envelope = |source: &str, reply_to: &str| {
            let key = RoutingKey::new(reply_to).unwrap();
            Envelope::raw("AgentTaskRequest", Vec::new()).with_source(source).reply_to(key)
        };
        assert!(TaskCaller::admit(&envelope("a", "agent.response.a")).is_ok());
        assert!(TaskCaller::admit(&envelope("cli", "agent.response.cli.1")).is_ok());
        for reply_to in ["agent.response.b", "tool.result.a.1", "agent.task.a", "user.response.a"] {
            assert!(TaskCaller::admit(&envelope("a", reply_to)).is_err(), "{reply_to}");
        }
        assert!(TaskCaller::admit(&Envelope::raw("AgentTaskRequest", Vec::new())).is_err());
    }
}
