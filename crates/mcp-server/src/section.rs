//! The configuration section `[mcp_server]`.

use std::time::Duration;

use rockbot_contracts::{AgentName, period::duration};
use rockbot_tools::{ToolContext, ToolFilter};
use serde::Deserialize;

/// Longest configurable timeout of a call.
const MAX_TIMEOUT: Duration = Duration::from_secs(24 * 3600);

/// `[mcp_server]`: the fleet as an MCP server.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct McpServerSection {
    /// Maximum number of listed tools. A client that may use more finds those of MCP servers by search.
    /// Default 60; 4 to 1000.
    pub max_listed_tools: usize,
    /// Timeout of a call for which the client gives none. Default 60 s.
    #[serde(deserialize_with = "duration")]
    pub call_timeout: Duration,
    /// Timeout of a call of an agent for which the client gives none. Default 10 min.
    #[serde(deserialize_with = "duration")]
    pub agent_timeout: Duration,
    /// Longest timeout that a client can give. Default 1 h.
    #[serde(deserialize_with = "duration")]
    pub max_timeout: Duration,
    /// Maximum number of running calls of a client. Default 32; 1 to 1000.
    pub concurrent_calls: usize,
    /// Agents of the fleet that are offered as tools. Default none.
    pub agents: Vec<AgentName>,
    /// Tools that a client without rights of its own may use. Default all.
    pub tools: ToolFilter,
}

impl Default for McpServerSection {
    fn default() -> Self {
        Self {
            max_listed_tools: 60,
            call_timeout: ToolContext::DEFAULT_TIMEOUT,
            agent_timeout: Duration::from_secs(600),
            max_timeout: Duration::from_secs(3600),
            concurrent_calls: 32,
            agents: Vec::new(),
            tools: ToolFilter::default(),
        }
    }
}

impl McpServerSection {
    /// Returns all invalid values, as messages for the operator.
    #[must_use]
    pub fn validate(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if !(4..=1000).contains(&self.max_listed_tools) {
            problems.push("mcp_server.max_listed_tools: must be from 4 to 1000".to_owned());
        }
        if !(1..=1000).contains(&self.concurrent_calls) {
            problems.push("mcp_server.concurrent_calls: must be from 1 to 1000".to_owned());
        }
        let timeouts = [
            ("call_timeout", self.call_timeout),
            ("agent_timeout", self.agent_timeout),
            ("max_timeout", self.max_timeout),
        ];
        for (key, timeout) in timeouts {
            if !(Duration::from_secs(1)..=MAX_TIMEOUT).contains(&timeout) {
                problems.push(format!("mcp_server.{key}: must be from 1s to 1d"));
            }
        }
        problems
    }

    /// Returns the time limit of a call, within which the client asked for `wanted`.
    pub(crate) fn timeout(&self, wanted: Option<Duration>, is_agent: bool) -> Duration {
        let default = if is_agent { self.agent_timeout } else { self.call_timeout };
        wanted.map_or(default, |wanted| wanted.min(self.max_timeout))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_section_is_valid_and_all_errors_are_reported() {
        assert_eq!(McpServerSection::default().validate(), [""; 0]);
        let section = McpServerSection {
            max_listed_tools: 3,
            concurrent_calls: 0,
            call_timeout: Duration::ZERO,
            ..McpServerSection::default()
        };
        assert_eq!(section.validate().len(), 3);
    }

    #[test]
    fn client_timeout_is_bounded() {
        let section = McpServerSection::default();
        let hour = Duration::from_secs(3600);
        assert_eq!(section.timeout(None, false), section.call_timeout);
        assert_eq!(section.timeout(None, true), section.agent_timeout);
        assert_eq!(section.timeout(Some(hour * 30), false), hour);
        assert_eq!(section.timeout(Some(hour / 2), false), hour / 2);
    }
}
