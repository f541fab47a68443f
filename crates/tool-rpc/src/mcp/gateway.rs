//! Port to MCP servers.

use std::future::ready;

use futures_util::future::BoxFuture;
use rockbot_contracts::{
    InstanceId,
    mcp::{
        McpGetPromptRequest, McpListResourcesRequest, McpManageError, McpManageErrorCode,
        McpPromptMessages, McpReadResourceRequest, McpRegisterServerRequest, McpResourceContent,
        McpResourcePage, McpResourcesChanged, McpServerDetails, McpServerDetailsRequest,
        McpServerState, McpServerSummary,
    },
};
use rockbot_tools::{context::ToolContext, failure::ToolFailure, result::ToolResult};
use serde_json::Value;
use tokio::sync::{broadcast, watch};

use super::{McpIndex, bridge_request::manage_error};

/// State of a server at a bridge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct McpServerReport {
    /// The bridge; `None` for one in this process.
    pub bridge: Option<InstanceId>,
    /// The state.
    pub state: McpServerState,
}

/// MCP servers, either of a bridge in this process or of the bridges on the bus.
///
/// Server names are case-insensitive, tool names are not.
pub trait McpGateway: Send + Sync + 'static {
    /// Returns the current index of servers, as a receiver of changes.
    fn index(&self) -> watch::Receiver<McpIndex>;

    /// Returns the states of all configured servers at all bridges, connected or not, as a receiver of
    /// changes. Default: none.
    fn states(&self) -> watch::Receiver<Vec<McpServerReport>> {
        watch::Sender::default().subscribe()
    }

    /// Returns the definitions of all tools of a server, or of one. Takes at most 30 s. A gateway may
    /// ignore `after`, and return all tools instead of a part.
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

    /// Returns a page of the resources of a server, or of its resource templates. Takes at most 30 s.
    ///
    /// # Errors
    /// When the server does not exist, has no resources, or cannot list them. Default: always.
    fn resources(
        &self,
        request: McpListResourcesRequest,
    ) -> BoxFuture<'_, Result<McpResourcePage, McpManageError>> {
        Box::pin(ready(Err(unsupported(&request.server_name, "resources"))))
    }

    /// Returns the content of a resource. Takes at most 30 s.
    ///
    /// # Errors
    /// As for [`Self::resources`], and when the server does not return the resource.
    fn read_resource(
        &self,
        request: McpReadResourceRequest,
    ) -> BoxFuture<'_, Result<McpResourceContent, McpManageError>> {
        Box::pin(ready(Err(unsupported(&request.server_name, "resources"))))
    }

    /// Returns a receiver of the resources that change from now on, among those that callers have read. A slow
    /// receiver misses some. Default: none change.
    fn resource_changes(&self) -> broadcast::Receiver<McpResourcesChanged> {
        broadcast::Sender::new(1).subscribe()
    }

    /// Returns the messages of a prompt. Takes at most 30 s.
    ///
    /// # Errors
    /// When the server or prompt does not exist, or arguments are missing. Default: always.
    fn prompt(
        &self,
        request: McpGetPromptRequest,
    ) -> BoxFuture<'_, Result<McpPromptMessages, McpManageError>> {
        Box::pin(ready(Err(unsupported(&request.server_name, "prompts"))))
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

fn unsupported(server: &str, what: &str) -> McpManageError {
    manage_error(server, McpManageErrorCode::NotFound, &format!("that server has no {what}"))
}
