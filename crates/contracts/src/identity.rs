//! Broker users, and the callers that each may send requests for.
//!
//! Users are named `<namespace>.agent.<agent>`, `<namespace>.tool-handler`, and so on. Segments are
//! encoded without dots, so names are unambiguous for any agent name.

use std::fmt;

use crate::{
    envelope::Envelope,
    ids::AgentName,
    topology::{caller_of, key_segment},
};

/// Caller name of the command line program.
pub const CLI: &str = "cli";

const OPERATOR: &str = "operator";

const MONITOR: &str = "monitor";

const AGENT: &str = "agent";

/// A user of the broker. Every service and every agent has one.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum User {
    /// Runs turns and calls tools, as this agent.
    Agent(AgentName),
    /// Runs tools.
    ToolHandler,
    /// Runs the tools of MCP servers.
    McpBridge,
    /// Runs scripts.
    ScriptsManager,
    /// A user at a terminal: sends messages to agents and calls tools.
    Cli,
    /// An operator who handles dead letters: reads, removes and replays them on behalf of the original
    /// sender.
    Operator,
    /// A read-only observer of requests, replies and cancels.
    Monitor,
}

impl User {
    /// All services, without the agents.
    pub const SERVICES: [Self; 6] = [
        Self::ToolHandler,
        Self::McpBridge,
        Self::ScriptsManager,
        Self::Cli,
        Self::Operator,
        Self::Monitor,
    ];

    /// Returns the user name at the broker.
    #[must_use]
    pub fn name(&self, namespace: &str) -> String {
        match self {
            Self::Agent(agent) => format!("{namespace}.{AGENT}.{}", key_segment(agent.as_str())),
            service => format!("{namespace}.{service}"),
        }
    }

    /// Returns the service with the broker user `user`, in any namespace; `None` for agents and foreign
    /// users.
    #[must_use]
    pub fn service_of(user: &str) -> Option<Self> {
        let (is_agent, name) = kind_and_name(user)?;
        let mut services = Self::SERVICES.into_iter();
        services.find(|service| !is_agent && service.to_string() == name)
    }
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Agent(agent) => return write!(f, "{AGENT} {agent}"),
            Self::ToolHandler => "tool-handler",
            Self::McpBridge => "mcp-bridge",
            Self::ScriptsManager => "scripts-manager",
            Self::Cli => CLI,
            Self::Operator => OPERATOR,
            Self::Monitor => MONITOR,
        })
    }
}

/// Returns the segment that stands for `user` in its reply addresses; `None` for users that send no
/// requests, and for foreign users.
fn caller(user: &str) -> Option<&str> {
    let (is_agent, name) = kind_and_name(user)?;
    (is_agent || name == CLI).then_some(name)
}

/// Returns whether a broker user is an agent, and the last segment of its name.
fn kind_and_name(user: &str) -> Option<(bool, &str)> {
    let (before, name) = user.rsplit_once('.')?;
    let is_agent = before.rsplit_once('.').is_some_and(|(_, kind)| kind == AGENT);
    Some((is_agent, name))
}

/// Returns whether a reply in the name of `agent` may come from the broker user `user`: only the user of
/// an agent is compared, because others have no agent's name.
#[must_use]
pub fn may_reply_as(user: Option<&str>, agent: &AgentName) -> bool {
    match user.and_then(kind_and_name) {
        Some((true, name)) => name == key_segment(agent.as_str()),
        Some((false, _)) | None => true,
    }
}

/// Returns whether `user` may replay messages of others.
fn is_operator(user: &str) -> bool {
    User::service_of(user) == Some(User::Operator)
}

/// Callers whose requests a handler accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CallerPolicy {
    /// Any caller. A request of an agent's user must still be that agent's own.
    #[default]
    Any,
    /// Only users that are an agent or the command line program at the broker.
    Known,
}

/// Errors for requests of unknown or foreign callers.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallerError {
    /// No user, or one that sends no requests, where only known callers are accepted.
    #[error("the sender is not a user that may call tools: {}", user.as_deref().unwrap_or("(none)"))]
    Unknown {
        /// The user that the broker validated, if any.
        user: Option<String>,
    },
    /// The reply-to belongs to another caller.
    #[error("reply-to does not belong to user {user}")]
    ReplyTo {
        /// The user that the broker validated.
        user: String,
    },
    /// The source names another caller.
    #[error("source does not belong to user {user}")]
    Source {
        /// The user that the broker validated.
        user: String,
    },
}

impl CallerPolicy {
    /// Returns the caller: the agent whose user the broker validated, or the source of the message
    /// without a validated user. `None` when neither is set.
    ///
    /// # Errors
    /// When the request must not be processed; see [`CallerError`].
    pub fn admit(self, request: &Envelope) -> Result<Option<AgentName>, CallerError> {
        let source = request.source.as_deref();
        if request.user_id.as_deref().is_some_and(is_operator) {
            return Ok(source.and_then(|name| AgentName::new(name).ok()));
        }
        let Some((user, caller_name)) =
            request.user_id.as_deref().and_then(|user| Some((user, caller(user)?)))
        else {
            return match self {
                Self::Any => Ok(source.and_then(|name| AgentName::new(name).ok())),
                Self::Known => Err(CallerError::Unknown {
                    user: request.user_id.as_deref().map(str::to_owned),
                }),
            };
        };
        let user = || user.to_owned();
        if request.reply_to.as_ref().and_then(caller_of).is_some_and(|owner| owner != caller_name) {
            return Err(CallerError::ReplyTo { user: user() });
        }
        if source.is_some_and(|source| key_segment(source) != caller_name) {
            return Err(CallerError::Source { user: user() });
        }
        Ok(AgentName::new(source.unwrap_or(caller_name)).ok())
    }
}

impl CallerPolicy {
    /// Returns the caller of a request in a queue that only handlers publish to: a request from
    /// `handler`, the receiver's own user, belongs to the caller in its source.
    ///
    /// # Errors
    /// When the request must not be processed; see [`CallerError`].
    pub fn admit_forwarded(
        self,
        request: &Envelope,
        handler: Option<&str>,
    ) -> Result<Option<AgentName>, CallerError> {
        match request.user_id.as_deref() {
            Some(user) if Some(user) == handler => {
                Ok(request.source.as_deref().and_then(|name| AgentName::new(name).ok()))
            }
            _ => self.admit(request),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::RoutingKey;

    fn agent(name: &str) -> AgentName {
        AgentName::new(name).unwrap()
    }

    #[test]
    fn agent_replies_only_in_its_own_name() {
        for (user, allowed) in [
            (None, true),
            (Some("guest"), true),
            (Some("rockbot.agent.my%2Ebot"), true),
            (Some("rockbot.agent.mallory"), false),
        ] {
            assert_eq!(may_reply_as(user, &agent("my.bot")), allowed, "{user:?}");
        }
    }

    fn request(user: Option<&str>, source: Option<&str>, reply_to: Option<&str>) -> Envelope {
        let mut request = Envelope::raw("ToolInvokeRequest", Vec::new());
        request.user_id = user.map(Into::into);
        request.source = source.map(Into::into);
        request.reply_to = reply_to.map(|key| RoutingKey::new(key).unwrap());
        request
    }

    #[test]
    fn user_name_maps_back_to_its_agent() {
        for namespace in ["rockbot", "a.b", "agent", "x.agent"] {
            for name in ["assistant", "agent", "a.b", "ü", "my-agent-2", &"x".repeat(100)] {
                let user = User::Agent(agent(name)).name(namespace);
                assert_eq!(caller(&user), Some(key_segment(name).as_str()), "{user}");
            }
            assert_eq!(caller(&User::Cli.name(namespace)), Some(CLI));
        }
        for stranger in ["guest", "agent", "cli", "rockbot.tool-handler", "a.b"] {
            assert_eq!(caller(stranger), None, "{stranger}");
        }
    }

    #[test]
    fn known_user_sends_requests_only_for_itself() {
        let check = |source, reply_to, expected: Result<Option<&str>, &str>| {
            let request = request(Some("rockbot.agent.mallory"), source, reply_to);
            for policy in [CallerPolicy::Any, CallerPolicy::Known] {
                let admitted = policy.admit(&request);
                match expected {
                    Ok(caller) => assert_eq!(admitted, Ok(caller.map(agent))),
                    Err(text) => {
                        let error = admitted.unwrap_err().to_string();
                        assert!(error.contains(text), "{error}");
                    }
                }
            }
        };
        check(Some("mallory"), Some("tool.result.mallory.1"), Ok(Some("mallory")));
        check(None, None, Ok(Some("mallory")));
        check(Some("mallory"), Some("tool.result"), Ok(Some("mallory")));
        check(Some("mallory"), Some("tool.result.assistant.1"), Err("reply-to does not belong"));
        check(Some("mallory"), Some("tool.result.assistant"), Err("reply-to does not belong"));
        check(Some("assistant"), Some("tool.result.mallory.1"), Err("source does not belong"));
    }

    #[test]
    fn unknown_caller_is_admitted_only_by_policy_any() {
        for user in [None, Some("guest"), Some("rockbot.tool-handler")] {
            let request = request(user, Some("assistant"), Some("tool.result.assistant.1"));
            assert_eq!(CallerPolicy::Any.admit(&request), Ok(Some(agent("assistant"))));
            assert!(matches!(
                CallerPolicy::Known.admit(&request),
                Err(CallerError::Unknown { .. })
            ));
        }
    }

    #[test]
    fn only_handlers_forward_requests_of_others() {
        let check = |user, expected: Option<&str>| {
            let request = request(user, Some("assistant"), Some("tool.result.assistant.1"));
            let admitted =
                CallerPolicy::Known.admit_forwarded(&request, Some("rockbot.tool-handler"));
            assert_eq!(admitted.ok().flatten(), expected.map(agent), "{user:?}");
        };
        check(Some("rockbot.tool-handler"), Some("assistant"));
        check(Some("rockbot.agent.assistant"), Some("assistant"));
        for stranger in ["rockbot.agent.mallory", "rockbot.mcp-bridge", "guest", "tool-handler"] {
            check(Some(stranger), None);
        }
        check(None, None);
        // A receiver without a user accepts no forwarded request.
        let unsigned = request(None, Some("assistant"), None);
        assert!(CallerPolicy::Known.admit_forwarded(&unsigned, None).is_err());
    }

    #[test]
    fn service_is_recognized_in_any_namespace() {
        for service in User::SERVICES {
            for namespace in ["rockbot", "fleet.a", "agent"] {
                assert_eq!(User::service_of(&service.name(namespace)), Some(service.clone()));
            }
            assert_eq!(User::service_of(&format!("rockbot.agent.{service}")), None);
            assert_eq!(User::service_of(&service.to_string()), None);
        }
        assert_eq!(User::service_of("guest"), None);
    }
}
