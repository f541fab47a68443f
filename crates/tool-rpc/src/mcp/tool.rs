//! Tools of MCP servers, under names for models.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use rockbot_contracts::{ToolRegistration, mcp::McpToolDefinition};
use rockbot_tools::{context::ToolContext, failure::ToolFailure, result::ToolResult, tool::Tool};
use serde_json::Value;

use super::McpGateway;

/// A tool of a server. Its server and name are stored separately, never parsed from the model name.
pub struct McpTool {
    registration: ToolRegistration,
    server: Box<str>,
    tool: Box<str>,
    gateway: Arc<dyn McpGateway>,
}

impl McpTool {
    /// Creates the tool that `definition` describes, of the server `server`.
    #[must_use]
    pub fn new(server: &str, definition: &McpToolDefinition, gateway: Arc<dyn McpGateway>) -> Self {
        Self {
            registration: definition.registration(server),
            server: server.into(),
            tool: definition.name.as_str().into(),
            gateway,
        }
    }
}

impl Tool for McpTool {
    fn registration(&self) -> &ToolRegistration {
        &self.registration
    }

    fn call<'a>(
        &'a self,
        arguments: Value,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolResult, ToolFailure>> {
        self.gateway.call(&self.server, &self.tool, arguments, context)
    }

    fn enforces_own_deadline(&self) -> bool {
        true
    }

    fn deduplicates_calls(&self) -> bool {
        self.gateway.deduplicates_calls()
    }
}

impl std::fmt::Debug for McpTool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("McpTool").field("server", &self.server).field("tool", &self.tool).finish()
    }
}
