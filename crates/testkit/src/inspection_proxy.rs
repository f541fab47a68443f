//! Rules of RabbitMQ from 4.2.6 on, emulated by a proxy that parses frames in front of an older broker.
//!
//! Newer brokers restrict passive declares: in 4.2.6 and 4.3.0 to users that may declare the queue or
//! exchange, later to users with any permission on it. The proxy refuses by the permissions of the
//! definitions.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use regex::Regex;
use rockbot_contracts::{
    identity::User,
    permissions::{Grants, Permissions},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, BufReader},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::Mutex as Turn,
    task::JoinSet,
};

/// The permission that a passive declare requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InspectionRule {
    /// That to declare it.
    MayDeclare,
    /// Any on it.
    AnyRight,
}

/// Class and method ids of AMQP 0-9-1.
const CHANNEL_CLOSE: [u16; 2] = [20, 40];
const CHANNEL_CLOSE_OK: [u16; 2] = [20, 41];
const EXCHANGE_DECLARE: [u16; 2] = [40, 10];
const QUEUE_DECLARE: [u16; 2] = [50, 10];
const BASIC_REJECT: [u16; 2] = [60, 90];
const BASIC_NACK: [u16; 2] = [60, 120];

/// A proxy that refuses passive declares like newer brokers. Dropping it closes every connection.
#[derive(Debug)]
pub struct InspectionProxy {
    url: String,
    counts: Arc<MethodCounts>,
    _connections: JoinSet<()>,
}

impl InspectionProxy {
    /// Starts a proxy in front of the broker at `url` for the connections of `user` in `namespace`.
    ///
    /// # Panics
    /// When `url` has no login or virtual host, or no port is free.
    pub async fn start(url: &str, namespace: &str, user: &User, rule: InspectionRule) -> Self {
        let (before, address) = url.split_once('@').expect("a URL with a login");
        let (address, path) = address.split_once('/').expect("a virtual host");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let here = listener.local_addr().expect("bound");
        let counts = Arc::<MethodCounts>::default();
        let rights = Rights::new(namespace, user, rule);
        let (address, shared) = (address.to_owned(), counts.clone());
        let mut connections = JoinSet::new();
        connections.spawn(async move {
            let mut pairs = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let broker = TcpStream::connect(&address).await.expect("a broker");
                pairs.spawn(pair(client, broker, rights.clone(), shared.clone()));
            }
        });
        Self { url: format!("{before}@{here}/{path}"), counts, _connections: connections }
    }

    /// Returns the URL of the proxy.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the numbers of rejects and of nacks that the proxy forwarded.
    #[must_use]
    pub fn settlements(&self) -> (usize, usize) {
        let count = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
        (count(&self.counts.rejects), count(&self.counts.nacks))
    }
}

/// Numbers of settlements that a proxy forwarded.
#[derive(Debug, Default)]
struct MethodCounts {
    rejects: AtomicUsize,
    nacks: AtomicUsize,
}

impl MethodCounts {
    fn record(&self, frame: &Frame) {
        let counter = match frame.method() {
            Some(BASIC_REJECT) => &self.rejects,
            Some(BASIC_NACK) => &self.nacks,
            _ => return,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// Names that a user may inspect.
#[derive(Clone)]
struct Rights(Vec<Regex>);

impl Rights {
    fn new(namespace: &str, user: &User, rule: InspectionRule) -> Self {
        let Permissions { configure, write, read, .. } =
            Grants::for_user(user).permissions(namespace);
        let expressions = match rule {
            InspectionRule::MayDeclare => vec![configure],
            InspectionRule::AnyRight => vec![configure, write, read],
        };
        Self(
            expressions
                .iter()
                .map(|expression| Regex::new(expression).expect("a pattern"))
                .collect(),
        )
    }

    fn covers(&self, name: &str) -> bool {
        self.0.iter().any(|right| right.is_match(name))
    }
}

/// An encoded frame.
struct Frame(Vec<u8>);

impl Frame {
    const HEADER: usize = 7;

    async fn read(from: &mut BufReader<OwnedReadHalf>) -> Option<Self> {
        let mut bytes = vec![0; Self::HEADER];
        from.read_exact(&mut bytes).await.ok()?;
        let size = u32::from_be_bytes(bytes[3..7].try_into().expect("four bytes")) as usize;
        bytes.resize(Self::HEADER + size + 1, 0);
        from.read_exact(&mut bytes[Self::HEADER..]).await.ok()?;
        Some(Self(bytes))
    }

    fn from_method(channel: [u8; 2], method: [u16; 2], arguments: &[u8]) -> Self {
        let mut payload: Vec<u8> = method.iter().flat_map(|part| part.to_be_bytes()).collect();
        payload.extend_from_slice(arguments);
        let size = u32::try_from(payload.len()).expect("short").to_be_bytes();
        let mut bytes = vec![1, channel[0], channel[1]];
        bytes.extend_from_slice(&size);
        bytes.extend_from_slice(&payload);
        bytes.push(0xCE);
        Self(bytes)
    }

    fn channel(&self) -> [u8; 2] {
        [self.0[1], self.0[2]]
    }

    fn method(&self) -> Option<[u16; 2]> {
        let number = |at: usize| u16::from_be_bytes([self.0[at], self.0[at + 1]]);
        (self.0[0] == 1).then(|| [number(Self::HEADER), number(Self::HEADER + 2)])
    }

    /// Returns the name in a passive declare.
    fn inspected_name(&self) -> Option<&str> {
        let method = self.method()?;
        if method != QUEUE_DECLARE && method != EXCHANGE_DECLARE {
            return None;
        }
        // After class, method and a reserved number.
        let (name, rest) = short_string(&self.0[Self::HEADER + 6..]);
        let flags = match method {
            EXCHANGE_DECLARE => short_string(rest).1[0],
            _ => rest[0],
        };
        (flags & 1 == 1).then_some(name)
    }
}

fn short_string(bytes: &[u8]) -> (&str, &[u8]) {
    let (text, rest) = bytes[1..].split_at(bytes[0].into());
    (std::str::from_utf8(text).expect("a name"), rest)
}

/// Channels that the proxy closed, whose `close-ok` it must not forward.
#[derive(Default)]
struct Closed(Mutex<Vec<[u8; 2]>>);

impl Closed {
    fn add(&self, channel: [u8; 2]) {
        self.0.lock().expect("no panic").push(channel);
    }

    fn is_close_ok(&self, frame: &Frame) -> bool {
        let mut closed = self.0.lock().expect("no panic");
        let at = closed.iter().position(|channel| *channel == frame.channel());
        let is_close_ok = frame.method() == Some(CHANNEL_CLOSE_OK);
        match at {
            Some(at) if is_close_ok => {
                closed.swap_remove(at);
                true
            }
            _ => false,
        }
    }
}

async fn pair(client: TcpStream, broker: TcpStream, rights: Rights, counts: Arc<MethodCounts>) {
    let (from_client, to_client) = client.into_split();
    let (from_broker, mut to_broker) = broker.into_split();
    let (mut from_client, mut from_broker) =
        (BufReader::new(from_client), BufReader::new(from_broker));
    let to_client = Arc::new(Turn::new(to_client));
    let (by_client, by_broker) = (Closed::default(), Closed::default());
    let outward = async {
        let mut protocol = [0; 8];
        from_client.read_exact(&mut protocol).await.ok()?;
        to_broker.write_all(&protocol).await.ok()?;
        loop {
            let frame = Frame::read(&mut from_client).await?;
            if by_client.is_close_ok(&frame) {
                continue;
            }
            counts.record(&frame);
            let Some(name) = frame.inspected_name().filter(|name| !rights.covers(name)) else {
                to_broker.write_all(&frame.0).await.ok()?;
                continue;
            };
            let (channel, method) = (frame.channel(), frame.method().expect("a declare"));
            by_broker.add(channel);
            by_client.add(channel);
            let goodbye = close(channel, 200, "bye", [0, 0]);
            to_broker.write_all(&goodbye.0).await.ok()?;
            let reason = format!("ACCESS_REFUSED - no permission to inspect '{name}'");
            send(&to_client, &close(channel, 403, &reason, method)).await?;
        }
    };
    let inward = async {
        loop {
            let frame = Frame::read(&mut from_broker).await?;
            if !by_broker.is_close_ok(&frame) {
                send(&to_client, &frame).await?;
            }
        }
    };
    tokio::select! {
        () = async { let _: Option<()> = outward.await; } => {}
        () = async { let _: Option<()> = inward.await; } => {}
    }
}

async fn send(to: &Turn<OwnedWriteHalf>, frame: &Frame) -> Option<()> {
    to.lock().await.write_all(&frame.0).await.ok()
}

fn close(channel: [u8; 2], code: u16, reason: &str, because_of: [u16; 2]) -> Frame {
    let mut arguments = code.to_be_bytes().to_vec();
    arguments.push(u8::try_from(reason.len()).expect("short"));
    arguments.extend_from_slice(reason.as_bytes());
    arguments.extend(because_of.iter().flat_map(|part| part.to_be_bytes()));
    Frame::from_method(channel, CHANNEL_CLOSE, &arguments)
}
