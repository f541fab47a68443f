//! A call of a tool of an MCP server finds it by the server and the tool's own name, and in no
//! other way.

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

fn says(name: &str, text: &'static str) -> Arc<dyn Tool> {
    tool(registration(name), move |_, _| std::future::ready(Ok(ToolResult::text(text))))
}

/// A bridge with the tool `read` of the server `Files` under a name that gives neither away, and
/// with a tool whose name is what a server's tool is called.
struct Bridge {
    _handler: Arc<ToolInvokeHandler>,
    _workers: InvokeWorkers,
    requester: Arc<Requester>,
}

impl Bridge {
    async fn start(options: InvokeOptions) -> Self {
        let bed = BusFixture::memory();
        let tools = vec![says("x1", "of Files"), says("read", "plain"), says("Files__read", "no")];
        let (handler, workers) = handler_at(
            &tool_invoke_mcp(),
            &bed.remote,
            registry_of(tools),
            &InstanceId::generate(),
            options,
        )
        .await;
        let requester = Arc::new(Requester::new(bed.local.clone(), reply_address("agent", "one")));
        Self { _handler: handler, _workers: workers, requester }
    }

    async fn addressed() -> Self {
        let addressing = |server: &str, tool: &str| {
            let is_there = server.eq_ignore_ascii_case("files") && tool == "read";
            is_there.then(|| "x1".to_owned())
        };
        Self::start(InvokeOptions::new(4).with_tool_resolver(Arc::new(addressing))).await
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
fn assert_not_found(ended: Result<ToolResult, ToolFailure>) {
    let failure = ended.expect_err("no such tool");
    assert_eq!(failure.code(), ToolErrorCode::ToolNotFound, "{failure}");
    assert_eq!(failure.executed(), Executed::No);
}

#[tokio::test]
async fn a_tool_is_found_by_its_server_in_any_case_and_its_own_name() {
    let bridge = Bridge::addressed().await;
    for server in ["Files", "files", "FILES"] {
        assert_eq!(bridge.call(server, "read").await.expect("there").to_text(), "of Files");
    }
}

#[tokio::test]
async fn no_name_stands_for_a_tool_of_a_server_that_is_not_here() {
    let bridge = Bridge::addressed().await;
    for (server, tool) in
        [("other", "read"), ("Files", "Read"), ("Files", "x1"), ("", "read"), ("F", "Files__read")]
    {
        assert_not_found(bridge.call(server, tool).await);
    }
}

#[tokio::test]
async fn a_handler_without_servers_serves_no_call_for_one() {
    let handler = Bridge::start(InvokeOptions::new(4)).await;
    assert_not_found(handler.call("Files", "read").await);
}

#[tokio::test]
async fn an_answer_bears_the_name_that_was_asked_for() {
    let bridge = Bridge::addressed().await;
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
        let question = Request {
            key: tool_invoke_mcp(),
            envelope,
            timeout: Duration::from_secs(10),
            grace: Duration::ZERO,
            on_interim: None,
            retry: false,
            abandoned: None,
        };
        let answer = bridge.requester.request(question).await.expect("an answer");
        let name = if found {
            let response: ToolInvokeResponse = answer.decode(Limits::default()).expect("a result");
            response.tool_name
        } else {
            assert_eq!(answer.message_type(), ToolError::TYPE);
            let error: ToolError = answer.decode(Limits::default()).expect("an error");
            error.tool_name
        };
        assert_eq!(name, "read");
    }
}
