//! The streamable HTTP transport.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use futures_util::{StreamExt, stream};
use reqwest::Url;
use rmcp::model::{CallToolRequestParams, ProtocolVersion};
use rmcp::service::{ClientInitializeError, ClientLifecycleMode, ClientServiceExt};
use rockbot_mcp_bridge::transport::{
    FailureClass, RemoteServer, call_failure_class, failure_class, http,
};
use rockbot_testkit::fixture::{assert_never, within_timeout};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time::interval;

use super::hostile::{HostileServer, TOO_LARGE, text};
use super::{
    Session, assert_fails_only_its_call, call, call_within, loopback, open, server, spawn_call,
};

/// Starts a hostile server over streamable HTTP and returns its URL.
async fn hostile() -> (HostileServer, String) {
    let hostile = HostileServer::new();
    let router = Router::new().route("/mcp", post(reply)).with_state(hostile.clone());
    (hostile, serve(router).await + "/mcp")
}

pub(crate) async fn serve(router: Router) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    format!("http://{address}")
}

async fn session(url: &str) -> Session {
    open(http::connect(&server(url)).await.unwrap()).await.unwrap()
}

async fn reply(State(hostile): State<HostileServer>, headers: HeaderMap, body: Bytes) -> Response {
    let message: Value = serde_json::from_slice(&body).unwrap();
    let id = &message["id"];
    let events = [("content-type", "text/event-stream")];
    let piece = || Bytes::from(vec![b'x'; 1 << 20]);
    match message["params"]["name"].as_str().unwrap_or_default() {
        "gone" => return StatusCode::NOT_FOUND.into_response(),
        "unknown-session" => {
            let error = json!({"code": -32000, "message": "Bad Request: No valid session ID"});
            let body = json!({"jsonrpc": "2.0", "error": error}).to_string();
            return (StatusCode::BAD_REQUEST, [("content-type", "application/json")], body)
                .into_response();
        }
        "broken" => {
            return (StatusCode::INTERNAL_SERVER_ERROR, "<h1>secret stack</h1>").into_response();
        }
        "page" => return ([("content-type", "text/html")], "<h1>hello</h1>").into_response(),
        "endless" => {
            let start = Bytes::from(format!(r#"data: {{"jsonrpc":"2.0","id":{id},"x":""#));
            let pieces = stream::once(async { start }).chain(stream::repeat_with(piece));
            let body = Body::from_stream(pieces.map(Ok::<_, std::io::Error>));
            return (events, body).into_response();
        }
        "endless-json" => {
            let body = Body::from_stream(stream::repeat_with(piece).map(Ok::<_, std::io::Error>));
            return ([("content-type", "application/json")], body).into_response();
        }
        "drip" => return (events, drip(text(id, "dripped"))).into_response(),
        "mute" => return (events, Body::from_stream(silence())).into_response(),
        "ends" => return (events, ": comment\n\n").into_response(),
        "cut-event" => return (events, format!("data: {}\n", text(id, "cut"))).into_response(),
        _ => {}
    }
    let Some(reply) = hostile.reply(&message).await else {
        return StatusCode::ACCEPTED.into_response();
    };
    let session = ("mcp-session-id", "one");
    assert!(message["method"] == "initialize" || headers["mcp-session-id"] == "one");
    if message["params"]["arguments"]["as"] == "json" {
        return ([("content-type", "application/json"), session], reply).into_response();
    }
    ([events[0], session], format!("data: {reply}\n\n")).into_response()
}

/// Returns a response after a second of comments.
fn drip(reply: String) -> Body {
    let pieces = stream::unfold((interval(Duration::from_millis(50)), 0), move |(mut tick, n)| {
        let piece = if n < 20 { ":\n".to_owned() } else { format!("data: {reply}\n\n") };
        async move {
            tick.tick().await;
            (n <= 20).then(|| (Ok::<_, std::io::Error>(Bytes::from(piece)), (tick, n + 1)))
        }
    });
    Body::from_stream(pieces)
}

fn silence() -> impl stream::Stream<Item = Result<Bytes, std::io::Error>> {
    stream::pending()
}

#[tokio::test]
async fn bad_event_fails_only_its_call() {
    let (hostile, url) = hostile().await;
    let session = session(&url).await;
    for (tool, expected) in [
        ("garbage", "not valid JSON-RPC"),
        ("half", "not valid JSON-RPC"),
        ("huge", "exceeds 16777216 bytes"),
        ("endless", "exceeds 16777216 bytes"),
        ("endless-json", "exceeds 16777216 bytes"),
        ("wrong-id", "not valid JSON-RPC"),
        ("ends", "ended before it was complete"),
        ("cut-event", "ended before it was complete"),
        ("page", "neither JSON nor an event stream"),
        ("broken", "HTTP 500"),
    ] {
        assert_fails_only_its_call(&session, &hostile, tool, expected).await;
    }
}

#[tokio::test]
async fn bad_json_fails_only_its_call() {
    let (hostile, url) = hostile().await;
    let session = session(&url).await;
    for (tool, expected) in [
        ("garbage", "not valid JSON-RPC"),
        ("half", "not valid JSON-RPC"),
        ("huge", "exceeds 16777216 bytes"),
        ("wrong-id", "not valid JSON-RPC"),
    ] {
        let concurrent = spawn_call(&session, "wait");
        hostile.wait_called().await;
        let json = json!({"as": "json"}).as_object().unwrap().clone();
        let params = CallToolRequestParams::new(tool).with_arguments(json);
        let error = within_timeout(tool, session.call_tool(params)).await.expect_err(tool);
        assert!(error.to_string().contains(expected), "{tool}: {error}");
        hostile.release_wait();
        assert_eq!(
            within_timeout("the concurrent call", concurrent).await.unwrap().unwrap(),
            "waited"
        );
    }
}

#[tokio::test]
async fn expired_session_fails_call_as_gone_and_ends() {
    for tool in ["gone", "unknown-session"] {
        let (_, url) = hostile().await;
        let session = session(&url).await;
        let error = within_timeout(tool, call(session.peer(), tool)).await.expect_err(tool);
        assert_eq!(call_failure_class(&error), Some(FailureClass::Gone), "{error}");
        within_timeout("the session end", session.waiting()).await.unwrap();
    }
}

#[tokio::test]
async fn cut_response_is_resumed_by_event_id() {
    async fn cut(hostile: State<HostileServer>, headers: HeaderMap, body: Bytes) -> Response {
        let message: Value = serde_json::from_slice(&body).unwrap();
        match message["method"].as_str() {
            Some("tools/call") => {
                let start = format!("id: {}\nretry: 10\ndata: \n\n", message["id"]);
                ([("content-type", "text/event-stream")], start).into_response()
            }
            _ => reply(hostile, headers, body).await,
        }
    }
    async fn rest(headers: HeaderMap) -> Response {
        let Some(last) = headers.get("last-event-id") else {
            return StatusCode::METHOD_NOT_ALLOWED.into_response();
        };
        let id = serde_json::from_slice(last.as_bytes()).unwrap();
        let rest = format!("data: {}\n\n", text(&id, "the rest"));
        ([("content-type", "text/event-stream")], rest).into_response()
    }
    let router = Router::new().route("/mcp", post(cut).get(rest)).with_state(HostileServer::new());
    let session = session(&(serve(router).await + "/mcp")).await;
    assert_eq!(within_timeout("the call", call(session.peer(), "any")).await.unwrap(), "the rest");
}

#[tokio::test]
async fn server_without_standing_stream_keeps_session() {
    for status in [StatusCode::NOT_FOUND, StatusCode::METHOD_NOT_ALLOWED] {
        let (requested, mut requests) = mpsc::channel(8);
        let reject = move || {
            let requested = requested.clone();
            async move {
                requested.send(()).await.unwrap();
                status
            }
        };
        let router = Router::new().route("/mcp", post(reply).get(reject));
        let url = serve(router.with_state(HostileServer::new())).await + "/mcp";
        let session = session(&url).await;
        within_timeout("the stream request", requests.recv()).await.unwrap();
        for _ in 0..3 {
            assert_eq!(
                within_timeout("a call", call(session.peer(), "good")).await.unwrap(),
                "good"
            );
        }
        assert_never("the session end", session.waiting()).await;
    }
}

#[tokio::test]
async fn comments_reset_the_idle_timeout() {
    let (_, url) = hostile().await;
    let server = RemoteServer::new(Url::parse(&url).unwrap(), Arc::new(loopback()));
    let server = RemoteServer { idle_timeout: Duration::from_millis(500), ..server };
    let session = open(http::connect(&server).await.unwrap()).await.unwrap();
    assert_eq!(within_timeout("drip", call(session.peer(), "drip")).await.unwrap(), "dripped");
    let error =
        within_timeout("mute", call(session.peer(), "mute")).await.expect_err("no response");
    assert!(error.to_string().contains("ended before it was complete"), "{error}");
}

#[tokio::test]
async fn cancelled_call_leaves_the_session() {
    let (hostile, url) = hostile().await;
    let session = session(&url).await;
    let short = Duration::from_millis(50);
    call_within(session.peer(), "wait", short).await.expect_err("no reply");
    assert_eq!(
        within_timeout("the next call", call(session.peer(), "good")).await.unwrap(),
        "good"
    );
    drop(hostile);
}

#[tokio::test]
async fn configured_headers_are_sent_and_not_logged() {
    async fn echo(headers: HeaderMap, body: Bytes) -> Response {
        let message: Value = serde_json::from_slice(&body).unwrap();
        match message["method"].as_str() {
            Some("tools/call") => {
                let key = headers["x-key"].to_str().unwrap();
                ([("content-type", "application/json")], text(&message["id"], key)).into_response()
            }
            _ => reply(State(HostileServer::new()), headers, body).await,
        }
    }
    let url = serve(Router::new().route("/mcp", post(echo))).await + "/mcp";
    let mut server = server(&url);
    server.headers.insert("X-Key".into(), "hush".to_owned().into());
    server.url.set_query(Some("key=hush"));
    assert!(!format!("{server:?}").contains("hush"));
    let session = open(http::connect(&server).await.unwrap()).await.unwrap();
    assert_eq!(within_timeout("echo", call(session.peer(), "any")).await.unwrap(), "hush");
}

#[tokio::test]
async fn handshake_failure_keeps_its_class() {
    async fn fail(uri: Uri, headers: HeaderMap, body: Bytes) -> Response {
        let json = [("content-type", "application/json")];
        let events = [("content-type", "text/event-stream")];
        match uri.path() {
            "/401" => {
                let challenge = [("www-authenticate", "Bearer resource_metadata=\"x\"")];
                (StatusCode::UNAUTHORIZED, challenge).into_response()
            }
            "/401-bare" => StatusCode::UNAUTHORIZED.into_response(),
            "/403" => StatusCode::FORBIDDEN.into_response(),
            "/404" => StatusCode::NOT_FOUND.into_response(),
            "/500" => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
            "/html" => ([("content-type", "text/html")], "<h1>").into_response(),
            "/garbage" => (json, "{\"jsonrpc\": nonsense").into_response(),
            "/garbage-event" => (events, "data: nonsense\n\n").into_response(),
            "/huge" => (json, "x".repeat(TOO_LARGE)).into_response(),
            "/half" => (events, "data: {\"jsonrpc\"").into_response(),
            "/other-origin" => redirect("http://127.0.0.1:9/mcp"),
            "/metadata" => redirect("http://169.254.169.254/latest/meta-data"),
            "/found" => (StatusCode::FOUND, [("location", "/mcp")]).into_response(),
            "/loop" => redirect("/loop"),
            "/moved" => redirect("/mcp"),
            _ => reply(State(HostileServer::new()), headers, body).await,
        }
    }
    fn redirect(location: &str) -> Response {
        (StatusCode::TEMPORARY_REDIRECT, [("location", location)]).into_response()
    }
    let url = serve(Router::new().fallback(fail)).await;
    let auto = || ClientLifecycleMode::Auto {
        preferred_versions: vec![ProtocolVersion::V_2026_07_28],
        legacy_version: None,
    };
    for (path, expected) in [
        ("/401", FailureClass::Unauthorized),
        ("/401-bare", FailureClass::Unauthorized),
        ("/403", FailureClass::Unauthorized),
        ("/404", FailureClass::Gone),
        ("/500", FailureClass::Failed { status: 500 }),
        ("/html", FailureClass::Malformed),
        ("/garbage", FailureClass::Malformed),
        ("/garbage-event", FailureClass::Malformed),
        ("/huge", FailureClass::Malformed),
        ("/half", FailureClass::Malformed),
        ("/other-origin", FailureClass::Redirect),
        ("/metadata", FailureClass::Redirect),
        ("/found", FailureClass::Redirect),
        ("/loop", FailureClass::Redirect),
    ] {
        let server = server(&format!("{url}{path}"));
        for mode in [ClientLifecycleMode::Initialize, auto()] {
            let transport = http::connect(&server).await.unwrap();
            let session =
                within_timeout(path, ().serve_with_lifecycle(transport, mode.clone())).await;
            let error = session.err().unwrap_or_else(|| panic!("{path} opened a session"));
            assert_eq!(failure_class(&error), expected, "{path} {mode:?}: {error:?}");
            let fell_back = matches!(error, ClientInitializeError::LegacyFallbackFailed { .. });
            assert_eq!(fell_back, path == "/404" && mode == auto(), "{path}: {error:?}");
        }
    }
    session(&format!("{url}/moved")).await;
}
