//! Services that can help an agent: other agents and MCP servers.
//!
//! - [`ServiceDirectory`]: a source of services; [`McpServices`] is the one of MCP servers, [`AgentServices`]
//!   that of agents;
//! - [`ServiceSearch`]: the search tool, and the hint in every turn.

mod agents;
mod directory;
mod mcp;
mod search;

pub use self::{
    agents::AgentServices,
    directory::{ServiceDirectory, ServiceEntry, ServiceKind},
    mcp::McpServices,
    search::ServiceSearch,
};
