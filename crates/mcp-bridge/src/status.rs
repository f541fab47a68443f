//! The status of a server.

use rockbot_contracts::mcp::McpRejectedTool;

/// The status of a server, for display.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerStatus {
    /// The name.
    pub name: String,
    /// The transport: `stdio`, `http`, `sse`, `websocket` or `openapi`.
    pub transport: &'static str,
    /// The bridge is not ready without this server.
    pub required: bool,
    /// It is connected, here or at another bridge.
    pub ready: bool,
    /// The number of offered tools; 0 while it is not connected here.
    pub tools: usize,
    /// Tools that it lists and that cannot be offered.
    pub rejected_tools: Vec<McpRejectedTool>,
    /// The protocol revision, or the version of an OpenAPI document, while it is connected here.
    pub protocol_version: Option<String>,
    /// Why it is not connected here, or why its tools are not up to date, if known.
    pub reason: Option<String>,
}
