//! Tools of MCP servers that a conversation uses.

use serde::{Deserialize, Serialize};

/// A tool of an MCP server: the server in lower case, and the tool's own name.
pub(crate) type McpTarget = (String, String);

/// Maximum number of tools that a conversation is offered again.
const MAX_TOOLS: usize = 64;
/// Maximum number of servers that are offered again.
const MAX_SERVERS: usize = 32;

/// The tools that a conversation is offered and the servers that it called, newest last.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct McpUse {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) tools: Vec<McpTarget>,
    /// In lower case.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) servers: Vec<String>,
}

impl McpUse {
    pub(crate) fn is_empty(&self) -> bool {
        self.tools.is_empty() && self.servers.is_empty()
    }

    /// Adds newer tools and servers. Above the limits, the oldest are dropped.
    pub(crate) fn add(&mut self, newer: Self) {
        newer.tools.into_iter().for_each(|tool| self.add_tool(tool));
        newer.servers.into_iter().for_each(|server| self.add_server(server));
    }

    pub(crate) fn add_tool(&mut self, tool: McpTarget) {
        move_to_end(&mut self.tools, tool, MAX_TOOLS);
    }

    pub(crate) fn add_server(&mut self, server: String) {
        move_to_end(&mut self.servers, server, MAX_SERVERS);
    }
}

fn move_to_end<T: PartialEq>(items: &mut Vec<T>, item: T, limit: usize) {
    items.retain(|other| *other != item);
    items.push(item);
    let excess = items.len().saturating_sub(limit);
    items.drain(..excess);
}
