//! A client of a gateway that reads responses and events byte by byte.

use rockbot_testkit::fixture::within_timeout;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// The version of A2A, as a header line.
pub(super) const A2A_VERSION: &str = "a2a-version: 1.0\r\n";

/// A program that uses the API of a gateway.
pub(super) struct Client {
    pub(super) address: String,
    pub(super) token: String,
}

impl Client {
    /// Sends a request and returns the connection with its response. `headers` are whole lines.
    pub(super) async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &str,
        body: &str,
    ) -> TcpStream {
        let Self { address, token } = self;
        let mut stream = TcpStream::connect(address).await.expect("connected");
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.0\r\nhost: {address}\r\nauthorization: Bearer {token}\r\n\
             content-type: application/json\r\ncontent-length: {length}\r\n{headers}\r\n{body}"
        );
        stream.write_all(request.as_bytes()).await.expect("sent");
        stream
    }

    /// Returns the status and the body of the response to a request of the API.
    pub(super) async fn call(
        &self,
        method: &str,
        path: &str,
        headers: &str,
        body: &Value,
    ) -> (u16, Value) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        read_response(self.send(method, &format!("/api/v1{path}"), headers, &body).await).await
    }

    pub(super) async fn get(&self, path: &str) -> Value {
        let (status, body) = self.call("GET", path, "", &Value::Null).await;
        assert_eq!(status, 200, "{path}: {body}");
        body
    }

    /// Starts a conversation with the agent, and returns its id.
    pub(super) async fn start_conversation(&self) -> String {
        let new = json!({"agent": "assistant"});
        let (status, created) = self.call("POST", "/conversations", "", &new).await;
        assert_eq!(status, 201, "{created}");
        created["id"].as_str().expect("an id").to_owned()
    }

    /// Sends a message to a conversation, always with the same key.
    pub(super) async fn say(&self, conversation: &str, text: &str) -> Value {
        let path = format!("/conversations/{conversation}/messages");
        let key = "idempotency-key: key-00001\r\n";
        let (status, sent) = self.call("POST", &path, key, &json!({"text": text})).await;
        assert_eq!(status, 202, "{sent}");
        sent
    }

    /// Opens a stream, after an event.
    pub(super) async fn stream(&self, topics: &str, after: Option<&str>) -> EventReader {
        let after = after.map_or_else(String::new, |id| format!("last-event-id: {id}\r\n"));
        let stream = self.send("GET", &format!("/api/v1/stream?topics={topics}"), &after, "").await;
        EventReader::new(stream)
    }
}

/// Returns the parameters that send a message over A2A, always with the same id.
pub(super) fn a2a_message(text: &str) -> Value {
    json!({"message": {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": text}]}})
}

/// Returns a request of JSON-RPC.
pub(super) fn rpc_request(method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
}

/// Returns the header lines and the body of a call over MCP, of revision 2026-07-28.
pub(super) fn mcp_call(tool: &str, arguments: &Value) -> (String, Value) {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    });
    let params = json!({"name": tool, "arguments": arguments, "_meta": meta});
    let body = rpc_request("tools/call", &params);
    let headers = format!(
        "accept: application/json, text/event-stream\r\nmcp-protocol-version: 2026-07-28\r\n\
         mcp-method: tools/call\r\nmcp-name: {tool}\r\n"
    );
    (headers, body)
}

/// Returns the status and the body of the response on a connection.
pub(super) async fn read_response(mut stream: TcpStream) -> (u16, Value) {
    let mut response = String::new();
    let read = stream.read_to_string(&mut response);
    within_timeout("a response", read).await.expect("a response");
    let (head, body) = response.split_once("\r\n\r\n").expect("a head and a body");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    // A response over MCP may be an event.
    let json =
        body.lines().find_map(|line| line.strip_prefix("data: {").map(|rest| format!("{{{rest}")));
    let parsed = serde_json::from_str(json.as_deref().unwrap_or(body)).unwrap_or_default();
    (status.expect("a status"), parsed)
}

/// Reads the events of a stream.
pub(super) struct EventReader {
    stream: TcpStream,
    received: String,
    taken: usize,
}

impl EventReader {
    pub(super) fn new(stream: TcpStream) -> Self {
        Self { stream, received: String::new(), taken: 0 }
    }

    /// Returns the id and data of the events up to the first that matches.
    pub(super) async fn until(&mut self, matches: impl Fn(&Value) -> bool) -> Vec<(String, Value)> {
        let mut events = Vec::new();
        loop {
            let next = Box::pin(within_timeout("an event", self.next()));
            let (id, data) = next.await;
            let is_last = matches(&data);
            events.push((id, data));
            if is_last {
                return events;
            }
        }
    }

    async fn next(&mut self) -> (String, Value) {
        loop {
            let whole = self.received.rfind("\n\n").unwrap_or(0);
            let mut events =
                self.received[..whole].split("\n\n").filter(|event| event.contains("data: "));
            if let Some(event) = events.nth(self.taken) {
                self.taken += 1;
                let field = |name: &str| event.lines().find_map(|line| line.strip_prefix(name));
                let data = field("data: ").expect("data");
                let id = field("id: ").unwrap_or_default().to_owned();
                return (id, serde_json::from_str(data).expect("JSON"));
            }
            let mut bytes = [0; 8192];
            let read = self.stream.read(&mut bytes).await.expect("read");
            assert!(read > 0, "the stream ended: {}", self.received);
            self.received.push_str(&String::from_utf8_lossy(&bytes[..read]));
        }
    }
}
