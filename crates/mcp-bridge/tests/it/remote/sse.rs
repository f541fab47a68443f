//! HTTP with SSE, as of 2024.

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
use serde_json::Value;
use tokio::sync::{Mutex, mpsc};

use super::hostile::Hostile;
use super::http::serve;
use super::{Session, call, call_within, ends_only_its_own_call, open, server};

/// A server of ours, with room for one session.
#[derive(Clone)]
struct Server {
    hostile: Hostile,
    /// Where the open stream takes its text from.
    stream: Arc<Mutex<Option<mpsc::Sender<Bytes>>>>,
}

impl Server {
    async fn start() -> (Self, String) {
        let server = Self { hostile: Hostile::new(), stream: Arc::default() };
        let router = Router::new()
            .route("/sse", get(listen))
            .route("/messages", post(take))
            .with_state(server.clone());
        (server, serve(router).await)
    }

    async fn say(&self, text: String) {
        let stream = self.stream.lock().await.clone().unwrap();
        // The client may be gone.
        let _ = stream.send(text.into()).await;
    }

    /// The stream ends.
    async fn hang_up(&self) {
        *self.stream.lock().await = None;
    }

    /// Returns when the client has closed the stream.
    async fn left(&self) {
        let stream = self.stream.lock().await.clone().unwrap();
        stream.closed().await;
    }
}

async fn session(url: &str) -> Session {
    open(sse::connect(&server(&format!("{url}/sse"))).await.unwrap()).await.unwrap()
}

async fn listen(State(server): State<Server>, RawQuery(query): RawQuery) -> Response {
    let (stream, text) = mpsc::channel(8);
    *server.stream.lock().await = Some(stream);
    let first = query.map_or_else(
        || "event: endpoint\ndata: /messages?id=1\n\n".to_owned(),
        |query| first(&query),
    );
    server.say(first).await;
    let body = stream::unfold(text, |mut text| async {
        Some((Ok::<_, std::io::Error>(text.recv().await?), text))
    });
    ([("content-type", "text/event-stream")], Body::from_stream(body)).into_response()
}

fn first(query: &str) -> String {
    let url = Url::parse(&format!("http://server/?{query}")).unwrap();
    url.query_pairs().find(|(name, _)| name == "first").unwrap().1.into_owned()
}

async fn take(State(server): State<Server>, body: Bytes) -> StatusCode {
    let message: Value = serde_json::from_slice(&body).unwrap();
    match message["params"]["name"].as_str().unwrap_or_default() {
        "rejected" => return StatusCode::NOT_FOUND,
        "half-event" => {
            server.say("data: {\"jsonrpc\"".to_owned()).await;
            server.hang_up().await;
            return StatusCode::ACCEPTED;
        }
        _ => {}
    }
    tokio::spawn(async move {
        if let Some(answer) = server.hostile.answer(&message).await {
            server.say(format!("event: message\ndata: {answer}\n\n")).await;
        }
    });
    StatusCode::ACCEPTED
}

#[tokio::test]
async fn a_bad_answer_ends_only_its_own_call() {
    let (server, url) = Server::start().await;
    let session = session(&url).await;
    for (tool, expected) in [
        ("garbage", "not valid JSON-RPC"),
        ("half", "not valid JSON-RPC"),
        ("huge", "exceeds 16777216 bytes"),
    ] {
        ends_only_its_own_call(&session, &server.hostile, tool, expected).await;
    }
}

#[tokio::test]
async fn a_line_that_does_not_end_ends_its_call_at_once_and_is_read_away() {
    let (server, url) = Server::start().await;
    let session = session(&url).await;
    let endless = tokio::spawn({
        let server = server.clone();
        async move {
            server.hostile.waits().await;
            // `initialize` was request 0.
            server.say("data: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":\"".to_owned()).await;
            for _ in 0..40 {
                server.say("x".repeat(1 << 20)).await;
            }
            server.say("\n\n".to_owned()).await;
        }
    });
    let error =
        within_timeout("the call", call(session.peer(), "wait")).await.expect_err("too large");
    assert!(error.to_string().contains("exceeds 16777216 bytes"), "{error}");
    within_timeout("the rest", endless).await.unwrap();
    assert_eq!(within_timeout("after", call(session.peer(), "good")).await.unwrap(), "good");
}

#[tokio::test]
async fn an_answer_to_nobody_is_nobodys() {
    let (_, url) = Server::start().await;
    let session = session(&url).await;
    let short = std::time::Duration::from_millis(100);
    call_within(session.peer(), "wrong-id", short).await.expect_err("nobody answered");
    assert_eq!(within_timeout("after", call(session.peer(), "good")).await.unwrap(), "good");
}

#[tokio::test]
async fn a_message_that_is_rejected_fails_its_call_alone() {
    let (_, url) = Server::start().await;
    let session = session(&url).await;
    let error =
        within_timeout("rejected", call(session.peer(), "rejected")).await.expect_err("404");
    assert_eq!(call_failure_class(&error), Some(FailureClass::Gone));
    assert_eq!(within_timeout("after", call(session.peer(), "good")).await.unwrap(), "good");
}

#[tokio::test]
async fn the_end_of_the_stream_is_the_end_of_the_session() {
    let (_, url) = Server::start().await;
    let session = session(&url).await;
    within_timeout("the call", call(session.peer(), "half-event"))
        .await
        .expect_err("the stream ended");
    within_timeout("the end of the session", session.waiting()).await.unwrap();
}

#[tokio::test]
async fn closing_ends_the_stream() {
    let (server, url) = Server::start().await;
    let mut transport = sse::connect(&super::server(&format!("{url}/sse"))).await.unwrap();
    transport.close().await.unwrap();
    within_timeout("the server sees it", server.left()).await;
    assert!(transport.receive().await.is_none());
}

#[tokio::test]
async fn dropping_ends_the_stream() {
    let (server, url) = Server::start().await;
    drop(sse::connect(&super::server(&format!("{url}/sse"))).await.unwrap());
    within_timeout("the server sees it", server.left()).await;
}

#[tokio::test]
async fn messages_are_posted_to_the_server_itself_and_nowhere_else() {
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
async fn a_stream_that_is_none_says_why() {
    async fn html() -> Response {
        ([("content-type", "text/html")], "<h1>hello</h1>").into_response()
    }
    async fn nothing() -> Response {
        ([("content-type", "text/event-stream")], "").into_response()
    }
    async fn unauthorised() -> Response {
        (StatusCode::UNAUTHORIZED, [("www-authenticate", "Bearer")]).into_response()
    }
    let router = Router::new().route("/html", get(html)).route("/nothing", get(nothing));
    let url = serve(router.route("/401", get(unauthorised))).await;
    for (path, expected) in [
        ("/html", FailureClass::Malformed),
        ("/nothing", FailureClass::Malformed),
        ("/401", FailureClass::Unauthorized),
        ("/404", FailureClass::Gone),
    ] {
        let failed = within_timeout(path, sse::connect(&server(&format!("{url}{path}")))).await;
        let error = failed.err().expect(path);
        assert_eq!(error.class(), expected, "{path}: {error}");
        if let ConnectError::Unauthorized { challenge } = error {
            assert_eq!(challenge.as_deref(), Some("Bearer"));
        }
    }
}
