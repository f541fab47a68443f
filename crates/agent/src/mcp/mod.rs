//! MCP servers as tools of an agent.
//!
//! [`McpParts`] connects an agent to MCP servers; [`McpRules`](crate::McpRules) are the rules of its
//! definition.

mod access;
mod content_tools;
mod instructions;
mod management;
mod provider;
mod read_resources;
mod server_cache;
mod session_tools;

use std::{fmt, sync::Arc};

use rockbot_tool_rpc::mcp::McpGateway;
use rockbot_tools::ToolPins;

pub(crate) use self::access::within_call;
pub use self::management::{GUIDE, management_tools};
pub(crate) use self::provider::McpToolProvider;

/// The parts of an agent that give its model access to MCP servers.
pub struct McpParts {
    /// The gateway to the servers.
    pub gateway: Arc<dyn McpGateway>,
    /// Store of approved tool definitions (trust on first use). `None`: every definition is trusted.
    pub pins: Option<Arc<ToolPins>>,
    /// Gives the model tools that add and remove servers. The bridge must permit these changes as well.
    pub may_manage_servers: bool,
}

impl McpParts {
    /// Creates parts that trust every definition and do not let the model add or remove servers.
    #[must_use]
    pub fn new(gateway: Arc<dyn McpGateway>) -> Self {
        Self { gateway, pins: None, may_manage_servers: false }
    }
}

impl fmt::Debug for McpParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpParts")
            .field("pins", &self.pins)
            .field("may_manage_servers", &self.may_manage_servers)
            .finish_non_exhaustive()
    }
}
