//! A TCP proxy between a client and a broker that injects network faults on command.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
    task::{JoinHandle, JoinSet},
};

/// The buffer for one direction of a connection, in bytes.
const CHUNK_BYTES: usize = 16 * 1024;

/// A proxy on a free port of 127.0.0.1. Dropping it closes every connection.
#[derive(Debug)]
pub struct FaultProxy {
    port: u16,
    url: String,
    faults: Arc<Faults>,
    task: JoinHandle<()>,
}

/// A direction of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Direction {
    /// From the client to the broker.
    ToBroker = 1,
    /// From the broker to the client.
    ToClient = 2,
}

const NO_DIRECTION: u8 = 0;

#[derive(Debug, Clone, Copy, Default)]
struct Stalled {
    to_broker: bool,
    to_client: bool,
}

impl Stalled {
    fn direction(&mut self, direction: Direction) -> &mut bool {
        match direction {
            Direction::ToBroker => &mut self.to_broker,
            Direction::ToClient => &mut self.to_client,
        }
    }
}

/// The faults, shared with every connection.
#[derive(Debug)]
struct Faults {
    refusing: watch::Sender<bool>,
    /// Directions in which no bytes are forwarded.
    stalled: watch::Sender<Stalled>,
    delay: watch::Sender<Duration>,
    /// Incremented by every cut.
    cuts: watch::Sender<u64>,
    /// The number of accepted connections.
    accepted: watch::Sender<u64>,
    /// The [`Direction`] whose next chunk is truncated, or [`NO_DIRECTION`].
    truncated: AtomicU8,
}

impl FaultProxy {
    /// Starts a proxy in front of the broker at `url`: `amqp://USER:PASSWORD@HOST:PORT`, with or without a
    /// virtual host.
    ///
    /// # Panics
    /// When the URL has another form, or no port is free.
    pub async fn start(url: &str) -> Self {
        let (scheme, rest) = url.split_once("://").expect("a URL");
        let (login, rest) = rest.rsplit_once('@').expect("a URL with user and password");
        let (address, path) = rest.split_once('/').unwrap_or((rest, "%2f"));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let port = listener.local_addr().expect("a bound listener").port();
        let faults = Arc::new(Faults {
            refusing: watch::Sender::new(false),
            stalled: watch::Sender::default(),
            delay: watch::Sender::new(Duration::ZERO),
            cuts: watch::Sender::new(0),
            accepted: watch::Sender::new(0),
            truncated: AtomicU8::new(NO_DIRECTION),
        });
        let serving = serve(listener, port, address.to_owned(), faults.clone());
        Self {
            port,
            url: format!("{scheme}://{login}@127.0.0.1:{port}/{path}"),
            faults,
            task: tokio::spawn(serving),
        }
    }

    /// Returns the broker's URL with the address of this proxy.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the port that the proxy listens on.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Resets every connection, in both directions.
    pub fn cut_all(&self) {
        self.faults.cut();
    }

    /// Accepts no connections until [`FaultProxy::accept`]: the system refuses clients.
    pub fn refuse(&self) {
        self.faults.refusing.send_replace(true);
    }

    /// Accepts connections again.
    pub fn accept(&self) {
        self.faults.refusing.send_replace(false);
    }

    /// Forwards nothing, in both directions, until [`FaultProxy::resume`]. Connections stay open.
    pub fn stall(&self) {
        self.faults.stalled.send_replace(Stalled { to_broker: true, to_client: true });
    }

    /// Forwards nothing in one direction until [`FaultProxy::resume`].
    pub fn stall_direction(&self, direction: Direction) {
        self.faults.stalled.send_modify(|stalled| *stalled.direction(direction) = true);
    }

    /// Forwards bytes again, held ones first.
    pub fn resume(&self) {
        self.faults.stalled.send_replace(Stalled::default());
    }

    /// Delays each chunk of up to 16 KiB, in each direction.
    pub fn delay(&self, delay: Duration) {
        self.faults.delay.send_replace(delay);
    }

    /// Forwards the first half of the next chunk in `direction`, then closes the connection.
    pub fn truncate_next_chunk(&self, direction: Direction) {
        self.faults.truncated.store(direction as u8, Ordering::SeqCst);
    }

    /// Returns the number of connections accepted so far.
    #[must_use]
    pub fn connections(&self) -> u64 {
        *self.faults.accepted.borrow()
    }

    /// Waits until `count` connections were accepted in total; the caller bounds the wait.
    pub async fn wait_for_connections(&self, count: u64) {
        let mut accepted = self.faults.accepted.subscribe();
        // The sender lives as long as `self`.
        let _ = accepted.wait_for(|accepted| *accepted >= count).await;
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Faults {
    fn cut(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// Returns `true` if this chunk must be truncated: once after each request.
    fn takes_truncation(&self, direction: Direction) -> bool {
        self.truncated
            .compare_exchange(direction as u8, NO_DIRECTION, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
    }
}

/// Accepts connections and owns them: they end with this task.
async fn serve(listener: TcpListener, port: u16, broker: String, faults: Arc<Faults>) {
    let mut listener = Some(listener);
    let mut refusing = faults.refusing.subscribe();
    let mut connections = JoinSet::new();
    loop {
        let Some(open) = &listener else {
            let _ = refusing.wait_for(|refusing| !refusing).await;
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            listener = Some(TcpListener::bind(address).await.expect("the same port"));
            continue;
        };
        tokio::select! {
            _ = refusing.wait_for(|refusing| *refusing) => listener = None,
            Some(_) = connections.join_next() => {}
            accepted = open.accept() => if let Ok((client, _)) = accepted {
                connections.spawn(forward(client, broker.clone(), faults.clone()));
            },
        }
    }
}

/// Forwards one connection until either side closes it or it is cut.
async fn forward(client: TcpStream, broker: String, faults: Arc<Faults>) {
    let mut cuts = faults.cuts.subscribe();
    faults.accepted.send_modify(|accepted| *accepted += 1);
    let Ok(broker) = TcpStream::connect(&broker).await else { return };
    let _ = (client.set_nodelay(true), broker.set_nodelay(true));
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_broker, mut to_broker) = broker.into_split();
    let reason = tokio::select! {
        _ = cuts.changed() => CloseReason::Cut,
        reason = pump(&mut from_client, &mut to_broker, Direction::ToBroker, &faults) => reason,
        reason = pump(&mut from_broker, &mut to_client, Direction::ToClient, &faults) => reason,
    };
    if reason == CloseReason::Cut {
        for side in [from_client.as_ref(), from_broker.as_ref()] {
            // Closing sends RST instead of FIN.
            let _ = side.set_zero_linger();
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CloseReason {
    ByPeer,
    Cut,
}

async fn pump(
    from: &mut OwnedReadHalf,
    to: &mut OwnedWriteHalf,
    direction: Direction,
    faults: &Faults,
) -> CloseReason {
    let mut stalled = faults.stalled.subscribe();
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let Ok(read @ 1..) = from.read(&mut chunk).await else { return CloseReason::ByPeer };
        let delay = *faults.delay.borrow();
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        let _ = stalled.wait_for(|stalled| !*{ *stalled }.direction(direction)).await;
        if faults.takes_truncation(direction) {
            let _ = to.write_all(&chunk[..read / 2]).await;
            // Closed without a reset, which could discard the half that was forwarded.
            return CloseReason::ByPeer;
        }
        if to.write_all(&chunk[..read]).await.is_err() {
            return CloseReason::ByPeer;
        }
    }
}
