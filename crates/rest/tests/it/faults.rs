//! Outcomes of each fault, for requests that may be repeated and for others.

use std::{sync::Arc, time::Duration};

use rockbot_contracts::ToolErrorCode as Code;
use rockbot_tools::{Executed, ToolFailure, ToolResult};
use serde_json::json;
use tokio::{task::JoinSet, time::Instant};

use crate::{
    fixture::{Fixture, Kind, call_entry, context},
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

/// A row of the table: acts of the server, and the number of requests and the end for each kind of request.
struct Row {
    name: &'static str,
    acts: Vec<Act>,
    get: (usize, End),
    post: (usize, End),
    idempotent_post: (usize, End),
}

/// Returns a row whose idempotent `POST` ends like a `GET`.
fn row(name: &'static str, act: Act, get: (usize, End), post: (usize, End)) -> Row {
    Row { name, acts: vec![act], idempotent_post: get.clone(), get, post }
}

impl Row {
    /// Adds the act of the server for the next requests.
    fn then(mut self, act: Act) -> Self {
        self.acts.push(act);
        self
    }

    /// Sets the end of the idempotent `POST`.
    fn with_idempotent_post(self, requests: usize, end: End) -> Self {
        Self { idempotent_post: (requests, end), ..self }
    }

    async fn into_cells(self) -> Vec<Cell> {
        let mut cells = Vec::new();
        for (kind, (requests, end)) in [
            (Kind::Get, self.get),
            (Kind::Post, self.post),
            (Kind::IdempotentPost, self.idempotent_post),
        ] {
            let name = format!("{kind:?}_{}", self.name.replace(' ', "_"));
            let server = Server::start(self.acts.clone()).await;
            cells.push(Cell { name, kind, server, requests, end });
        }
        cells
    }
}

/// A cell of the table.
struct Cell {
    name: String,
    kind: Kind,
    server: Server,
    requests: usize,
    end: End,
}

impl Cell {
    async fn check(self, fixture: Arc<Fixture>) {
        let Self { name, kind, server, requests, end: expected } = self;
        let (context, _) = context(&name);
        let result = fixture.call(json!({}), &context).await;
        let reported = if let End::Reported(text) = expected { text } else { "" };
        assert_eq!(end(&result, reported), expected, "{name}: {result:?}");
        let received = server.received();
        assert_eq!(received.len(), requests, "{name}: {result:?}");
        assert!(received.iter().all(|one| one.method == kind.method()), "{name}");
        if let Err(failure) = result {
            let text = failure.chain().to_string();
            assert!(!text.contains("127.0.0.1"), "{name}: no hosts for a model: {text}");
        }
    }
}

const UNKNOWN: End = End::Failed(Code::OutcomeUnknown, Executed::Unknown);
const LOST: End = End::Failed(Code::Unavailable, Executed::Unknown);
const SILENT: End = End::Failed(Code::Timeout, Executed::Unknown);
const BUSY: End = End::Failed(Code::Overloaded, Executed::No);
const REFUSED: End = End::Reported("refuses our credentials");
const REASON: End = End::Reported("the reason");

/// Connections that break, and responses that are not HTTP.
fn rows_of_connections() -> Vec<Row> {
    let cut_head = || Act::Send(b"HTTP/1.1 200 OK\r\nconte".to_vec());
    let cut_body = || Act::Send(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\npart".to_vec());
    let no_http = || Act::Send(b"SSH-2.0-x\r\n\r\n".to_vec());
    vec![
        row("reset before the head", Act::Reset, (3, LOST), (1, UNKNOWN)),
        row("cut within the head", cut_head(), (3, LOST), (1, UNKNOWN)),
        row("cut within the body", cut_body(), (3, LOST), (1, UNKNOWN)),
        row("stall", Act::Stall, (3, SILENT), (1, UNKNOWN)),
        row("not HTTP", no_http(), (3, LOST), (1, UNKNOWN)),
        row("recovery", Act::Reset, (2, End::Ok), (1, UNKNOWN)).then(json_act("{}")),
    ]
}

/// Statuses of responses.
fn rows_of_statuses() -> Vec<Row> {
    let no_content = Act::Send(response("204 No Content", "", ""));
    let busy = |status: &str, wait: u32| {
        Act::Send(response(status, &format!("retry-after: {wait}\r\n"), "busy"))
    };
    let mut rows = vec![
        row("204", no_content, (1, End::Ok), (1, End::Ok)),
        row("408", busy("408 Request Timeout", 0), (3, BUSY), (1, BUSY)),
        row("425", busy("425 Too Early", 0), (3, BUSY), (1, BUSY)),
        row("429", busy("429 Too Many Requests", 0), (3, BUSY), (1, BUSY)),
        row("429 for long", busy("429 Too Many Requests", 60), (1, BUSY), (1, BUSY)),
        row("503", busy("503 Service Unavailable", 0), (3, BUSY), (1, BUSY)),
        row("503 then success", status("503 x"), (2, End::Ok), (1, BUSY)).then(json_act("{}")),
        row("500", status("500 x"), (2, REASON), (1, REASON)),
        row("500 then success", status("500 x"), (2, End::Ok), (1, REASON)).then(json_act("{}")),
        row("502", status("502 x"), (3, LOST), (1, UNKNOWN)),
        row("504", status("504 x"), (3, LOST), (1, UNKNOWN)),
        row("401", status("401 x"), (1, REFUSED), (1, REFUSED)),
        row("403", status("403 Forbidden"), (1, REFUSED), (1, REFUSED)),
    ];
    for (name, line) in [
        ("400", "400 Bad Request"),
        ("404", "404 Not Found"),
        ("405", "405 Method Not Allowed"),
        ("409", "409 Conflict"),
        ("410", "410 Gone"),
        ("412", "412 Precondition Failed"),
        ("415", "415 Unsupported Media Type"),
        ("422", "422 x"),
    ] {
        rows.push(row(name, status(line), (1, REASON), (1, REASON)));
    }
    rows
}

/// Redirects. Only some are followed, with the method as it is.
fn rows_of_redirects() -> Vec<Row> {
    const FOUND: End = End::Reported("302");
    let moved =
        |status: &str, to: &str| Act::Send(response(status, &format!("location: {to}\r\n"), ""));
    let here = End::Reported("moved to /x");
    let elsewhere = moved("302 Found", "http://example.com/x");
    vec![
        row("302 elsewhere", elsewhere, (1, FOUND), (1, FOUND)),
        row("302 here", moved("302 Found", "/x"), (2, End::Ok), (1, here.clone()))
            .then(json_act("{}"))
            .with_idempotent_post(1, here),
        row("302 in circles", moved("302 Found", "/x"), (4, FOUND), (1, FOUND))
            .with_idempotent_post(1, FOUND),
        row("307 here", moved("307 x", "/x"), (2, End::Ok), (2, End::Ok)).then(json_act("{}")),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_fault_has_its_outcome() {
    let (mut tools, mut table) = (serde_json::Map::new(), Vec::new());
    let rows = [rows_of_connections(), rows_of_statuses(), rows_of_redirects()];
    for row in rows.into_iter().flatten() {
        for cell in row.into_cells().await {
            tools.insert(cell.name.clone(), cell.kind.entry(&cell.server.url));
            table.push(cell);
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
async fn redirect_keeps_method_and_body_within_its_origin() {
    let moved = Act::Send(response("307 x", "location: /other?a=1\r\n", ""));
    let server = Server::start([moved, json_act("{}")]).await;
    let (result, _) = call_entry(Kind::Post.entry(&server.url)).await;
    assert!(!result.unwrap().is_error);
    let received = server.received();
    assert_eq!(received[1].target, "/other?a=1");
    assert_eq!((received[1].method.as_str(), received[1].text().as_str()), ("POST", "{\"a\":1}"));
}

#[tokio::test]
async fn redirect_to_another_origin_is_reported_and_not_followed() {
    for kind in Kind::ALL {
        let elsewhere = Server::start([json_act("{}")]).await;
        let location = format!("location: {}/steal\r\n", elsewhere.url);
        let server = Server::start([Act::Send(response("307 x", &location, ""))]).await;
        let (result, _) = call_entry(kind.entry(&server.url)).await;
        let result = result.unwrap();
        let text = result.to_text().into_owned();
        assert!(result.is_error && text.contains("307") && !text.contains("steal"), "{text}");
        assert!(elsewhere.received().is_empty());
        assert_eq!(server.received().len(), 1, "{kind:?}");
    }
}

#[tokio::test]
async fn endless_body_is_read_to_the_limit() {
    for kind in Kind::ALL {
        let server = Server::start([Act::Endless]).await;
        let mut entry = kind.entry(&server.url);
        entry["maxResponseBytes"] = json!(100_000);
        let (result, _) = call_entry(entry).await;
        let text = result.unwrap().to_text().into_owned();
        assert!(text.ends_with("[the response exceeds 100000 bytes; the rest was not read]"));
        assert!(text.len() < 100_100);
        assert_eq!(server.received().len(), 1, "{kind:?}");
    }
}

#[tokio::test]
async fn deadline_and_cancellation_report_whether_request_was_sent() {
    for kind in Kind::ALL {
        let server = Server::start([Act::Stall]).await;
        let mut entry = kind.entry(&server.url);
        entry["timeoutMs"] = json!(100);
        let (result, _) = call_entry(entry.clone()).await;
        let failure = result.unwrap_err();
        assert_eq!((failure.code(), failure.executed()), (Code::Timeout, Executed::Unknown));
        assert_eq!(failure.is_retryable(), kind.is_repeatable());

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
    let mut entry = Kind::IdempotentPost.entry(&server.url);
    entry["idempotencyKey"] = json!("Idempotency-Key");
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
    let url = server.url.replace("127.0.0.1", "localhost");
    let file = json!({"restTools": {"tool": Kind::Get.entry(&url)}});
    let fixture = Fixture::with_options(&file, |options| options.dial.allow_private.clear()).await;
    assert!(fixture.provider.status().is_ok());
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
    let (result, _) = call_entry(Kind::Get.entry(&server.url)).await;
    assert_eq!(result.unwrap().to_text(), "(200: done, no content)");
    assert!(started.elapsed() >= Duration::from_secs(1));
    // A call whose time does not suffice for the wait is not made to wait.
    let busy = Act::Send(response("429 x", "retry-after: 5\r\n", ""));
    let server = Arc::new(Server::start([busy]).await);
    let mut entry = Kind::Get.entry(&server.url);
    entry["timeoutMs"] = json!(1000);
    let (result, _) = call_entry(entry).await;
    let failure = result.unwrap_err();
    assert_eq!(failure.code(), Code::Overloaded);
    assert!(failure.to_string().contains("call again in 5 s"), "{failure}");
}
