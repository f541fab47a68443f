//! The HTTP with SSE transport, revision 2024-11-05.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use futures_util::stream;
use reqwest::Url;
use rmcp::transport::Transport;
use rockbot_mcp_bridge::transport::{ConnectError, FailureClass, call_failure_class, sse};
use rockbot_testkit::fixture::within_timeout;
use serde_json::{Value, json};
use tokio::sync::{Mutex, mpsc};

use super::hostile::HostileServer;
use super::http::serve;
use super::{Session, assert_fails_only_its_call, call, call_within, open, server};
use crate::fixture::{bridge_to_loopback, call_text};

/// A hostile server over SSE, with one session at a time.
#[derive(Clone)]
struct Server {
    hostile: HostileServer,
    /// The sender of the open stream.
    stream: Arc<Mutex<Option<mpsc::Sender<Bytes>>>>,
}

impl Server {
    async fn start() -> (Self, String) {
        let server = Self { hostile: HostileServer::new(), stream: Arc::default() };
        let router = Router::new()
            .route("/sse", get(open_stream))
            .route("/messages", post(receive))
            .with_state(server.clone());
        (server, serve(router).await)
    }

    /// Sends text on the stream.
    async fn send(&self, text: String) {
        let stream = self.stream.lock().await.clone().unwrap();
        // The client may be gone.
        let _ = stream.send(text.into()).await;
    }

    /// Ends the stream.
    async fn end_stream(&self) {
        *self.stream.lock().await = None;
    }

    /// Completes when the client has closed the stream.
    async fn stream_closed(&self) {
        let stream = self.stream.lock().await.clone().unwrap();
        stream.closed().await;
    }
}

async fn session(url: &str) -> Session {
    open(sse::connect(&server(&format!("{url}/sse"))).await.unwrap()).await.unwrap()
}

async fn open_stream(State(server): State<Server>, RawQuery(query): RawQuery) -> Response {
    let (stream, text) = mpsc::channel(8);
    *server.stream.lock().await = Some(stream);
    let first = query.map_or_else(
        || "event: endpoint\ndata: /messages?id=1\n\n".to_owned(),
        |query| first_event(&query),
    );
    server.send(first).await;
    let body = stream::unfold(text, |mut text| async {
        Some((Ok::<_, std::io::Error>(text.recv().await?), text))
    });
    ([("content-type", "text/event-stream")], Body::from_stream(body)).into_response()
}

/// Returns the first event that the client requests in the query.
fn first_event(query: &str) -> String {
    let url = Url::parse(&format!("http://server/?{query}")).unwrap();
    url.query_pairs().find(|(name, _)| name == "first").unwrap().1.into_owned()
}

async fn receive(State(server): State<Server>, body: Bytes) -> StatusCode {
    let message: Value = serde_json::from_slice(&body).unwrap();
    match message["params"]["name"].as_str().unwrap_or_default() {
        "rejected" => return StatusCode::NOT_FOUND,
        "half-event" => {
            server.send("data: {\"jsonrpc\"".to_owned()).await;
            server.end_stream().await;
            return StatusCode::ACCEPTED;
        }
        _ => {}
    }
    tokio::spawn(async move {
        if let Some(reply) = server.hostile.reply(&message).await {
            server.send(format!("event: message\ndata: {reply}\n\n")).await;
        }
    });
    StatusCode::ACCEPTED
}

#[tokio::test]
async fn url_without_type_falls_back_to_this_transport() {
    let (_server, url) = Server::start().await;
    let bridge = bridge_to_loopback(json!({"old": {"url": format!("{url}/sse")}})).await;
    assert_eq!(call_text(&bridge, "old", "good", json!({})).await, "good");
    bridge.stop().await;
}

#[tokio::test]
async fn bad_event_fails_only_its_call() {
    let (server, url) = Server::start().await;
    let session = session(&url).await;
    for (tool, expected) in [
        ("garbage", "not valid JSON-RPC"),
        ("half", "not valid JSON-RPC"),
        ("huge", "exceeds 16777216 bytes"),
    ] {
        assert_fails_only_its_call(&session, &server.hostile, tool, expected).await;
    }
}

#[tokio::test]
async fn endless_line_fails_call_early_and_is_skipped() {
    let (server, url) = Server::start().await;
    let session = session(&url).await;
    let endless = tokio::spawn({
        let server = server.clone();
        async move {
            server.hostile.wait_called().await;
            // `initialize` was request 0.
            server.send("data: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":\"".to_owned()).await;
            for _ in 0..40 {
                server.send("x".repeat(1 << 20)).await;
            }
            server.send("\n\n".to_owned()).await;
        }
    });
    let error =
        within_timeout("the call", call(session.peer(), "wait")).await.expect_err("too large");
    assert!(error.to_string().contains("exceeds 16777216 bytes"), "{error}");
    within_timeout("the skipped line", endless).await.unwrap();
    assert_eq!(
        within_timeout("the next call", call(session.peer(), "good")).await.unwrap(),
        "good"
    );
}

#[tokio::test]
async fn reply_with_unknown_id_is_ignored() {
    let (_, url) = Server::start().await;
    let session = session(&url).await;
    let short = std::time::Duration::from_millis(100);
    call_within(session.peer(), "wrong-id", short).await.expect_err("no reply");
    assert_eq!(
        within_timeout("the next call", call(session.peer(), "good")).await.unwrap(),
        "good"
    );
}

#[tokio::test]
async fn rejected_message_fails_only_its_call() {
    let (_, url) = Server::start().await;
    let session = session(&url).await;
    let error =
        within_timeout("rejected", call(session.peer(), "rejected")).await.expect_err("404");
    assert_eq!(call_failure_class(&error), Some(FailureClass::Gone));
    assert_eq!(
        within_timeout("the next call", call(session.peer(), "good")).await.unwrap(),
        "good"
    );
}

#[tokio::test]
async fn session_ends_with_its_stream() {
    let (_, url) = Server::start().await;
    let session = session(&url).await;
    within_timeout("the call", call(session.peer(), "half-event"))
        .await
        .expect_err("the stream ended");
    within_timeout("the session end", session.waiting()).await.unwrap();
}

#[tokio::test]
async fn closing_transport_ends_the_stream() {
    let (server, url) = Server::start().await;
    let mut transport = sse::connect(&super::server(&format!("{url}/sse"))).await.unwrap();
    transport.close().await.unwrap();
    within_timeout("the closed stream", server.stream_closed()).await;
    assert!(transport.receive().await.is_none());
}

#[tokio::test]
async fn dropping_transport_ends_the_stream() {
    let (server, url) = Server::start().await;
    drop(sse::connect(&super::server(&format!("{url}/sse"))).await.unwrap());
    within_timeout("the closed stream", server.stream_closed()).await;
}

#[tokio::test]
async fn messages_are_posted_to_the_same_origin_only() {
    let (_, url) = Server::start().await;
    for (first, expected) in [
        ("event: endpoint\ndata: http://127.0.0.1:9/messages\n\n", FailureClass::Redirect),
        ("event: endpoint\ndata: http://169.254.169.254/\n\n", FailureClass::Redirect),
        ("event: endpoint\ndata: //evil.example/messages\n\n", FailureClass::Redirect),
        ("event: endpoint\ndata: file:///etc/passwd\n\n", FailureClass::Redirect),
        ("event: endpoint\ndata: http://\n\n", FailureClass::Malformed),
        ("event: message\ndata: /messages\n\n", FailureClass::Malformed),
        ("data: /messages\n\n", FailureClass::Malformed),
    ] {
        let mut server = server(&format!("{url}/sse"));
        server.url.query_pairs_mut().append_pair("first", first);
        let error = within_timeout(first, sse::connect(&server)).await.err().expect(first);
        assert_eq!(error.class(), expected, "{first}: {error}");
    }
}

#[tokio::test]
async fn failed_stream_keeps_its_class() {
    async fn html() -> Response {
        ([("content-type", "text/html")], "<h1>hello</h1>").into_response()
    }
    async fn empty() -> Response {
        ([("content-type", "text/event-stream")], "").into_response()
    }
    async fn unauthorized() -> Response {
        (StatusCode::UNAUTHORIZED, [("www-authenticate", "Bearer")]).into_response()
    }
    let router = Router::new().route("/html", get(html)).route("/empty", get(empty));
    let url = serve(router.route("/401", get(unauthorized))).await;
    for (path, expected) in [
        ("/html", FailureClass::Malformed),
        ("/empty", FailureClass::Malformed),
        ("/401", FailureClass::Unauthorized),
        ("/404", FailureClass::Gone),
    ] {
        let session = within_timeout(path, sse::connect(&server(&format!("{url}{path}")))).await;
        let error = session.err().expect(path);
        assert_eq!(error.class(), expected, "{path}: {error}");
        if let ConnectError::Unauthorized { challenge } = error {
            assert_eq!(challenge.as_deref(), Some("Bearer"));
        }
    }
}
