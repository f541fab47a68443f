//! Configuration and connections of a process that records its calls in a journal.

use std::sync::Arc;

use rockbot_bus::{Bus, QueueGauge};
use rockbot_bus_rabbitmq::{BusSection, RabbitConfig};
use rockbot_contracts::{InstanceId, QueueSpec, RoutingKey};
use rockbot_service::{Configuration, Health, ServeError, ServiceSection, Shutdown};
use rockbot_store::{Clock, Store, StoreSection, StoreUrl, reachable};
use rockbot_store_sql::connect_with_retry;
use rockbot_tool_rpc::{CallJournal, HandlerSection, JournalOptions};
use rockbot_tools::{Outputs, OutputsSection, limits::fleet::FleetStore};
use secrecy::ExposeSecret;

use crate::{FleetConnection, join};

/// The sections that all handlers have.
#[derive(Debug)]
pub struct HandlerSettings {
    /// `[service]`.
    pub service: ServiceSection,
    /// `[bus]`.
    pub bus: BusSection,
    /// `[handler]`.
    pub handler: HandlerSection,
    /// `[store]`: the store of the journal.
    pub store: StoreSection,
}

impl HandlerSettings {
    /// Reads and validates the sections of a process that belongs to no pool; problems are added to the
    /// configuration's.
    pub fn read(configuration: &mut Configuration) -> Self {
        let settings = Self::read_sections(configuration);
        for problem in settings.handler.validate_without_pool() {
            configuration.problem(problem);
        }
        settings
    }

    /// Reads and validates the sections of a tool handler; problems are added to the configuration's.
    pub fn read_tool_handler(configuration: &mut Configuration) -> Self {
        let settings = Self::read_sections(configuration);
        let user = settings.handler.user.as_deref();
        let user = user.and_then(|user| settings.handler.validate_user(user));
        for problem in settings.handler.validate().into_iter().chain(user) {
            configuration.problem(problem);
        }
        settings
    }

    fn read_sections(configuration: &mut Configuration) -> Self {
        let mut settings = Self {
            service: configuration.section("service"),
            bus: configuration.section("bus"),
            handler: configuration.section("handler"),
            store: configuration.section("store"),
        };
        let production = settings.service.is_production();
        let rabbit = RabbitConfig::from_section(&settings.bus, "");
        let problems = settings.store.validate(production).into_iter();
        for problem in problems.chain(rabbit.validation_errors(production)) {
            configuration.problem(problem);
        }
        // If this process has its own broker user, all processes have one, so requests must name their
        // user.
        settings.handler.identify(rabbit.user(), production || rabbit.has_own_user());
        settings
    }

    /// Returns the secrets that must not appear in results and logs.
    #[must_use]
    pub fn secrets(&self) -> Vec<String> {
        let secrets = [Some(&self.bus.url), self.store.url.as_ref()].into_iter().flatten();
        secrets.map(|secret| secret.expose_secret().to_owned()).collect()
    }
}

/// The connections of a handler: to the bus, and to the store with its journal.
pub struct HandlerConnection {
    /// The bus, with metrics and traces.
    pub bus: Arc<dyn Bus>,
    /// The store of the journal.
    pub store: Arc<dyn Store>,
    /// The address of the store.
    pub store_url: StoreUrl,
    /// The journal of calls.
    pub journal: Arc<CallJournal>,
    /// Set when all handlers of the queue use this journal.
    pub shares_journal: bool,
    /// The instance of the process.
    pub instance: InstanceId,
    /// The name of the process on the broker and in logs.
    pub name: String,
    /// The namespace of the fleet.
    pub namespace: String,
    queue: QueueGauge,
}

impl HandlerConnection {
    /// Opens the store, connects to the broker, and starts the journal. Adds bus and store to `health`.
    /// Waits for both without a limit. Returns `None` when the process shuts down first.
    ///
    /// # Errors
    /// When the store is unusable, and those of [`join`].
    ///
    /// # Cancellation
    /// Dropping the future stops waiting.
    pub async fn open(
        settings: &HandlerSettings,
        service: &str,
        key: &RoutingKey,
        health: &Health,
        shutdown: &Shutdown,
    ) -> Result<Option<Self>, ServeError> {
        let instance = settings.service.instance();
        let name = format!("{service}/{instance}");
        let url = settings.store.parse().map_err(ServeError::Configuration)?;
        let options = JournalOptions::from_section(&settings.store, &url);
        let opened = connect_with_retry(&url, Clock::System, shutdown.requested()).await;
        let opened = opened
            .map_err(|error| ServeError::Configuration(format!("store.url: {url}: {error}")))?;
        let Some(store) = opened else { return Ok(None) };
        let config = RabbitConfig::from_section(&settings.bus, &name);
        let joined = join(&config, QueueSpec::work(key).name, health, shutdown).await?;
        let Some(FleetConnection { bus, queue }) = joined else { return Ok(None) };
        health.needs("store", reachable(store.clone()));
        let journal = CallJournal::start(store.clone(), &instance, options);
        Ok(Some(Self {
            bus,
            store,
            store_url: url,
            journal,
            shares_journal: options.shared,
            instance,
            name,
            namespace: settings.bus.namespace.clone(),
            queue,
        }))
    }

    /// Returns the store of limits that hold for the whole fleet.
    #[must_use]
    pub fn fleet_store(&self) -> FleetStore {
        FleetStore {
            store: self.store.clone(),
            namespace: self.namespace.as_str().into(),
            instance: self.instance.as_str().into(),
        }
    }

    /// Returns the storage of large results, if it is enabled and handlers may share the store.
    #[must_use]
    pub fn outputs(&self, section: &OutputsSection) -> Option<Arc<Outputs>> {
        let is_shared = section.enabled && !matches!(self.store_url, StoreUrl::Memory);
        is_shared.then(|| Outputs::new(self.store.clone(), section.clone()))
    }

    /// Closes the bus and then the store.
    pub async fn close(self) {
        let Self { bus, store, queue, .. } = self;
        drop(queue);
        bus.close().await;
        store.close().await;
    }
}
