//! MCP servers for agents: index, definitions and calls. The MCP protocol itself is the bridge's task.
//!
//! - [`McpGateway`]: the port, which a bridge in the same process implements;
//! - [`McpIndex`]: the available servers, with a summary of each;
//! - [`McpTool`]: a tool of a server, under a name for models;
//! - [`McpServerTools`]: the tools of a server, as a provider;
//! - [`BusGateway`], and [`IndexAnnouncer`] with [`ManageWorker`]: the agent's and the bridge's end of
//!   the bus, in one module because they implement one protocol.

mod announcer;
mod bridge_request;
mod bridges;
mod bus_gateway;
mod details_parts;
mod gateway;
mod index;
mod manage;
mod server_tools;
mod tool;

pub use self::{
    announcer::IndexAnnouncer,
    bus_gateway::BusGateway,
    gateway::{McpGateway, McpServerReport},
    index::McpIndex,
    manage::ManageWorker,
    server_tools::McpServerTools,
    tool::McpTool,
};
