//! The tool handler: a process that serves the requests of its pool by running tools.
//!
//! [`ToolHandler`] is the process without its `main`: the `rockbot` command embeds it next to an agent
//! on the in-memory bus. [`families`] creates the tools.

pub mod families;

use std::{sync::Arc, time::Duration};

use rockbot_bus::{Bus, ConsumeError};
use rockbot_contracts::InstanceId;
use rockbot_tool_rpc::{
    AnnouncedHandler, CallJournal, CatalogAnnouncer, HandlerSection, ToolInvokeHandler,
    invoke::InvokeWorkers,
};
use rockbot_tools::{AttachedProviders, LayerOptions, ToolExecutor, ToolProvider, ToolRegistry};

/// Name of the service on the bus.
pub const SERVICE: &str = "tool-handler";

/// Default configuration with comments, in TOML.
pub const DEFAULT_CONFIG: &str = include_str!("../config.default.toml");

/// A running tool handler.
#[derive(Debug)]
pub struct ToolHandler {
    handler: Arc<ToolInvokeHandler>,
    workers: InvokeWorkers,
    announcer: CatalogAnnouncer,
    _providers: Arc<AttachedProviders>,
}

impl ToolHandler {
    /// Starts a handler of the configured pool, for the tools of these providers. Waits for their warm-up,
    /// at most 30 s. Calls pass through `layers`.
    ///
    /// # Errors
    /// When the bus rejects a queue.
    ///
    /// # Cancellation
    /// Dropping the future stops the handler.
    pub async fn start(
        bus: Arc<dyn Bus>,
        section: &HandlerSection,
        providers: Vec<Arc<dyn ToolProvider>>,
        journal: Arc<CallJournal>,
        layers: LayerOptions,
        instance: InstanceId,
    ) -> Result<Self, ConsumeError> {
        let registry = Arc::new(ToolRegistry::new());
        let providers = Arc::new(AttachedProviders::attach(registry.clone(), providers).await);
        let executor = ToolExecutor::with_layers(registry.clone(), layers);
        let options = section.options().with_journal(journal);
        let executor = Arc::new(executor);
        let handler = ToolInvokeHandler::new(executor, bus.clone(), SERVICE, &instance, options);
        let pool = section.pool();
        let workers = handler.start(&pool.invoke_key(), &instance).await?;
        // Announced last, so that a requester can call a tool as soon as it is announced.
        let (observed, attached) = (handler.clone(), providers.clone());
        let announced = AnnouncedHandler {
            service: SERVICE.to_owned(),
            instance,
            pool,
            registry,
            load: Box::new(move || observed.load()),
            instructions: Box::new(move || attached.instructions()),
            guides: providers.guides(),
            script_isolation: providers.script_isolation(),
        };
        let announcer = CatalogAnnouncer::start(bus, announced).await?;
        Ok(Self { handler, workers, announcer, _providers: providers })
    }

    /// Returns the request handler, for its metrics.
    #[must_use]
    pub fn handler(&self) -> &Arc<ToolInvokeHandler> {
        &self.handler
    }

    /// Waits until a queue is no longer consumed although nothing stopped its worker. The process must end
    /// then, to be started again.
    pub async fn ended(&self) {
        self.workers.ended().await;
    }

    /// Withdraws the announcement, stops accepting calls, and finishes the running ones within `grace`.
    /// Returns `true` if all of them finished in time.
    pub async fn drain(self, grace: Duration) -> bool {
        self.announcer.stop().await;
        self.workers.drain(grace).await
    }
}
