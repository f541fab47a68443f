//! The messaging port over a supervised connection.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, OnceLock},
    time::Duration,
};

use parking_lot::Mutex;

use futures_util::future::BoxFuture;
use lapin::{options::QueueDeclareOptions, types::FieldTable, uri::AMQPUri};
use rockbot_bus::{
    Assurance, Bus, BusReport, ConsumeError, Consumer, Publication, PublishError, QueueReport,
    QueueState, Subscription, report::QueueDepth,
};
use rockbot_contracts::{QueueName, RoutingKey, json::Limits};
use tokio::time::timeout;

use crate::{
    config::{InvalidUrl, RabbitConfig, user_of},
    consumer::RabbitConsumer,
    greeting::{address_of, broker_version},
    publish_channel::{PublishChannel, channel_key},
    refusal::{ReplyCode, reply_code},
    supervisor::{Address, OPERATION_TIMEOUT, Supervisor},
    topology::Namespace,
};

/// A bus over RabbitMQ.
pub struct RabbitBus {
    supervisor: Supervisor,
    namespace: Arc<Namespace>,
    uri: AMQPUri,
    limits: Limits,
    publish_channels: Mutex<HashMap<RoutingKey, Arc<PublishChannel>>>,
    shared: Arc<PublishChannel>,
    unconfirmed: Arc<PublishChannel>,
    dead_letters: Arc<PublishChannel>,
    /// Product and version of the broker, once known.
    product: OnceLock<String>,
}

/// Permanent errors of a connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The configuration is invalid.
    #[error("bus.url: {0}")]
    Configuration(#[from] InvalidUrl),
    /// The bus was closed while connecting.
    #[error(transparent)]
    Refused(#[from] ConsumeError),
}

/// Maximum number of routing keys with a publish channel of their own; further keys share one.
const MAX_PUBLISH_CHANNELS: usize = 64;

impl RabbitBus {
    /// Connects to the broker. Waits for it without a limit, since it may start later than its clients.
    /// Returns `None` when `stopped` completes first.
    ///
    /// # Errors
    /// As for [`RabbitBus::start`] and [`RabbitBus::connected`].
    pub async fn connect(
        config: &RabbitConfig,
        stopped: impl Future<Output = ()>,
    ) -> Result<Option<Self>, ConnectError> {
        let bus = Self::start(config)?;
        tokio::select! {
            connected = bus.connected(Duration::MAX) => {
                connected?;
                Ok(Some(bus))
            }
            () = stopped => Ok(None),
        }
    }

    /// Starts to connect in the background and retries until closed. [`RabbitBus::connected`] waits for
    /// the connection.
    ///
    /// # Errors
    /// When the URL, a certificate or the namespace is invalid.
    pub fn start(config: &RabbitConfig) -> Result<Self, InvalidUrl> {
        let uri = config.parse_url()?;
        let user = user_of(&uri)?;
        let namespace = Namespace::new(&config.namespace)
            .ok_or_else(|| InvalidUrl::namespace(&config.namespace))?
            .for_user(&user);
        let supervisor = Supervisor::start(
            Address { uri: uri.clone(), tls: config.tls.clone(), user },
            config.connection_name.clone(),
            config.connect_timeout,
            namespace.clone(),
        );
        let namespace = Arc::new(namespace);
        let channel = |exchange: &lapin::types::ShortString, assurance| {
            let (supervisor, namespace) = (supervisor.clone(), namespace.clone());
            Arc::new(PublishChannel::new(supervisor, namespace, exchange.clone(), assurance))
        };
        Ok(Self {
            shared: channel(&namespace.exchange, Assurance::Confirmed),
            unconfirmed: channel(&namespace.exchange, Assurance::Sent),
            dead_letters: channel(&namespace.dead_letters, Assurance::Confirmed),
            namespace,
            supervisor,
            uri,
            limits: config.limits,
            publish_channels: Mutex::default(),
            product: OnceLock::new(),
        })
    }

    /// Waits for the first connection, at most `wait`.
    ///
    /// # Errors
    /// With the error of the last attempt.
    pub async fn connected(&self, wait: Duration) -> Result<(), ConsumeError> {
        match timeout(wait, self.supervisor.connection()).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) => Err(ConsumeError::Closed),
            Err(_) => Err(ConsumeError::Disconnected { reason: self.supervisor.reason() }),
        }
    }

    fn publish_channel(&self, publication: &Publication) -> Arc<PublishChannel> {
        if publication.assurance == Assurance::Sent {
            return self.unconfirmed.clone();
        }
        let Some(key) = channel_key(&publication.key) else { return self.shared.clone() };
        let mut publish_channels = self.publish_channels.lock();
        if let Some(channel) = publish_channels.get(key) {
            return channel.clone();
        }
        if publish_channels.len() >= MAX_PUBLISH_CHANNELS {
            return self.shared.clone();
        }
        let (supervisor, namespace) = (self.supervisor.clone(), self.namespace.clone());
        let exchange = namespace.exchange.clone();
        let channel = PublishChannel::new(supervisor, namespace, exchange, Assurance::Confirmed);
        let channel = Arc::new(channel);
        publish_channels.insert(key.clone(), channel.clone());
        channel
    }

    async fn publish_checked(&self, publication: &Publication) -> Result<(), PublishError> {
        let bytes = publication.envelope.body.len();
        if bytes > self.limits.bytes {
            return Err(PublishError::TooLarge { bytes, limit: self.limits.bytes });
        }
        if self.supervisor.is_closed() {
            return Err(PublishError::Closed);
        }
        self.publish_channel(publication).publish(publication).await
    }

    /// Fetches the product once, since that takes a connection of its own.
    async fn fetch_product(&self) -> String {
        let product = broker_version(&self.uri).await;
        self.product.get_or_init(|| product).clone()
    }

    async fn queue_state(&self, queue: &QueueName) -> Result<QueueState, ConsumeError> {
        let disconnected = |reason| ConsumeError::Disconnected { reason };
        let connection = self.supervisor.current_connection();
        let connection = connection.ok_or_else(|| disconnected(self.supervisor.reason()))?;
        // A failed passive declare closes the channel, so each inspection opens its own.
        let channel = connection.open_channel().await.map_err(disconnected)?;
        let passive = QueueDeclareOptions { passive: true, ..Default::default() };
        let Ok(name) = self.namespace.queue(queue) else { return Ok(QueueState::Missing) };
        let declared = channel.queue_declare(name, passive, FieldTable::default());
        match connection.until_lost(declared).await.map_err(disconnected)? {
            Ok(queue) => Ok(QueueState::Present(QueueDepth {
                ready: queue.message_count(),
                consumers: queue.consumer_count(),
            })),
            Err(error) => match reply_code(&error) {
                Some(ReplyCode::AccessRefused) => Ok(QueueState::Refused),
                Some(ReplyCode::NotFound) => Ok(QueueState::Missing),
                _ => Err(disconnected(error.to_string())),
            },
        }
    }
}

impl Bus for RabbitBus {
    fn publish(&self, publication: Publication) -> BoxFuture<'_, Result<(), PublishError>> {
        Box::pin(async move { self.publish_checked(&publication).await })
    }

    fn consume(&self, subscription: Subscription) -> BoxFuture<'_, Result<Consumer, ConsumeError>> {
        Box::pin(async move {
            let (supervisor, namespace) = (self.supervisor.clone(), self.namespace.clone());
            let source =
                RabbitConsumer::subscribe(supervisor, namespace, &self.dead_letters, subscription);
            Ok(Consumer::new(source.await?))
        })
    }

    fn inspect<'a>(
        &'a self,
        queues: &'a [QueueName],
    ) -> BoxFuture<'a, Result<BusReport, ConsumeError>> {
        Box::pin(async move {
            let inspection = async {
                let mut reports = Vec::with_capacity(queues.len());
                for queue in queues {
                    let state = self.queue_state(queue).await?;
                    reports.push(QueueReport { name: queue.to_string(), state });
                }
                let product = match self.product.get() {
                    Some(product) => product.clone(),
                    None => self.fetch_product().await,
                };
                let address = Some(address_of(&self.uri));
                Ok(BusReport { product, address, queues: reports })
            };
            let late = |_| ConsumeError::Disconnected { reason: self.supervisor.reason() };
            timeout(OPERATION_TIMEOUT, inspection).await.map_err(late)?
        })
    }

    fn is_ready(&self) -> bool {
        self.supervisor.is_ready()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.supervisor.close())
    }
}

impl Drop for RabbitBus {
    fn drop(&mut self) {
        self.supervisor.stop();
    }
}

impl fmt::Debug for RabbitBus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RabbitBus")
            .field("namespace", &self.namespace)
            .field("ready", &self.is_ready())
            .finish_non_exhaustive()
    }
}
