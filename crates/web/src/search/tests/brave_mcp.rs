//! Brave's MCP server at the limits of the same service, for comparison.

use std::{process::Stdio, sync::Arc, time::Duration};

use rockbot_testkit::mcp_servers::McpPeer;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
    time::Instant,
};

use super::{fake_brave::FakeBrave, loopback, pacing::search_at_once};

/// A server process, which ends with this value.
struct BraveMcp {
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    _process: Child,
}

impl BraveMcp {
    /// Starts a server that searches at this URL.
    async fn start(base_url: &str) -> Self {
        let (program, arguments) = McpPeer::BraveSearch.command();
        let mut process = Command::new(program)
            .args(arguments)
            .env("BRAVE_API_KEY", "key")
            .env("BRAVE_BASE_URL", base_url)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("a server");
        let input = process.stdin.take().expect("piped");
        let output = BufReader::new(process.stdout.take().expect("piped")).lines();
        let mut server = Self { input, output, _process: process };
        let parameters = json!({"protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"}});
        server.send(json!({"id": 0, "method": "initialize", "params": parameters})).await;
        server.reply().await;
        server.send(json!({"method": "notifications/initialized"})).await;
        server
    }

    async fn send(&mut self, mut message: Value) {
        message["jsonrpc"] = json!("2.0");
        self.input.write_all(format!("{message}\n").as_bytes()).await.expect("a running server");
    }

    /// Returns the next reply. Notifications are skipped.
    async fn reply(&mut self) -> Value {
        loop {
            let line = self.output.next_line().await.expect("a running server");
            let message: Value = serde_json::from_str(&line.expect("a message")).expect("JSON");
            if message.get("id").is_some() {
                return message;
            }
        }
    }

    /// Searches `count` times at once, and returns the number of failures.
    async fn failures(&mut self, count: usize) -> usize {
        for id in 1..=count {
            let search = json!({"name": "brave_web_search", "arguments": {"query": "rust"}});
            self.send(json!({"id": id, "method": "tools/call", "params": search})).await;
        }
        let mut failures = 0;
        for _ in 0..count {
            let reply = self.reply().await;
            let has_failed = reply.get("error").is_some() || reply["result"]["isError"] == true;
            failures += usize::from(has_failed);
        }
        failures
    }
}

#[tokio::test]
async fn searches_at_once_are_answered_where_braves_server_fails() {
    let service = || FakeBrave::new(1, 15_000, Duration::from_secs(1_000_000));
    let (own_service, other_service) = (service(), service());
    let own = async {
        let server = loopback::serve(own_service.clone()).await;
        let replicas = [(); 2].map(|()| Arc::new(server.web_search()));
        let start = Instant::now();
        (search_at_once(&replicas, 5).await, start.elapsed())
    };
    let other = async {
        let server = loopback::serve(other_service.clone()).await;
        let mut first = BraveMcp::start(&server.base_url).await;
        let mut second = BraveMcp::start(&server.base_url).await;
        let (first, second) = tokio::join!(first.failures(5), second.failures(5));
        first + second
    };
    let ((failures, elapsed), other_failures) = tokio::join!(own, other);
    println!("10 searches at once, 1 per second: {} failures in {elapsed:?};", failures.len());
    println!("Brave's MCP server: {other_failures} failures");
    assert_eq!(failures, [""; 0]);
    assert!(elapsed <= Duration::from_secs(20), "{elapsed:?}");
    let requests = other_service.statuses();
    assert_eq!(requests.len(), 10, "{requests:?}");
    assert!(other_failures >= 8, "{other_failures}: {requests:?}");
}
