//! The port to MCP servers.

use futures_util::future::BoxFuture;
use rockbot_contracts::mcp::{
    McpManageError, McpRegisterServerRequest, McpServerDetails, McpServerDetailsRequest,
    McpServerSummary,
};
use rockbot_tools::{context::ToolContext, failure::ToolFailure, result::ToolResult};
use serde_json::Value;
use tokio::sync::watch;

use super::McpIndex;

/// MCP servers: those of a bridge in this process, or of the bridges on the bus. Both behave the
/// same.
///
/// Names of servers are compared without regard to case, names of tools exactly.
pub trait McpGateway: Send + Sync + 'static {
    /// Which servers there are now; told again on every change.
    fn index(&self) -> watch::Receiver<McpIndex>;

    /// A server's tools, or one of them, in full. Ends within half a minute.
    ///
    /// # Errors
    /// When there is no such server or tool, or nobody answers.
    fn details(
        &self,
        request: McpServerDetailsRequest,
    ) -> BoxFuture<'_, Result<McpServerDetails, McpManageError>>;

    /// Runs a tool of a server.
    ///
    /// # Errors
    /// See [`ToolFailure`]. A failure in the tool's own words is a result.
    ///
    /// # Cancellation
    /// As for any tool: on [`ToolContext::cancellation`], or when the future is dropped, the server
    /// is told.
    fn call<'a>(
        &'a self,
        server: &'a str,
        tool: &'a str,
        arguments: Value,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolResult, ToolFailure>>;

    /// Adds a server at run time. Ends within a minute.
    ///
    /// # Errors
    /// When the configuration does not allow it, the name is taken, or the server does not connect.
    fn register(
        &self,
        request: McpRegisterServerRequest,
    ) -> BoxFuture<'_, Result<McpServerSummary, McpManageError>>;

    /// Removes a server that was added at run time.
    ///
    /// # Errors
    /// When there is none of that name, or it is in the configuration.
    fn unregister<'a>(&'a self, server: &'a str) -> BoxFuture<'a, Result<(), McpManageError>>;
}
