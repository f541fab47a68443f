//! The task that owns the connection and reconnects.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;

use futures_util::StreamExt;
use lapin::{
    Channel, Connection, ConnectionProperties, ErrorKind, Event,
    tcp::{AMQPUriTcpExt, TLSConfig},
    types::ShortString,
    uri::{AMQPScheme, AMQPUri},
};
use metrics::counter;
use rockbot_bus::restart_on_panic;
use tokio::{
    sync::{Notify, watch},
    time::timeout,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{debug, info, warn};

use crate::{
    backoff,
    consumer_status::ConsumerRegistry,
    greeting, io_runtime,
    refusal::{self, ReplyCode},
    tls::{self, TlsFiles},
    topology::Namespace,
};

/// Timeout of a channel operation on an open connection.
pub(crate) const OPERATION_TIMEOUT: Duration = Duration::from_secs(10);

/// Address of the broker, and the user of this process.
pub(crate) struct Address {
    pub(crate) uri: AMQPUri,
    pub(crate) tls: TlsFiles,
    pub(crate) user: ShortString,
}

/// State of the connection.
#[derive(Clone)]
pub(crate) enum State {
    /// Not connected; with the error of the last attempt.
    Connecting {
        reason: Arc<str>,
    },
    Connected(Arc<LiveConnection>),
    Closed,
}

/// An established connection to the broker.
pub(crate) struct LiveConnection {
    connection: Connection,
    /// Number of the connection, from 1, by which callers detect an old one.
    pub(crate) generation: u64,
    /// Reason why the broker blocks publishers; `None` while it does not.
    blocked: watch::Sender<Option<Arc<str>>>,
    /// Cancelled when the connection is lost or closed.
    ended: CancellationToken,
}

/// Reasons why there is no connection or no channel.
#[derive(Debug, Clone)]
pub(crate) enum ConnectionUnavailable {
    Disconnected { reason: String },
    Closed,
}

impl LiveConnection {
    /// Opens a channel.
    pub(crate) async fn open_channel(&self) -> Result<Channel, String> {
        match self.open_once().await {
            // lapin can report on a new channel the error of an earlier channel with the same id.
            Err(_) if self.is_connected() => self.open_once().await,
            opened => opened,
        }
    }

    async fn open_once(&self) -> Result<Channel, String> {
        let opened = timeout(OPERATION_TIMEOUT, self.connection.create_channel());
        match self.until_lost(opened).await? {
            Ok(opened) => opened.map_err(|error| refusal::explain(&error)),
            Err(_) => Err("the broker did not open a channel in time".to_owned()),
        }
    }

    /// Waits for an operation until the connection is lost: the library never completes an operation that
    /// starts while the connection closes.
    pub(crate) async fn until_lost<T>(
        &self,
        operation: impl Future<Output = T>,
    ) -> Result<T, String> {
        let done = self.ended.run_until_cancelled(operation).await;
        done.ok_or_else(|| "the connection was lost".to_owned())
    }

    /// Returns a child token that is cancelled when the connection is lost or closed.
    pub(crate) fn ended(&self) -> CancellationToken {
        self.ended.child_token()
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.connection.status().connected()
    }

    /// Returns the reason why the broker blocks publishers; `None` while it does not.
    pub(crate) fn blocked(&self) -> watch::Receiver<Option<Arc<str>>> {
        self.blocked.subscribe()
    }
}

/// Handle to the supervisor task; cheap to clone.
#[derive(Clone)]
pub(crate) struct Supervisor {
    state: watch::Receiver<State>,
    consumers: ConsumerRegistry,
    restore_requested: Arc<Notify>,
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
        let consumers = ConsumerRegistry::default();
        let restore_requested = Arc::new(Notify::new());
        let task = ConnectionTask {
            address,
            connection_name,
            connect_timeout,
            namespace,
            state: sender,
            consumers: consumers.clone(),
            restore_requested: restore_requested.clone(),
            generation: AtomicU64::default(),
        };
        let (task, stopped) = (Arc::new(task), stop.clone());
        tasks.spawn(restart_on_panic("connection", move || {
            let (task, stopped) = (task.clone(), stopped.clone());
            async move { task.run(stopped).await }
        }));
        tasks.close();
        Self { state, consumers, restore_requested, user, stop, tasks }
    }

    /// Returns whether it is connected and every consumer is consuming.
    pub(crate) fn is_ready(&self) -> bool {
        self.current_connection().is_some_and(|live| {
            live.is_connected() && self.consumers.all_consume_on(live.generation)
        })
    }

    pub(crate) fn consumers(&self) -> &ConsumerRegistry {
        &self.consumers
    }

    /// Requests the restoration of exchanges and bindings, because something is missing.
    pub(crate) fn request_topology_restore(&self) {
        self.restore_requested.notify_one();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// Awaits `operation` until the bus is closed; returns `None` when it was.
    pub(crate) async fn until_closed<T>(&self, operation: impl Future<Output = T>) -> Option<T> {
        self.stop.run_until_cancelled(operation).await
    }

    /// Returns the user of this process.
    pub(crate) fn user(&self) -> ShortString {
        self.user.clone()
    }

    /// Returns the current connection, without waiting.
    pub(crate) fn current_connection(&self) -> Option<Arc<LiveConnection>> {
        match &*self.state.borrow() {
            State::Connected(live) => Some(live.clone()),
            _ => None,
        }
    }

    /// Waits for a connection; the caller bounds the wait.
    pub(crate) async fn connection(&self) -> Result<Arc<LiveConnection>, ConnectionUnavailable> {
        let mut state = self.state.clone();
        let settled = state.wait_for(|state| !matches!(state, State::Connecting { .. })).await;
        match settled.as_deref() {
            Ok(State::Connected(live)) => Ok(live.clone()),
            _ => Err(ConnectionUnavailable::Closed),
        }
    }

    /// Returns the reason why the broker is unavailable.
    pub(crate) fn reason(&self) -> String {
        match &*self.state.borrow() {
            State::Connecting { reason } => reason.to_string(),
            State::Connected(live) => match &*live.blocked.borrow() {
                Some(reason) => blocked_because(reason),
                None => "the broker did not respond in time".to_owned(),
            },
            State::Closed => "the bus is closed".to_owned(),
        }
    }

    /// Closes the connection without waiting for it.
    pub(crate) fn stop(&self) {
        self.stop.cancel();
    }

    pub(crate) async fn close(&self) {
        self.stop();
        self.tasks.wait().await;
    }
}

/// The task that owns the connection.
struct ConnectionTask {
    address: Address,
    connection_name: String,
    connect_timeout: Duration,
    namespace: Namespace,
    state: watch::Sender<State>,
    consumers: ConsumerRegistry,
    restore_requested: Arc<Notify>,
    /// Number of the last connection.
    generation: AtomicU64,
}

/// Interval at which exchanges and bindings are restored. Deleting an exchange deletes its bindings, and
/// the broker does not notify consumers.
const TOPOLOGY_INTERVAL: Duration = Duration::from_secs(3);

impl ConnectionTask {
    async fn run(&self, stop: CancellationToken) {
        // Set after a panic only: nothing watches that connection any longer.
        let unwatched = match &*self.state.borrow() {
            State::Connected(live) => Some(live.clone()),
            _ => None,
        };
        if let Some(live) = unwatched {
            self.state.send_replace(State::Connecting { reason: "reconnecting".into() });
            live.ended.cancel();
            live.close().await;
        }
        while !stop.is_cancelled() {
            let generation = self.generation.fetch_add(1, Ordering::Relaxed) + 1;
            let Some(live) = stop.run_until_cancelled(self.connect(generation)).await else {
                break;
            };
            let mut events = std::pin::pin!(live.connection.events_listener());
            self.state.send_replace(State::Connected(live.clone()));
            info!(generation, "connected to the broker");
            if generation > 1 {
                counter!("rockbot_bus_reconnects_total").increment(1);
            }
            tokio::select! {
                () = stop.cancelled() => {
                    live.close().await;
                    // While the broker blocks publishers, the connection stays open, so consumers would
                    // not end.
                    live.ended.cancel();
                    break;
                }
                reason = lost(&live, events.as_mut()) => {
                    warn!(generation, %reason, "broker connection lost");
                    self.state.send_replace(State::Connecting { reason: reason.into() });
                    live.blocked.send_replace(None);
                    live.ended.cancel();
                }
                () = self.keep_topology(&live) => {}
            }
        }
        self.state.send_replace(State::Closed);
    }

    /// Connects, with retries without a limit.
    async fn connect(&self, generation: u64) -> Arc<LiveConnection> {
        let mut waits = backoff::waits();
        let mut last_reason = String::new();
        let mut silent = false;
        loop {
            let attempt = async {
                if silent {
                    greeting::await_response(&self.address.uri).await?;
                }
                self.connect_once().await
            };
            let attempt = timeout(self.connect_timeout, attempt).await;
            // A peer that accepts connections but never responds blocks a thread of the client library.
            // Further attempts therefore first wait for any response.
            silent = attempt.is_err();
            let reason = match attempt {
                Ok(Ok(connection)) => {
                    let blocked = watch::Sender::new(None);
                    let ended = CancellationToken::new();
                    return Arc::new(LiveConnection { connection, generation, blocked, ended });
                }
                Ok(Err(error)) => self.explain(&error),
                Err(_) => format!("no response within {:?}", self.connect_timeout),
            };
            if reason != last_reason {
                warn!(%reason, "broker connection failed; retrying");
                self.state.send_replace(State::Connecting { reason: reason.as_str().into() });
                last_reason = reason;
            }
            tokio::time::sleep(waits.next_wait()).await;
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
        let failure = Arc::new(Mutex::new(None));
        let recorded = failure.clone();
        let socket = async move |uri: AMQPUri, runtime| {
            let plain = AMQPUri { scheme: AMQPScheme::AMQP, ..uri.clone() };
            let stream = plain.connect_with_config_async(TLSConfig::default(), &runtime).await;
            let stream = stream.inspect_err(|error: &std::io::Error| {
                let error = std::io::Error::new(error.kind(), error.to_string());
                *recorded.lock() = Some(error);
            })?;
            Ok(match &encrypt {
                Some(connector) => stream.into_rustls(connector, &uri.authority.host).await?,
                None => stream,
            })
        };
        let runtime = {
            let runtime = io_runtime::handle()?;
            let _current = runtime.enter();
            lapin::runtime::default_runtime()?
        };
        let connected = Connection::connector(uri.clone(), runtime, socket, properties).await;
        let connection = connected.map_err(|error| {
            // If the socket fails early, the library reports the state of the connection alone.
            let cause = failure.lock().take();
            match (cause, error.kind()) {
                (Some(cause), _) => cause.into(),
                (None, ErrorKind::InvalidConnectionState(_)) => {
                    std::io::Error::other("the broker closed the connection during its handshake")
                        .into()
                }
                (None, _) => error,
            }
        })?;
        tokio::select! {
            prepared = self.namespace.prepare(&connection) => prepared?,
            () = disconnected(&connection) => {
                return Err(std::io::Error::from(std::io::ErrorKind::ConnectionAborted).into());
            }
        }
        Ok(connection)
    }

    /// Describes an error, with a remedy for operators.
    fn explain(&self, error: &lapin::Error) -> String {
        let text = error.to_string();
        if let ErrorKind::IOError(io) = error.kind()
            && is_unresolved(io)
        {
            return format!(
                "the host name in the URL does not resolve ({io}); check the name and DNS"
            );
        }
        if text.contains("Login was refused") {
            return "the broker refused the user or its credentials; check the user, the password and \
                    the certificate"
                .to_owned();
        }
        if refusal::reply_code(error) == Some(ReplyCode::AccessRefused) {
            return format!("the broker refused the user ({text}); check its permissions");
        }
        match tls::advice(&text) {
            Some(advice) if self.address.uri.scheme == AMQPScheme::AMQPS => {
                format!("{advice} ({text})")
            }
            _ => refusal::explain(error),
        }
    }

    /// Periodically restores exchanges and bindings; never returns.
    async fn keep_topology(&self, live: &LiveConnection) {
        let mut channel = None;
        loop {
            let _ = timeout(TOPOLOGY_INTERVAL, self.restore_requested.notified()).await;
            self.consumers.end_closed_sessions();
            if live.blocked.borrow().is_some() {
                continue;
            }
            // After an error the broker has closed the channel.
            channel = match timeout(OPERATION_TIMEOUT, self.restore(live, channel.take())).await {
                Ok(Ok(channel)) => Some(channel),
                Ok(Err(reason)) => {
                    debug!(%reason, "topology restoration failed");
                    None
                }
                Err(_) => None,
            };
        }
    }

    async fn restore(
        &self,
        live: &LiveConnection,
        channel: Option<Channel>,
    ) -> Result<Channel, String> {
        let channel = match channel {
            Some(channel) => channel,
            None => live.open_channel().await?,
        };
        let restored = async {
            self.namespace.declare_exchanges(&channel).await?;
            for queue in self.consumers.queues() {
                self.namespace.bind(&channel, &queue).await?;
            }
            Ok(())
        };
        restored.await.map_err(|error: lapin::Error| refusal::explain(&error))?;
        Ok(channel)
    }
}

impl LiveConnection {
    async fn close(&self) {
        // The client library writes nothing while blocked, not even a close.
        if self.blocked.borrow().is_none() {
            let _ = timeout(OPERATION_TIMEOUT, self.connection.close(200, "bye".into())).await;
        }
    }
}

/// Waits until the connection is lost. Polls, since the event may precede the listener.
async fn disconnected(connection: &Connection) {
    let mut poll = tokio::time::interval(Duration::from_millis(250));
    while connection.status().connected() {
        poll.tick().await;
    }
}

/// Waits until the connection is lost and returns the reason.
async fn lost(
    live: &LiveConnection,
    mut events: impl futures_util::Stream<Item = Event> + Unpin,
) -> String {
    let mut disconnected = std::pin::pin!(disconnected(&live.connection));
    loop {
        let event = tokio::select! {
            biased;
            event = events.next() => event,
            () = &mut disconnected => return "the connection was closed".to_owned(),
        };
        match event {
            Some(Event::Error(error)) if !live.is_connected() => {
                return refusal::explain(&error);
            }
            Some(Event::ConnectionBlocked(reason)) => {
                warn!(%reason, "publishing blocked by the broker");
                live.blocked.send_replace(Some(reason.into()));
            }
            Some(Event::ConnectionUnblocked) => {
                info!("publishing unblocked by the broker");
                live.blocked.send_replace(None);
            }
            Some(_) => {}
            None => return "the connection was closed".to_owned(),
        }
    }
}

/// Describes why the broker blocks publishers.
pub(crate) fn blocked_because(reason: &str) -> String {
    format!("the broker blocks publishers ({reason}); free memory or disk space of the broker")
}

/// Returns whether name resolution failed, which has no stable error kind.
fn is_unresolved(error: &std::io::Error) -> bool {
    error.to_string().contains("failed to lookup address")
}
