//! The near end of a tool call: a tool that runs somewhere else on the bus.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use rockbot_bus::Requester;
use rockbot_contracts::{
    ContentBlock, Envelope, RoutingKey, ToolInvokeRequest, ToolInvokeResponse, ToolRegistration,
};
use rockbot_tools::{context::ToolContext, failure::ToolFailure, result::ToolResult, tool::Tool};
use serde_json::Value;

use crate::remote_call::{RemoteCall, unreadable};

/// The provider of tools of MCP servers, as the header has it.
const MCP: &str = "mcp";

/// A tool that a handler runs, asked for over the bus.
#[derive(Debug)]
pub struct RemoteTool {
    registration: ToolRegistration,
    requester: Arc<Requester>,
    key: RoutingKey,
    /// The MCP server that has it, and its name there.
    of_server: Option<(Box<str>, Box<str>)>,
}

impl RemoteTool {
    /// The tool that `registration` describes, served by whoever consumes `key`.
    #[must_use]
    pub fn new(registration: ToolRegistration, requester: Arc<Requester>, key: RoutingKey) -> Self {
        Self { registration, requester, key, of_server: None }
    }

    /// The same as a tool of the MCP server `server`, which calls it `tool`.
    #[must_use]
    pub fn of_server(mut self, server: &str, tool: &str) -> Self {
        self.of_server = Some((server.into(), tool.into()));
        self
    }

    #[expect(clippy::expect_used, reason = "a JSON value always serializes")]
    fn question(&self, arguments: &Value, context: &ToolContext) -> Envelope {
        let (server, tool) = match &self.of_server {
            Some((server, tool)) => (Some(server), tool.as_ref()),
            None => (None, self.registration.name.as_str()),
        };
        let mut question = Envelope::from_payload(&ToolInvokeRequest {
            tool_call_id: context.tool_call_id.clone(),
            tool_name: tool.to_owned(),
            arguments: serde_json::to_string(arguments).expect("a JSON value serializes"),
            session_id: context.session_id.clone(),
        });
        if let Some(server) = server {
            question.tool_provider = Some(MCP.into());
            question.mcp_server = Some(server.as_ref().into());
        }
        question
    }

    async fn ask(
        &self,
        arguments: Value,
        context: &ToolContext,
    ) -> Result<ToolResult, ToolFailure> {
        let call = RemoteCall {
            requester: &self.requester,
            key: &self.key,
            name: &self.registration.name,
            repeatable: self.registration.hints.may_retry(),
        };
        let asked = call.ask(self.question(&arguments, context), context);
        // They are text by now.
        drop(arguments);
        let (response, ran_on): (ToolInvokeResponse, _) = asked.await?;
        if response.tool_call_id != context.tool_call_id {
            return Err(unreadable(&context.tool_call_id, &"it is of another call"));
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
            ran_on,
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

    fn call<'a>(
        &'a self,
        arguments: Value,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolResult, ToolFailure>> {
        Box::pin(self.ask(arguments, context))
    }

    fn keeps_deadline(&self) -> bool {
        true
    }
}
