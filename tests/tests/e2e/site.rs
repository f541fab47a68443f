//! An HTTP server on loopback that replies as a test says.

use std::{collections::BTreeMap, sync::Arc};

use rockbot_testkit::fixture::within_timeout;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    sync::watch,
    task::JoinSet,
};

use crate::http;

/// Reply to a request.
#[derive(Debug, Clone)]
pub(crate) enum Reply {
    /// These bytes, and the end of the connection.
    Send(Vec<u8>),
    /// None, while the client waits.
    Hang,
}

/// A request as it arrived.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    /// Path without the query.
    pub(crate) path: String,
    /// Request line and headers.
    head: String,
    body: Vec<u8>,
}

/// The server. Dropping it closes its connections.
pub(crate) struct Site {
    port: u16,
    requests: watch::Receiver<Vec<Request>>,
    _tasks: JoinSet<()>,
}

impl Request {
    /// Returns the value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let headers = self.head.lines().skip(1).filter_map(|line| line.split_once(':'));
        let mut values = headers.filter(|(header, _)| header.eq_ignore_ascii_case(name));
        values.next().map(|(_, value)| value.trim())
    }

    /// Returns the method, such as `POST`.
    pub(crate) fn method(&self) -> &str {
        self.head.split(' ').next().unwrap_or_default()
    }

    /// Returns the fields of a form in the body.
    pub(crate) fn form(&self) -> BTreeMap<String, String> {
        url::form_urlencoded::parse(&self.body).into_owned().collect()
    }

    /// Returns the body.
    #[track_caller]
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).expect("a body in JSON")
    }
}

impl Reply {
    /// Returns a reply with status 200.
    pub(crate) fn ok(content_type: &str, body: impl AsRef<[u8]>) -> Self {
        let body = body.as_ref();
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n",
            body.len()
        );
        Self::Send([head.as_bytes(), body].concat())
    }

    /// Returns a reply with another status, headers and no body. `head` is the status and the headers, a line each.
    pub(crate) fn status(head: &str) -> Self {
        let head = head.replace('\n', "\r\n");
        Self::Send(
            format!("HTTP/1.1 {head}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").into(),
        )
    }

    /// Adds a header.
    pub(crate) fn with_header(self, name: &str, value: &str) -> Self {
        match self {
            Self::Send(bytes) => {
                let line = bytes.iter().position(|byte| *byte == b'\n').map_or(0, |end| end + 1);
                let header = format!("{name}: {value}\r\n");
                Self::Send([&bytes[..line], header.as_bytes(), &bytes[line..]].concat())
            }
            Self::Hang => Self::Hang,
        }
    }

    /// Returns a reply with status 200 and a JSON body.
    pub(crate) fn json(body: &serde_json::Value) -> Self {
        Self::ok("application/json", body.to_string())
    }
}

impl Site {
    /// Serves paths. Each has its replies in order, of which the last is repeated. Others are not found.
    pub(crate) async fn start<const N: usize>(paths: [(&str, Vec<Reply>); N]) -> Self {
        let paths = paths.map(|(path, replies)| (path.to_owned(), replies));
        let paths = BTreeMap::from(paths);
        Self::with_replies(move |request, earlier| {
            let replies = paths.get(&request.path);
            let reply = replies.and_then(|replies| replies.get(earlier).or(replies.last()));
            reply.cloned().unwrap_or_else(|| Reply::status("404 Not Found"))
        })
        .await
    }

    /// Serves the replies of a function of a request and of the number of earlier requests for its path.
    pub(crate) async fn with_replies(
        reply: impl Fn(&Request, usize) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let reply = Arc::new(reply);
        let (seen, requests) = watch::channel(Vec::new());
        let serve = move |stream| serve(stream, reply.clone(), seen.clone());
        let (port, tasks) = http::serve_connections(serve).await;
        Self { port, requests, _tasks: tasks }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    /// Returns the requests for a path so far.
    pub(crate) fn requests(&self, path: &str) -> Vec<Request> {
        let requests = self.requests.borrow();
        requests.iter().filter(|request| request.path == path).cloned().collect()
    }

    /// Waits for the first request for a path.
    pub(crate) async fn wait_for_request(&self, path: &str) {
        let mut requests = self.requests.clone();
        let arrived = requests.wait_for(|seen| seen.iter().any(|request| request.path == path));
        within_timeout(path, arrived).await.expect("the server is running");
    }
}

async fn serve(
    stream: TcpStream,
    reply: Arc<impl Fn(&Request, usize) -> Reply>,
    seen: watch::Sender<Vec<Request>>,
) {
    let mut stream = BufReader::new(stream);
    let Some(request) = read(&mut stream).await else { return };
    let mut earlier = 0;
    seen.send_modify(|seen| {
        earlier = seen.iter().filter(|earlier| earlier.path == request.path).count();
        seen.push(request.clone());
    });
    match reply(&request, earlier) {
        Reply::Hang => std::future::pending().await,
        Reply::Send(bytes) => send(&mut stream, &bytes).await,
    }
}

/// Reads a request with its body. Returns `None` if the client disconnects.
async fn read(stream: &mut BufReader<TcpStream>) -> Option<Request> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head).await.ok()? == 0 {
            return None;
        }
    }
    let path = head.split([' ', '?']).nth(1)?.to_owned();
    let mut request = Request { path, head, body: Vec::new() };
    let length = request.header("content-length").map_or(Ok(0), str::parse).ok()?;
    request.body = vec![0; length];
    stream.read_exact(&mut request.body).await.ok()?;
    Some(request)
}

async fn send(stream: &mut BufReader<TcpStream>, bytes: &[u8]) {
    // The client may have disconnected.
    let _ = stream.write_all(bytes).await;
    let _ = stream.shutdown().await;
}
