//! Services that can help an agent: other agents and MCP servers.
//!
//! - [`ServiceDirectory`]: a source of services; [`McpServices`] is the one of MCP servers;
//! - [`ServiceSearch`]: the search tool, and the hint in every turn.

mod directory;
mod mcp;
mod search;

pub use self::{
    directory::{ServiceDirectory, ServiceEntry, ServiceKind},
    mcp::McpServices,
    search::ServiceSearch,
};
