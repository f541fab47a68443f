//! Tools that run in another process, for the caller's registry.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use rockbot_bus::Requester;
use rockbot_contracts::{
    ContentBlock, Envelope, RoutingKey, ToolInvokeRequest, ToolInvokeResponse, ToolRegistration,
};
use rockbot_tools::{context::ToolContext, failure::ToolFailure, result::ToolResult, tool::Tool};
use serde_json::Value;

use crate::remote_call::{InputSink, RemoteCall, unreadable_reply};

/// Value of the provider header for tools of MCP servers.
const MCP: &str = "mcp";

/// A tool that a handler runs, called over the bus.
pub struct RemoteTool {
    registration: ToolRegistration,
    requester: Arc<Requester>,
    key: RoutingKey,
    /// MCP server of the tool, and the tool's name there.
    mcp_tool: Option<(Box<str>, Box<str>)>,
    input: Option<InputSink>,
}

impl RemoteTool {
    /// Creates the tool that `registration` describes, which the consumers of `key` run.
    #[must_use]
    pub fn new(registration: ToolRegistration, requester: Arc<Requester>, key: RoutingKey) -> Self {
        Self { registration, requester, key, mcp_tool: None, input: None }
    }

    /// Makes it the tool `tool` of the MCP server `server`.
    #[must_use]
    pub fn with_mcp_server(mut self, server: &str, tool: &str) -> Self {
        self.mcp_tool = Some((server.into(), tool.into()));
        self
    }

    /// Sets the receiver of its requests for input from the user of the call.
    #[must_use]
    pub fn with_input(mut self, input: InputSink) -> Self {
        self.input = Some(input);
        self
    }

    #[expect(clippy::expect_used, reason = "a JSON value always serializes")]
    fn request(&self, arguments: &Value, context: &ToolContext) -> Envelope {
        let (server, tool) = match &self.mcp_tool {
            Some((server, tool)) => (Some(server), tool.as_ref()),
            None => (None, self.registration.name.as_str()),
        };
        let mut request = Envelope::from_payload(&ToolInvokeRequest {
            tool_call_id: context.tool_call_id.clone(),
            tool_name: tool.to_owned(),
            arguments: serde_json::to_string(arguments).expect("a JSON value serializes"),
            session_id: context.session_id.clone(),
        });
        if let Some(server) = server {
            request.tool_provider = Some(MCP.into());
            request.mcp_server = Some(server.as_ref().into());
        }
        request
    }

    async fn execute(
        &self,
        arguments: Value,
        context: &ToolContext,
    ) -> Result<ToolResult, ToolFailure> {
        let call = RemoteCall {
            requester: &self.requester,
            key: &self.key,
            name: &self.registration.name,
            repeatable: self.registration.hints.may_retry(),
            input: self.input.clone(),
        };
        let reply = call.execute(self.request(&arguments, context), context);
        // Already serialized into the request; dropped to save memory while the call waits.
        drop(arguments);
        let (response, ran_on): (ToolInvokeResponse, _) = reply.await?;
        if response.tool_call_id != context.tool_call_id {
            return Err(unreadable_reply(&context.tool_call_id, &"it belongs to another call"));
        }
        let content = match response.blocks {
            blocks if blocks.is_empty() => vec![ContentBlock::Text { text: response.content }],
            blocks => blocks,
        };
        Ok(ToolResult {
            content,
            details: response.details,
            child_loop_id: response.child_loop_id,
            child_spending: None,
            is_error: response.is_error,
            is_provisional: false,
            ran_on,
            stages: response.stages,
        })
    }
}

impl Tool for RemoteTool {
    fn registration(&self) -> &ToolRegistration {
        &self.registration
    }

    fn is_announced(&self) -> bool {
        true
    }

    fn invoke_key(&self) -> Option<&RoutingKey> {
        Some(&self.key)
    }

    fn call<'a>(
        &'a self,
        arguments: Value,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolResult, ToolFailure>> {
        Box::pin(self.execute(arguments, context))
    }

    fn enforces_own_deadline(&self) -> bool {
        true
    }
}

impl std::fmt::Debug for RemoteTool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RemoteTool")
            .field("registration", &self.registration)
            .field("key", &self.key)
            .field("mcp_tool", &self.mcp_tool)
            .finish_non_exhaustive()
    }
}
