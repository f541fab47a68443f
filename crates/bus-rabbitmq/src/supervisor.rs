//! The one task that owns the connection and brings it back.

use std::{sync::Arc, time::Duration};

use backon::{BackoffBuilder, ExponentialBuilder};
use futures_util::StreamExt;
use lapin::{
    Channel, Connection, ConnectionProperties, Event,
    tcp::{AMQPUriTcpExt, TLSConfig},
    types::ShortString,
    uri::{AMQPScheme, AMQPUri},
};
use tokio::{sync::watch, time::timeout};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{info, warn};

use crate::{
    tls::{self, TlsFiles},
    topology::Namespace,
};

/// How long a channel operation on a live connection may take.
pub(crate) const OPERATION_TIMEOUT: Duration = Duration::from_secs(10);

/// Where the broker is, and who we are there.
pub(crate) struct Address {
    pub(crate) uri: AMQPUri,
    pub(crate) tls: TlsFiles,
    pub(crate) user: ShortString,
}

/// What is known of the connection.
#[derive(Clone)]
pub(crate) enum State {
    /// Not connected; with what the last attempt said.
    Connecting {
        reason: Arc<str>,
    },
    Connected(Arc<Link>),
    Closed,
}

/// One connection, as long as it lasts.
pub(crate) struct Link {
    connection: Connection,
    /// Grows with every connection, so that users notice that theirs is an old one.
    pub(crate) generation: u64,
}

/// Why there is no channel.
#[derive(Debug, Clone)]
pub(crate) enum NoChannel {
    Disconnected { reason: String },
    Closed,
}

impl Link {
    pub(crate) async fn open_channel(&self) -> Result<Channel, String> {
        match timeout(OPERATION_TIMEOUT, self.connection.create_channel()).await {
            Ok(opened) => opened.map_err(|error| error.to_string()),
            Err(_) => Err("the broker did not open a channel in time".to_owned()),
        }
    }
}

/// Handle to the task; cheap to clone.
#[derive(Clone)]
pub(crate) struct Supervisor {
    state: watch::Receiver<State>,
    user: ShortString,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl Supervisor {
    pub(crate) fn start(
        address: Address,
        connection_name: String,
        connect_timeout: Duration,
        namespace: Namespace,
    ) -> Self {
        let user = address.user.clone();
        let reason = Arc::from("not connected yet");
        let (sender, state) = watch::channel(State::Connecting { reason });
        let stop = CancellationToken::new();
        let tasks = TaskTracker::new();
        let task = Task { address, connection_name, connect_timeout, namespace, state: sender };
        tasks.spawn(task.run(stop.clone()));
        tasks.close();
        Self { state, user, stop, tasks }
    }

    pub(crate) fn is_connected(&self) -> bool {
        matches!(*self.state.borrow(), State::Connected(_))
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// Who we are to the broker.
    pub(crate) fn user(&self) -> ShortString {
        self.user.clone()
    }

    /// The connection if there is one now, without waiting.
    pub(crate) fn current(&self) -> Option<Arc<Link>> {
        match &*self.state.borrow() {
            State::Connected(link) => Some(link.clone()),
            _ => None,
        }
    }

    /// Waits for a connection; the caller bounds the wait.
    pub(crate) async fn link(&self) -> Result<Arc<Link>, NoChannel> {
        let mut state = self.state.clone();
        let settled = state.wait_for(|state| !matches!(state, State::Connecting { .. })).await;
        match settled.as_deref() {
            Ok(State::Connected(link)) => Ok(link.clone()),
            _ => Err(NoChannel::Closed),
        }
    }

    /// What the last attempt to connect said.
    pub(crate) fn reason(&self) -> String {
        match &*self.state.borrow() {
            State::Connecting { reason } => reason.to_string(),
            State::Connected(_) => "the connection was just restored".to_owned(),
            State::Closed => "the bus is closed".to_owned(),
        }
    }

    /// Gives the connection up without waiting for it to end.
    pub(crate) fn stop(&self) {
        self.stop.cancel();
    }

    pub(crate) async fn close(&self) {
        self.stop();
        self.tasks.wait().await;
    }
}

struct Task {
    address: Address,
    connection_name: String,
    connect_timeout: Duration,
    namespace: Namespace,
    state: watch::Sender<State>,
}

impl Task {
    async fn run(self, stop: CancellationToken) {
        let mut generation = 0;
        while !stop.is_cancelled() {
            generation += 1;
            let Some(link) = stop.run_until_cancelled(self.connect(generation)).await else {
                break;
            };
            let mut events = std::pin::pin!(link.connection.events_listener());
            self.state.send_replace(State::Connected(link.clone()));
            info!(generation, "connected to the broker");
            tokio::select! {
                () = stop.cancelled() => {
                    let closed = link.connection.close(200, "bye".into());
                    let _ = timeout(OPERATION_TIMEOUT, closed).await;
                    break;
                }
                reason = lost(&link, events.as_mut()) => {
                    warn!(generation, %reason, "lost the connection to the broker");
                    self.state.send_replace(State::Connecting { reason: reason.into() });
                }
            }
        }
        self.state.send_replace(State::Closed);
    }

    /// Tries until it works; the waits grow from 100 ms to 5 s, with jitter, so that a fleet does
    /// not come back all at once.
    async fn connect(&self, generation: u64) -> Arc<Link> {
        let mut waits = ExponentialBuilder::new()
            .with_min_delay(Duration::from_millis(100))
            .with_max_delay(Duration::from_secs(5))
            .with_jitter()
            .without_max_times()
            .build();
        loop {
            let reason = match timeout(self.connect_timeout, self.connect_once()).await {
                Ok(Ok(connection)) => return Arc::new(Link { connection, generation }),
                Ok(Err(error)) => self.explain(&error),
                Err(_) => format!("no answer within {:?}", self.connect_timeout),
            };
            warn!(%reason, "cannot connect to the broker; trying again");
            self.state.send_replace(State::Connecting { reason: reason.into() });
            tokio::time::sleep(waits.next().unwrap_or(Duration::from_secs(5))).await;
        }
    }

    async fn connect_once(&self) -> lapin::Result<Connection> {
        let properties = ConnectionProperties::default()
            .with_connection_name(self.connection_name.as_str().into());
        let Address { uri, tls, .. } = &self.address;
        let encrypt = match uri.scheme {
            AMQPScheme::AMQPS => {
                let tls = tls.clone();
                let read = tokio::task::spawn_blocking(move || tls.connector()).await;
                let read = read.map_err(std::io::Error::other)?;
                Some(read.map_err(std::io::Error::other)?)
            }
            AMQPScheme::AMQP => None,
        };
        let socket = async move |uri: AMQPUri, runtime| {
            let plain = AMQPUri { scheme: AMQPScheme::AMQP, ..uri.clone() };
            let stream = plain.connect_with_config_async(TLSConfig::default(), &runtime).await?;
            Ok(match &encrypt {
                Some(connector) => stream.into_rustls(connector, &uri.authority.host).await?,
                None => stream,
            })
        };
        let runtime = lapin::runtime::default_runtime()?;
        let connection = Connection::connector(uri.clone(), runtime, socket, properties).await?;
        self.namespace.provide_exchanges(&connection).await?;
        Ok(connection)
    }

    /// What an operator can act on.
    fn explain(&self, error: &lapin::Error) -> String {
        let text = error.to_string();
        if text.contains("Login was refused") {
            return "the broker refused the user, or its password or certificate".to_owned();
        }
        match tls::advice(&text) {
            Some(advice) if self.address.uri.scheme == AMQPScheme::AMQPS => {
                format!("{advice} ({text})")
            }
            _ => text,
        }
    }
}

/// Returns when the connection is gone, with the reason.
async fn lost(link: &Link, mut events: impl futures_util::Stream<Item = Event> + Unpin) -> String {
    // The event of the loss may have come before the listener did.
    let mut look = tokio::time::interval(Duration::from_secs(1));
    loop {
        let event = tokio::select! {
            event = events.next() => event,
            _ = look.tick() => {
                if link.connection.status().connected() {
                    continue;
                }
                return "the connection ended".to_owned();
            }
        };
        match event {
            Some(Event::Error(error)) if !link.connection.status().connected() => {
                return error.to_string();
            }
            Some(Event::ConnectionBlocked(reason)) => {
                warn!(%reason, "the broker blocks publishers; publishing waits");
            }
            Some(Event::ConnectionUnblocked) => info!("the broker takes messages again"),
            Some(_) => {}
            None => return "the connection ended".to_owned(),
        }
    }
}
