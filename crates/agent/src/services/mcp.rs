//! The MCP servers among the services.

use std::{fmt, sync::Arc};

use rockbot_contracts::AgentName;
use rockbot_tool_rpc::mcp::{
    McpGateway,
    untrusted_text::{is_name, plain},
};

use super::{KnownService, KnownServices, ServiceKind};
use crate::{AgentDefinition, mcp::McpRules};

/// Most characters of a server's summary.
const MOST_SUMMARY: usize = 400;
/// Most tools of a server that it is found by.
const MOST_TOOLS: usize = 256;

/// The MCP servers that one agent may use. Of any other agent, it does not know which it may.
pub struct McpServices {
    agent: AgentName,
    gateway: Arc<dyn McpGateway>,
    rules: McpRules,
}

impl McpServices {
    /// Those behind `gateway` that the agent's definition permits.
    #[must_use]
    pub fn new(gateway: Arc<dyn McpGateway>, definition: &AgentDefinition) -> Self {
        Self { agent: definition.name.clone(), gateway, rules: definition.mcp.clone() }
    }
}

impl KnownServices for McpServices {
    fn services(&self, agent: &AgentName) -> Option<Vec<KnownService>> {
        if *agent != self.agent {
            return None;
        }
        let index = self.gateway.index().borrow().clone();
        let permitted = index
            .servers()
            .filter(|server| is_name(&server.name) && self.rules.permits(&server.name));
        let known = permitted.map(|server| {
            let line = |text: &str| plain(text, MOST_SUMMARY).replace(['\n', '\t'], " ");
            let names = server.tool_names.iter().filter(|name| is_name(name));
            KnownService {
                id: server.name.clone(),
                kind: ServiceKind::Mcp,
                summary: line(&server.summary),
                offers: names.take(MOST_TOOLS).cloned().collect(),
                words: line(&server.display_name),
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
