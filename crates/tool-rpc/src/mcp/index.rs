//! Index of MCP servers.

use std::collections::BTreeMap;

use rockbot_contracts::{mcp::McpServerSummary, topology::stable_hash};

/// The available servers by case-insensitive name, in the order of their lower-case names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct McpIndex {
    servers: BTreeMap<String, McpServerSummary>,
}

impl McpIndex {
    /// Returns the server with this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&McpServerSummary> {
        self.servers.get(&name.to_lowercase())
    }

    /// Returns all servers.
    pub fn servers(&self) -> impl Iterator<Item = &McpServerSummary> {
        self.servers.values()
    }

    /// Returns the number of servers.
    #[must_use]
    pub fn len(&self) -> usize {
        self.servers.len()
    }

    /// Returns whether the index has no server.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.servers.is_empty()
    }

    /// Inserts a server, and replaces one with the same name.
    pub fn insert(&mut self, server: McpServerSummary) {
        self.servers.insert(server.name.to_lowercase(), server);
    }

    /// Removes a server. Returns whether it was present.
    pub fn remove(&mut self, name: &str) -> bool {
        self.servers.remove(&name.to_lowercase()).is_some()
    }

    /// Returns a hash of the names and summaries of all servers.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        let all: Vec<_> = self.servers.values().collect();
        let bytes = serde_json::to_vec(&all).unwrap_or_default();
        format!("{:016x}", stable_hash(&bytes))
    }
}

impl FromIterator<McpServerSummary> for McpIndex {
    fn from_iter<I: IntoIterator<Item = McpServerSummary>>(servers: I) -> Self {
        let mut index = Self::default();
        servers.into_iter().for_each(|server| index.insert(server));
        index
    }
}
