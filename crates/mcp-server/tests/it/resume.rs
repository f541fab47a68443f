//! Streams of a session that continue after lost connections.

use std::sync::atomic::Ordering;

use rockbot_mcp_server::HttpOptions;
use rockbot_testkit::fixture::within_timeout;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::{
    fixture::{Fleet, Handler, Http},
    servers::Servers,
};

/// A client with a session of revision 2025-11-25.
struct Client {
    address: String,
    name: &'static str,
    session: String,
}

/// Events on a connection. Dropping it cuts the connection.
struct Events {
    stream: TcpStream,
    received: String,
    taken: usize,
}

impl Client {
    async fn connect(http: &Http, name: &'static str) -> Self {
        let address = http.url.trim_start_matches("http://").trim_end_matches("/mcp").to_owned();
        let mut client = Self { address, name, session: String::new() };
        let initialize = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"}}});
        let mut events = client.send("POST", "", &initialize.to_string()).await;
        while events.next().await.1["id"] != 0 {}
        let session = events.received.to_lowercase();
        let session = session.lines().find_map(|line| line.strip_prefix("mcp-session-id: "));
        client.session = format!("mcp-session-id: {}\r\n", session.expect("a session"));
        let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        client.send("POST", "", &initialized.to_string()).await.end().await;
        client
    }

    async fn send(&self, method: &str, headers: &str, body: &str) -> Events {
        let Self { address, name, session } = self;
        let mut stream = TcpStream::connect(address).await.unwrap();
        let length = body.len();
        let request = format!(
            "{method} /mcp HTTP/1.0\r\nhost: {address}\r\nx-client: {name}\r\n{session}{headers}\
             accept: application/json, text/event-stream\r\ncontent-type: application/json\r\n\
             content-length: {length}\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        Events { stream, received: String::new(), taken: 0 }
    }

    async fn call(&self, id: u32, tool: &str) -> Events {
        let call = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {
            "name": tool, "arguments": {}, "_meta": {"progressToken": id}}});
        self.send("POST", "", &call.to_string()).await
    }

    /// Continues a stream after an event.
    async fn resume(&self, last: &str) -> Events {
        self.send("GET", &format!("last-event-id: {last}\r\n"), "").await
    }
}

impl Events {
    /// Returns the id and the data of the next event.
    async fn next(&mut self) -> (String, Value) {
        within_timeout("an event", async {
            loop {
                if let Some(event) = self.take() {
                    return event;
                }
                assert!(self.read().await, "the stream ended: {}", self.received);
            }
        })
        .await
    }

    fn take(&mut self) -> Option<(String, Value)> {
        let whole = self.received.rfind("\n\n")?;
        let (_, body) = self.received[..whole].split_once("\r\n\r\n")?;
        let is_field = |line: &str| line.starts_with("id:") || line.starts_with("data:");
        let mut events = body.split("\n\n").filter(|event| event.lines().any(is_field));
        let event = events.nth(self.taken)?;
        self.taken += 1;
        let field = |name: &str| event.lines().find_map(|line| line.strip_prefix(name));
        let data = field("data:").unwrap_or_default().trim();
        let id = field("id:").unwrap_or_default().trim().to_owned();
        Some((id, serde_json::from_str(data).unwrap_or_default()))
    }

    async fn read(&mut self) -> bool {
        let mut bytes = [0; 4096];
        let read = self.stream.read(&mut bytes).await.unwrap();
        self.received.push_str(&String::from_utf8_lossy(&bytes[..read]));
        read > 0
    }

    /// Reads to the end of the stream, and returns the remaining events.
    async fn end(mut self) -> Vec<(String, Value)> {
        within_timeout("the end of the stream", async { while self.read().await {} }).await;
        std::iter::from_fn(|| self.take()).collect()
    }
}

fn step(event: &Value) -> &str {
    event["params"]["message"].as_str().unwrap_or_default()
}

async fn start() -> (Handler, Fleet, Http) {
    let handler = Handler::start().await;
    let fleet = handler.fleet().await;
    let http = fleet.http(HttpOptions::default()).await;
    (handler, fleet, http)
}

#[tokio::test]
async fn call_cut_three_times_has_each_event_once_and_in_order() {
    let (handler, _fleet, http) = start().await;
    let client = Client::connect(&http, "editor").await;
    let mut events = client.call(7, "chatty").await;
    let mut seen: Vec<(String, Value)> = Vec::new();
    for number in 1..=3 {
        let expected = format!("step {number}");
        loop {
            let event = events.next().await;
            let is_step = step(&event.1) == expected;
            seen.push(event);
            if is_step {
                break;
            }
        }
        drop(events);
        events = client.resume(&seen.last().unwrap().0).await;
    }
    handler.events.released.send_replace(true);
    seen.extend(events.end().await);
    let steps: Vec<_> = seen.iter().map(|(_, data)| step(data)).filter(|s| !s.is_empty()).collect();
    assert_eq!(steps, ["step 1", "step 2", "step 3"]);
    let results: Vec<_> = seen.iter().filter(|(_, data)| data["id"] == 7).collect();
    assert_eq!(results.len(), 1, "{seen:?}");
    assert_eq!(results[0].1["result"]["content"][0]["text"], "whole", "{seen:?}");
    assert_eq!(seen.last().unwrap(), results[0]);
}

#[tokio::test]
async fn result_that_was_sent_meanwhile_is_received() {
    let (handler, _fleet, http) = start().await;
    let client = Client::connect(&http, "editor").await;
    let mut events = client.call(7, "wait").await;
    let (last, _) = events.next().await;
    handler.events.running(1).await;
    drop(events);
    handler.events.released.send_replace(true);
    handler.events.running(0).await;
    for _ in 0..2 {
        let rest = client.resume(&last).await.end().await;
        assert_eq!(rest.len(), 1, "{rest:?}");
        assert_eq!(rest[0].1["result"]["content"][0]["text"], "1", "{rest:?}");
        // After the result there is nothing more.
        assert!(client.resume(&rest[0].0).await.end().await.is_empty());
    }
    assert_eq!(handler.events.runs.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn events_of_another_client_are_unknown() {
    let (handler, _fleet, http) = start().await;
    let (owner, other) =
        (Client::connect(&http, "editor").await, Client::connect(&http, "other").await);
    handler.events.released.send_replace(true);
    let events = owner.call(7, "wait").await.end().await;
    let (first, _) = &events[0];
    assert!(other.resume(first).await.end().await.is_empty());
    assert_eq!(owner.resume(first).await.end().await, events[1..]);
}

#[tokio::test]
async fn notifications_continue_after_lost_connections() {
    let handler = Handler::start().await;
    let servers = Servers::new();
    let fleet = handler.fleet_with(Default::default(), Some(servers.gateway())).await;
    let http = fleet.http(HttpOptions::default()).await;
    let client = Client::connect(&http, "editor").await;
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).to_string();
    client.send("POST", "", &list).await.end().await;
    let mut events = client.send("GET", "", "").await;
    let (mut last, _) = events.next().await;
    let mut ids = vec![last.clone()];
    for number in 1..=3 {
        drop(events);
        servers.add("tracker", number);
        events = client.resume(&last).await;
        let (id, notified) = events.next().await;
        assert_eq!(notified["method"], "notifications/tools/list_changed", "{notified}");
        assert!(!ids.contains(&id), "{id} again: {ids:?}");
        ids.push(id.clone());
        last = id;
        client.send("POST", "", &list).await.end().await;
    }
}
