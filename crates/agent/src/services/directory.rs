//! Directories of services.

use rockbot_contracts::AgentName;

/// Kind of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServiceKind {
    /// Another agent.
    A2a,
    /// An MCP server.
    Mcp,
}

impl ServiceKind {
    /// Returns the name of the kind.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::A2a => "a2a",
            Self::Mcp => "mcp",
        }
    }

    /// Returns the key of the offers in search results.
    pub(super) fn offers_key(self) -> &'static str {
        match self {
            Self::A2a => "top_skills",
            Self::Mcp => "top_tools",
        }
    }
}

/// A service. Its texts come from outside and are sanitized.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceEntry {
    /// Name of the service.
    pub id: String,
    /// Kind of the service.
    pub kind: ServiceKind,
    /// Purpose of the service.
    pub summary: String,
    /// Skills or tools, the most relevant first.
    pub offers: Vec<String>,
    /// Additional keywords for the search.
    pub keywords: String,
}

/// A source of services. It is queried in every turn, so it answers from memory.
pub trait ServiceDirectory: Send + Sync + 'static {
    /// Returns the services that the agent may use. `None` if the permissions of the agent are unknown.
    fn services(&self, agent: &AgentName) -> Option<Vec<ServiceEntry>>;
}
