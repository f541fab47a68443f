//! MCP servers, as agents see them: an index, definitions, calls. No word of the protocol itself is
//! spoken here; a bridge does that.
//!
//! - [`McpGateway`]: the port. A bridge in this process implements it;
//! - [`McpIndex`]: which servers there are, and what each is for;
//! - [`McpTool`]: one of their tools under a name of its own, for a model.

mod gateway;
mod index;
mod tool;

pub use self::{gateway::McpGateway, index::McpIndex, tool::McpTool};
