//! The tools of an MCP server, as a provider.

use std::{fmt, sync::Arc};

use rockbot_contracts::mcp::McpServerDetails;
use rockbot_tools::{
    Tool, ToolProvider, ToolSource,
    names::{DEFAULT_NAME_BYTES, sanitize},
};

use super::{McpGateway, McpTool};

/// The tools of an MCP server with the definitions of one moment. Calls go through a gateway.
pub struct McpServerTools {
    source: ToolSource,
    namespace: String,
    tools: Vec<Arc<dyn Tool>>,
    instructions: Option<String>,
}

impl McpServerTools {
    /// Creates the tools that `details` describes, under their names for models.
    #[must_use]
    pub fn new(details: McpServerDetails, gateway: &Arc<dyn McpGateway>) -> Self {
        let McpServerDetails { server, instructions, tools, .. } = details;
        let tool = |definition| {
            Arc::new(McpTool::new(&server.name, definition, gateway.clone())) as Arc<dyn Tool>
        };
        let tools = tools.iter().map(tool).collect();
        let namespace = sanitize(&server.name, DEFAULT_NAME_BYTES);
        Self { source: ToolSource::Mcp(server.name), namespace, tools, instructions }
    }
}

impl ToolProvider for McpServerTools {
    fn source(&self) -> ToolSource {
        self.source.clone()
    }

    fn namespace(&self) -> Option<&str> {
        Some(&self.namespace)
    }

    fn list(&self) -> Vec<Arc<dyn Tool>> {
        self.tools.clone()
    }

    fn instructions(&self) -> Option<String> {
        self.instructions.clone()
    }
}

impl fmt::Debug for McpServerTools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpServerTools")
            .field("source", &self.source)
            .field("tools", &self.tools.len())
            .finish_non_exhaustive()
    }
}
