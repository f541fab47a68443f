//! Repeated requests.

use std::sync::atomic::Ordering;

use rockbot_bus::{Consumer, Settlement};
use rockbot_contracts::topology::tool_invoke;
use rockbot_mcp_server::{DirectCall, HttpOptions, serve_streams};
use rockbot_testkit::fixture::{exclusive_queue, next_delivery, within_timeout};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream};
use tokio_util::sync::CancellationToken;

use crate::{
    fixture::{Fleet, Handler, Http, client},
    raw_http::RawRequest,
};

/// A client that writes the lines of the protocol itself.
struct RawClient {
    lines: tokio::io::Lines<BufReader<tokio::io::ReadHalf<DuplexStream>>>,
    write: tokio::io::WriteHalf<DuplexStream>,
}

impl RawClient {
    async fn connect(fleet: &Fleet) -> Self {
        let (own, server) = tokio::io::duplex(64 * 1024);
        let (read, write) = tokio::io::split(server);
        let stop = CancellationToken::new();
        let limit = std::time::Duration::ZERO;
        tokio::spawn(serve_streams(fleet.fleet.clone(), client("raw"), read, write, stop, limit));
        let (read, write) = tokio::io::split(own);
        let mut client = Self { lines: BufReader::new(read).lines(), write };
        client
            .send(&json!({"jsonrpc": "2.0", "id": "init", "method": "initialize", "params": {
                "protocolVersion": "2025-06-18", "capabilities": {},
                "clientInfo": {"name": "raw", "version": "1"}}}))
            .await;
        client.response("init").await;
        client.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
        client
    }

    async fn send(&mut self, message: &Value) {
        self.write.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }

    async fn call(&mut self, id: u32, tool: &str, meta: Value) {
        let call = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call",
            "params": {"name": tool, "arguments": {}, "_meta": meta}});
        self.send(&call).await;
    }

    /// Returns the next response, which must have this id.
    async fn response(&mut self, id: impl Into<Value>) -> Value {
        let id = id.into();
        loop {
            let line = within_timeout("a message", self.lines.next_line()).await.unwrap().unwrap();
            let message: Value = serde_json::from_str(&line).unwrap();
            if message.get("id").is_some() {
                assert_eq!(message["id"], id, "{message}");
                return message["result"].clone();
            }
        }
    }
}

fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{result}"))
}

#[tokio::test]
async fn request_repeated_in_a_session_runs_once() {
    let handler = Handler::start().await;
    let fleet = handler.fleet().await;
    let mut client = RawClient::connect(&fleet).await;
    for _ in 0..5 {
        client.call(7, "count", json!({})).await;
        assert_eq!(text(&client.response(7).await), "1");
    }
    client.call(8, "count", json!({})).await;
    assert_eq!(text(&client.response(8).await), "2");
    // Another session has ids of its own.
    let mut other = RawClient::connect(&fleet).await;
    other.call(7, "count", json!({})).await;
    assert_eq!(text(&other.response(7).await), "3");
}

#[tokio::test]
async fn request_repeated_while_it_runs_joins_the_call() {
    let handler = Handler::start().await;
    let fleet = handler.fleet().await;
    let mut client = RawClient::connect(&fleet).await;
    for _ in 0..5 {
        client.call(7, "wait", json!({})).await;
    }
    handler.events.running(1).await;
    // A later request shows that all of them were received.
    client.call(8, "echo", json!({})).await;
    client.response(8).await;
    handler.events.released.send_replace(true);
    assert_eq!(text(&client.response(7).await), "1");
    assert_eq!(handler.events.runs.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn cancel_of_a_repeated_request_cancels_the_call() {
    let handler = Handler::start().await;
    let fleet = handler.fleet().await;
    let mut client = RawClient::connect(&fleet).await;
    client.call(7, "hang", json!({})).await;
    handler.events.running(1).await;
    client.call(7, "hang", json!({})).await;
    client.call(8, "echo", json!({})).await;
    client.response(8).await;
    client
        .send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled",
            "params": {"requestId": 7}}))
        .await;
    handler.events.running(0).await;
}

#[tokio::test]
async fn key_of_a_client_identifies_a_call_across_processes() {
    let handler = Handler::start().await;
    let (one, two) = (handler.fleet().await, handler.fleet().await);
    let https = [one.http(HttpOptions::default()).await, two.http(HttpOptions::default()).await];
    for http in https.iter().cycle().take(5) {
        let result = call(http, "count", &json!({}), Some("key-1")).result().await;
        assert_eq!(text(&result), "1");
    }
    // The key in the metadata is the same as that in the header.
    let mut raw = RawClient::connect(&one).await;
    raw.call(1, "count", json!({"rockbot/callId": "key-1"})).await;
    assert_eq!(text(&raw.response(1).await), "2", "another client has its own keys");
    raw.call(2, "count", json!({"rockbot/callId": "key-1"})).await;
    assert_eq!(text(&raw.response(2).await), "2");
    // Without a key, each request is a call of its own.
    for expected in ["3", "4"] {
        let result = call(&https[0], "count", &json!({}), None).result().await;
        assert_eq!(text(&result), expected);
    }
}

#[tokio::test]
async fn key_with_other_arguments_is_refused() {
    let handler = Handler::start().await;
    let (one, two) = (handler.fleet().await, handler.fleet().await);
    let https = [one.http(HttpOptions::default()).await, two.http(HttpOptions::default()).await];
    let result = call(&https[0], "count", &json!({}), Some("key-1")).result().await;
    assert_eq!(text(&result), "1");
    for http in &https {
        let result = call(http, "count", &json!({"text": "b"}), Some("key-1")).result().await;
        assert_eq!(result["isError"], true, "{result}");
        assert_eq!(handler.events.runs.load(Ordering::SeqCst), 1);
    }
}

#[tokio::test]
async fn call_with_a_key_survives_a_lost_connection() {
    let handler = Handler::start().await;
    let fleet = handler.fleet().await;
    let http = fleet.http(HttpOptions::default()).await;
    for _ in 0..3 {
        let lost = call(&http, "wait", &json!({}), Some("key-1")).result();
        tokio::select! {
            result = lost => panic!("{result}"),
            () = handler.events.running(1) => {}
        }
    }
    let repeated = tokio::spawn(call(&http, "wait", &json!({}), Some("key-1")).result());
    handler.events.released.send_replace(true);
    let result = within_timeout("the result", repeated).await.unwrap();
    assert_eq!(text(&result), "1");
    assert_eq!(handler.events.runs.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn call_without_a_key_is_cancelled_with_its_connection() {
    let handler = Handler::start().await;
    let fleet = handler.fleet().await;
    let http = fleet.http(HttpOptions::default()).await;
    let lost = call(&http, "hang", &json!({}), None).result();
    tokio::select! {
        result = lost => panic!("{result}"),
        () = handler.events.running(1) => {}
    }
    handler.events.running(0).await;
}

/// Creates a request to call a tool.
fn call(http: &Http, tool: &str, arguments: &Value, key: Option<&str>) -> RawRequest {
    let call = RawRequest::stateless_call(&http.url, tool, arguments);
    match key {
        Some(key) => call.header("idempotency-key", key),
        None => call,
    }
}

/// Returns whether the next request is marked as one of a client's key.
async fn has_client_key(requests: &mut Consumer) -> bool {
    let request = next_delivery(requests).await;
    let has_client_key = request.envelope().has_client_key;
    request.settle(Settlement::Ack).await.unwrap();
    has_client_key
}

#[tokio::test]
async fn requests_of_calls_with_a_key_and_effects_are_marked() {
    let handler = Handler::start().await;
    let fleet = handler.fleet().await;
    let monitor = exclusive_queue("monitor", tool_invoke().as_str());
    let mut requests = handler.bus.consume(monitor, 10).await;
    let http = fleet.http(HttpOptions::default()).await;
    for (tool, key, expected) in
        [("count", Some("a"), true), ("echo", Some("b"), false), ("count", None, false)]
    {
        call(&http, tool, &json!({}), key).result().await;
        assert_eq!(has_client_key(&mut requests).await, expected, "{tool}, key: {key:?}");
    }
    // The id of a request in a session is known to one process alone.
    let mut session = RawClient::connect(&fleet).await;
    session.call(1, "count", json!({})).await;
    session.response(1).await;
    assert!(!has_client_key(&mut requests).await);
    for (tool, expected) in [("count", true), ("echo", false)] {
        let call = DirectCall {
            tool: tool.to_owned(),
            arguments: "{}".to_owned(),
            key: tool.to_owned(),
            timeout: None,
        };
        fleet.fleet.call(&client("form"), call).await.unwrap();
        assert_eq!(has_client_key(&mut requests).await, expected, "{tool}");
    }
}
