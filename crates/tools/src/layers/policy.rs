//! The policies of a process, by tool and by server.

use std::{collections::HashMap, time::Duration};

use rockbot_contracts::ToolSource;

use crate::{limits::CallPolicy, registry::RegisteredTool};

/// The policies of a process: of single tools, and of servers and sources.
///
/// What is said of a tool goes before what is said of its server, and that before what the tool says
/// of itself. What is said of a server is shared by its tools.
#[derive(Debug, Clone, Default)]
pub struct CallPolicies {
    tools: HashMap<String, CallPolicy>,
    servers: HashMap<String, CallPolicy>,
}

impl CallPolicies {
    /// Sets the policy of the tool called `name`.
    pub fn set_tool(&mut self, name: impl Into<String>, policy: CallPolicy) {
        self.tools.insert(name.into(), policy);
    }

    /// Sets the policy of all tools of an MCP server, by its name without regard to case, or of a
    /// source such as `files`.
    pub fn set_server(&mut self, name: &str, policy: CallPolicy) {
        self.servers.insert(name.to_lowercase(), policy);
    }

    pub(super) fn of(&self, tool: &RegisteredTool) -> CallPolicy {
        let registration = tool.registration();
        let mut policy = self.tools.get(&registration.name).cloned().unwrap_or_default();
        if !self.servers.is_empty()
            && let Some(server) = self.servers.get(&server_name(&registration.source))
        {
            policy = policy.or(server);
        }
        if let Some(own) = tool.tool().policy() {
            policy = policy.or(&own);
        }
        let is_limit = |time: &Duration| !time.is_zero();
        policy.timeout = policy.timeout.filter(is_limit);
        policy.idle_timeout = policy.idle_timeout.filter(is_limit);
        policy
    }
}

/// The name by which what is said of a server or a source is found, in lower case.
#[must_use]
pub fn server_name(source: &ToolSource) -> String {
    match source {
        ToolSource::Mcp(server) => server.to_lowercase(),
        other => other.to_string().to_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rockbot_contracts::ToolRegistration;

    use super::*;
    use crate::{
        registry::ToolRegistry,
        testing::{Echo, registration},
    };

    fn tool(name: &str, source: ToolSource) -> Arc<RegisteredTool> {
        let registry = ToolRegistry::new();
        let registration = ToolRegistration { source, ..registration(name) };
        registry.register(Arc::new(Echo(registration))).unwrap();
        registry.get(name).unwrap()
    }

    fn lasting(seconds: u64) -> CallPolicy {
        CallPolicy { timeout: Some(Duration::from_secs(seconds)), ..CallPolicy::default() }
    }

    #[test]
    fn a_tool_goes_before_its_server_piece_by_piece() {
        let mut policies = CallPolicies::default();
        let idle_timeout = Some(Duration::from_secs(7));
        policies.set_tool("github__search", lasting(1));
        policies.set_server("GitHub", CallPolicy { idle_timeout, ..lasting(2) });
        let search = policies.of(&tool("github__search", ToolSource::Mcp("github".to_owned())));
        assert_eq!(search.timeout, Some(Duration::from_secs(1)));
        assert_eq!(search.idle_timeout, idle_timeout, "where the tool says nothing");
        let other = policies.of(&tool("github__read", ToolSource::Mcp("Github".to_owned())));
        assert_eq!(other.timeout, Some(Duration::from_secs(2)));
        assert_eq!(policies.of(&tool("read", ToolSource::Internal)).timeout, None);
    }

    #[test]
    fn what_a_tool_switches_off_its_server_does_not_switch_on_again() {
        let mut policies = CallPolicies::default();
        let idle_timeout = Some(Duration::ZERO);
        policies.set_tool("read_file", CallPolicy { idle_timeout, ..lasting(0) });
        let idle_timeout = Some(Duration::from_secs(1));
        policies.set_server("files", CallPolicy { idle_timeout, ..lasting(2) });
        let read = policies.of(&tool("read_file", ToolSource::Files));
        assert_eq!((read.timeout, read.idle_timeout), (None, None));
    }

    #[test]
    fn a_source_has_a_policy_by_its_name() {
        let mut policies = CallPolicies::default();
        policies.set_server("files", lasting(3));
        let read = policies.of(&tool("read_file", ToolSource::Files));
        assert_eq!(read.timeout, Some(Duration::from_secs(3)));
    }
}
