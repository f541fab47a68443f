//! A tool handler with the built-in file tools and a tool of its own.
//!
//! It is run instead of `rockbot-tool-handler`, or in a pool of its own: the handlers of a pool share one
//! queue, so all of them must have the same tools.

mod word_count;

use std::{process::ExitCode, sync::Arc};

use rockbot_bus_rabbitmq::{BusSection, RabbitConfig};
use rockbot_contracts::{QueueSpec, ToolSource};
use rockbot_fleet::{FleetConnection, join};
use rockbot_service::{Configuration, Health, Process, ServeError, ServiceSection, Shutdown};
use rockbot_store::{Clock, StoreSection, reachable};
use rockbot_store_sql::connect_with_retry;
use rockbot_tool_handler::{
    ToolHandler,
    families::{FamilyParts, providers},
};
use rockbot_tool_rpc::{CallJournal, HandlerSection, JournalOptions};
use rockbot_toolkit::files::FilesConfig;
use rockbot_tools::{FixedTools, LayerOptions, Outputs, OutputsSection, Redactor};
use secrecy::ExposeSecret;

use self::word_count::WordCount;

const PROCESS: Process = Process {
    name: "own-tool",
    about: "Runs the built-in file tools and word_count for agents over RabbitMQ.",
    version: env!("CARGO_PKG_VERSION"),
    defaults: include_str!("../own-tool.toml"),
};

struct Settings {
    service: ServiceSection,
    bus: BusSection,
    handler: HandlerSection,
    files: FilesConfig,
    store: StoreSection,
    outputs: OutputsSection,
}

fn main() -> ExitCode {
    PROCESS.serve(read, serve)
}

/// Reads the configuration: the defaults, the file of `--config`, and `ROCKBOT_…` variables.
fn read(configuration: &mut Configuration) -> Settings {
    let mut settings = Settings {
        service: configuration.section("service"),
        bus: configuration.section("bus"),
        handler: configuration.section("handler"),
        files: configuration.section("files"),
        store: configuration.section("store"),
        outputs: configuration.section("outputs"),
    };
    for problem in settings.handler.validate().into_iter().chain(settings.outputs.validate()) {
        configuration.problem(problem);
    }
    if let Err(problem) = settings.store.parse() {
        configuration.problem(problem);
    }
    let rabbit = RabbitConfig::from_section(&settings.bus, "");
    let production = settings.service.is_production();
    for problem in rabbit.validation_errors(production) {
        configuration.problem(problem);
    }
    // With broker users of their own, callers are identified by the broker.
    settings.handler.identify(rabbit.user(), production || rabbit.has_own_user());
    settings
}

async fn serve(settings: Settings, shutdown: &Shutdown, health: &Health) -> Result<(), ServeError> {
    let Settings { service, bus, handler, files, store, outputs } = settings;
    let instance = service.instance();
    let url = store.parse().map_err(ServeError::Configuration)?;
    let journal_options = JournalOptions::from_section(&store, &url);
    let secrets = [Some(&bus.url), store.url.as_ref()].into_iter().flatten();
    let secrets: Vec<_> = secrets.map(|url| url.expose_secret().to_owned()).collect();

    // The journal records calls with an effect, so that none is executed twice.
    let opened = connect_with_retry(&url, Clock::System, shutdown.requested()).await;
    let opened = opened.map_err(|error| ServeError::Configuration(error.to_string()))?;
    let Some(store) = opened else { return Ok(()) };
    health.needs("store", reachable(store.clone()));
    let journal = CallJournal::start(store.clone(), &instance, journal_options);

    let queue = QueueSpec::work(&handler.pool().invoke_key()).name;
    let rabbit = RabbitConfig::from_section(&bus, format!("own-tool/{instance}"));
    let Some(connection) = join(&rabbit, queue, health, shutdown).await? else { return Ok(()) };
    let FleetConnection { bus, queue } = connection;

    let outputs = outputs.enabled.then(|| Outputs::new(store.clone(), outputs));
    let parts = FamilyParts { outputs: outputs.clone(), ..FamilyParts::new(&files) };
    let mut providers = providers(handler.families(), parts)
        .map_err(|error| ServeError::Configuration(error.to_string()))?;
    let own =
        FixedTools::new(ToolSource::Other("text".to_owned()), vec![Arc::new(WordCount::default())]);
    providers.push(Arc::new(own));
    let layers = handler.layers(None, Redactor::from_environment(secrets));
    let layers = LayerOptions { outputs, ..layers };
    let started =
        ToolHandler::start(bus.clone(), &handler, providers, journal, layers, instance.clone());
    let tool_handler = started.await.map_err(|error| ServeError::Unavailable(error.to_string()))?;
    health.refresh_with(tool_handler.handler().gauges());
    health.serving();
    tracing::info!(%instance, "ready");

    shutdown.requested().await;
    // Withdraws the announcement, finishes running calls and sends their replies.
    tool_handler.drain(service.drain()).await;
    drop(queue);
    bus.close().await;
    store.close().await;
    Ok(())
}
