//! What is known of a service.

use rockbot_contracts::AgentName;

/// What kind of service it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServiceKind {
    /// Another agent.
    A2a,
    /// An MCP server.
    Mcp,
}

impl ServiceKind {
    /// The word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::A2a => "a2a",
            Self::Mcp => "mcp",
        }
    }

    /// What is called that which it offers.
    pub(super) fn offers_key(self) -> &'static str {
        match self {
            Self::A2a => "top_skills",
            Self::Mcp => "top_tools",
        }
    }
}

/// A service. Its texts come from outside, and are fit to be shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceEntry {
    /// What it is called by.
    pub id: String,
    /// What kind it is.
    pub kind: ServiceKind,
    /// What it is for.
    pub summary: String,
    /// Its skills or tools, the most telling first.
    pub offers: Vec<String>,
    /// More words that it is found by.
    pub keywords: String,
}

/// Knows services, as they are now. Asked in every turn, so it answers from memory.
pub trait ServiceDirectory: Send + Sync + 'static {
    /// Those that the agent may use. None where it is not known which those are.
    fn services(&self, agent: &AgentName) -> Option<Vec<ServiceEntry>>;
}
