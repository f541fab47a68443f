//! Secrets of the configuration appear nowhere but in requests.

use std::{
    io,
    sync::{Arc, Mutex},
};

use rockbot_tools::ToolProvider;
use serde_json::{Value, json};
use tracing_subscriber::{
    fmt::{MakeWriter, format::FmtSpan},
    util::SubscriberInitExt,
};

use crate::{
    fixture::{Fixture, SECRET, context},
    server::{Act, Server, response},
};

/// A log in memory.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

#[track_caller]
fn assert_clean(text: &str, place: &str) {
    assert!(!text.contains("hunter2"), "{place}: {text}");
}

#[tokio::test]
async fn secret_is_in_no_result_error_log_span_or_definition() {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_span_events(FmtSpan::FULL)
        .with_writer(log.clone())
        .finish();
    // For all tests: one of a single thread misses spans that other threads record first. With the records of
    // reqwest and rustls: services do not log them at their default level, but an operator can set `trace`.
    subscriber.init();
    let server = Server::start([Act::Echo, Act::Echo, Act::Reset]).await;
    let entry = json!({
        "description": "Echo.", "method": "POST", "url": format!("{}/bot${{SECRET}}/x", server.url),
        "query": {"key": "${SECRET}"},
        "headers": {"Authorization": "Bearer ${SECRET}", "X-Key": "${SECRET}"},
        "body": {"key": "${SECRET}", "q": "${parameters.q}"},
        "parametersSchema": {"properties": {"q": {"type": "string"}}},
    });
    // In the path the secret is written as it is: its slash separates segments.
    let fixture = Fixture::new(&json!({"restTools": {"tool": entry}})).await;
    let (context, updates) = context("tool");
    let result = fixture.call(json!({"q": "x"}), &context).await.unwrap();
    let text = result.to_text().into_owned();
    assert!(text.contains("[secret]"), "{text}");
    assert_clean(&text, "result");
    assert_clean(&format!("{:?}", result.details), "details");
    fixture.call(json!({"q": SECRET}), &context).await.unwrap();
    let failure = fixture.call(json!({"q": "x"}), &context).await.unwrap_err();
    assert_clean(&failure.chain().to_string(), "failure");
    assert_clean(&format!("{failure:?}"), "failure");
    assert_clean(&format!("{:?}", updates.0.lock().unwrap()), "updates");
    for tool in fixture.provider.list() {
        assert_clean(&format!("{:?}", tool.registration()), "definition");
    }
    assert_clean(&format!("{:?}", fixture.provider.status()), "status");
    let sent = server.received();
    assert!(sent.len() == 3 && sent[0].headers["authorization"].contains("hunter2"));
    let log = String::from_utf8_lossy(&log.0.lock().unwrap()).into_owned();
    assert!(log.contains("rest call"), "spans are recorded");
    assert!(log.contains("starting new connection"), "records of reqwest are included");
    assert_clean(&log, "log");
}

#[tokio::test]
async fn part_of_a_secret_at_a_cut_is_removed() {
    let body = format!("{}: {SECRET}", "x".repeat(90));
    for (status, hint) in [("200 OK", "the rest was not read"), ("404 Not Found", "404")] {
        let kind = "content-type: text/plain\r\n";
        let server = Server::start([Act::Send(response(status, kind, &body))]).await;
        let entry = json!({
            "description": "Cut.", "url": server.url, "query": {"key": "${SECRET}"},
            "maxResponseBytes": 100,
        });
        let fixture = Fixture::with_tool(entry).await;
        let (context, _) = context("tool");
        let result = fixture.call(json!({}), &context).await.unwrap();
        let text = result.to_text().into_owned();
        assert!(text.contains(hint) && text.contains("xx: ") && !text.contains("hunter"), "{text}");
    }
}

#[tokio::test]
async fn secrets_of_an_invalid_entry_are_not_reported() {
    let with = |key: &str, value: Value| {
        let mut entry = json!({"description": "x", "url": "http://127.0.0.1/", "method": "POST"});
        entry[key] = value;
        entry
    };
    let fixture = Fixture::new(&json!({
        "restTools": {
            "url": with("url", json!("${SECRET}")),
            "header": with("headers", json!({"X": "${SECRET}\n"})),
            "headers": with("headers", json!("Bearer hunter2-literal")),
            "kind": with("bodyType", json!("hunter2-literal")),
            "time": with("timeoutMs", json!("hunter2-literal")),
            "cache": with("cache", json!("hunter2-literal")),
        },
        "openApi": {
            "auth": {"spec": "api.json", "auth": {"key": "${SECRET}"}},
            "field": {"spec": "api.json", "auth": {"key": {"tokens": "${SECRET}"}}},
            "headers": {"spec": "api.json", "headers": ["${SECRET}"]},
            "list": {"spec": "api.json", "readOnly": "${SECRET}"},
        },
    }))
    .await;
    let status = fixture.provider.status();
    assert_eq!(status.entries.len(), 10);
    assert!(status.entries.iter().all(|entry| !entry.problems.is_empty()), "{status:?}");
    assert_clean(&format!("{status:?}"), "status");
}
