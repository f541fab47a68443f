//! What a caller learns of each fault, for requests that may be repeated and for others.

use std::{sync::Arc, time::Duration};

use rockbot_contracts::ToolErrorCode as Code;
use rockbot_tools::{Executed, ToolFailure, ToolResult};
use serde_json::json;
use tokio::{net::TcpListener, task::JoinSet, time::Instant};

use crate::{
    fixture::{Fixture, call_entry, context, entry},
    server::{Act, Server, json as json_act, open_head, response, status},
};

/// The expected end of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
enum End {
    Ok,
    /// A result that reports an error and contains this text.
    Reported(&'static str),
    Failed(Code, Executed),
}

fn end(result: &Result<ToolResult, ToolFailure>, reported: &'static str) -> End {
    match result {
        Ok(result) if result.is_error => {
            assert!(result.to_text().contains(reported), "{reported}: {}", result.to_text());
            End::Reported(reported)
        }
        Ok(_) => End::Ok,
        Err(failure) => End::Failed(failure.code(), failure.executed()),
    }
}

/// A cell of the table: acts of the server, and the expected number of requests and end.
struct Cell {
    name: String,
    method: &'static str,
    server: Server,
    requests: usize,
    end: End,
}

impl Cell {
    async fn check(self, fixture: Arc<Fixture>) {
        let Self { name, method, server, requests, end: expected } = self;
        let (context, _) = context(&name);
        let result = fixture.call(json!({}), &context).await;
        let reported = if let End::Reported(text) = expected { text } else { "" };
        assert_eq!(end(&result, reported), expected, "{name}: {result:?}");
        let received = server.received();
        assert_eq!(received.len(), requests, "{name}: {result:?}");
        assert!(received.iter().all(|one| one.method == method), "{name}");
        if let Err(failure) = result {
            let text = failure.chain().to_string();
            assert!(!text.contains("127.0.0.1"), "{name}: no hosts for a model: {text}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_fault_has_its_outcome() {
    const UNKNOWN: End = End::Failed(Code::OutcomeUnknown, Executed::Unknown);
    const LOST: End = End::Failed(Code::Unavailable, Executed::Unknown);
    const SILENT: End = End::Failed(Code::Timeout, Executed::Unknown);
    const BUSY: End = End::Failed(Code::Overloaded, Executed::No);
    const REFUSED: End = End::Reported("refuses our credentials");
    const MOVED: End = End::Reported("302");
    const REASON: End = End::Reported("the reason");
    let cut_head = || Act::Send(b"HTTP/1.1 200 OK\r\nconte".to_vec());
    let cut_body = || Act::Send(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\npart".to_vec());
    let busy = |text: &str, wait: u32| {
        Act::Send(response(text, &format!("retry-after: {wait}\r\n"), "busy"))
    };
    let moved = |to: &str| Act::Send(response("302 Found", &format!("location: {to}\r\n"), ""));
    let cells = [
        ("reset before the head", vec![Act::Reset], (3, LOST), (1, UNKNOWN)),
        ("cut within the head", vec![cut_head()], (3, LOST), (1, UNKNOWN)),
        ("cut within the body", vec![cut_body()], (3, LOST), (1, UNKNOWN)),
        ("stall", vec![Act::Stall], (3, SILENT), (1, UNKNOWN)),
        ("not HTTP", vec![Act::Send(b"SSH-2.0-x\r\n\r\n".to_vec())], (3, LOST), (1, UNKNOWN)),
        ("recovery", vec![Act::Reset, json_act("{}")], (2, End::Ok), (1, UNKNOWN)),
        (
            "no content",
            vec![Act::Send(response("204 No Content", "", ""))],
            (1, End::Ok),
            (1, End::Ok),
        ),
        ("429", vec![busy("429 Too Many Requests", 0)], (3, BUSY), (1, BUSY)),
        ("429 for long", vec![busy("429 Too Many Requests", 60)], (1, BUSY), (1, BUSY)),
        ("503", vec![busy("503 Service Unavailable", 0)], (3, BUSY), (1, BUSY)),
        ("503 then success", vec![status("503 x"), json_act("{}")], (2, End::Ok), (1, BUSY)),
        ("500", vec![status("500 x")], (2, REASON), (1, REASON)),
        ("500 then success", vec![status("500 x"), json_act("{}")], (2, End::Ok), (1, REASON)),
        ("502", vec![status("502 x")], (3, LOST), (1, UNKNOWN)),
        ("504", vec![status("504 x")], (3, LOST), (1, UNKNOWN)),
        ("404", vec![status("404 Not Found")], (1, REASON), (1, REASON)),
        ("422", vec![status("422 x")], (1, REASON), (1, REASON)),
        ("401", vec![status("401 x")], (1, REFUSED), (1, REFUSED)),
        ("moved elsewhere", vec![moved("http://example.com/x")], (1, MOVED), (1, MOVED)),
        (
            "moved here",
            vec![moved("/x"), json_act("{}")],
            (2, End::Ok),
            (1, End::Reported("moved to /x")),
        ),
        ("moved in circles", vec![moved("/x")], (4, MOVED), (1, MOVED)),
    ];
    let (mut tools, mut table) = (serde_json::Map::new(), Vec::new());
    for (name, acts, get, post) in cells {
        for (method, (requests, end)) in [("GET", get), ("POST", post)] {
            let server = Server::start(acts.clone()).await;
            let name = format!("{method}_{}", name.replace(' ', "_"));
            tools.insert(name.clone(), entry(method, &server.url));
            table.push(Cell { name, method, server, requests, end });
        }
    }
    let fixture = Arc::new(Fixture::new(&json!({"restTools": tools})).await);
    let mut running = JoinSet::new();
    for cell in table {
        running.spawn(cell.check(fixture.clone()));
    }
    while let Some(ended) = running.join_next().await {
        ended.unwrap();
    }
}

#[tokio::test]
async fn unreachable_server_is_retried_for_every_method() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    for method in ["GET", "POST"] {
        let (result, updates) = call_entry(entry(method, &url)).await;
        let failure = result.unwrap_err();
        assert_eq!((failure.code(), failure.executed()), (Code::Unavailable, Executed::No));
        assert!(failure.is_retryable());
        assert_eq!(updates.retries(), 2);
    }
}

/// The server accepts connections and does not continue the TLS handshake.
#[tokio::test]
async fn request_without_a_connection_is_not_executed() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let mut entry = entry("POST", &url);
    entry["timeoutMs"] = json!(300);
    let (result, _) = call_entry(entry.clone()).await;
    let failure = result.unwrap_err();
    assert_eq!((failure.code(), failure.executed()), (Code::Timeout, Executed::No));

    entry["timeoutMs"] = json!(20_000);
    let fixture = Fixture::with_tool(entry).await;
    let (context, _) = context("tool");
    let cancel = async {
        let connection = listener.accept().await.unwrap();
        context.cancellation.cancel();
        connection
    };
    let (result, _connection) = tokio::join!(fixture.call(json!({}), &context), cancel);
    let failure = result.unwrap_err();
    assert_eq!((failure.code(), failure.executed()), (Code::Cancelled, Executed::No));
}

#[tokio::test]
async fn redirect_keeps_method_and_body_within_its_origin() {
    let moved = Act::Send(response("307 x", "location: /other?a=1\r\n", ""));
    let server = Server::start([moved, json_act("{}")]).await;
    let (result, _) = call_entry(entry("POST", &server.url)).await;
    assert!(!result.unwrap().is_error);
    let received = server.received();
    assert_eq!(received[1].target, "/other?a=1");
    assert_eq!((received[1].method.as_str(), received[1].text().as_str()), ("POST", "{\"a\":1}"));
    let elsewhere = Server::start([json_act("{}")]).await;
    let location = format!("location: {}/steal\r\n", elsewhere.url);
    let server = Server::start([Act::Send(response("307 x", &location, ""))]).await;
    let (result, _) = call_entry(entry("GET", &server.url)).await;
    let text = result.unwrap().to_text().into_owned();
    assert!(text.contains("307") && !text.contains("steal"), "{text}");
    assert!(elsewhere.received().is_empty());
}

#[tokio::test]
async fn endless_body_is_read_to_the_limit() {
    let server = Server::start([Act::Endless]).await;
    let mut entry = entry("GET", &server.url);
    entry["maxResponseBytes"] = json!(100_000);
    let (result, _) = call_entry(entry).await;
    let text = result.unwrap().to_text().into_owned();
    assert!(text.ends_with("[the response exceeds 100000 bytes; the rest was not read]"));
    assert!(text.len() < 100_100);
}

#[tokio::test]
async fn deadline_and_cancellation_report_whether_request_was_sent() {
    for (method, is_retryable) in [("GET", true), ("POST", false)] {
        let server = Server::start([Act::Stall]).await;
        let mut entry = entry(method, &server.url);
        entry["timeoutMs"] = json!(100);
        let (result, _) = call_entry(entry.clone()).await;
        let failure = result.unwrap_err();
        assert_eq!((failure.code(), failure.executed()), (Code::Timeout, Executed::Unknown));
        assert_eq!(failure.is_retryable(), is_retryable);

        entry["timeoutMs"] = json!(20_000);
        let fixture = Fixture::with_tool(entry).await;
        let (context, _) = context("tool");
        let cancel = async {
            server.arrival().await;
            server.arrival().await;
            context.cancellation.cancel();
        };
        let (result, ()) = tokio::join!(fixture.call(json!({}), &context), cancel);
        let failure = result.unwrap_err();
        assert_eq!((failure.code(), failure.executed()), (Code::Cancelled, Executed::Unknown));
    }
}

#[tokio::test]
async fn idempotency_key_is_the_call_id_in_every_attempt_and_delivery() {
    let server = Server::start([Act::Reset, json_act("{}")]).await;
    let mut entry = entry("POST", &server.url);
    entry["idempotencyKey"] = json!("Idempotency-Key");
    entry["idempotent"] = json!(true);
    let fixture = Fixture::with_tool(entry).await;
    let (context, _) = context("tool");
    for _ in 0..2 {
        assert!(fixture.call(json!({}), &context).await.is_ok());
    }
    let keys: Vec<_> =
        server.received().iter().map(|one| one.headers["idempotency-key"].clone()).collect();
    assert_eq!(keys, [context.tool_call_id.as_str(); 3]);
}

#[tokio::test]
async fn address_that_is_not_permitted_is_refused() {
    let server = Server::start([json_act("{}")]).await;
    let folder = tempfile::tempdir().unwrap();
    let file =
        json!({"restTools": {"tool": entry("GET", &server.url.replace("127.0.0.1", "localhost"))}});
    std::fs::write(crate::fixture::path(&folder), file.to_string()).unwrap();
    let mut options = crate::fixture::options(&folder);
    options.dial.allow_private.clear();
    let provider = rockbot_rest::RestProvider::new(options).unwrap();
    let fixture = Fixture { provider, folder };
    rockbot_tools::ToolProvider::warm_up(&*fixture.provider).await.unwrap();
    let (context, _) = context("tool");
    let failure = fixture.call(json!({}), &context).await.unwrap_err();
    assert_eq!((failure.code(), failure.executed()), (Code::NotPermitted, Executed::No));
    assert!(server.received().is_empty());
}

#[tokio::test]
async fn retry_waits_as_long_as_the_server_asks() {
    let busy = Act::Send(response("429 x", "retry-after: 1\r\n", ""));
    let server = Server::start([busy, Act::Send(open_head("text/plain"))]).await;
    let started = Instant::now();
    let (result, _) = call_entry(entry("GET", &server.url)).await;
    assert_eq!(result.unwrap().to_text(), "(200: done, no content)");
    assert!(started.elapsed() >= Duration::from_secs(1));
    // A call whose time does not suffice for the wait is not made to wait.
    let busy = Act::Send(response("429 x", "retry-after: 5\r\n", ""));
    let server = Arc::new(Server::start([busy]).await);
    let mut entry = entry("GET", &server.url);
    entry["timeoutMs"] = json!(1000);
    let (result, _) = call_entry(entry).await;
    let failure = result.unwrap_err();
    assert_eq!(failure.code(), Code::Overloaded);
    assert!(failure.to_string().contains("call again in 5 s"), "{failure}");
}
