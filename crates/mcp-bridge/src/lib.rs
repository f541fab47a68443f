//! Sessions with MCP servers of any kind and era, and the process behind `tool.invoke.mcp`.

mod frame;
pub mod oauth;
pub mod transport;
