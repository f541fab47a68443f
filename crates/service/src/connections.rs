//! A listener with a bounded number of HTTP/1 connections and timeouts.
//!
//! A connection must send the head of a request within 5 s, however slowly its bytes arrive, and within
//! 64 KiB. When the number of connections is reached, a further one replaces the connection that has waited
//! longest for the head of a request, so that half-sent requests cannot keep others out. Each may wait for
//! 100 ms, so a listener for 64 connections gets through more than 600 half-sent requests a second. A request
//! that has arrived is served, even if its connection was chosen to be replaced. A connection that takes no
//! bytes of a response for 30 s is closed.
//!
//! Bytes do not show where a response ends. A server with long responses or streams marks a connection as in
//! use with [`Peer::begin`], until the response has ended.

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::{
    extract::connect_info::Connected,
    serve::{IncomingStream, Listener},
};
use futures_util::task::AtomicWaker;
use parking_lot::Mutex;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, Sleep, sleep, timeout},
};

/// Time limit for the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);

/// Largest head of a request, in bytes.
const MAX_HEAD_BYTES: usize = 64 * 1024;

/// Time limit for the other side to take bytes of a response.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// Time that a connection may wait for the head of a request before another can replace it.
const REPLACEABLE_AFTER: Duration = Duration::from_millis(100);

/// Time after which another connection is replaced, if the first goes on because its request has arrived.
const REPLACE_INTERVAL: Duration = Duration::from_millis(20);

/// Accepts a bounded number of connections. Further ones replace connections without a request, or wait.
#[derive(Debug)]
pub struct BoundedListener {
    listener: TcpListener,
    permits: Arc<Semaphore>,
    idle_timeout: Duration,
    /// Open connections in the order of their acceptance.
    open: Vec<Weak<Waiting>>,
    /// A connection without a permit.
    pending: Option<(TcpStream, SocketAddr)>,
}

impl BoundedListener {
    /// Creates a listener for at most `limit` connections, each of which is closed when it receives
    /// nothing for `idle_timeout`.
    #[must_use]
    pub fn new(listener: TcpListener, limit: usize, idle_timeout: Duration) -> Self {
        let permits = Arc::new(Semaphore::new(limit));
        Self { listener, permits, idle_timeout, open: Vec::new(), pending: None }
    }

    /// Waits for a permit, and closes connections without a request.
    async fn permit(&self) -> Option<OwnedSemaphorePermit> {
        if let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() {
            return Some(permit);
        }
        loop {
            self.replace_longest_waiting();
            let permit = Arc::clone(&self.permits).acquire_owned();
            // It fails only when the semaphore is closed, and it never is.
            if let Ok(permit) = timeout(REPLACE_INTERVAL, permit).await {
                return permit.ok();
            }
        }
    }

    fn replace_longest_waiting(&self) {
        let now = Instant::now();
        let unused = self.open.iter().filter_map(Weak::upgrade);
        let unused = unused.filter(|open| open.requests.load(Ordering::Acquire) == 0);
        let waiting = unused.filter_map(|open| {
            let Wait { since, is_replaced } = *open.wait.lock();
            let since = since.filter(|since| now - *since >= REPLACEABLE_AFTER && !is_replaced);
            since.map(|since| (since, open))
        });
        if let Some((_, longest)) = waiting.min_by_key(|(since, _)| *since) {
            longest.replace();
        }
    }
}

impl Listener for BoundedListener {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        if self.pending.is_none() {
            self.pending = Some(Listener::accept(&mut self.listener).await);
        }
        // Cancelled here, the connection stays pending.
        let permit = self.permit().await;
        let (stream, address) = match self.pending.take() {
            Some(pending) => pending,
            None => Listener::accept(&mut self.listener).await,
        };
        let waiting = Arc::new(Waiting {
            wait: Mutex::new(Wait { since: Some(Instant::now()), is_replaced: false }),
            requests: AtomicUsize::new(0),
            reader: AtomicWaker::new(),
        });
        self.open.retain(|open| open.strong_count() > 0);
        self.open.push(Arc::downgrade(&waiting));
        let connection = Connection {
            stream,
            idle_timeout: self.idle_timeout,
            phase: Phase::Head { matched: 0, bytes: 0 },
            timer: Box::pin(sleep(HEAD_TIMEOUT)),
            stalled: None,
            waiting,
            _permit: permit,
        };
        (connection, address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// State of a connection that the listener can close.
#[derive(Debug)]
struct Waiting {
    wait: Mutex<Wait>,
    /// Number of requests that are being processed or answered.
    requests: AtomicUsize,
    /// The task that reads from the connection.
    reader: AtomicWaker,
}

#[derive(Debug, Clone, Copy)]
struct Wait {
    /// Time since when the connection waits for a request; `None` during a request.
    since: Option<Instant>,
    /// It is to be closed, unless a request has arrived.
    is_replaced: bool,
}

impl Waiting {
    /// Records that the connection waits for a request.
    fn begin(&self, now: Instant) {
        self.wait.lock().since = Some(now);
    }

    /// Records that a request has arrived.
    fn end(&self) {
        *self.wait.lock() = Wait { since: None, is_replaced: false };
    }

    /// Closes the connection, unless a request has arrived.
    fn replace(&self) {
        {
            let mut wait = self.wait.lock();
            wait.is_replaced = wait.since.is_some();
        }
        self.reader.wake();
    }

    fn is_replaced(&self) -> bool {
        self.wait.lock().is_replaced
    }
}

/// The other side of a connection. A server that is given the type for the connection's info has it in the
/// extensions of each request, as `ConnectInfo<Peer>`.
#[derive(Debug, Clone)]
pub struct Peer {
    address: SocketAddr,
    waiting: Arc<Waiting>,
}

impl Peer {
    /// Returns the address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Marks the connection as in use until the value is dropped. Until then another connection does not
    /// replace it, and it is not closed as idle.
    #[must_use]
    pub fn begin(&self) -> InUse {
        self.waiting.requests.fetch_add(1, Ordering::AcqRel);
        InUse(self.waiting.clone())
    }
}

impl Connected<IncomingStream<'_, BoundedListener>> for Peer {
    fn connect_info(stream: IncomingStream<'_, BoundedListener>) -> Self {
        Self { address: *stream.remote_addr(), waiting: stream.io().waiting.clone() }
    }
}

/// A connection in use, until dropped.
#[derive(Debug)]
pub struct InUse(Arc<Waiting>);

impl Drop for InUse {
    fn drop(&mut self) {
        self.0.begin(Instant::now());
        self.0.requests.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Phase of the exchange on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The head of a request is being received: `bytes` so far, of which the last `matched` begin its end.
    Head { matched: usize, bytes: usize },
    /// A request is being received or processed.
    Request,
    /// The response is being sent, or has been.
    Response,
}

/// A connection that is closed when it stays idle, or sends the head of a request too slowly.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    idle_timeout: Duration,
    phase: Phase,
    timer: Pin<Box<Sleep>>,
    /// Runs while the other side takes no bytes.
    stalled: Option<Pin<Box<Sleep>>>,
    waiting: Arc<Waiting>,
    _permit: Option<OwnedSemaphorePermit>,
}

impl Connection {
    fn received(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        if self.phase == Phase::Response {
            self.phase = Phase::Head { matched: 0, bytes: 0 };
            self.wait(HEAD_TIMEOUT);
        }
        if let Phase::Head { matched, bytes: before } = self.phase {
            let matched = bytes.iter().fold(matched, |matched, byte| match (matched, byte) {
                (HEAD_END_BYTES, _) => matched,
                (0 | 2, b'\r') | (1 | 3, b'\n') => matched + 1,
                (_, b'\r') => 1,
                _ => 0,
            });
            self.phase = Phase::Head { matched, bytes: before + bytes.len() };
            if matched < HEAD_END_BYTES {
                return;
            }
            self.phase = Phase::Request;
            self.waiting.end();
        }
        self.timer.as_mut().reset(Instant::now() + self.idle_timeout);
    }

    fn sent(&mut self, bytes: &[u8]) {
        // An interim response asks for the body of the request.
        if self.phase == Phase::Response || !bytes.starts_with(b"HTTP/1.1 100") {
            self.phase = Phase::Response;
            self.wait(self.idle_timeout);
        }
    }

    /// Waits for a request, or for more of its head.
    fn wait(&mut self, limit: Duration) {
        let now = Instant::now();
        self.waiting.begin(now);
        self.timer.as_mut().reset(now + limit);
    }
}

/// Length of the empty line at the end of a head, with the line break before it.
const HEAD_END_BYTES: usize = 4;

impl AsyncRead for Connection {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.waiting.reader.register(context.waker());
        let before = buffer.filled().len();
        if let Poll::Ready(read) = Pin::new(&mut this.stream).poll_read(context, buffer) {
            this.received(&buffer.filled()[before..]);
            if matches!(this.phase, Phase::Head { bytes, .. } if bytes > MAX_HEAD_BYTES) {
                return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
            }
            // A head that arrives byte by byte must not postpone the end.
            if matches!(this.phase, Phase::Head { .. })
                && this.timer.as_mut().poll(context).is_ready()
            {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            return Poll::Ready(read);
        }
        if this.waiting.is_replaced() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        loop {
            ready!(this.timer.as_mut().poll(context));
            let now = Instant::now();
            let next = if this.waiting.requests.load(Ordering::Acquire) > 0 {
                now + this.idle_timeout
            } else {
                // The last request may have ended after its last byte.
                let since = this.waiting.wait.lock().since;
                let since = since.filter(|_| this.phase == Phase::Response);
                since.map_or(now, |since| since + this.idle_timeout)
            };
            if next <= now {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            this.timer.as_mut().reset(next);
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write(context, bytes);
        match written {
            Poll::Ready(Ok(_)) => {
                this.stalled = None;
                this.sent(bytes);
            }
            Poll::Ready(Err(_)) => {}
            Poll::Pending => {
                let stalled = this.stalled.get_or_insert_with(|| Box::pin(sleep(WRITE_TIMEOUT)));
                ready!(stalled.as_mut().poll(context));
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
        }
        written
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use rockbot_testkit::fixture::{assert_never, within_timeout};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);
    const REQUEST: &str = "GET / HTTP/1.1\r\nhost: x\r\n\r\n";

    async fn listener(limit: usize) -> (BoundedListener, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        (BoundedListener::new(listener, limit, MINUTE), address)
    }

    async fn connect(address: SocketAddr, sent: &str) -> TcpStream {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(sent.as_bytes()).await.unwrap();
        stream
    }

    async fn read(connection: &mut Connection, length: usize) {
        connection.read_exact(&mut vec![0; length]).await.unwrap();
    }

    #[tokio::test]
    async fn excess_connection_waits_for_running_request() {
        let (mut listener, address) = listener(1).await;
        let _first = connect(address, REQUEST).await;
        let (mut accepted, _) = within_timeout("a connection", listener.accept()).await;
        read(&mut accepted, REQUEST.len()).await;
        let _second = connect(address, REQUEST).await;
        assert_never("a second connection", listener.accept()).await;
        drop(accepted);
        within_timeout("the second connection", listener.accept()).await;
    }

    #[tokio::test(start_paused = true)]
    async fn excess_connection_replaces_half_sent_request() {
        let (mut listener, address) = listener(2).await;
        let _half = connect(address, &REQUEST[..9]).await;
        let (mut half, _) = listener.accept().await;
        read(&mut half, 9).await;
        let _whole = connect(address, REQUEST).await;
        let (mut whole, _) = listener.accept().await;
        read(&mut whole, REQUEST.len()).await;
        let _third = connect(address, REQUEST).await;
        let (third, error) = tokio::join!(listener.accept(), async {
            let error = half.read_u8().await.unwrap_err();
            drop(half);
            error
        });
        assert_eq!(error.kind(), io::ErrorKind::ConnectionAborted);
        let (mut third, _) = third;
        read(&mut third, REQUEST.len()).await;
    }

    #[tokio::test(start_paused = true)]
    async fn request_that_has_arrived_is_not_replaced() {
        let (mut listener, address) = listener(1).await;
        let _first = connect(address, REQUEST).await;
        let (mut first, _) = listener.accept().await;
        // The bytes have arrived and are not read yet.
        first.stream.readable().await.unwrap();
        let _second = connect(address, REQUEST).await;
        assert_never("a second connection", listener.accept()).await;
        assert!(first.waiting.is_replaced());
        read(&mut first, REQUEST.len()).await;
        assert!(!first.waiting.is_replaced());
        first.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
        assert_never("an early end", first.read_u8()).await;
    }

    #[tokio::test(start_paused = true)]
    async fn idle_connection_is_closed() {
        let (mut listener, address) = listener(1).await;
        let _idle = connect(address, REQUEST).await;
        let (mut connection, _) = listener.accept().await;
        read(&mut connection, REQUEST.len()).await;
        connection.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
        let start = Instant::now();
        let error = connection.read_u8().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(start.elapsed().as_secs(), MINUTE.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn connection_in_use_is_neither_replaced_nor_idle() {
        let (mut listener, address) = listener(1).await;
        let _stream = connect(address, REQUEST).await;
        let (mut stream, _) = listener.accept().await;
        read(&mut stream, REQUEST.len()).await;
        let in_use = Peer { address, waiting: stream.waiting.clone() }.begin();
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
        let _second = connect(address, REQUEST).await;
        assert_never("a second connection", async {
            tokio::select! {
                _ = listener.accept() => {}
                _ = stream.read_u8() => {}
            }
        })
        .await;
        tokio::time::advance(3 * MINUTE).await;
        drop(in_use);
        let replaced = tokio::join!(listener.accept(), async {
            let error = stream.read_u8().await.unwrap_err();
            drop(stream);
            error
        });
        assert_eq!(replaced.1.kind(), io::ErrorKind::ConnectionAborted);
    }

    #[tokio::test(start_paused = true)]
    async fn response_that_is_not_taken_ends_the_connection() {
        let (mut listener, address) = listener(1).await;
        let _reads_nothing = connect(address, REQUEST).await;
        let (mut connection, _) = listener.accept().await;
        read(&mut connection, REQUEST.len()).await;
        let start = Instant::now();
        let chunk = vec![b'x'; 1 << 20];
        let error = loop {
            match connection.write_all(&chunk).await {
                Ok(()) => {}
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(start.elapsed().as_secs(), WRITE_TIMEOUT.as_secs());
    }

    #[tokio::test]
    async fn head_over_its_limit_ends_the_connection() {
        let (mut listener, address) = listener(1).await;
        let mut client = connect(address, "GET / HTTP/1.1\r\n").await;
        let (mut connection, _) = listener.accept().await;
        let header = format!("a: {}\r\n", "x".repeat(1000));
        let sending =
            tokio::spawn(async move { while client.write_all(header.as_bytes()).await.is_ok() {} });
        let error = loop {
            match connection.read_u8().await {
                Ok(_) => {}
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        sending.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn trickling_head_does_not_postpone_its_timeout() {
        let (mut listener, address) = listener(1).await;
        let mut client = connect(address, "").await;
        let (mut connection, _) = listener.accept().await;
        let start = Instant::now();
        let error = loop {
            client.write_all(b"G").await.unwrap();
            tokio::time::advance(Duration::from_secs(1)).await;
            match connection.read_u8().await {
                Ok(_) => {}
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(start.elapsed() <= 2 * HEAD_TIMEOUT, "{:?}", start.elapsed());
    }
}
