//! Which MCP servers there are.

use std::collections::BTreeMap;

use rockbot_contracts::{mcp::McpServerSummary, topology::stable_hash};

/// The servers that are served now, by name. Names are compared without regard to case; listing is
/// in order of their lower-case names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct McpIndex {
    servers: BTreeMap<String, McpServerSummary>,
}

impl McpIndex {
    /// The server of that name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&McpServerSummary> {
        self.servers.get(&name.to_lowercase())
    }

    /// All of them.
    pub fn servers(&self) -> impl Iterator<Item = &McpServerSummary> {
        self.servers.values()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.servers.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.servers.is_empty()
    }

    /// Takes a server in, in place of one of the same name.
    pub fn insert(&mut self, server: McpServerSummary) {
        self.servers.insert(server.name.to_lowercase(), server);
    }

    /// Takes a server out. Whether it was there.
    pub fn remove(&mut self, name: &str) -> bool {
        self.servers.remove(&name.to_lowercase()).is_some()
    }

    /// Changes when anything about a server changes.
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
