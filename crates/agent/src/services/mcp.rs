//! The MCP servers among the services.

use std::{fmt, sync::Arc};

use rockbot_tools::mcp::{
    McpGateway,
    outside_text::{is_name, plain},
};

use super::{KnownService, KnownServices, ServiceKind};
use crate::mcp::McpRules;

/// Most characters of a server's summary.
const MOST_SUMMARY: usize = 400;
/// Most tools of a server that it is found by.
const MOST_TOOLS: usize = 256;

/// The MCP servers that an agent may use.
pub struct McpServices {
    gateway: Arc<dyn McpGateway>,
    rules: McpRules,
}

impl McpServices {
    /// Those behind `gateway` that `rules` permit.
    #[must_use]
    pub fn new(gateway: Arc<dyn McpGateway>, rules: McpRules) -> Self {
        Self { gateway, rules }
    }
}

impl KnownServices for McpServices {
    fn services(&self) -> Vec<KnownService> {
        let index = self.gateway.index().borrow().clone();
        let permitted = index
            .servers()
            .filter(|server| is_name(&server.name) && self.rules.permits(&server.name));
        permitted
            .map(|server| {
                let line = |text: &str| plain(text, MOST_SUMMARY).replace(['\n', '\t'], " ");
                let names = server.tool_names.iter().filter(|name| is_name(name));
                KnownService {
                    id: server.name.clone(),
                    kind: ServiceKind::Mcp,
                    summary: line(&server.summary),
                    offers: names.take(MOST_TOOLS).cloned().collect(),
                    words: line(&server.display_name),
                }
            })
            .collect()
    }
}

impl fmt::Debug for McpServices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpServices").field("rules", &self.rules).finish_non_exhaustive()
    }
}
