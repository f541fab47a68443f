//! `rockbot-tool-handler`: runs tools for agents that ask over RabbitMQ.

use std::{process::ExitCode, sync::Arc, time::Duration};

use rockbot_bus::Bus;
use rockbot_bus_rabbitmq::{RabbitBus, RabbitConfig, TlsFiles};
use rockbot_service::{
    BusSection, Configuration, Process, ServeError, ServiceSection, Shutdown, TlsSection,
};
use rockbot_store::{Clock, Store, StoreError, StoreUrl};
use rockbot_tool_handler::{
    DEFAULT_CONFIG, HandlerSection, SERVICE, StartError, StoreSection, ToolHandler,
};
use rockbot_toolkit::files::FilesConfig;
use rockbot_tools::CallJournal;

/// Calls are many small allocations that cross threads; this allocator is made for those.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const PROCESS: Process = Process {
    name: "rockbot-tool-handler",
    about: "Runs tools for agents that ask over RabbitMQ.",
    version: env!("CARGO_PKG_VERSION"),
    defaults: DEFAULT_CONFIG,
};

struct Settings {
    service: ServiceSection,
    bus: BusSection,
    handler: HandlerSection,
    files: FilesConfig,
    store: StoreSection,
}

fn main() -> ExitCode {
    PROCESS.run(read, serve)
}

fn read(configuration: &mut Configuration) -> Settings {
    let mut settings = Settings {
        service: configuration.section("service"),
        bus: configuration.section("bus"),
        handler: configuration.section("handler"),
        files: configuration.section("files"),
        store: configuration.section("store"),
    };
    for problem in settings.handler.problems() {
        configuration.problem(problem);
    }
    if let Err(problem) = settings.store.parse() {
        configuration.problem(problem);
    }
    let rabbit = rabbit(&settings.bus, "");
    if let Err(problem) = rabbit.check() {
        configuration.problem(format!("bus: {problem}"));
    }
    // With a user of its own on the broker, everybody has one: who does not sign is nobody.
    settings.handler.require_identity |= rabbit.has_own_user();
    settings.handler.user = rabbit.user();
    if settings.service.is_production() {
        rabbit
            .unsafe_in_production()
            .into_iter()
            .for_each(|problem| configuration.problem(problem));
        settings.handler.require_identity = true;
    }
    if let Err(problem) = rockbot_toolkit::files::tools(&settings.files) {
        configuration.problem(format!("files: {problem}"));
    }
    settings
}

async fn serve(settings: Settings, shutdown: &Shutdown) -> Result<(), ServeError> {
    let Settings { service, bus, handler, files, store } = settings;
    let instance = service.instance();
    let name = format!("{SERVICE}/{instance}");
    let url = store.parse().map_err(ServeError::Configuration)?;
    let options = store.journal(&url);
    let Some(store) = open(&url, shutdown).await? else { return Ok(()) };
    let bus = Arc::new(connect(&bus, &name, shutdown).await?);
    let journal = CallJournal::start(store.clone(), &instance, options);
    let started = tokio::select! {
        started = ToolHandler::start(bus.clone(), &handler, &files, journal, instance) => started,
        () = shutdown.requested() => return Ok(()),
    };
    let running = started.map_err(|error| match error {
        StartError::Consume(error) => ServeError::Unavailable(error.to_string()),
        other => ServeError::Configuration(other.to_string()),
    })?;
    tracing::info!(%name, %url, shared = options.shared, "ready");
    shutdown.requested().await;
    running.drain(service.drain()).await;
    bus.close().await;
    store.close().await;
    Ok(())
}

/// The pause between two attempts to reach the store.
const STORE_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Opens the store; waits for it as long as it takes, as for the broker.
async fn open(url: &StoreUrl, shutdown: &Shutdown) -> Result<Option<Arc<dyn Store>>, ServeError> {
    loop {
        let opened = tokio::select! {
            opened = rockbot_store::connect(url, Clock::System) => opened,
            () = shutdown.requested() => return Ok(None),
        };
        match opened {
            Ok(store) => return Ok(Some(store)),
            Err(error @ StoreError::Unavailable { .. }) => {
                tracing::warn!(%error, %url, "waiting for the store");
            }
            Err(error) => {
                return Err(ServeError::Configuration(format!("store.url: {url}: {error}")));
            }
        }
        tokio::select! {
            () = tokio::time::sleep(STORE_AGAIN_AFTER) => {}
            () = shutdown.requested() => return Ok(None),
        }
    }
}

fn rabbit(section: &BusSection, name: &str) -> RabbitConfig {
    let TlsSection { ca_file, cert_file, key_file } = section.tls.clone();
    RabbitConfig::secret(section.url.clone(), name)
        .in_namespace(&section.namespace)
        .with_tls(TlsFiles { ca_file, cert_file, key_file })
}

/// Waits for the broker for as long as it takes: in a cluster it may come up later than we do.
async fn connect(
    section: &BusSection,
    name: &str,
    shutdown: &Shutdown,
) -> Result<RabbitBus, ServeError> {
    let bus = RabbitBus::start(&rabbit(section, name))
        .map_err(|error| ServeError::Configuration(format!("bus.url: {error}")))?;
    tokio::select! {
        connected = bus.connected(std::time::Duration::MAX) => {
            connected.map_err(|error| ServeError::Unavailable(error.to_string()))?;
        }
        () = shutdown.requested() => {}
    }
    Ok(bus)
}
