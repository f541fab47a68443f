//! What a definition says about MCP servers.

use rockbot_tools::ToolFilter;
use serde::Deserialize;

/// Which tools of MCP servers a model is offered under names of their own. Those that manage
/// servers, and call any tool by its server and name, are offered in every mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum McpExposure {
    /// None.
    Off,
    /// All of them.
    Eager,
    /// Those that the conversation found with `mcp_find_tools`.
    Lazy,
    /// The same, and every tool of a server that the conversation has called.
    #[default]
    Pinned,
}

/// Which MCP servers an agent may use, and how their tools are offered: `[mcp]` of a definition.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct McpRules {
    /// How tools are offered. Default `pinned`.
    pub exposure: McpExposure,
    /// Patterns of names of servers, whose case does not matter. Default: all are allowed.
    pub servers: ToolFilter,
}

impl McpRules {
    /// Whether the server of this name may be used.
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
    fn case_is_no_way_around_a_denied_server() {
        let servers = ToolFilter { allow: vec!["Git*".into()], deny: vec!["gitLAB".into()] };
        let rules = McpRules { servers, ..McpRules::default() };
        assert!(rules.permits("github") && rules.permits("GITHUB"));
        assert!(!rules.permits("GitLab") && !rules.permits("time"));
    }
}
