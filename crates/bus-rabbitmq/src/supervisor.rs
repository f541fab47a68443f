//! The one task that owns the connection and brings it back.

use std::{sync::Arc, time::Duration};

use futures_util::StreamExt;
use lapin::{
    Channel, Connection, ConnectionProperties, ErrorKind, Event,
    tcp::{AMQPUriTcpExt, TLSConfig},
    types::ShortString,
    uri::{AMQPScheme, AMQPUri},
};
use metrics::counter;
use tokio::{
    sync::{Notify, watch},
    time::timeout,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{debug, info, warn};

use crate::{
    backoff, greeting,
    presence::Subscribers,
    refusal::{self, Refusal},
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
    /// Why the broker takes no messages; none while it does.
    blocked: watch::Sender<Option<Arc<str>>>,
    /// Cancelled when the connection is found to be lost.
    ended: CancellationToken,
}

/// Why there is no channel.
#[derive(Debug, Clone)]
pub(crate) enum NoChannel {
    Disconnected { reason: String },
    Closed,
}

impl Link {
    /// A fresh channel.
    pub(crate) async fn open_channel(&self) -> Result<Channel, String> {
        match self.open_once().await {
            // A channel can inherit the error that ended an earlier one of its number.
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

    /// Waits for an operation, but no longer than the connection lasts: the library forgets an
    /// operation that begins just as it ends.
    pub(crate) async fn until_lost<T>(
        &self,
        operation: impl Future<Output = T>,
    ) -> Result<T, String> {
        let done = self.ended.run_until_cancelled(operation).await;
        done.ok_or_else(|| "the connection ended".to_owned())
    }

    /// A token of the caller's own that is also cancelled when the connection is lost.
    pub(crate) fn ended(&self) -> CancellationToken {
        self.ended.child_token()
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.connection.status().connected()
    }

    /// Why the broker takes no messages; none while it does.
    pub(crate) fn blocked(&self) -> watch::Receiver<Option<Arc<str>>> {
        self.blocked.subscribe()
    }
}

/// Handle to the task; cheap to clone.
#[derive(Clone)]
pub(crate) struct Supervisor {
    state: watch::Receiver<State>,
    subscribers: Subscribers,
    doubtful: Arc<Notify>,
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
        let subscribers = Subscribers::default();
        let doubtful = Arc::new(Notify::new());
        let task = Task {
            address,
            connection_name,
            connect_timeout,
            namespace,
            state: sender,
            subscribers: subscribers.clone(),
            doubtful: doubtful.clone(),
        };
        tasks.spawn(task.run(stop.clone()));
        tasks.close();
        Self { state, subscribers, doubtful, user, stop, tasks }
    }

    /// Connected, and every consumer that was subscribed consumes.
    pub(crate) fn is_ready(&self) -> bool {
        self.current().is_some_and(|link| {
            link.is_connected() && self.subscribers.all_consume_on(link.generation)
        })
    }

    pub(crate) fn subscribers(&self) -> &Subscribers {
        &self.subscribers
    }

    /// Has exchanges and bindings looked after now: something that should be there is not.
    pub(crate) fn doubt_topology(&self) {
        self.doubtful.notify_one();
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
            State::Connected(link) => match &*link.blocked.borrow() {
                Some(reason) => blocked_because(reason),
                None => "the broker did not answer in time".to_owned(),
            },
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
    subscribers: Subscribers,
    doubtful: Arc<Notify>,
}

/// How often exchanges and bindings are declared again. An operator who deletes the exchange takes
/// the bindings with it, and the broker tells no consumer.
const LOOK_AFTER_TOPOLOGY: Duration = Duration::from_secs(3);

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
            if generation > 1 {
                counter!("rockbot_bus_reconnects_total").increment(1);
            }
            tokio::select! {
                () = stop.cancelled() => {
                    link.close().await;
                    break;
                }
                reason = lost(&link, events.as_mut()) => {
                    warn!(generation, %reason, "lost the connection to the broker");
                    self.state.send_replace(State::Connecting { reason: reason.into() });
                    link.blocked.send_replace(None);
                    link.ended.cancel();
                }
                () = self.look_after_topology(&link) => {}
            }
        }
        self.state.send_replace(State::Closed);
    }

    /// Tries until it works.
    async fn connect(&self, generation: u64) -> Arc<Link> {
        let mut waits = backoff::waits();
        let mut last_reason = String::new();
        let mut silent = false;
        loop {
            let attempt = async {
                if silent {
                    greeting::answers(&self.address.uri).await?;
                }
                self.connect_once().await
            };
            let attempt = timeout(self.connect_timeout, attempt).await;
            // A peer that takes connections and says nothing keeps a thread of the client library
            // for as long as it is silent. One is enough: it is asked for a sign of life first.
            silent = attempt.is_err();
            let reason = match attempt {
                Ok(Ok(connection)) => {
                    let blocked = watch::Sender::new(None);
                    let ended = CancellationToken::new();
                    return Arc::new(Link { connection, generation, blocked, ended });
                }
                Ok(Err(error)) => self.explain(&error),
                Err(_) => format!("no answer within {:?}", self.connect_timeout),
            };
            if reason != last_reason {
                warn!(%reason, "cannot connect to the broker; trying again");
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
        tokio::select! {
            begun = self.namespace.begin(&connection) => begun?,
            () = ended(&connection) => {
                return Err(std::io::Error::from(std::io::ErrorKind::ConnectionAborted).into());
            }
        }
        Ok(connection)
    }

    /// What an operator can act on.
    fn explain(&self, error: &lapin::Error) -> String {
        let text = error.to_string();
        if let ErrorKind::IOError(io) = error.kind()
            && is_unresolved(io)
        {
            return format!(
                "the host name in the URL does not resolve ({io}): check it, and the DNS"
            );
        }
        if text.contains("Login was refused") {
            return "the broker refused the user, or its password or certificate: check the user, the \
                    password and the certificate"
                .to_owned();
        }
        if refusal::refusal(error) == Some(Refusal::AccessRefused) {
            return format!("the broker refused the user: check its rights ({text})");
        }
        match tls::advice(&text) {
            Some(advice) if self.address.uri.scheme == AMQPScheme::AMQPS => {
                format!("{advice} ({text})")
            }
            _ => refusal::explain(error),
        }
    }

    /// Provides the exchanges, and binds what is subscribed, again and again; never returns.
    async fn look_after_topology(&self, link: &Link) {
        let mut channel = None;
        loop {
            let _ = timeout(LOOK_AFTER_TOPOLOGY, self.doubtful.notified()).await;
            self.subscribers.end_the_dead();
            if link.blocked.borrow().is_some() {
                continue;
            }
            // After an error the broker has closed the channel.
            channel = match timeout(OPERATION_TIMEOUT, self.restore(link, channel.take())).await {
                Ok(Ok(channel)) => Some(channel),
                Ok(Err(reason)) => {
                    debug!(%reason, "cannot look after exchanges and bindings");
                    None
                }
                Err(_) => None,
            };
        }
    }

    async fn restore(&self, link: &Link, channel: Option<Channel>) -> Result<Channel, String> {
        let channel = match channel {
            Some(channel) => channel,
            None => link.open_channel().await?,
        };
        let restored = async {
            self.namespace.provide_exchanges(&channel).await?;
            for queue in self.subscribers.queues() {
                self.namespace.bind(&channel, &queue).await?;
            }
            Ok(())
        };
        restored.await.map_err(|error: lapin::Error| refusal::explain(&error))?;
        Ok(channel)
    }
}

impl Link {
    async fn close(&self) {
        // The client library writes nothing while it is blocked, not even a goodbye.
        if self.blocked.borrow().is_none() {
            let _ = timeout(OPERATION_TIMEOUT, self.connection.close(200, "bye".into())).await;
        }
    }
}

/// Returns when the connection is gone. It looks now and then, since the event of the loss may have
/// come before anybody listened.
async fn ended(connection: &Connection) {
    let mut look = tokio::time::interval(Duration::from_millis(250));
    while connection.status().connected() {
        look.tick().await;
    }
}

/// Returns when the connection is gone, with the reason.
async fn lost(link: &Link, mut events: impl futures_util::Stream<Item = Event> + Unpin) -> String {
    let mut ended = std::pin::pin!(ended(&link.connection));
    loop {
        let event = tokio::select! {
            biased;
            event = events.next() => event,
            () = &mut ended => return "the connection ended".to_owned(),
        };
        match event {
            Some(Event::Error(error)) if !link.is_connected() => {
                return refusal::explain(&error);
            }
            Some(Event::ConnectionBlocked(reason)) => {
                warn!(%reason, "the broker blocks publishers; publishing waits");
                link.blocked.send_replace(Some(reason.into()));
            }
            Some(Event::ConnectionUnblocked) => {
                info!("the broker takes messages again");
                link.blocked.send_replace(None);
            }
            Some(_) => {}
            None => return "the connection ended".to_owned(),
        }
    }
}

/// What a publisher is told while the broker takes no messages.
pub(crate) fn blocked_because(reason: &str) -> String {
    format!("the broker takes no messages now ({reason}); free its memory or disk")
}

/// The system has no error kind for it that is stable.
fn is_unresolved(error: &std::io::Error) -> bool {
    error.to_string().contains("failed to lookup address")
}
