//! The port over one supervised connection.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use futures_util::future::BoxFuture;
use lapin::{options::QueueDeclareOptions, types::FieldTable, uri::AMQPUri};
use rockbot_bus::{
    Assurance, Bus, BusReport, ConsumeError, Consumer, Look, Publication, PublishError,
    QueueReport, Subscription, report::QueueDepth,
};
use rockbot_contracts::{QueueName, RoutingKey, json::Limits};
use rockbot_service::ServeError;
use tokio::time::timeout;

use crate::{
    config::{InvalidUrl, RabbitConfig, user_of},
    greeting::{address_of, broker_version},
    lane::{Lane, lane_key},
    refusal::{Refusal, refusal},
    source::Source,
    supervisor::{Address, OPERATION_TIMEOUT, Supervisor},
    topology::Namespace,
};

/// RabbitMQ behind the messaging port.
pub struct RabbitBus {
    supervisor: Supervisor,
    namespace: Arc<Namespace>,
    uri: AMQPUri,
    limits: Limits,
    lanes: Mutex<HashMap<RoutingKey, Arc<Lane>>>,
    shared: Arc<Lane>,
    unconfirmed: Arc<Lane>,
    dead_letters: Arc<Lane>,
    /// What the broker calls itself, once it said so.
    product: OnceLock<String>,
}

/// Why a broker can't be reached, however long one waits.
#[derive(Debug, thiserror::Error)]
pub enum ReachError {
    /// The configuration can't be used.
    #[error("bus.url: {0}")]
    Configuration(#[from] InvalidUrl),
    /// The broker refuses.
    #[error(transparent)]
    Refused(#[from] ConsumeError),
}

impl From<ReachError> for ServeError {
    fn from(error: ReachError) -> Self {
        match error {
            ReachError::Configuration(_) => Self::Configuration(error.to_string()),
            ReachError::Refused(_) => Self::Unavailable(error.to_string()),
        }
    }
}

/// Most lanes of their own; keys beyond them share one.
const MAX_LANES: usize = 64;

impl RabbitBus {
    /// Connects, and waits for the broker as long as it takes: in a cluster it may come up later than
    /// its users. None when `stopped` comes first.
    ///
    /// # Errors
    /// As for [`RabbitBus::start`] and [`RabbitBus::connected`].
    pub async fn reach(
        config: &RabbitConfig,
        stopped: impl Future<Output = ()>,
    ) -> Result<Option<Self>, ReachError> {
        let bus = Self::start(config)?;
        tokio::select! {
            connected = bus.connected(Duration::MAX) => {
                connected?;
                Ok(Some(bus))
            }
            () = stopped => Ok(None),
        }
    }

    /// Starts to connect, and keeps trying until closed. Use [`RabbitBus::connected`] to wait.
    ///
    /// # Errors
    /// When the URL, a certificate or the namespace can't be used.
    pub fn start(config: &RabbitConfig) -> Result<Self, InvalidUrl> {
        let uri = config.parse_url()?;
        let user = user_of(&uri)?;
        let namespace = Namespace::new(&config.namespace)
            .ok_or_else(|| InvalidUrl::namespace(&config.namespace))?
            .seen_by(&user);
        let supervisor = Supervisor::start(
            Address { uri: uri.clone(), tls: config.tls.clone(), user },
            config.connection_name.clone(),
            config.connect_timeout,
            namespace.clone(),
        );
        let namespace = Arc::new(namespace);
        let lane = |exchange: &lapin::types::ShortString, assurance| {
            let (supervisor, namespace) = (supervisor.clone(), namespace.clone());
            Arc::new(Lane::new(supervisor, namespace, exchange.clone(), assurance))
        };
        Ok(Self {
            shared: lane(&namespace.exchange, Assurance::Confirmed),
            unconfirmed: lane(&namespace.exchange, Assurance::Sent),
            dead_letters: lane(&namespace.dead_letters, Assurance::Confirmed),
            namespace,
            supervisor,
            uri,
            limits: config.limits,
            lanes: Mutex::default(),
            product: OnceLock::new(),
        })
    }

    /// Waits for the first connection, at most `wait`.
    ///
    /// # Errors
    /// What the last attempt to connect said.
    pub async fn connected(&self, wait: Duration) -> Result<(), ConsumeError> {
        match timeout(wait, self.supervisor.link()).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) => Err(ConsumeError::Closed),
            Err(_) => Err(ConsumeError::Disconnected { reason: self.supervisor.reason() }),
        }
    }

    fn lane(&self, publication: &Publication) -> Arc<Lane> {
        if publication.assurance == Assurance::Sent {
            return self.unconfirmed.clone();
        }
        let Some(key) = lane_key(&publication.key) else { return self.shared.clone() };
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lane) = lanes.get(key) {
            return lane.clone();
        }
        if lanes.len() >= MAX_LANES {
            return self.shared.clone();
        }
        let (supervisor, namespace) = (self.supervisor.clone(), self.namespace.clone());
        let exchange = namespace.exchange.clone();
        let lane = Lane::new(supervisor, namespace, exchange, Assurance::Confirmed);
        let lane = Arc::new(lane);
        lanes.insert(key.clone(), lane.clone());
        lane
    }

    async fn publish_checked(&self, publication: &Publication) -> Result<(), PublishError> {
        let bytes = publication.envelope.body.len();
        if bytes > self.limits.bytes {
            return Err(PublishError::TooLarge { bytes, limit: self.limits.bytes });
        }
        if self.supervisor.is_closed() {
            return Err(PublishError::Closed);
        }
        self.lane(publication).publish(publication).await
    }

    /// Takes a connection of its own, so it is asked once.
    async fn ask_product(&self) -> String {
        let product = broker_version(&self.uri).await;
        self.product.get_or_init(|| product).clone()
    }

    async fn look_at(&self, queue: &QueueName) -> Result<Look, ConsumeError> {
        let disconnected = |reason| ConsumeError::Disconnected { reason };
        let link = self.supervisor.current();
        let link = link.ok_or_else(|| disconnected(self.supervisor.reason()))?;
        // A passive declare that fails closes the channel, so each look has its own.
        let channel = link.open_channel().await.map_err(disconnected)?;
        let passive = QueueDeclareOptions { passive: true, ..Default::default() };
        let Ok(name) = self.namespace.queue(queue) else { return Ok(Look::Missing) };
        let declared = channel.queue_declare(name, passive, FieldTable::default());
        match link.until_lost(declared).await.map_err(disconnected)? {
            Ok(queue) => Ok(Look::There(QueueDepth {
                ready: queue.message_count(),
                consumers: queue.consumer_count(),
            })),
            Err(error) => match refusal(&error) {
                Some(Refusal::AccessRefused) => Ok(Look::Refused),
                Some(Refusal::NotFound) => Ok(Look::Missing),
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
            let source = Source::subscribe(supervisor, namespace, &self.dead_letters, subscription);
            Ok(Consumer::new(source.await?))
        })
    }

    fn inspect<'a>(
        &'a self,
        queues: &'a [QueueName],
    ) -> BoxFuture<'a, Result<BusReport, ConsumeError>> {
        Box::pin(async move {
            let look = async {
                let mut reports = Vec::with_capacity(queues.len());
                for queue in queues {
                    let look = self.look_at(queue).await?;
                    reports.push(QueueReport { name: queue.to_string(), look });
                }
                let product = match self.product.get() {
                    Some(product) => product.clone(),
                    None => self.ask_product().await,
                };
                let address = Some(address_of(&self.uri));
                Ok(BusReport { product, address, queues: reports })
            };
            let late = |_| ConsumeError::Disconnected { reason: self.supervisor.reason() };
            timeout(OPERATION_TIMEOUT, look).await.map_err(late)?
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
