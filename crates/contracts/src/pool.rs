//! Pools of tool handlers.
//!
//! The handlers of a pool share one work queue and run the same tools. Each pool has its own broker user,
//! so that a handler can serve no other pool.

use std::fmt;

use crate::{
    identity::{UNSIGNED, User, is_agent_user},
    pool_name::PoolName,
    topology::{
        RoutingKey, TOOL_INVOKE_POOL, mcp_manage, script_invoke, tool_invoke, tool_invoke_mcp,
    },
};

/// A pool of tool handlers. The unnamed one sorts first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum HandlerPool {
    /// The pool without a name, which serves `tool.invoke`.
    #[default]
    Unnamed,
    /// A named pool, which serves `tool.invoke.pool.<name>`.
    Named(PoolName),
}

impl HandlerPool {
    /// Returns the key of the requests that it serves. Its work queue has the same name.
    #[must_use]
    pub fn invoke_key(&self) -> RoutingKey {
        match self {
            Self::Unnamed => tool_invoke(),
            Self::Named(name) => RoutingKey::built(format!("{TOOL_INVOKE_POOL}.{name}")),
        }
    }

    /// Returns the pool that serves the requests with this key; `None` for all other keys.
    #[must_use]
    pub fn from_invoke_key(key: &RoutingKey) -> Option<Self> {
        if *key == tool_invoke() {
            return Some(Self::Unnamed);
        }
        let name = key.as_str().strip_prefix(TOOL_INVOKE_POOL)?.strip_prefix('.')?;
        PoolName::new(name).ok().map(Self::Named)
    }

    /// Returns the broker user of its handlers.
    #[must_use]
    pub fn user(&self) -> User {
        match self {
            Self::Unnamed => User::ToolHandler,
            Self::Named(name) => User::PoolHandler(name.clone()),
        }
    }

    /// Returns whether the broker user `user` may announce tools of this pool and reply to its requests:
    /// of the users of a fleet only its own. Where the processes have no users of a fleet, the broker does
    /// not separate them, and everything is accepted. In a fleet with users, a message without one is
    /// [`UNSIGNED`] and not accepted.
    #[must_use]
    pub fn may_be_served_by(&self, user: Option<&str>) -> bool {
        is_service(user, &self.user())
    }
}

/// Returns whether the broker user `user` may reply to requests with this key: of the users of a fleet, only
/// that of the service that consumes them. Without users, everything is accepted.
#[must_use]
pub fn may_reply_to(key: &RoutingKey, user: Option<&str>) -> bool {
    if let Some(pool) = HandlerPool::from_invoke_key(key) {
        return pool.may_be_served_by(user);
    }
    let starts_with = |family: &RoutingKey| key.as_str().starts_with(family.as_str());
    if starts_with(&tool_invoke_mcp()) || starts_with(&mcp_manage()) {
        return is_service(user, &User::McpBridge);
    }
    if *key == script_invoke() {
        return is_service(user, &User::ScriptsManager);
    }
    user != Some(UNSIGNED)
}

/// Returns whether a broker user is that of the service, or belongs to no fleet.
fn is_service(user: Option<&str>, service: &User) -> bool {
    user.is_none_or(|user| match User::service_of(user) {
        Some(other) => other == *service,
        None => user != UNSIGNED && !is_agent_user(user),
    })
}

impl From<Option<PoolName>> for HandlerPool {
    fn from(name: Option<PoolName>) -> Self {
        name.map_or(Self::Unnamed, Self::Named)
    }
}

/// Writes the name, or "unnamed".
impl fmt::Display for HandlerPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unnamed => f.write_str("unnamed"),
            Self::Named(name) => name.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(name: &str) -> HandlerPool {
        HandlerPool::Named(PoolName::new(name).unwrap())
    }

    #[test]
    fn invoke_key_maps_back_to_its_pool() {
        for pool in [HandlerPool::Unnamed, pool("web"), pool("quarantine"), pool("mcp")] {
            assert_eq!(HandlerPool::from_invoke_key(&pool.invoke_key()), Some(pool));
        }
        for other in [
            "tool.invoke.mcp",
            "tool.invoke.quarantine",
            "tool.invoke.pool",
            "tool.invoke.pool.web.quarantine",
            "tool.invoke.pool.WEB",
            "tool.invoke.pools.web",
            "tool.invoke.mcp.at.bridge-0",
            "user.message.assistant",
        ] {
            let key = RoutingKey::new(other).unwrap();
            assert_eq!(HandlerPool::from_invoke_key(&key), None, "{other}");
        }
    }

    #[test]
    fn pool_is_served_by_its_own_user_only() {
        let check = |user: Option<&str>, pool: &HandlerPool, expected: bool| {
            assert_eq!(pool.may_be_served_by(user), expected, "{user:?} {pool}");
        };
        check(Some("rockbot.tool-handler.web"), &pool("web"), true);
        check(Some("rockbot.tool-handler.files"), &pool("web"), false);
        check(Some("rockbot.tool-handler"), &pool("web"), false);
        check(Some("rockbot.tool-handler"), &HandlerPool::Unnamed, true);
        check(Some("rockbot.tool-handler.web"), &HandlerPool::Unnamed, false);
        for user in ["rockbot.mcp-bridge", "rockbot.agent.web", "rockbot.cli"] {
            check(Some(user), &pool("web"), false);
            check(Some(user), &HandlerPool::Unnamed, false);
        }
        for pool in [pool("web"), HandlerPool::Unnamed] {
            check(None, &pool, true);
            check(Some("guest"), &pool, true);
            check(Some(UNSIGNED), &pool, false);
        }
    }

    #[test]
    fn reply_comes_from_the_service_of_its_request() {
        let check = |key: RoutingKey, user: Option<&str>, expected: bool| {
            assert_eq!(may_reply_to(&key, user), expected, "{key} {user:?}");
        };
        let bridge_requests = [tool_invoke_mcp(), RoutingKey::new("tool.invoke.mcp.at.b").unwrap()];
        for key in bridge_requests {
            check(key.clone(), Some("rockbot.mcp-bridge"), true);
            check(key.clone(), Some("rockbot.tool-handler.web"), false);
            check(key.clone(), Some(UNSIGNED), false);
            check(key, None, true);
        }
        check(script_invoke(), Some("rockbot.scripts-manager"), true);
        check(script_invoke(), Some("rockbot.tool-handler"), false);
        check(pool("web").invoke_key(), Some("rockbot.tool-handler.web"), true);
        check(pool("web").invoke_key(), Some(UNSIGNED), false);
    }
}
