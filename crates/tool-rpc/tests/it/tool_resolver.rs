//! Resolution of MCP servers' tools by the server's and the tool's own name.

use std::{sync::Arc, time::Duration};

use rockbot_bus::{Request, Requester};
use rockbot_contracts::{
    Envelope, Executed, InstanceId, Message, SessionId, ToolCallId, ToolError, ToolErrorCode,
    ToolInvokeRequest, ToolInvokeResponse, json::Limits, topology::tool_invoke_mcp,
};
use rockbot_testkit::fixture::{BusFixture, reply_address};
use rockbot_tool_rpc::{InvokeOptions, RemoteTool, ToolInvokeHandler, invoke::InvokeWorkers};
use rockbot_tools::{Tool, ToolContext, ToolFailure, ToolResult};
use serde_json::json;

use crate::fleet::{handler_at, registration, registry_of, tool};

fn fixed_tool(name: &str, text: &'static str) -> Arc<dyn Tool> {
    tool(registration(name), move |_, _| std::future::ready(Ok(ToolResult::text(text))))
}

/// A bridge with the tool `read` of the server `Files` under an unrelated name, and with tools whose names
/// resemble that tool's.
struct Bridge {
    _handler: Arc<ToolInvokeHandler>,
    _workers: InvokeWorkers,
    requester: Arc<Requester>,
}

impl Bridge {
    async fn start(options: InvokeOptions) -> Self {
        let bus = BusFixture::memory();
        let tools = vec![
            fixed_tool("x1", "of Files"),
            fixed_tool("read", "plain"),
            fixed_tool("Files__read", "no"),
        ];
        let (handler, workers) = handler_at(
            &tool_invoke_mcp(),
            &bus.remote,
            registry_of(tools),
            &InstanceId::generate(),
            options,
        )
        .await;
        let requester = Arc::new(Requester::new(bus.local.clone(), reply_address("agent", "one")));
        Self { _handler: handler, _workers: workers, requester }
    }

    async fn with_files_server() -> Self {
        let resolver = |server: &str, tool: &str| {
            let is_read = server.eq_ignore_ascii_case("files") && tool == "read";
            is_read.then(|| "x1".to_owned())
        };
        Self::start(InvokeOptions::new(4).with_tool_resolver(Arc::new(resolver))).await
    }

    async fn call(&self, server: &str, tool: &str) -> Result<ToolResult, ToolFailure> {
        let remote =
            RemoteTool::new(registration("a_name"), self.requester.clone(), tool_invoke_mcp())
                .with_mcp_server(server, tool);
        let agent = self.requester.address().agent().clone();
        let context = ToolContext::new("a_name", SessionId::generate(), agent);
        remote.call(json!({}), &context).await
    }
}

#[track_caller]
fn assert_not_found(result: Result<ToolResult, ToolFailure>) {
    let failure = result.expect_err("an unknown tool");
    assert_eq!(failure.code(), ToolErrorCode::ToolNotFound, "{failure}");
    assert_eq!(failure.executed(), Executed::No);
}

#[tokio::test]
async fn tool_is_found_by_case_insensitive_server_name() {
    let bridge = Bridge::with_files_server().await;
    for server in ["Files", "files", "FILES"] {
        assert_eq!(bridge.call(server, "read").await.expect("a result").to_text(), "of Files");
    }
}

#[tokio::test]
async fn unknown_server_or_tool_is_not_found() {
    let bridge = Bridge::with_files_server().await;
    for (server, tool) in
        [("other", "read"), ("Files", "Read"), ("Files", "x1"), ("", "read"), ("F", "Files__read")]
    {
        assert_not_found(bridge.call(server, tool).await);
    }
}

#[tokio::test]
async fn handler_without_resolver_finds_no_mcp_tool() {
    let handler = Bridge::start(InvokeOptions::new(4)).await;
    assert_not_found(handler.call("Files", "read").await);
}

#[tokio::test]
async fn reply_contains_requested_tool_name() {
    let bridge = Bridge::with_files_server().await;
    for (server, found) in [("Files", true), ("other", false)] {
        let request = ToolInvokeRequest {
            tool_call_id: ToolCallId::generate(),
            tool_name: "read".to_owned(),
            arguments: "{}".to_owned(),
            session_id: SessionId::generate(),
        };
        let mut envelope =
            Envelope::from_payload(&request).with_correlation_id(request.tool_call_id.as_str());
        envelope.mcp_server = Some(server.into());
        let request = Request {
            key: tool_invoke_mcp(),
            envelope,
            timeout: Duration::from_secs(10),
            grace: Duration::ZERO,
            on_interim: None,
            retry: false,
            abandoned: None,
        };
        let reply = bridge.requester.request(request).await.expect("a reply");
        let name = if found {
            let response: ToolInvokeResponse = reply.decode(Limits::default()).expect("a result");
            response.tool_name
        } else {
            assert_eq!(reply.message_type(), ToolError::TYPE);
            let error: ToolError = reply.decode(Limits::default()).expect("an error");
            error.tool_name
        };
        assert_eq!(name, "read");
    }
}
