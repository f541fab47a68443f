//! Clients and their rights.

use std::sync::Arc;

use rockbot_contracts::{SessionId, ToolRegistration, ToolSource};
use rockbot_tools::{ToolFilter, ToolProfile, ToolScope};
use sha2::{Digest, Sha256};

use crate::call_id::hex;

/// Longest name of a client, in bytes.
const MAX_NAME_BYTES: usize = 255;

/// An authenticated client and the tools that it may use.
///
/// Over HTTP, the guard in front of [`McpHttp`](crate::McpHttp) puts it into the extensions of the request.
/// Large results and conversations with agents belong to the client's name, whatever connection it uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct McpClient {
    name: Arc<str>,
    tools: ToolFilter,
    agents: ToolFilter,
}

/// Error for the name of a client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a client's name must have 1 to {MAX_NAME_BYTES} bytes without control characters")]
pub struct InvalidClient;

impl McpClient {
    /// Creates a client that may use these tools, and all agents that are offered. Two clients need different names, unless they may read each other's large results.
    ///
    /// # Errors
    /// When the name is empty, longer than 255 bytes, or contains a control character.
    pub fn new(name: &str, tools: ToolFilter) -> Result<Self, InvalidClient> {
        let is_valid =
            (1..=MAX_NAME_BYTES).contains(&name.len()) && !name.chars().any(char::is_control);
        let agents = ToolFilter::default();
        if is_valid { Ok(Self { name: name.into(), tools, agents }) } else { Err(InvalidClient) }
    }

    /// Sets the agents that it may use, by their names. The filter of its tools does not apply to them.
    #[must_use]
    pub fn with_agents(mut self, agents: ToolFilter) -> Self {
        self.agents = agents;
        self
    }

    /// Returns the name.
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Returns the filter of its tools, by name.
    #[must_use]
    pub fn tools(&self) -> &ToolFilter {
        &self.tools
    }

    /// Returns whether it may use a tool or an agent.
    pub(crate) fn permits(&self, tool: &ToolRegistration) -> bool {
        match &tool.source {
            ToolSource::Agent(agent) => self.agents.permits(agent),
            _ => self.tools.permits(&tool.name),
        }
    }

    /// Returns what its calls may use, besides agents.
    pub(crate) fn scope(&self) -> Arc<ToolScope> {
        Arc::new(ToolScope::new(ToolProfile::main(), self.tools.clone()))
    }

    /// Returns the session of its calls, which owns its large results. Derived from the name, so that every
    /// process that serves the client uses the same one.
    pub(crate) fn session(&self) -> Option<SessionId> {
        let digest = hex(&Sha256::digest(self.name.as_bytes())[..16]);
        SessionId::new(format!("mcp-{digest}")).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_depends_on_name_only() {
        let client = |name: &str, deny: &[&str]| {
            let deny = deny.iter().map(|&tool| tool.to_owned()).collect();
            McpClient::new(name, ToolFilter { deny, ..ToolFilter::default() }).unwrap()
        };
        let session = client("editor", &[]).session();
        assert!(session.is_some());
        assert_eq!(session, client("editor", &["bash"]).session());
        assert_ne!(session, client("desktop", &[]).session());
    }

    #[test]
    fn agents_have_a_filter_of_their_own() {
        let tool = |name: &str, source| ToolRegistration {
            name: name.to_owned(),
            label: None,
            description: String::new(),
            tool_description: None,
            parameters: serde_json::Value::Null,
            source,
            hints: rockbot_contracts::ToolHints::default(),
            timeout_ms: None,
        };
        let only = |name: &str| ToolFilter { allow: vec![name.to_owned()], deny: Vec::new() };
        let client = McpClient::new("a", only("read_*")).unwrap().with_agents(only("writer"));
        assert!(client.permits(&tool("read_file", ToolSource::Files)));
        assert!(!client.permits(&tool("bash", ToolSource::Files)));
        assert!(client.permits(&tool("agent__writer", ToolSource::Agent("writer".to_owned()))));
        assert!(!client.permits(&tool("read_x", ToolSource::Agent("x".to_owned()))));
    }

    #[test]
    fn invalid_names_are_rejected() {
        for name in ["", "a\nb", &"x".repeat(256)] {
            assert_eq!(McpClient::new(name, ToolFilter::default()), Err(InvalidClient), "{name:?}");
        }
    }
}
