//! A server that answers as a test says, byte for byte.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Notify,
};
use tokio_util::task::AbortOnDropHandle;

/// Behavior of the server for one request.
#[derive(Debug, Clone)]
pub(crate) enum Act {
    /// Sends these bytes and closes the connection.
    Send(Vec<u8>),
    /// Resets the connection.
    Reset,
    /// Never answers.
    Stall,
    /// Sends a head and then data until the client has enough.
    Endless,
    /// Sends a head and then this line until the client has enough.
    Repeat(Vec<u8>, &'static str),
    /// Sends the first bytes, and the others on the notification of the test.
    InTwo(Vec<u8>, Arc<Notify>, Vec<u8>),
    /// Answers with the request itself.
    Echo,
}

/// A request as it arrived.
#[derive(Debug, Clone, Default)]
pub(crate) struct Received {
    pub(crate) method: String,
    /// Path and query.
    pub(crate) target: String,
    /// Headers by lower-case name.
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
}

impl Received {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// A server on a port of this machine, until it is dropped.
pub(crate) struct Server {
    pub(crate) url: String,
    received: Arc<Mutex<Vec<Received>>>,
    arrived: Arc<Notify>,
    _task: AbortOnDropHandle<()>,
}

impl Server {
    /// Starts a server that does the acts in order, and repeats the last one.
    pub(crate) async fn start(acts: impl IntoIterator<Item = Act>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let acts: Arc<Vec<Act>> = Arc::new(acts.into_iter().collect());
        let received: Arc<Mutex<Vec<Received>>> = Arc::default();
        let arrived = Arc::new(Notify::new());
        let (log, notify) = (received.clone(), arrived.clone());
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (acts, log, notify) = (acts.clone(), log.clone(), notify.clone());
                connections
                    .spawn(async move { Box::pin(serve(stream, &acts, &log, &notify)).await });
            }
        });
        Self { url, received, arrived, _task: AbortOnDropHandle::new(task) }
    }

    /// Returns the requests so far.
    pub(crate) fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }

    /// Waits for the next request.
    pub(crate) async fn arrival(&self) {
        self.arrived.notified().await;
    }
}

/// Returns a response with a body.
pub(crate) fn response(status: &str, headers: &str, body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n{headers}\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// Returns the head of a response whose end is the end of the connection.
pub(crate) fn open_head(kind: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\nconnection: close\r\n\r\n").into_bytes()
}

pub(crate) fn json(body: &str) -> Act {
    Act::Send(response("200 OK", "content-type: application/json\r\n", body))
}

pub(crate) fn status(status: &str) -> Act {
    Act::Send(response(status, "content-type: text/plain\r\n", "the reason"))
}

async fn serve(
    mut stream: TcpStream,
    acts: &[Act],
    log: &Mutex<Vec<Received>>,
    arrived: &Notify,
) -> Option<()> {
    let received = read(&mut stream).await?;
    let echo = format!("{received:?} {}", received.text());
    let number = {
        let mut log = log.lock().unwrap();
        log.push(received);
        log.len() - 1
    };
    arrived.notify_one();
    match acts.get(number).or(acts.last())?.clone() {
        Act::Send(bytes) => {
            stream.write_all(&bytes).await.ok()?;
            stream.shutdown().await.ok()?;
        }
        Act::Reset => reset(stream),
        Act::Stall => std::future::pending().await,
        Act::Endless => {
            repeat(&mut stream, &open_head("text/plain"), "x").await?;
        }
        Act::Repeat(head, line) => repeat(&mut stream, &head, line).await?,
        Act::InTwo(first, go_on, second) => {
            stream.write_all(&first).await.ok()?;
            stream.flush().await.ok()?;
            go_on.notified().await;
            stream.write_all(&second).await.ok()?;
            stream.shutdown().await.ok()?;
        }
        Act::Echo => {
            let bytes = response("200 OK", "content-type: text/plain\r\n", &echo);
            stream.write_all(&bytes).await.ok()?;
            stream.shutdown().await.ok()?;
        }
    }
    Some(())
}

async fn repeat(stream: &mut TcpStream, head: &[u8], line: &str) -> Option<()> {
    stream.write_all(head).await.ok()?;
    let block = line.repeat(64 * 1024 / line.len());
    while stream.write_all(block.as_bytes()).await.is_ok() {}
    Some(())
}

/// Closes a connection with a reset instead of an end.
fn reset(stream: TcpStream) {
    stream.set_zero_linger().unwrap();
    drop(stream);
}

async fn read(stream: &mut TcpStream) -> Option<Received> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break end;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let mut lines = head.lines();
    let mut first = lines.next()?.split(' ');
    let (method, target) = (first.next()?.to_owned(), first.next()?.to_owned());
    let headers = lines.filter_map(|line| line.split_once(':'));
    let headers: BTreeMap<_, _> =
        headers.map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned())).collect();
    let length = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = bytes.split_off(end + 4);
    while body.len() < length {
        if stream.read_buf(&mut body).await.ok()? == 0 {
            return None;
        }
    }
    Some(Received { method, target, headers, body })
}
