//! MCP servers as tools of an agent.
//!
//! [`McpParts`] is what an agent needs for it; the rules of a definition are [`McpRules`](crate::McpRules).

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

/// Access to MCP servers.
pub struct McpParts {
    /// The gateway to the servers.
    pub gateway: Arc<dyn McpGateway>,
    /// Pins of trusted definitions. `None` trusts every definition.
    pub pins: Option<Arc<ToolPins>>,
    /// Offers models to add and remove servers. The bridge must allow it too.
    pub may_register: bool,
}

impl McpParts {
    /// Creates access without pins and without the right to add servers.
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
