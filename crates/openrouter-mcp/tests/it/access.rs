//! HTTP access control and request validation.

use reqwest::{Client, RequestBuilder, StatusCode, header::HOST};
use rockbot_testkit::fixture::within_timeout;
use serde_json::{Value, json};

use crate::program::HttpProgram;

async fn status(request: RequestBuilder) -> StatusCode {
    within_timeout("the response", request.send()).await.unwrap().status()
}

#[expect(clippy::disallowed_methods, reason = "it calls the server under test")]
fn client() -> Client {
    rockbot_service::tls::install_tls_provider();
    Client::builder().no_proxy().build().unwrap()
}

/// Returns a complete request; no session is needed.
fn list(url: &str) -> RequestBuilder {
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}});
    client()
        .post(url)
        .header("accept", "application/json, text/event-stream")
        .header("mcp-protocol-version", "2025-06-18")
        .json(&body)
}

#[tokio::test]
async fn request_needs_no_session() {
    let (first, second) = tokio::join!(HttpProgram::start(&[]), HttpProgram::start(&[]));
    for program in [first, second] {
        let response = within_timeout("the response", list(&program.mcp()).send()).await.unwrap();
        assert!(!response.headers().contains_key("mcp-session-id"));
        let body: Value = response.json().await.unwrap();
        assert_eq!(body["result"]["tools"].as_array().unwrap().len(), 6, "{body}");
    }
}

#[tokio::test]
async fn health_check_accepts_any_host() {
    let program = HttpProgram::start(&[]).await;
    let request = client().get(format!("{}/healthz", program.url)).header(HOST, "10.0.0.7");
    assert_eq!(status(request).await, StatusCode::OK);
}

#[tokio::test]
async fn unknown_host_is_rejected() {
    let program = HttpProgram::start(&[]).await;
    assert_eq!(status(list(&program.mcp())).await, StatusCode::OK);
    let rebound = list(&program.mcp()).header(HOST, "evil.example");
    assert_eq!(status(rebound).await, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn origin_must_be_allowed() {
    let program = HttpProgram::start(&[]).await;
    let page = |origin: &str| list(&program.mcp()).header("origin", origin.to_owned());
    assert_eq!(status(page("http://localhost:3000")).await, StatusCode::FORBIDDEN);

    let settings = [("ROCKBOT_SERVER__ALLOWED_ORIGINS", "[\"http://localhost:*\"]")];
    let program = HttpProgram::start(&settings).await;
    let page = |origin: &str| list(&program.mcp()).header("origin", origin.to_owned());
    assert_eq!(status(page("http://localhost:3000")).await, StatusCode::OK);
    assert_eq!(status(page("https://evil.example")).await, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn oversized_request_is_rejected() {
    let program = HttpProgram::start(&[]).await;
    let large = list(&program.mcp()).body(" ".repeat(64 * 1024 + 1));
    assert_eq!(status(large).await, StatusCode::PAYLOAD_TOO_LARGE);
}

#[tokio::test]
async fn malformed_request_does_not_affect_others() {
    let program = HttpProgram::start(&[]).await;
    for body in ["", "{", "[]", "{\"jsonrpc\":\"2.0\"}", "\u{0}"] {
        let status_code = status(list(&program.mcp()).body(body)).await;
        assert!(status_code.is_client_error(), "{body:?}: {status_code}");
    }
    assert_eq!(status(list(&program.mcp())).await, StatusCode::OK);
}
