//! Rules of a definition for MCP servers.

use rockbot_tools::ToolFilter;
use serde::Deserialize;

/// Selection of the MCP tools that a model is offered directly. The tools that manage servers and call MCP
/// tools by name are offered in every mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum McpExposure {
    /// None.
    Off,
    /// All tools.
    Eager,
    /// Tools that the conversation found with `mcp_find_tools`.
    Lazy,
    /// Like `Lazy`, and all tools of servers that the conversation has called.
    #[default]
    Pinned,
}

/// `[mcp]` of a definition: the MCP servers that an agent may use, and how their tools are offered.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct McpRules {
    /// Exposure of the tools. Default `pinned`.
    pub exposure: McpExposure,
    /// Patterns of server names, case-insensitive. Default: all.
    pub servers: ToolFilter,
}

impl McpRules {
    /// Returns `true` if the agent may use the server.
    #[must_use]
    pub fn permits(&self, server: &str) -> bool {
        let lower = |patterns: &[String]| patterns.iter().map(|one| one.to_lowercase()).collect();
        let filter =
            ToolFilter { allow: lower(&self.servers.allow), deny: lower(&self.servers.deny) };
        filter.permits(&server.to_lowercase())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_patterns_ignore_case() {
        let servers = ToolFilter { allow: vec!["Git*".into()], deny: vec!["gitLAB".into()] };
        let rules = McpRules { servers, ..McpRules::default() };
        assert!(rules.permits("github") && rules.permits("GITHUB"));
        assert!(!rules.permits("GitLab") && !rules.permits("time"));
    }
}
