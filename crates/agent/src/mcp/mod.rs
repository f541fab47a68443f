//! MCP servers as an agent uses them.
//!
//! [`McpParts`] is what an agent needs for it. The rules of a definition are
//! [`McpRules`](crate::McpRules).

mod access;
mod management;
mod provider;
mod server_cache;
mod session_tools;

use std::{fmt, sync::Arc};

use rockbot_tool_rpc::mcp::McpGateway;
use rockbot_tools::ToolPins;

pub use self::management::{GUIDE, management_tools};
pub(crate) use self::provider::McpToolProvider;

/// What an agent needs to use MCP servers.
pub struct McpParts {
    /// The servers.
    pub gateway: Arc<dyn McpGateway>,
    /// Where the trusted definitions are kept. Without, every definition is trusted.
    pub pins: Option<Arc<ToolPins>>,
    /// Whether a model is offered to add and remove servers; the bridge decides whether it may.
    pub may_register: bool,
}

impl McpParts {
    /// These servers, without pins, and none may be added.
    #[must_use]
    pub fn new(gateway: Arc<dyn McpGateway>) -> Self {
        Self { gateway, pins: None, may_register: false }
    }
}

impl fmt::Debug for McpParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpParts")
            .field("pins", &self.pins)
            .field("may_register", &self.may_register)
            .finish_non_exhaustive()
    }
}
