//! Who comes in over HTTP, and who does not.

use reqwest::{Client, RequestBuilder, StatusCode, header::HOST};
use rockbot_testkit::fixture::within_timeout;
use serde_json::{Value, json};

use crate::program::HttpProgram;

async fn status(request: RequestBuilder) -> StatusCode {
    within_timeout("an answer", request.send()).await.unwrap().status()
}

fn client() -> Client {
    rockbot_service::tls::install_tls_provider();
    Client::builder().no_proxy().build().unwrap()
}

/// A whole conversation in one request: the server keeps no sessions.
fn list(url: &str) -> RequestBuilder {
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}});
    client()
        .post(url)
        .header("accept", "application/json, text/event-stream")
        .header("mcp-protocol-version", "2025-06-18")
        .json(&body)
}

#[tokio::test]
async fn any_request_stands_alone_so_any_replica_can_answer_it() {
    let (first, second) = tokio::join!(HttpProgram::start(&[]), HttpProgram::start(&[]));
    for program in [first, second] {
        let response = within_timeout("an answer", list(&program.mcp()).send()).await.unwrap();
        assert!(!response.headers().contains_key("mcp-session-id"));
        let answer: Value = response.json().await.unwrap();
        assert_eq!(answer["result"]["tools"].as_array().unwrap().len(), 6, "{answer}");
    }
}

#[tokio::test]
async fn health_is_told_to_anybody_and_under_any_name() {
    let program = HttpProgram::start(&[]).await;
    let request = client().get(format!("{}/healthz", program.url)).header(HOST, "10.0.0.7");
    assert_eq!(status(request).await, StatusCode::OK);
}

#[tokio::test]
async fn a_name_that_is_not_the_servers_is_refused() {
    let program = HttpProgram::start(&[]).await;
    assert_eq!(status(list(&program.mcp())).await, StatusCode::OK);
    let rebound = list(&program.mcp()).header(HOST, "evil.example");
    assert_eq!(status(rebound).await, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn web_pages_come_in_only_where_they_are_named() {
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
async fn a_request_that_is_too_large_is_refused() {
    let program = HttpProgram::start(&[]).await;
    let large = list(&program.mcp()).body(" ".repeat(64 * 1024 + 1));
    assert_eq!(status(large).await, StatusCode::PAYLOAD_TOO_LARGE);
}

#[tokio::test]
async fn garbage_ends_nothing_but_itself() {
    let program = HttpProgram::start(&[]).await;
    for body in ["", "{", "[]", "{\"jsonrpc\":\"2.0\"}", "\u{0}"] {
        let refused = status(list(&program.mcp()).body(body)).await;
        assert!(refused.is_client_error(), "{body:?}: {refused}");
    }
    assert_eq!(status(list(&program.mcp())).await, StatusCode::OK);
}
