//! Services that an agent can ask for help: other agents, and MCP servers.
//!
//! - [`KnownServices`]: who knows some of them; [`McpServices`] knows the MCP servers;
//! - [`ServiceSearch`]: the tool that finds one by words, and the hint in every turn.

mod known;
mod mcp;
mod search;

pub use self::{
    known::{KnownService, KnownServices, ServiceKind},
    mcp::McpServices,
    search::ServiceSearch,
};
