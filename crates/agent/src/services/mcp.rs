//! MCP servers as services.

use std::{fmt, sync::Arc};

use rockbot_contracts::{
    AgentName,
    outside_text::{is_name, plain},
};
use rockbot_tool_rpc::mcp::McpGateway;

use super::{ServiceDirectory, ServiceEntry, ServiceKind};
use crate::definition::{AgentDefinition, McpRules};

/// Longest summary, in characters.
const MAX_SUMMARY_CHARS: usize = 400;
/// Maximum number of tools of a server that are searched.
const MAX_TOOLS: usize = 256;

/// The MCP servers that one agent may use. The permissions of other agents are unknown here.
pub struct McpServices {
    agent: AgentName,
    gateway: Arc<dyn McpGateway>,
    rules: McpRules,
}

impl McpServices {
    /// Returns the servers of `gateway` that the definition permits.
    #[must_use]
    pub fn new(gateway: Arc<dyn McpGateway>, definition: &AgentDefinition) -> Self {
        Self { agent: definition.name.clone(), gateway, rules: definition.mcp.clone() }
    }
}

impl ServiceDirectory for McpServices {
    fn services(&self, agent: &AgentName) -> Option<Vec<ServiceEntry>> {
        if *agent != self.agent {
            return None;
        }
        let index = self.gateway.index().borrow().clone();
        let permitted = index
            .servers()
            .filter(|server| is_name(&server.name) && self.rules.permits(&server.name));
        let known = permitted.map(|server| {
            let line = |text: &str| plain(text, MAX_SUMMARY_CHARS).replace(['\n', '\t'], " ");
            let names = server.tool_names.iter().filter(|name| is_name(name));
            ServiceEntry {
                id: server.name.clone(),
                kind: ServiceKind::Mcp,
                summary: line(&server.summary),
                offers: names.take(MAX_TOOLS).cloned().collect(),
                keywords: line(&server.display_name),
            }
        });
        Some(known.collect())
    }
}

impl fmt::Debug for McpServices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpServices").field("rules", &self.rules).finish_non_exhaustive()
    }
}
