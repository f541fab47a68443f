//! Requests over HTTP whose headers and connection the test controls.

use rockbot_testkit::fixture::within_timeout;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// A request. Dropping the future that sends it closes its connection.
#[derive(Clone)]
pub(crate) struct RawRequest {
    address: String,
    headers: Vec<(String, String)>,
    body: String,
}

/// A response.
pub(crate) struct RawResponse {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: String,
}

impl RawRequest {
    /// Creates a request to `url` with the headers that every request of the protocol has.
    pub(crate) fn post(url: &str, body: String) -> Self {
        let address = url.trim_start_matches("http://").trim_end_matches("/mcp").to_owned();
        let request = Self { address, headers: Vec::new(), body };
        request
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
    }

    /// Creates a call of revision 2026-07-28, of the client `editor`.
    pub(crate) fn stateless_call(url: &str, tool: &str, arguments: &Value) -> Self {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
        "name": tool, "arguments": arguments, "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        }}});
        Self::post(url, body.to_string())
            .header("x-client", "editor")
            .header("mcp-protocol-version", "2026-07-28")
            .header("mcp-method", "tools/call")
            .header("mcp-name", tool)
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sends the request and reads the whole response.
    pub(crate) async fn send(self) -> RawResponse {
        let Self { address, headers, body } = self;
        let mut request = format!(
            "POST /mcp HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-length: {}\r\n",
            body.len()
        );
        for (name, value) in headers {
            request.push_str(&format!("{name}: {value}\r\n"));
        }
        request.push_str("\r\n");
        let mut connection = TcpStream::connect(&address).await.unwrap();
        connection.write_all(request.as_bytes()).await.unwrap();
        // A server may refuse a large body before it is complete.
        let _ = connection.write_all(body.as_bytes()).await;
        let mut response = Vec::new();
        let mut chunk = [0; 4096];
        loop {
            match within_timeout("a response", connection.read(&mut chunk)).await {
                Ok(0) | Err(_) => break,
                Ok(read) => response.extend_from_slice(&chunk[..read]),
            }
        }
        RawResponse::parse(&String::from_utf8(response).unwrap())
    }

    /// Sends a call, and returns the result in its response.
    pub(crate) async fn result(self) -> Value {
        let response = self.send().await;
        assert_eq!(response.status, 200, "{}", response.body);
        let json = response.body.lines().find(|line| line.contains("jsonrpc"));
        let json = json.unwrap_or_else(|| panic!("{}", response.body));
        let message: Value = serde_json::from_str(json.trim_start_matches("data: ")).unwrap();
        message["result"].clone()
    }
}

impl RawResponse {
    fn parse(response: &str) -> Self {
        let (head, body) = response.split_once("\r\n\r\n").expect("the head of a response");
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Self { status, head: head.to_lowercase(), body: body.to_owned() }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")))
    }
}
