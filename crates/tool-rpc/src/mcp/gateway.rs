//! Port to MCP servers.

use futures_util::future::BoxFuture;
use rockbot_contracts::mcp::{
    McpManageError, McpRegisterServerRequest, McpServerDetails, McpServerDetailsRequest,
    McpServerSummary,
};
use rockbot_tools::{context::ToolContext, failure::ToolFailure, result::ToolResult};
use serde_json::Value;
use tokio::sync::watch;

use super::McpIndex;

/// MCP servers, either of a bridge in this process or of the bridges on the bus.
///
/// Server names are case-insensitive, tool names are not.
pub trait McpGateway: Send + Sync + 'static {
    /// Returns the current index of servers, as a receiver of changes.
    fn index(&self) -> watch::Receiver<McpIndex>;

    /// Returns the definitions of all tools of a server, or of one. Takes at most 30 s.
    ///
    /// # Errors
    /// When the server or tool does not exist, or no bridge replies.
    fn details(
        &self,
        request: McpServerDetailsRequest,
    ) -> BoxFuture<'_, Result<McpServerDetails, McpManageError>>;

    /// Runs a tool of a server.
    ///
    /// # Errors
    /// See [`ToolFailure`]. An error that the tool reports itself is a result.
    ///
    /// # Cancellation
    /// As for any tool: the server is notified on [`ToolContext::cancellation`] and when the future is
    /// dropped.
    fn call<'a>(
        &'a self,
        server: &'a str,
        tool: &'a str,
        arguments: Value,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolResult, ToolFailure>>;

    /// Returns `true` if a call that is made again under its id does not run twice; see
    /// [`Tool::deduplicates_calls`](rockbot_tools::Tool::deduplicates_calls). Default `false`.
    fn deduplicates_calls(&self) -> bool {
        false
    }

    /// Adds a server at run time. Takes at most 1 min.
    ///
    /// # Errors
    /// When the configuration forbids it, the name is taken, or the connection to the server fails.
    fn register(
        &self,
        request: McpRegisterServerRequest,
    ) -> BoxFuture<'_, Result<McpServerSummary, McpManageError>>;

    /// Removes a server that was added at run time.
    ///
    /// # Errors
    /// When the server does not exist, or is part of the configuration.
    fn unregister<'a>(&'a self, server: &'a str) -> BoxFuture<'a, Result<(), McpManageError>>;
}
