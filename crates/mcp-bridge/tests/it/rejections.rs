//! Calls that a remote server rejects before it runs them.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use axum::{
    Json, Router,
    extract::State,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
    routing::post,
};
use rockbot_contracts::{Executed, ToolErrorCode};
use rockbot_testkit::fixture::within_timeout;
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::oneshot};

use crate::{
    fixture::{bridge_to_loopback, call},
    remote::http::serve,
};

const TOOLS: [&str; 12] = [
    "busy",
    "bad",
    "bad-call",
    "large",
    "stopping",
    "broken",
    "no-upstream",
    "lost",
    "slow-upstream",
    "wrong-scope",
    "no-session",
    "good",
];

fn respond(message: &Value, result: &Value) -> Response {
    Json(json!({"jsonrpc": "2.0", "id": message["id"], "result": result})).into_response()
}

/// Replies to everything but calls.
fn session_reply(message: &Value) -> Response {
    match message["method"].as_str() {
        Some("initialize") => respond(
            message,
            &json!({
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "rejecting", "version": "1"},
            }),
        ),
        Some("tools/list") => {
            let tool = |name| json!({"name": name, "inputSchema": {"type": "object"}});
            respond(message, &json!({"tools": TOOLS.map(tool)}))
        }
        Some("ping") => respond(message, &json!({})),
        _ if message["id"].is_null() => StatusCode::ACCEPTED.into_response(),
        _ => StatusCode::BAD_REQUEST.into_response(),
    }
}

fn text(message: &Value, text: &str) -> Response {
    respond(message, &json!({"content": [{"type": "text", "text": text}]}))
}

async fn reject(Json(message): Json<Value>) -> Response {
    match message["params"]["name"].as_str().unwrap_or_default() {
        "busy" => (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "7")]).into_response(),
        "bad" => StatusCode::BAD_REQUEST.into_response(),
        "bad-call" => {
            let error = json!({"code": -32000, "message": "no argument x"});
            let error = Json(json!({"jsonrpc": "2.0", "id": message["id"], "error": error}));
            (StatusCode::BAD_REQUEST, error).into_response()
        }
        "large" => StatusCode::PAYLOAD_TOO_LARGE.into_response(),
        "stopping" => (StatusCode::SERVICE_UNAVAILABLE, [("retry-after", "3")]).into_response(),
        "broken" => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        "no-upstream" => StatusCode::BAD_GATEWAY.into_response(),
        "lost" => StatusCode::SERVICE_UNAVAILABLE.into_response(),
        "slow-upstream" => StatusCode::GATEWAY_TIMEOUT.into_response(),
        "wrong-scope" => {
            let challenge = "Bearer error=\"insufficient_scope\", scope=\"files:write\"";
            (StatusCode::FORBIDDEN, [("www-authenticate", challenge)]).into_response()
        }
        "good" => text(&message, "good"),
        _ => session_reply(&message),
    }
}

#[tokio::test]
async fn rejected_call_reports_that_it_did_not_run() {
    let url = serve(Router::new().route("/mcp", post(reject))).await + "/mcp";
    let bridge = bridge_to_loopback(json!({"remote": {"url": url}})).await;
    for (tool, code, executed, part) in [
        ("busy", ToolErrorCode::Overloaded, Executed::No, "7 s"),
        ("bad", ToolErrorCode::InvalidArguments, Executed::No, "HTTP 400"),
        ("bad-call", ToolErrorCode::InvalidArguments, Executed::No, "no argument x"),
        ("large", ToolErrorCode::InvalidArguments, Executed::No, "too large"),
        ("stopping", ToolErrorCode::Overloaded, Executed::No, "3 s"),
        // A proxy may report so after it has forwarded the call.
        ("broken", ToolErrorCode::OutcomeUnknown, Executed::Unknown, "HTTP 500 Internal Server"),
        ("no-upstream", ToolErrorCode::OutcomeUnknown, Executed::Unknown, "HTTP 502 Bad Gateway"),
        ("lost", ToolErrorCode::OutcomeUnknown, Executed::Unknown, "HTTP 503 Service Unavailable"),
        ("slow-upstream", ToolErrorCode::OutcomeUnknown, Executed::Unknown, "HTTP 504 Gateway"),
        ("wrong-scope", ToolErrorCode::NotPermitted, Executed::No, "--scope \"files:write\""),
    ] {
        let failure = call(&bridge, "remote", tool, json!({})).await.unwrap_err();
        let text = failure.to_string();
        assert_eq!((failure.code(), failure.executed()), (code, executed), "{tool}: {text}");
        assert!(text.contains(part), "{tool}: {text}");
    }
    assert!(call(&bridge, "remote", "good", json!({})).await.is_ok());
    bridge.stop().await;
}

#[tokio::test]
async fn call_to_stopped_server_did_not_run() {
    async fn close(message: Json<Value>) -> Response {
        // The next request needs another connection.
        ([("connection", "close")], reject(message).await).into_response()
    }
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let (stop, stopped) = oneshot::channel::<()>();
    let router = Router::new().route("/mcp", post(close));
    let serving = axum::serve(listener, router).with_graceful_shutdown(async {
        let _ = stopped.await;
    });
    let serving = tokio::spawn(async move { serving.await });
    let bridge = bridge_to_loopback(json!({"remote": {"url": url}})).await;
    assert!(call(&bridge, "remote", "good", json!({})).await.is_ok());
    stop.send(()).unwrap();
    within_timeout("the stopped server", serving).await.unwrap().unwrap();
    let failure = call(&bridge, "remote", "good", json!({})).await.unwrap_err();
    assert_eq!((failure.code(), failure.executed()), (ToolErrorCode::Unavailable, Executed::No));
    bridge.stop().await;
}

/// The number of sessions, and of calls that ran.
#[derive(Clone, Default)]
struct Sessions(Arc<(AtomicUsize, AtomicUsize)>);

/// Replies to calls in every session but the first, which has expired.
async fn expire(
    State(sessions): State<Sessions>,
    headers: HeaderMap,
    Json(message): Json<Value>,
) -> Response {
    let (opened, ran) = &*sessions.0;
    match message["method"].as_str() {
        Some("initialize") => {
            let session = (opened.fetch_add(1, Ordering::Relaxed) + 1).to_string();
            ([("mcp-session-id", session)], session_reply(&message)).into_response()
        }
        Some("tools/call") if headers["mcp-session-id"] == "1" => {
            StatusCode::NOT_FOUND.into_response()
        }
        Some("tools/call") => {
            ran.fetch_add(1, Ordering::Relaxed);
            text(&message, "good")
        }
        _ => session_reply(&message),
    }
}

#[tokio::test]
async fn call_in_expired_session_is_repeated_in_the_next() {
    let sessions = Sessions::default();
    let router = Router::new().route("/mcp", post(expire)).with_state(sessions.clone());
    let url = serve(router).await + "/mcp";
    let bridge = bridge_to_loopback(json!({"remote": {"url": url}})).await;
    let result = within_timeout("the call", call(&bridge, "remote", "good", json!({}))).await;
    assert_eq!(result.unwrap().to_text(), "good");
    let (opened, ran) = &*sessions.0;
    assert_eq!((opened.load(Ordering::Relaxed), ran.load(Ordering::Relaxed)), (2, 1));
    bridge.stop().await;
}

/// Requires input in the first round of each call, and rejects the next one.
async fn reject_input(Json(message): Json<Value>) -> Response {
    let params = &message["params"];
    if message["method"] == "tools/call" && params["requestState"].is_null() {
        let state = json!({"resultType": "input_required", "requestState": "worked"});
        return respond(&message, &state);
    }
    if params["name"] == "no-session" {
        return StatusCode::NOT_FOUND.into_response();
    }
    reject(Json(message)).await
}

#[tokio::test]
async fn call_rejected_after_its_first_round_may_have_run() {
    let url = serve(Router::new().route("/mcp", post(reject_input))).await + "/mcp";
    let bridge = bridge_to_loopback(json!({"remote": {"url": url}})).await;
    for tool in ["busy", "bad", "bad-call", "large", "stopping", "wrong-scope", "no-session"] {
        let failure = call(&bridge, "remote", tool, json!({})).await.unwrap_err();
        assert_eq!(failure.executed(), Executed::Unknown, "{tool}: {failure}");
        assert!(!failure.is_retryable(), "{tool}: {failure}");
    }
    let result = call(&bridge, "remote", "good", json!({})).await.unwrap();
    assert_eq!(result.to_text(), "good");
    bridge.stop().await;
}
