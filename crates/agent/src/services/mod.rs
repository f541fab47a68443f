//! Services that an agent can ask for help: other agents, and MCP servers.
//!
//! - [`ServiceDirectory`]: who knows some of them; [`McpServices`] knows the MCP servers;
//! - [`ServiceSearch`]: the tool that finds one by words, and the hint in every turn.

mod directory;
mod mcp;
mod search;

pub use self::{
    directory::{ServiceDirectory, ServiceEntry, ServiceKind},
    mcp::McpServices,
    search::ServiceSearch,
};
