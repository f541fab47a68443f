//! Separation of clients over HTTP.

use rmcp::ClientLifecycleMode;
use rockbot_mcp_server::HttpOptions;
use serde_json::json;

use crate::{
    fixture::{Handler, Http},
    raw_http::{RawRequest, RawResponse},
};

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{
    "protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#;

/// Sends a message of revision 2025-06-18.
async fn post(http: &Http, client: Option<&str>, session: Option<&str>, body: &str) -> RawResponse {
    let mut request = RawRequest::post(&http.url, body.to_owned());
    if let Some(client) = client {
        request = request.header("x-client", client);
    }
    if let Some(session) = session {
        request = request.header("mcp-session-id", session);
    }
    request.send().await
}

#[tokio::test]
async fn request_without_a_client_is_refused() {
    let handler = Handler::start().await;
    let fleet = handler.fleet().await;
    let http = fleet.http(HttpOptions::default()).await;
    assert_eq!(post(&http, None, None, INITIALIZE).await.status, 401);
}

#[tokio::test]
async fn session_of_another_client_does_not_exist() {
    let handler = Handler::start().await;
    let fleet = handler.fleet().await;
    let http = fleet.http(HttpOptions::default()).await;
    let opened = post(&http, Some("owner"), None, INITIALIZE).await;
    assert_eq!(opened.status, 200);
    let session = opened.header("mcp-session-id").unwrap().to_owned();
    let list = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"}).to_string();
    assert_eq!(post(&http, Some("other"), Some(&session), &list).await.status, 404);
    let listed = post(&http, Some("owner"), Some(&session), &list).await;
    assert_eq!(listed.status, 200);
    assert!(listed.body.contains("\"echo\""));
}

#[tokio::test]
async fn sessions_of_a_client_are_limited() {
    let handler = Handler::start().await;
    let fleet = handler.fleet().await;
    let http = fleet.http(HttpOptions { sessions: 2, ..HttpOptions::default() }).await;
    for _ in 0..2 {
        assert_eq!(post(&http, Some("a"), None, INITIALIZE).await.status, 200);
    }
    let refused = post(&http, Some("a"), None, INITIALIZE).await;
    assert_eq!(refused.status, 503);
    assert_eq!(refused.header("retry-after"), Some("10"));
    assert!(refused.body.contains("too many sessions"), "{}", refused.body);
    assert_eq!(post(&http, Some("b"), None, INITIALIZE).await.status, 200);
}

#[tokio::test]
async fn oversized_request_is_refused() {
    let handler = Handler::start().await;
    let fleet = handler.fleet().await;
    let http = fleet.http(HttpOptions::default()).await;
    let session = http.connect("a", ClientLifecycleMode::Initialize).await;
    assert!(!session.tool_names().await.is_empty());
    let large = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list",
        "params": {"cursor": "x".repeat(3 * 1024 * 1024)}});
    assert_eq!(post(&http, Some("a"), None, &large.to_string()).await.status, 413);
}
