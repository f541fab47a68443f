//! MCP servers, as agents see them: an index, definitions, calls. No word of the protocol itself is
//! spoken here; a bridge does that.
//!
//! - [`McpGateway`]: the port. A bridge in this process implements it;
//! - [`McpIndex`]: which servers there are, and what each is for;
//! - [`McpTool`]: one of their tools under a name of its own, for a model;
//! - [`BusGateway`] and [`IndexAnnouncer`] with [`ManageWorker`]: the two ends on the bus, side by
//!   side because they are one protocol;
//! - [`untrusted_text`]: what servers write, made fit to be shown.

mod announcer;
mod ask_bridge;
mod bridges;
mod bus_gateway;
mod gateway;
mod index;
mod manage;
mod tool;
pub mod untrusted_text;

pub use self::{
    announcer::IndexAnnouncer, bus_gateway::BusGateway, gateway::McpGateway, index::McpIndex,
    manage::ManageWorker, tool::McpTool,
};
