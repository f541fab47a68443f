//! Open sessions with servers of any kind.

use std::{collections::BTreeMap, future::ready, time::Duration};

use futures_util::future::BoxFuture;
use rockbot_contracts::mcp::{McpPromptMessage, McpToolDefinition};
use rockbot_tools::{ToolContext, ToolResult};
use serde_json::Value;

use crate::{
    call_error::CallError,
    config::ServerConfig,
    content::{BoundedContent, ContentFailure, ResourceList},
    definitions::Definitions,
};

/// An open session with a server: lists and calls its tools, and reads its resources and prompts, which
/// APIs do not have. Calls and requests run concurrently.
pub(crate) trait ServerSession: Send + Sync {
    /// Returns the server's information about itself.
    fn info(&self) -> &ServerInfo;

    /// Returns the permitted and usable tools of the server, within bounds.
    ///
    /// # Errors
    /// A message for the operator.
    fn list<'a>(&'a self, config: &'a ServerConfig) -> BoxFuture<'a, Result<Definitions, String>>;

    /// Calls a tool. `idle` is the idle timeout where the server reports progress; the deadline of the
    /// context applies as well.
    ///
    /// # Errors
    /// See [`ToolFailure`](rockbot_tools::ToolFailure), which reports whether the tool may have run; or the
    /// session has expired, and the tool did not run.
    ///
    /// # Cancellation
    /// The call is cancelled at the server, also when the future is dropped.
    fn call<'a>(
        &'a self,
        tool: &'a McpToolDefinition,
        arguments: &'a Value,
        context: &'a ToolContext,
        idle: Duration,
    ) -> BoxFuture<'a, Result<ToolResult, CallError>>;

    /// Returns a page of the resources, or of the resource templates, within 20 s.
    ///
    /// # Errors
    /// See [`ContentFailure`]. Default: always.
    fn resources(
        &self,
        _templates: bool,
        _after: Option<String>,
    ) -> BoxFuture<'_, Result<ResourceList, ContentFailure>> {
        Box::pin(ready(Err(ContentFailure::not_offered("resources"))))
    }

    /// Returns the content of a resource, within 20 s.
    ///
    /// # Errors
    /// As for [`Self::resources`].
    fn read_resource<'a>(
        &'a self,
        _uri: &'a str,
    ) -> BoxFuture<'a, Result<BoundedContent, ContentFailure>> {
        Box::pin(ready(Err(ContentFailure::not_offered("resources"))))
    }

    /// Returns the messages of a prompt, within 20 s.
    ///
    /// # Errors
    /// As for [`Self::resources`].
    fn prompt<'a>(
        &'a self,
        _name: &'a str,
        _arguments: BTreeMap<String, String>,
    ) -> BoxFuture<'a, Result<Vec<McpPromptMessage>, ContentFailure>> {
        Box::pin(ready(Err(ContentFailure::not_offered("prompts"))))
    }
}

/// A server's information about itself. Untrusted text.
#[derive(Debug, Clone, Default)]
pub(crate) struct ServerInfo {
    pub(crate) display_name: Option<String>,
    pub(crate) instructions: Option<String>,
    /// The protocol revision, or the version of an OpenAPI document.
    pub(crate) protocol_version: String,
}
