//! Broker users, and the callers that each may send requests for.
//!
//! Users are named `<namespace>.agent.<agent>`, `<namespace>.tool-handler.<pool>`, `<namespace>.cli`, and
//! so on. Segments are encoded without dots, so names are unambiguous for any agent and pool name.

use std::fmt;

use crate::{
    envelope::Envelope,
    ids::AgentName,
    pool_name::PoolName,
    topology::{caller_of, key_segment},
};

/// User of a message that no user of the fleet signed, in a fleet whose services have users: the sender
/// omitted the property that the broker validates, or belongs to another namespace.
pub const UNSIGNED: &str = "";

/// Caller name of the command line program.
pub const CLI: &str = "cli";

const OPERATOR: &str = "operator";

const MONITOR: &str = "monitor";

const GATEWAY: &str = "gateway";

const AGENT: &str = "agent";

const TOOL_HANDLER: &str = "tool-handler";

/// A user of the broker. Every service, every handler pool and every agent has one.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum User {
    /// Runs turns and calls tools, as this agent.
    Agent(AgentName),
    /// Runs the tools of the unnamed pool.
    ToolHandler,
    /// Runs the tools of this pool.
    PoolHandler(PoolName),
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
    /// Sends the messages of people and programs, which reach it over HTTP, to agents. It calls no tools.
    Gateway,
}

impl User {
    /// All services, without the agents and the named pools.
    pub const SERVICES: [Self; 7] = [
        Self::ToolHandler,
        Self::McpBridge,
        Self::ScriptsManager,
        Self::Cli,
        Self::Operator,
        Self::Monitor,
        Self::Gateway,
    ];

    /// Returns the user name at the broker.
    #[must_use]
    pub fn name(&self, namespace: &str) -> String {
        match self {
            Self::Agent(agent) => format!("{namespace}.{AGENT}.{}", key_segment(agent.as_str())),
            Self::PoolHandler(pool) => format!("{namespace}.{TOOL_HANDLER}.{pool}"),
            service => format!("{namespace}.{service}"),
        }
    }

    /// Returns the service or pool with the broker user `user`, in any namespace; `None` for agents and
    /// foreign users.
    #[must_use]
    pub fn service_of(user: &str) -> Option<Self> {
        match Origin::parse(user)? {
            Origin::Agent(_) => None,
            Origin::Pool(name) => PoolName::new(name).ok().map(Self::PoolHandler),
            Origin::Service(name) => {
                Self::SERVICES.into_iter().find(|service| service.to_string() == name)
            }
        }
    }
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Agent(agent) => return write!(f, "{AGENT} {agent}"),
            Self::PoolHandler(pool) => return write!(f, "{TOOL_HANDLER} {pool}"),
            Self::ToolHandler => TOOL_HANDLER,
            Self::McpBridge => "mcp-bridge",
            Self::ScriptsManager => "scripts-manager",
            Self::Cli => CLI,
            Self::Operator => OPERATOR,
            Self::Monitor => MONITOR,
            Self::Gateway => GATEWAY,
        })
    }
}

/// The last segment of a broker user's name, by the kind of user.
#[derive(Debug, Clone, Copy)]
enum Origin<'a> {
    Agent(&'a str),
    Pool(&'a str),
    Service(&'a str),
}

impl<'a> Origin<'a> {
    /// Parses a user name of any namespace; `None` for a name without a namespace.
    fn parse(user: &'a str) -> Option<Self> {
        let (before, name) = user.rsplit_once('.')?;
        Some(match before.rsplit_once('.') {
            Some((_, AGENT)) => Self::Agent(name),
            Some((_, TOOL_HANDLER)) => Self::Pool(name),
            _ => Self::Service(name),
        })
    }
}

/// Returns whether the broker user `user` is named like an agent or a service of another namespace than
/// `namespace`. Users such as `guest` belong to no namespace.
#[must_use]
pub fn is_of_other_namespace(user: &str, namespace: &str) -> bool {
    let is_fleet_user = is_agent_user(user) || User::service_of(user).is_some();
    let own = user.strip_prefix(namespace).and_then(|rest| rest.strip_prefix('.'));
    let is_own = own.is_some_and(|name| match name.rsplit_once('.') {
        Some((kind, _)) => matches!(kind, AGENT | TOOL_HANDLER),
        None => true,
    });
    is_fleet_user && !is_own
}

/// Returns whether the broker user `user` is an agent's.
#[must_use]
pub fn is_agent_user(user: &str) -> bool {
    matches!(Origin::parse(user), Some(Origin::Agent(_)))
}

/// Returns the segment that stands for `user` in its reply addresses; `None` for users that send no
/// requests, and for foreign users.
fn caller(user: &str) -> Option<&str> {
    match Origin::parse(user)? {
        Origin::Agent(name) | Origin::Service(name @ CLI) => Some(name),
        Origin::Pool(_) | Origin::Service(_) => None,
    }
}

/// Returns whether a reply in the name of `agent` may come from the broker user `user`: only the user of
/// an agent is compared, because others have no agent's name.
#[must_use]
pub fn may_reply_as(user: Option<&str>, agent: &AgentName) -> bool {
    if user == Some(UNSIGNED) {
        return false;
    }
    match user.and_then(Origin::parse) {
        Some(Origin::Agent(name)) => name == key_segment(agent.as_str()),
        Some(Origin::Pool(_) | Origin::Service(_)) | None => true,
    }
}

/// Returns whether the broker user `user` may read and change conversations with agents: the command line
/// program, the gateway, and users that are no service, agent or handler of a fleet. `None` means that the bus validates
/// no users.
#[must_use]
pub fn may_use_conversations(user: Option<&str>) -> bool {
    match user {
        None => true,
        Some(UNSIGNED) => false,
        Some(user) => match Origin::parse(user) {
            Some(Origin::Agent(_) | Origin::Pool(_)) => false,
            Some(Origin::Service(_)) => {
                let is_client = |service| matches!(service, User::Cli | User::Gateway);
                User::service_of(user).is_none_or(is_client)
            }
            None => true,
        },
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
            (Some(UNSIGNED), false),
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
        for stranger in
            ["guest", "agent", "cli", "rockbot.tool-handler", "rockbot.tool-handler.cli", "a.b"]
        {
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
        let pool = "rockbot.tool-handler.cli";
        for user in [None, Some("guest"), Some("rockbot.tool-handler"), Some(pool)] {
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

    #[test]
    fn services_and_agents_use_no_conversations() {
        for user in [None, Some("rockbot.cli"), Some("guest"), Some("alice"), Some("team.alice")] {
            assert!(may_use_conversations(user), "{user:?}");
        }
        for user in ["", "rockbot.agent.mallory", "rockbot.tool-handler.web", "rockbot.operator"] {
            assert!(!may_use_conversations(Some(user)), "{user}");
        }
    }

    #[test]
    fn pool_named_like_a_service_is_only_a_pool() {
        for name in ["web", "operator", "cli", "tool-handler", "agent"] {
            let user = User::PoolHandler(PoolName::new(name).unwrap());
            for namespace in ["rockbot", "fleet.a", "tool-handler"] {
                assert_eq!(User::service_of(&user.name(namespace)), Some(user.clone()));
            }
            let user = user.name("rockbot");
            let request = request(Some(&user), Some("assistant"), None);
            assert!(CallerPolicy::Known.admit(&request).is_err(), "{user}");
        }
        for foreign in ["rockbot.tool-handler.WEB", "rockbot.tool-handler.", "tool-handler.web"] {
            assert_eq!(User::service_of(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn users_of_other_namespaces_are_recognized() {
        let users = [
            User::Agent(agent("assistant")),
            User::Agent(agent("a.b")),
            User::PoolHandler(PoolName::new("web").unwrap()),
            User::ToolHandler,
            User::Cli,
        ];
        for user in users {
            for namespace in ["rockbot", "rockbot.b", "agent", "tool-handler", "x.agent"] {
                let name = user.name(namespace);
                for own in ["rockbot", "rockbot.b", "agent", "tool-handler", "x.agent"] {
                    assert_eq!(is_of_other_namespace(&name, own), own != namespace, "{name} {own}");
                }
            }
        }
        for foreign in ["guest", "admin", "company.user", UNSIGNED] {
            assert!(!is_of_other_namespace(foreign, "rockbot"), "{foreign}");
        }
    }
}
