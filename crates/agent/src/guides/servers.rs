//! Guides of MCP servers: their instructions.

use std::{fmt, sync::Arc};

use futures_util::future::BoxFuture;
use rockbot_contracts::{
    AgentName, Executed, ToolGuide,
    mcp::{McpServerDetailsRequest, McpServerSummary},
    outside_text::{is_name, plain},
};
use rockbot_tool_rpc::mcp::McpGateway;
use rockbot_tools::{GuideEntry, GuideSource, ToolContext, ToolFailure};
use tokio::time::timeout;

use super::quote;
use crate::{
    definition::{AgentDefinition, McpRules},
    mcp,
};

/// Prefix of the names of these guides.
const PREFIX: &str = "mcp-";

/// The instructions of the MCP servers that one agent may use, each as the guide `mcp-<server>`. The
/// permissions of other agents are unknown here.
pub struct ServerGuides {
    agent: AgentName,
    gateway: Arc<dyn McpGateway>,
    rules: McpRules,
}

impl ServerGuides {
    /// Returns the guides of the servers of `gateway` that the definition permits.
    #[must_use]
    pub fn new(gateway: Arc<dyn McpGateway>, definition: &AgentDefinition) -> Self {
        Self { agent: definition.name.clone(), gateway, rules: definition.mcp.clone() }
    }

    fn servers(&self, context: &ToolContext) -> Vec<McpServerSummary> {
        if context.agent != self.agent {
            return Vec::new();
        }
        let index = self.gateway.index().borrow().clone();
        let permitted = index.servers().filter(|server| {
            server.has_instructions && is_name(&server.name) && self.rules.permits(&server.name)
        });
        permitted.cloned().collect()
    }

    async fn instructions(
        &self,
        server: &str,
        context: &ToolContext,
    ) -> Result<Option<String>, ToolFailure> {
        let request = McpServerDetailsRequest {
            server_name: server.to_owned(),
            tool_name: None,
            after: Some(String::new()),
        };
        let after = context.remaining();
        let details = tokio::select! {
            biased;
            () = context.cancellation.cancelled() => {
                return Err(ToolFailure::Cancelled { executed: Executed::No });
            }
            details = timeout(after, self.gateway.details(request)) => details,
        };
        let timed_out = ToolFailure::TimedOut { after, executed: Executed::No, repeatable: true };
        let details = details.map_err(|_| timed_out)?.map_err(mcp::failure)?;
        let text = details.instructions.unwrap_or_default();
        let text = plain(&text, ToolGuide::MAX_MARKDOWN);
        let text = text.trim();
        let tools = format!("MCP server {server}");
        Ok((!text.is_empty()).then(|| quote(&tools, "that server", text)))
    }
}

impl GuideSource for ServerGuides {
    fn list(&self, context: &ToolContext) -> Vec<GuideEntry> {
        let entry = |server: McpServerSummary| GuideEntry {
            summary: format!("Instructions of the MCP server {}", server.name),
            name: format!("{PREFIX}{}", server.name),
        };
        self.servers(context).into_iter().map(entry).collect()
    }

    fn read<'a>(
        &'a self,
        name: &'a str,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<Option<String>, ToolFailure>> {
        Box::pin(async move {
            let Some(server) = name.strip_prefix(PREFIX) else { return Ok(None) };
            let servers = self.servers(context);
            let Some(server) = servers.iter().find(|one| one.name == server) else {
                return Ok(None);
            };
            self.instructions(&server.name, context).await
        })
    }
}

impl fmt::Debug for ServerGuides {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerGuides").field("rules", &self.rules).finish_non_exhaustive()
    }
}
