//! Reply addresses of a process, and checks of their families.

use crate::{
    ids::{AgentName, InstanceId},
    segment::key_segment,
    topology::{
        AGENT_RESPONSE, MCP_MANAGE_RESPONSE, QueueSpec, RoutingKey, SCRIPT_RESULT, TOOL_PROGRESS,
        TOOL_RESULT, USER_RESPONSE,
    },
};

/// The address where one process of an agent receives replies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplyAddress {
    agent: AgentName,
    instance: InstanceId,
    replies: ReplyKind,
}

/// Kinds of replies, each with an address of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReplyKind {
    ToolResults,
    McpManagement,
    ScriptResults,
}

impl ReplyAddress {
    /// Creates the address of one process for tool results.
    #[must_use]
    pub fn new(agent: AgentName, instance: InstanceId) -> Self {
        Self { agent, instance, replies: ReplyKind::ToolResults }
    }

    /// Returns the address of the same process for responses about MCP servers.
    #[must_use]
    pub fn for_mcp_management(self) -> Self {
        Self { replies: ReplyKind::McpManagement, ..self }
    }

    /// Returns the address of the same process for script results.
    #[must_use]
    pub fn for_scripts(self) -> Self {
        Self { replies: ReplyKind::ScriptResults, ..self }
    }

    /// Returns the name of the agent or service.
    #[must_use]
    pub fn agent(&self) -> &AgentName {
        &self.agent
    }

    /// Returns the instance id of the process.
    #[must_use]
    pub fn instance(&self) -> &InstanceId {
        &self.instance
    }

    /// Returns `tool.result.<agent>.<instance>`.
    #[must_use]
    pub fn tool_result(&self) -> RoutingKey {
        self.under(TOOL_RESULT)
    }

    /// Returns `tool.progress.<agent>.<instance>`.
    #[must_use]
    pub fn tool_progress(&self) -> RoutingKey {
        self.under(TOOL_PROGRESS)
    }

    /// Returns the routing key of replies: `tool.result.<agent>.<instance>`, or
    /// `mcp.manage.response.<agent>.<instance>` for responses about MCP servers, or
    /// `script.result.<agent>.<instance>` for script results.
    #[must_use]
    pub fn reply_to(&self) -> RoutingKey {
        match self.replies {
            ReplyKind::ToolResults => self.tool_result(),
            ReplyKind::McpManagement => self.under(MCP_MANAGE_RESPONSE),
            ReplyKind::ScriptResults => self.under(SCRIPT_RESULT),
        }
    }

    /// Returns the reply queue, which receives progress along with tool results.
    #[must_use]
    pub fn queue(&self) -> QueueSpec {
        let reply_to = self.reply_to();
        let mut bindings = vec![(&reply_to).into()];
        if self.replies == ReplyKind::ToolResults {
            bindings.push((&self.tool_progress()).into());
        }
        QueueSpec::reply(&reply_to, bindings)
    }

    fn under(&self, family: &str) -> RoutingKey {
        let (agent, instance) =
            (key_segment(self.agent.as_str()), key_segment(self.instance.as_str()));
        RoutingKey::built(format!("{family}.{agent}.{instance}"))
    }
}

/// Returns whether `key` is an address for tool results. Handlers reply to no other address: a forged
/// reply-to must not make them publish requests.
#[must_use]
pub fn is_tool_reply(key: &RoutingKey) -> bool {
    key.is_in(TOOL_RESULT)
}

/// Returns whether `key` is an address for responses about MCP servers.
#[must_use]
pub fn is_mcp_manage_reply(key: &RoutingKey) -> bool {
    key.is_in(MCP_MANAGE_RESPONSE)
}

/// Returns whether `key` is the address of a process for script results.
#[must_use]
pub fn is_script_reply(key: &RoutingKey) -> bool {
    key.is_in(SCRIPT_RESULT) && caller_of(key).is_some()
}

/// Returns whether `key` is an address for statuses and results of tasks between agents.
#[must_use]
pub fn is_agent_response(key: &RoutingKey) -> bool {
    key.is_in(AGENT_RESPONSE) && caller_of(key).is_some()
}

/// Returns the caller's segment of a reply address, such as `tool.result.<caller>.<instance>`, or of a
/// progress address; `None` for other keys.
#[must_use]
pub fn caller_of(reply_to: &RoutingKey) -> Option<&str> {
    let key = reply_to.as_str();
    let families = [TOOL_RESULT, TOOL_PROGRESS, MCP_MANAGE_RESPONSE, SCRIPT_RESULT, AGENT_RESPONSE];
    let own = families.iter().find_map(|family| key.strip_prefix(family));
    own?.strip_prefix('.')?.split('.').next()
}

/// Returns whether `key` is an address for an agent's replies to users.
#[must_use]
pub fn is_user_reply(key: &RoutingKey) -> bool {
    key.is_in(USER_RESPONSE)
}

/// Returns the progress address for a reply address: that of its process for tool progress or, for
/// scripts, the reply address itself. `None` for the default reply address, since no process owns it.
#[must_use]
pub fn progress_key(reply_to: &RoutingKey) -> Option<RoutingKey> {
    if is_script_reply(reply_to) {
        return Some(reply_to.clone());
    }
    let rest = reply_to.as_str().strip_prefix(TOOL_RESULT)?.strip_prefix('.')?;
    RoutingKey::new(format!("{TOOL_PROGRESS}.{rest}")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reply_addresses_are_recognized_by_family() {
        let key = |key: &str| RoutingKey::new(key).unwrap();
        assert!(is_tool_reply(&key("tool.result")));
        assert!(is_tool_reply(&key("tool.result.a.b")));
        assert!(!is_tool_reply(&key("tool.results")));
        assert!(!is_tool_reply(&key("tool.invoke")));
        assert_eq!(progress_key(&key("tool.result.a.b")), Some(key("tool.progress.a.b")));
        assert_eq!(progress_key(&key("tool.result")), None);
        assert_eq!(progress_key(&key("script.result.a.b")), Some(key("script.result.a.b")));
        assert_eq!(progress_key(&key("script.result")), None);
        assert_eq!(caller_of(&key("tool.result.a.b")), Some("a"));
        assert_eq!(caller_of(&key("tool.progress.a.b")), Some("a"));
        assert_eq!(caller_of(&key("agent.response.a")), Some("a"));
        assert_eq!(caller_of(&key("agent.response.a.b")), Some("a"));
        assert!(is_agent_response(&key("agent.response.a")));
        assert!(!is_agent_response(&key("agent.response")));
        assert!(!is_agent_response(&key("agent.task.a")));
        assert_eq!(caller_of(&key("tool.result")), None);
        assert_eq!(caller_of(&key("script.result.a.b")), Some("a"));
        assert!(is_script_reply(&key("script.result.a.b")));
        assert!(!is_script_reply(&key("script.result")));
        assert!(!is_script_reply(&key("tool.result.a.b")));
    }
}
