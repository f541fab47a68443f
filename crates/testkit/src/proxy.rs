//! A network that fails on command: a TCP proxy between a client and a broker.

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

/// Most bytes that it holds for one direction of a connection.
const CHUNK_BYTES: usize = 16 * 1024;

/// A proxy on a free port of 127.0.0.1. Dropping it cuts every connection.
#[derive(Debug)]
pub struct FaultProxy {
    port: u16,
    url: String,
    faults: Arc<Faults>,
    task: JoinHandle<()>,
}

/// Which way bytes travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Toward {
    /// From the client to the broker.
    Broker = 1,
    /// From the broker to the client.
    Client = 2,
}

const NOBODY: u8 = 0;

#[derive(Debug, Clone, Copy, Default)]
struct Stalled {
    broker: bool,
    client: bool,
}

impl Stalled {
    fn toward(&mut self, side: Toward) -> &mut bool {
        match side {
            Toward::Broker => &mut self.broker,
            Toward::Client => &mut self.client,
        }
    }
}

/// What the connections look at.
#[derive(Debug)]
struct Faults {
    refusing: watch::Sender<bool>,
    /// Whether bytes are held back on their way to the broker, and to the client.
    stalled: watch::Sender<Stalled>,
    delay: watch::Sender<Duration>,
    /// Grows with every cut.
    cuts: watch::Sender<u64>,
    /// How many connections were accepted.
    accepted: watch::Sender<u64>,
    /// Whose next chunk is halved: a [`Toward`], or [`NOBODY`].
    halved: AtomicU8,
}

impl FaultProxy {
    /// Starts a proxy in front of the broker at `url`: `amqp://USER:PASSWORD@HOST:PORT`, with or without a
    /// virtual host.
    ///
    /// # Panics
    /// When the URL has another form, or no port can be had.
    pub async fn start(url: &str) -> Self {
        let (scheme, rest) = url.split_once("://").expect("a URL");
        let (login, rest) = rest.rsplit_once('@').expect("a URL with user and password");
        let (address, path) = rest.split_once('/').unwrap_or((rest, "%2f"));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let faults = Arc::new(Faults {
            refusing: watch::Sender::new(false),
            stalled: watch::Sender::default(),
            delay: watch::Sender::new(Duration::ZERO),
            cuts: watch::Sender::new(0),
            accepted: watch::Sender::new(0),
            halved: AtomicU8::new(NOBODY),
        });
        let serving = serve(listener, port, address.to_owned(), faults.clone());
        Self {
            port,
            url: format!("{scheme}://{login}@127.0.0.1:{port}/{path}"),
            faults,
            task: tokio::spawn(serving),
        }
    }

    /// The broker's URL with this proxy in its place.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The port it listens on.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Ends every connection with a reset, in both directions.
    pub fn cut_all(&self) {
        self.faults.cut();
    }

    /// Takes no connections until [`FaultProxy::accept`]: clients are refused by the system.
    pub fn refuse(&self) {
        self.faults.refusing.send_replace(true);
    }

    /// Takes connections again.
    pub fn accept(&self) {
        self.faults.refusing.send_replace(false);
    }

    /// Holds every byte back, both ways, until [`FaultProxy::resume`]. Connections stay open.
    pub fn stall(&self) {
        self.faults.stalled.send_replace(Stalled { broker: true, client: true });
    }

    /// Holds back what is on its way to one side, until [`FaultProxy::resume`].
    pub fn stall_toward(&self, side: Toward) {
        self.faults.stalled.send_modify(|stalled| *stalled.toward(side) = true);
    }

    /// Lets bytes pass again, first of all those held back.
    pub fn resume(&self) {
        self.faults.stalled.send_replace(Stalled::default());
    }

    /// Has each chunk of up to 16 KiB take so much longer, each way.
    pub fn delay(&self, delay: Duration) {
        self.faults.delay.send_replace(delay);
    }

    /// Passes the first half of the next chunk on to `side`, then closes the connection.
    pub fn halve_next_frame(&self, side: Toward) {
        self.faults.halved.store(side as u8, Ordering::SeqCst);
    }

    /// How many connections were accepted so far.
    #[must_use]
    pub fn connections(&self) -> u64 {
        *self.faults.accepted.borrow()
    }

    /// Waits until `count` connections were accepted in all; the caller bounds the wait.
    pub async fn connected(&self, count: u64) {
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

    /// True for one chunk after each call for it.
    fn halves(&self, toward: Toward) -> bool {
        let side = toward as u8;
        self.halved.compare_exchange(side, NOBODY, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }
}

/// Owns the connections: they end with it.
async fn serve(listener: TcpListener, port: u16, broker: String, faults: Arc<Faults>) {
    let mut listener = Some(listener);
    let mut refusing = faults.refusing.subscribe();
    let mut connections = JoinSet::new();
    loop {
        let Some(open) = &listener else {
            let _ = refusing.wait_for(|refusing| !refusing).await;
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            listener = Some(TcpListener::bind(address).await.expect("its own port again"));
            continue;
        };
        tokio::select! {
            _ = refusing.wait_for(|refusing| *refusing) => listener = None,
            Some(_) = connections.join_next() => {}
            accepted = open.accept() => if let Ok((client, _)) = accepted {
                connections.spawn(carry(client, broker.clone(), faults.clone()));
            },
        }
    }
}

/// Carries one connection until either side ends it or it is cut.
async fn carry(client: TcpStream, broker: String, faults: Arc<Faults>) {
    let mut cuts = faults.cuts.subscribe();
    faults.accepted.send_modify(|accepted| *accepted += 1);
    let Ok(broker) = TcpStream::connect(&broker).await else { return };
    let _ = (client.set_nodelay(true), broker.set_nodelay(true));
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_broker, mut to_broker) = broker.into_split();
    let ended = tokio::select! {
        _ = cuts.changed() => Ended::Cut,
        ended = pump(&mut from_client, &mut to_broker, Toward::Broker, &faults) => ended,
        ended = pump(&mut from_broker, &mut to_client, Toward::Client, &faults) => ended,
    };
    if ended == Ended::Cut {
        for side in [from_client.as_ref(), from_broker.as_ref()] {
            // Closing then resets instead of finishing.
            let _ = side.set_zero_linger();
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    BySide,
    Cut,
}

async fn pump(
    from: &mut OwnedReadHalf,
    to: &mut OwnedWriteHalf,
    toward: Toward,
    faults: &Faults,
) -> Ended {
    let mut stalled = faults.stalled.subscribe();
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let Ok(read @ 1..) = from.read(&mut chunk).await else { return Ended::BySide };
        let delay = *faults.delay.borrow();
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        let _ = stalled.wait_for(|stalled| !*{ *stalled }.toward(toward)).await;
        if faults.halves(toward) {
            let _ = to.write_all(&chunk[..read / 2]).await;
            // Closed in order: a reset could take back the half that was passed on.
            return Ended::BySide;
        }
        if to.write_all(&chunk[..read]).await.is_err() {
            return Ended::BySide;
        }
    }
}
