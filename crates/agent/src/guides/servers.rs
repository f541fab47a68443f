//! Guides of MCP servers: their instructions and prompts.

use std::{fmt, sync::Arc};

use futures_util::future::BoxFuture;
use rockbot_contracts::{
    AgentName, ToolGuide,
    mcp::{McpGetPromptRequest, McpPrompt, McpServerDetailsRequest, McpServerSummary},
    outside_text::{is_name, plain},
};
use rockbot_tool_rpc::mcp::McpGateway;
use rockbot_tools::{GuideEntry, GuideSource, ToolContext, ToolFailure};

use super::quote;
use crate::{
    definition::{AgentDefinition, McpRules},
    mcp::within_call,
};

/// Prefix of the names of these guides.
const PREFIX: &str = "mcp-";
/// Maximum number of prompts of a server that are guides.
const MAX_PROMPTS: usize = 20;

/// The instructions of the MCP servers that one agent may use, each as the guide `mcp-<server>`, and their
/// prompts without required arguments, each as the guide `mcp-<server>:<prompt>`. The permissions of other
/// agents are unknown here.
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
        let permitted = index
            .servers()
            .filter(|server| is_name(&server.name) && self.rules.permits(&server.name));
        permitted.cloned().collect()
    }

    async fn prompt(
        &self,
        server: &str,
        prompt: &str,
        context: &ToolContext,
    ) -> Result<Option<String>, ToolFailure> {
        let request = McpGetPromptRequest {
            server_name: server.to_owned(),
            prompt_name: prompt.to_owned(),
            ..McpGetPromptRequest::default()
        };
        let messages = within_call(self.gateway.prompt(request), context).await?;
        Ok(quoted_text(server, &messages.to_text()))
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
        let details = within_call(self.gateway.details(request), context).await?;
        Ok(quoted_text(server, &details.instructions.unwrap_or_default()))
    }
}

/// Returns a text of a server as a guide; `None` if it is empty.
fn quoted_text(server: &str, text: &str) -> Option<String> {
    let text = plain(text, ToolGuide::MAX_MARKDOWN);
    let text = text.trim();
    (!text.is_empty()).then(|| quote(&format!("MCP server {server}"), "that server", text))
}

/// Returns the prompts of a server that are guides, with their names as guides.
fn prompt_guides(server: &McpServerSummary) -> impl Iterator<Item = (String, &McpPrompt)> {
    let usable = server.prompts.iter().filter(|prompt| prompt.needs_no_arguments());
    usable.take(MAX_PROMPTS).map(|prompt| {
        let name = format!("{PREFIX}{}:{}", server.name, prompt.name);
        (name, prompt)
    })
}

impl GuideSource for ServerGuides {
    fn list(&self, context: &ToolContext) -> Vec<GuideEntry> {
        let mut entries = Vec::new();
        for server in self.servers(context) {
            if server.has_instructions {
                entries.push(GuideEntry {
                    summary: format!("Instructions of the MCP server {}", server.name),
                    name: format!("{PREFIX}{}", server.name),
                });
            }
            entries.extend(prompt_guides(&server).map(|(name, prompt)| GuideEntry {
                name,
                summary: format!(
                    "Prompt of the MCP server {}: {}",
                    server.name, prompt.description
                ),
            }));
        }
        entries
    }

    fn read<'a>(
        &'a self,
        name: &'a str,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<Option<String>, ToolFailure>> {
        Box::pin(async move {
            let Some(wanted) = name.strip_prefix(PREFIX) else { return Ok(None) };
            for server in self.servers(context) {
                if server.has_instructions && server.name == wanted {
                    return self.instructions(&server.name, context).await;
                }
                let found = prompt_guides(&server).find(|(guide, _)| guide == name);
                if let Some((_, prompt)) = found {
                    return self.prompt(&server.name, &prompt.name, context).await;
                }
            }
            Ok(None)
        })
    }
}

impl fmt::Debug for ServerGuides {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerGuides").field("rules", &self.rules).finish_non_exhaustive()
    }
}
