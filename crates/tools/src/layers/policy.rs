//! Call policies of a process.

use std::{collections::HashMap, time::Duration};

use rockbot_contracts::ToolSource;

use crate::{limits::CallPolicy, registry::RegisteredTool};

/// The policies of single tools, of servers and of sources.
///
/// A tool's policy overrides that of its server, and both override the tool's own. All tools of a
/// server share its limits.
#[derive(Debug, Clone, Default)]
pub struct CallPolicies {
    tools: HashMap<String, CallPolicy>,
    servers: HashMap<String, CallPolicy>,
    ignores_queues: bool,
    default_timeout: Option<Duration>,
}

impl CallPolicies {
    /// Ignores the queues of all policies, including the tools' own: for calls that waited in them before
    /// they enter the layers.
    pub fn ignore_queues(&mut self) {
        self.ignores_queues = true;
    }

    /// Sets the timeout of tools for which no policy has one, not even their own.
    pub fn set_default_timeout(&mut self, timeout: Option<Duration>) {
        self.default_timeout = timeout;
    }

    /// Sets the policy of the tool called `name`.
    pub fn set_tool(&mut self, name: impl Into<String>, policy: CallPolicy) {
        self.tools.insert(name.into(), policy);
    }

    /// Sets the policy of all tools of an MCP server, by its case-insensitive name, or of a source such
    /// as `files`.
    pub fn set_server(&mut self, name: &str, policy: CallPolicy) {
        self.servers.insert(name.to_lowercase(), policy);
    }

    pub(super) fn policy_for(&self, tool: &RegisteredTool) -> CallPolicy {
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
        if self.ignores_queues {
            policy.queue = None;
        }
        let is_limit = |time: &Duration| !time.is_zero();
        policy.timeout = policy.timeout.or(self.default_timeout).filter(is_limit);
        policy.idle_timeout = policy.idle_timeout.filter(is_limit);
        policy
    }
}

/// Returns the lookup name of a server or a source, in lower case.
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

    fn with_timeout(seconds: u64) -> CallPolicy {
        CallPolicy { timeout: Some(Duration::from_secs(seconds)), ..CallPolicy::default() }
    }

    #[test]
    fn tool_policy_overrides_server_policy_per_setting() {
        let mut policies = CallPolicies::default();
        let idle_timeout = Some(Duration::from_secs(7));
        policies.set_tool("github__search", with_timeout(1));
        policies.set_server("GitHub", CallPolicy { idle_timeout, ..with_timeout(2) });
        let search =
            policies.policy_for(&tool("github__search", ToolSource::Mcp("github".to_owned())));
        assert_eq!(search.timeout, Some(Duration::from_secs(1)));
        assert_eq!(search.idle_timeout, idle_timeout, "inherited from the server");
        let other =
            policies.policy_for(&tool("github__read", ToolSource::Mcp("Github".to_owned())));
        assert_eq!(other.timeout, Some(Duration::from_secs(2)));
        assert_eq!(policies.policy_for(&tool("read", ToolSource::Internal)).timeout, None);
    }

    #[test]
    fn zero_removes_server_timeout() {
        let mut policies = CallPolicies::default();
        let idle_timeout = Some(Duration::ZERO);
        policies.set_tool("read_file", CallPolicy { idle_timeout, ..with_timeout(0) });
        let idle_timeout = Some(Duration::from_secs(1));
        policies.set_server("files", CallPolicy { idle_timeout, ..with_timeout(2) });
        let read = policies.policy_for(&tool("read_file", ToolSource::Files));
        assert_eq!((read.timeout, read.idle_timeout), (None, None));
    }

    #[test]
    fn default_timeout_applies_to_tools_without_one() {
        let mut policies = CallPolicies::default();
        policies.set_default_timeout(Some(Duration::from_secs(9)));
        policies.set_tool("quick", with_timeout(1));
        policies.set_tool("free", with_timeout(0));
        let timeout = |name| policies.policy_for(&tool(name, ToolSource::Files)).timeout;
        assert_eq!(timeout("quick"), Some(Duration::from_secs(1)));
        assert_eq!(timeout("free"), None);
        assert_eq!(timeout("other"), Some(Duration::from_secs(9)));
    }

    #[test]
    fn source_policy_applies_by_name() {
        let mut policies = CallPolicies::default();
        policies.set_server("files", with_timeout(3));
        let read = policies.policy_for(&tool("read_file", ToolSource::Files));
        assert_eq!(read.timeout, Some(Duration::from_secs(3)));
    }

    #[test]
    fn ignored_queue_of_own_policy_is_absent() {
        struct Queued(Echo, CallPolicy);
        impl crate::Tool for Queued {
            fn registration(&self) -> &rockbot_contracts::ToolRegistration {
                self.0.registration()
            }
            fn call<'a>(
                &'a self,
                arguments: serde_json::Value,
                context: &'a crate::ToolContext,
            ) -> futures_util::future::BoxFuture<'a, Result<crate::ToolResult, crate::ToolFailure>>
            {
                self.0.call(arguments, context)
            }
            fn policy(&self) -> Option<CallPolicy> {
                Some(self.1.clone())
            }
        }
        let queue = crate::limits::queue::Queue::new("slow", Default::default());
        let own = CallPolicy { queue: Some(queue), ..with_timeout(1) };
        let registry = ToolRegistry::new();
        registry.register(Arc::new(Queued(Echo(registration("get")), own))).unwrap();
        let get = registry.get("get").unwrap();
        let mut policies = CallPolicies::default();
        assert!(policies.policy_for(&get).queue.is_some());
        policies.ignore_queues();
        let policy = policies.policy_for(&get);
        assert!(policy.queue.is_none() && policy.timeout.is_some());
    }
}
