//! `rockbot-tool-handler`: runs tools for agents that ask over RabbitMQ.

use std::{process::ExitCode, sync::Arc};

use rockbot_bus::Bus;
use rockbot_bus_rabbitmq::{RabbitBus, RabbitConfig};
use rockbot_service::{BusSection, Configuration, Process, ServeError, ServiceSection, Shutdown};
use rockbot_store::{Clock, StoreSection, connect_patiently};
use rockbot_tool_handler::{DEFAULT_CONFIG, SERVICE, StartError, ToolHandler};
use rockbot_toolkit::files::FilesConfig;
use rockbot_tools::{CallJournal, HandlerSection, JournalOptions};

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
    let rabbit = RabbitConfig::of(&settings.bus, "");
    let production = settings.service.is_production();
    for problem in rabbit.problems(production) {
        configuration.problem(problem);
    }
    // With a user of its own on the broker, everybody has one: who does not sign is nobody.
    settings.handler.identify(rabbit.user(), production || rabbit.has_own_user());
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
    let options = JournalOptions::of(&store, &url);
    let opened = connect_patiently(&url, Clock::System, shutdown.requested()).await;
    let opened =
        opened.map_err(|error| ServeError::Configuration(format!("store.url: {url}: {error}")))?;
    let Some(store) = opened else { return Ok(()) };
    let reached = RabbitBus::reach(&RabbitConfig::of(&bus, &name), shutdown.requested()).await;
    let Some(bus) = reached? else { return Ok(()) };
    let bus = Arc::new(bus);
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
