//! Connections of HTTP clients, within bounds.

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

/// Takes so many connections at once; more wait in the system's queue.
#[derive(Debug)]
pub struct BoundedListener {
    listener: TcpListener,
    places: Arc<Semaphore>,
    idle: Duration,
}

impl BoundedListener {
    /// At most `most` connections, each of which ends when nothing came over it for the time `idle`.
    #[must_use]
    pub fn new(listener: TcpListener, most: usize, idle: Duration) -> Self {
        Self { listener, places: Arc::new(Semaphore::new(most)), idle }
    }
}

impl Listener for BoundedListener {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        // It fails only when the semaphore is closed, which nobody does.
        let place = Arc::clone(&self.places).acquire_owned().await.ok();
        let (stream, address) = Listener::accept(&mut self.listener).await;
        let connection = Connection {
            stream,
            idle: self.idle,
            silence: Box::pin(sleep(self.idle)),
            _place: place,
        };
        (connection, address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection that does not stay silent for ever.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    idle: Duration,
    silence: Pin<Box<Sleep>>,
    _place: Option<OwnedSemaphorePermit>,
}

impl AsyncRead for Connection {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if let Poll::Ready(read) = Pin::new(&mut this.stream).poll_read(context, buffer) {
            this.silence.as_mut().reset(Instant::now() + this.idle);
            return Poll::Ready(read);
        }
        ready!(this.silence.as_mut().poll(context));
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

    async fn listener(most: usize) -> (BoundedListener, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        (BoundedListener::new(listener, most, MINUTE), address)
    }

    #[tokio::test]
    async fn one_connection_too_many_waits_until_another_ends() {
        let (mut listener, address) = listener(1).await;
        let _first = TcpStream::connect(address).await.unwrap();
        let _second = TcpStream::connect(address).await.unwrap();
        let (taken, _) = within_timeout("a connection", listener.accept()).await;
        assert_never("a second connection", listener.accept()).await;
        drop(taken);
        within_timeout("the second connection", listener.accept()).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_connection_ends() {
        let (mut listener, address) = listener(1).await;
        let _silent = TcpStream::connect(address).await.unwrap();
        let (mut connection, _) = listener.accept().await;
        let start = Instant::now();
        let error = connection.read_u8().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(start.elapsed().as_secs(), MINUTE.as_secs());
    }
}
