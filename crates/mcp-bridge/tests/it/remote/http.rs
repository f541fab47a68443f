//! Streamable HTTP.

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
    DialPolicy, FailureClass, RemoteServer, call_failure_class, failure_class, http,
};
use rockbot_testkit::fixture::{assert_never, within_timeout};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time::interval;

use super::hostile::{Hostile, TOO_LARGE, text};
use super::{Session, call, call_within, calling, ends_only_its_own_call, loopback, open, server};

/// A server of ours over streamable HTTP, and its address.
async fn hostile() -> (Hostile, String) {
    let hostile = Hostile::new();
    let router = Router::new().route("/mcp", post(answer)).with_state(hostile.clone());
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

async fn answer(State(hostile): State<Hostile>, headers: HeaderMap, body: Bytes) -> Response {
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
            let beginning = Bytes::from(format!(r#"data: {{"jsonrpc":"2.0","id":{id},"x":""#));
            let pieces = stream::once(async { beginning }).chain(stream::repeat_with(piece));
            let body = Body::from_stream(pieces.map(Ok::<_, std::io::Error>));
            return (events, body).into_response();
        }
        "endless-json" => {
            let body = Body::from_stream(stream::repeat_with(piece).map(Ok::<_, std::io::Error>));
            return ([("content-type", "application/json")], body).into_response();
        }
        "drip" => return (events, drip(text(id, "dripped"))).into_response(),
        "mute" => return (events, Body::from_stream(silence())).into_response(),
        "ends" => return (events, ": nothing to say\n\n").into_response(),
        "cut-event" => return (events, format!("data: {}\n", text(id, "cut"))).into_response(),
        _ => {}
    }
    let Some(answer) = hostile.answer(&message).await else {
        return StatusCode::ACCEPTED.into_response();
    };
    let session = ("mcp-session-id", "one");
    assert!(message["method"] == "initialize" || headers["mcp-session-id"] == "one");
    if message["params"]["arguments"]["as"] == "json" {
        return ([("content-type", "application/json"), session], answer).into_response();
    }
    ([events[0], session], format!("data: {answer}\n\n")).into_response()
}

/// An answer that comes after a while of comments.
fn drip(answer: String) -> Body {
    let pieces = stream::unfold((interval(Duration::from_millis(50)), 0), move |(mut tick, n)| {
        let piece = if n < 20 { ":\n".to_owned() } else { format!("data: {answer}\n\n") };
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
async fn a_bad_answer_ends_only_its_own_call() {
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
        ends_only_its_own_call(&session, &hostile, tool, expected).await;
    }
}

#[tokio::test]
async fn a_bad_answer_in_json_ends_only_its_own_call() {
    let (hostile, url) = hostile().await;
    let session = session(&url).await;
    for (tool, expected) in [
        ("garbage", "not valid JSON-RPC"),
        ("half", "not valid JSON-RPC"),
        ("huge", "exceeds 16777216 bytes"),
        ("wrong-id", "not valid JSON-RPC"),
    ] {
        let beside = calling(&session, "wait");
        hostile.waits().await;
        let json = json!({"as": "json"}).as_object().unwrap().clone();
        let params = CallToolRequestParams::new(tool).with_arguments(json);
        let error = within_timeout(tool, session.call_tool(params)).await.expect_err(tool);
        assert!(error.to_string().contains(expected), "{tool}: {error}");
        hostile.release();
        assert_eq!(within_timeout("beside", beside).await.unwrap().unwrap(), "waited");
    }
}

#[tokio::test]
async fn a_session_that_is_gone_fails_its_call_as_not_run_and_ends() {
    for tool in ["gone", "unknown-session"] {
        let (_, url) = hostile().await;
        let session = session(&url).await;
        let error = within_timeout(tool, call(session.peer(), tool)).await.expect_err(tool);
        assert_eq!(call_failure_class(&error), Some(FailureClass::Gone), "{error}");
        within_timeout("the end of the session", session.waiting()).await.unwrap();
    }
}

#[tokio::test]
async fn an_answer_that_was_cut_is_asked_for_again_where_the_server_keeps_it() {
    async fn cut(hostile: State<Hostile>, headers: HeaderMap, body: Bytes) -> Response {
        let message: Value = serde_json::from_slice(&body).unwrap();
        match message["method"].as_str() {
            Some("tools/call") => {
                let beginning = format!("id: {}\nretry: 10\ndata: \n\n", message["id"]);
                ([("content-type", "text/event-stream")], beginning).into_response()
            }
            _ => answer(hostile, headers, body).await,
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
    let router = Router::new().route("/mcp", post(cut).get(rest)).with_state(Hostile::new());
    let session = session(&(serve(router).await + "/mcp")).await;
    assert_eq!(within_timeout("the call", call(session.peer(), "any")).await.unwrap(), "the rest");
}

#[tokio::test]
async fn a_server_that_knows_no_standing_stream_keeps_its_session() {
    for status in [StatusCode::NOT_FOUND, StatusCode::METHOD_NOT_ALLOWED] {
        let (asked, mut gets) = mpsc::channel(8);
        let refuse = move || {
            let asked = asked.clone();
            async move {
                asked.send(()).await.unwrap();
                status
            }
        };
        let router = Router::new().route("/mcp", post(answer).get(refuse));
        let url = serve(router.with_state(Hostile::new())).await + "/mcp";
        let session = session(&url).await;
        within_timeout("the stream is asked for", gets.recv()).await.unwrap();
        for _ in 0..3 {
            assert_eq!(
                within_timeout("a call", call(session.peer(), "good")).await.unwrap(),
                "good"
            );
        }
        assert_never("the end of the session", session.waiting()).await;
    }
}

#[tokio::test]
async fn a_slow_answer_is_waited_for_and_silence_is_not() {
    let (_, url) = hostile().await;
    let policy = DialPolicy { idle_timeout: Duration::from_millis(500), ..loopback() };
    let server = RemoteServer::new(Url::parse(&url).unwrap(), Arc::new(policy));
    let session = open(http::connect(&server).await.unwrap()).await.unwrap();
    assert_eq!(within_timeout("drip", call(session.peer(), "drip")).await.unwrap(), "dripped");
    let error =
        within_timeout("mute", call(session.peer(), "mute")).await.expect_err("nothing came");
    assert!(error.to_string().contains("ended before it was complete"), "{error}");
}

#[tokio::test]
async fn a_call_that_is_given_up_leaves_the_session() {
    let (hostile, url) = hostile().await;
    let session = session(&url).await;
    let short = Duration::from_millis(50);
    call_within(session.peer(), "wait", short).await.expect_err("nobody answers");
    assert_eq!(within_timeout("after", call(session.peer(), "good")).await.unwrap(), "good");
    drop(hostile);
}

#[tokio::test]
async fn configured_headers_are_sent_and_not_printed() {
    async fn echo(headers: HeaderMap, body: Bytes) -> Response {
        let message: Value = serde_json::from_slice(&body).unwrap();
        match message["method"].as_str() {
            Some("tools/call") => {
                let key = headers["x-key"].to_str().unwrap();
                ([("content-type", "application/json")], text(&message["id"], key)).into_response()
            }
            _ => answer(State(Hostile::new()), headers, body).await,
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
async fn the_class_of_a_failed_handshake_survives_it() {
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
            "/elsewhere" => to("http://127.0.0.1:9/mcp"),
            "/metadata" => to("http://169.254.169.254/latest/meta-data"),
            "/found" => (StatusCode::FOUND, [("location", "/mcp")]).into_response(),
            "/round" => to("/round"),
            "/moved" => to("/mcp"),
            _ => answer(State(Hostile::new()), headers, body).await,
        }
    }
    fn to(place: &str) -> Response {
        (StatusCode::TEMPORARY_REDIRECT, [("location", place)]).into_response()
    }
    let url = serve(Router::new().fallback(fail)).await;
    let both = || ClientLifecycleMode::Auto {
        preferred_versions: vec![ProtocolVersion::V_2026_07_28],
        legacy_version: None,
    };
    for (path, expected) in [
        ("/401", FailureClass::Unauthorized),
        ("/401-bare", FailureClass::Unauthorized),
        ("/403", FailureClass::Unauthorized),
        ("/404", FailureClass::Gone),
        ("/500", FailureClass::Other),
        ("/html", FailureClass::Malformed),
        ("/garbage", FailureClass::Malformed),
        ("/garbage-event", FailureClass::Malformed),
        ("/huge", FailureClass::Malformed),
        ("/half", FailureClass::Malformed),
        ("/elsewhere", FailureClass::Redirect),
        ("/metadata", FailureClass::Redirect),
        ("/found", FailureClass::Redirect),
        ("/round", FailureClass::Redirect),
    ] {
        let server = server(&format!("{url}{path}"));
        for mode in [ClientLifecycleMode::Initialize, both()] {
            let transport = http::connect(&server).await.unwrap();
            let failed =
                within_timeout(path, ().serve_with_lifecycle(transport, mode.clone())).await;
            let error = failed.err().unwrap_or_else(|| panic!("{path} opened"));
            assert_eq!(failure_class(&error), expected, "{path} {mode:?}: {error:?}");
            let fell_back = matches!(error, ClientInitializeError::LegacyFallbackFailed { .. });
            assert_eq!(fell_back, path == "/404" && mode == both(), "{path}: {error:?}");
        }
    }
    session(&format!("{url}/moved")).await;
}
