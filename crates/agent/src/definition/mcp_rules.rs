//! Rules of a definition for MCP servers.

use rockbot_contracts::mcp::{McpExposure, McpServerSummary};
use rockbot_tools::ToolFilter;
use serde::Deserialize;

/// `[mcp]` of a definition: the MCP servers that an agent may use, and how their tools are offered.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct McpRules {
    /// Exposure of the tools of all servers. Default: that of each server in its bridge's configuration, else
    /// `pinned`.
    pub exposure: Option<McpExposure>,
    /// Patterns of server names, case-insensitive. Default: all.
    pub servers: ToolFilter,
}

impl McpRules {
    /// Returns the exposure of a server's tools.
    #[must_use]
    pub fn exposure_of(&self, server: &McpServerSummary) -> McpExposure {
        self.exposure.or(server.exposure).unwrap_or_default()
    }

    /// Returns `true` if the tools of some server may be found with `mcp_find_tools`.
    #[must_use]
    pub fn may_find(&self) -> bool {
        self.exposure.is_none_or(offers_found)
    }

    /// Returns `true` if the agent may use the server.
    #[must_use]
    pub fn permits(&self, server: &str) -> bool {
        let lower = |patterns: &[String]| patterns.iter().map(|one| one.to_lowercase()).collect();
        let filter =
            ToolFilter { allow: lower(&self.servers.allow), deny: lower(&self.servers.deny) };
        filter.permits(&server.to_lowercase())
    }
}

/// Returns `true` if a model is offered the tools that it finds.
#[must_use]
pub(crate) fn offers_found(exposure: McpExposure) -> bool {
    matches!(exposure, McpExposure::Lazy | McpExposure::Pinned)
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
