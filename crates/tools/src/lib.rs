//! The tool trade: what a tool is, how a call runs, and both ends of a call on the bus.

pub mod failure;
pub mod result;
pub mod tool;

pub use failure::ToolFailure;
pub use result::ToolResult;
pub use rockbot_contracts::{
    ContentBlock, Executed, ToolHints, ToolRegistration, ToolSource,
};
pub use tool::{Tool, ToolContext, ToolUpdate, UpdateSink};
