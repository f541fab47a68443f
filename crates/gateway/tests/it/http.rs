//! A client that sends requests byte by byte, also wrong ones.

use std::net::SocketAddr;

use rockbot_testkit::fixture::within_timeout;
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// A request, with the headers that every request has.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    method: String,
    path: String,
    host: Option<String>,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

/// A whole response.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Request {
    pub(crate) fn new(method: &str, path: &str) -> Self {
        let (method, path) = (method.to_owned(), path.to_owned());
        Self { method, path, host: None, headers: Vec::new(), body: Vec::new() }
    }

    pub(crate) fn get(path: &str) -> Self {
        Self::new("GET", path)
    }

    pub(crate) fn post(path: &str, body: &Value) -> Self {
        Self::new("POST", path).header("content-type", "application/json").body(body.to_string())
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn host(self, host: &str) -> Self {
        Self { host: Some(host.to_owned()), ..self }
    }

    pub(crate) fn body(self, body: impl Into<Vec<u8>>) -> Self {
        Self { body: body.into(), ..self }
    }

    pub(crate) fn token(self, token: &str) -> Self {
        self.header("authorization", &format!("Bearer {token}"))
    }

    /// Returns the bytes of the head.
    pub(crate) fn head(&self, address: SocketAddr) -> String {
        let Self { method, path, headers, .. } = self;
        let host = self.host.clone().unwrap_or_else(|| address.to_string());
        let mut head = format!("{method} {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n");
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if !self.body.is_empty() {
            head.push_str(&format!("content-length: {}\r\n", self.body.len()));
        }
        head + "\r\n"
    }

    /// Sends the request and returns the open connection.
    pub(crate) async fn open(&self, address: SocketAddr) -> Stream {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(self.head(address).as_bytes()).await.unwrap();
        // The gateway may refuse the request before it has read the whole body.
        let _ = stream.write_all(&self.body).await;
        Stream { stream, received: String::new() }
    }

    /// Sends the request and reads the whole response.
    pub(crate) async fn send(&self, address: SocketAddr) -> Response {
        self.open(address).await.finish().await
    }
}

/// A connection whose response is being read.
pub(crate) struct Stream {
    pub(crate) stream: TcpStream,
    received: String,
}

impl Stream {
    /// Reads until the response contains `text`.
    pub(crate) async fn read_until(&mut self, text: &str) {
        within_timeout(text, async {
            while !self.received.contains(text) {
                assert!(self.read().await, "{text} did not come: {}", self.received);
            }
        })
        .await;
    }

    /// Returns what has been received.
    pub(crate) fn received(&self) -> String {
        self.received.clone()
    }

    pub(crate) async fn read_to_end(&mut self) {
        while self.read().await {}
    }

    async fn read(&mut self) -> bool {
        let mut bytes = vec![0; 16 * 1024];
        // A server that refuses a body resets the connection after its response.
        let read = self.stream.read(&mut bytes).await.unwrap_or(0);
        self.received.push_str(&String::from_utf8_lossy(&bytes[..read]));
        read > 0
    }

    /// Reads the rest of the response.
    pub(crate) async fn finish(mut self) -> Response {
        within_timeout("the end of the response", self.read_to_end()).await;
        self.into_response()
    }

    fn into_response(self) -> Response {
        let (head, body) = self.received.split_once("\r\n\r\n").expect("a whole head");
        let status = head.split(' ').nth(1).expect("a status").parse().unwrap();
        let head = lower_names(head);
        let is_chunked = head.contains("transfer-encoding: chunked");
        let body = if is_chunked { unchunked(body) } else { body.to_owned() };
        Response { status, head, body }
    }
}

impl Response {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    /// Returns the data of the events of a stream.
    pub(crate) fn events(&self) -> Vec<&str> {
        self.body.split("\n\n").filter_map(|event| event.strip_prefix("data: ")).collect()
    }

    /// Returns the answer in a completion, which may be a stream.
    pub(crate) fn answer(&self, is_stream: bool) -> String {
        if is_stream {
            return self.streamed("content");
        }
        self.json()["choices"][0]["message"]["content"].as_str().unwrap().to_owned()
    }

    /// Returns the text in the chunks of a completion.
    pub(crate) fn streamed(&self, field: &str) -> String {
        let chunks = self.events().into_iter().filter_map(|event| serde_json::from_str(event).ok());
        let texts = chunks.filter_map(|chunk: Value| {
            Some(chunk["choices"].get(0)?["delta"][field].as_str()?.to_owned())
        });
        texts.collect()
    }
}

/// Returns a head with the names of its headers in lower case.
fn lower_names(head: &str) -> String {
    let lines = head.split("\r\n").map(|line| match line.split_once(':') {
        Some((name, value)) => format!("{}:{value}", name.to_ascii_lowercase()),
        None => line.to_owned(),
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn unchunked(mut body: &str) -> String {
    let mut whole = String::new();
    while let Some((length, rest)) = body.split_once("\r\n") {
        let length = usize::from_str_radix(length, 16).unwrap();
        if length == 0 {
            break;
        }
        whole.push_str(&rest[..length]);
        body = &rest[length + 2..];
    }
    whole
}
