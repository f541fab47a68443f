//! Tools between the start of a session and their publication.

use axum::{
    Json, Router,
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::post,
};
use rockbot_contracts::{ToolErrorCode, mcp::McpServerDetailsRequest};
use rockbot_tool_rpc::mcp::McpGateway;
use serde_json::{Value, json};

use crate::{
    fixture::call,
    remote::http::serve,
    startup::{program, settled},
};

#[tokio::test]
async fn unregistered_tool_is_not_called_without_layers() {
    let (bridge, status) = settled(program("plain")).await;
    assert!(status.ready, "{status:?}");
    assert!(bridge.registry_name("clock", "unusable").is_none());
    let failure = call(&bridge, "clock", "unusable", json!({})).await.unwrap_err();
    assert_eq!(failure.code(), ToolErrorCode::ToolNotFound, "{failure}");
    bridge.stop().await;
}

/// Many tools, so that publishing them takes a while.
const MANY: usize = 400;

async fn many_tools(Json(message): Json<Value>) -> Response {
    let result = match message["method"].as_str() {
        Some("initialize") => json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "many", "version": "1"},
        }),
        Some("tools/list") => {
            let tool =
                |number| json!({"name": format!("t{number}"), "inputSchema": {"type": "object"}});
            json!({"tools": (0..MANY).map(tool).collect::<Vec<_>>()})
        }
        _ if message["id"].is_null() => return StatusCode::ACCEPTED.into_response(),
        _ => return StatusCode::BAD_REQUEST.into_response(),
    };
    Json(json!({"jsonrpc": "2.0", "id": message["id"], "result": result})).into_response()
}

/// On several threads: publishing runs in parallel to the caller.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settled_server_has_details_every_time() {
    let url = serve(Router::new().route("/mcp", post(many_tools))).await + "/mcp";
    for round in 0..50 {
        let (bridge, status) = settled(json!({"url": url})).await;
        let request = McpServerDetailsRequest {
            server_name: "clock".to_owned(),
            tool_name: None,
            after: None,
        };
        let details = bridge.details(request).await;
        let tools = details.map(|details| details.tools.len());
        assert_eq!(tools.ok(), Some(MANY), "round {round}: {status:?}");
        bridge.stop().await;
    }
}
