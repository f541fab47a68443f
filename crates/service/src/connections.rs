//! A listener with a bounded number of connections and an idle timeout.

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::serve::Listener;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, Sleep, sleep},
};

/// Accepts a bounded number of connections; further ones wait in the system's queue.
#[derive(Debug)]
pub struct BoundedListener {
    listener: TcpListener,
    permits: Arc<Semaphore>,
    idle_timeout: Duration,
}

impl BoundedListener {
    /// Creates a listener for at most `limit` connections, each of which is closed when it receives
    /// nothing for `idle_timeout`.
    #[must_use]
    pub fn new(listener: TcpListener, limit: usize, idle_timeout: Duration) -> Self {
        Self { listener, permits: Arc::new(Semaphore::new(limit)), idle_timeout }
    }
}

impl Listener for BoundedListener {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        // It fails only when the semaphore is closed, and it never is.
        let permit = Arc::clone(&self.permits).acquire_owned().await.ok();
        let (stream, address) = Listener::accept(&mut self.listener).await;
        let connection = Connection {
            stream,
            idle_timeout: self.idle_timeout,
            idle: Box::pin(sleep(self.idle_timeout)),
            _permit: permit,
        };
        (connection, address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection that is closed when it stays idle.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    idle_timeout: Duration,
    idle: Pin<Box<Sleep>>,
    _permit: Option<OwnedSemaphorePermit>,
}

impl AsyncRead for Connection {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if let Poll::Ready(read) = Pin::new(&mut this.stream).poll_read(context, buffer) {
            this.idle.as_mut().reset(Instant::now() + this.idle_timeout);
            return Poll::Ready(read);
        }
        ready!(this.idle.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(context, bytes)
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
    use tokio::io::AsyncReadExt;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    async fn listener(limit: usize) -> (BoundedListener, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        (BoundedListener::new(listener, limit, MINUTE), address)
    }

    #[tokio::test]
    async fn excess_connection_waits_for_a_permit() {
        let (mut listener, address) = listener(1).await;
        let _first = TcpStream::connect(address).await.unwrap();
        let _second = TcpStream::connect(address).await.unwrap();
        let (accepted, _) = within_timeout("a connection", listener.accept()).await;
        assert_never("a second connection", listener.accept()).await;
        drop(accepted);
        within_timeout("the second connection", listener.accept()).await;
    }

    #[tokio::test(start_paused = true)]
    async fn idle_connection_is_closed() {
        let (mut listener, address) = listener(1).await;
        let _idle = TcpStream::connect(address).await.unwrap();
        let (mut connection, _) = listener.accept().await;
        let start = Instant::now();
        let error = connection.read_u8().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(start.elapsed().as_secs(), MINUTE.as_secs());
    }
}
