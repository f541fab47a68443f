//! `rockbot-tool-handler`: runs tools for agents over RabbitMQ.

use std::{process::ExitCode, sync::Arc};

use rockbot_bus_rabbitmq::{BusSection, RabbitConfig};
use rockbot_contracts::{QueueSpec, topology::tool_invoke};
use rockbot_fleet::{FleetConnection, join};
use rockbot_hooks::{HookSettings, OperatorHooks};
use rockbot_scripts::{RunnerName, ScriptsSection};
use rockbot_service::{Configuration, Health, Process, ServeError, ServiceSection, Shutdown};
use rockbot_store::{Clock, StoreSection, reachable};
use rockbot_store_sql::connect_with_retry;
use rockbot_tool_handler::{DEFAULT_CONFIG, SERVICE, StartError, ToolHandler, tools};
use rockbot_tool_rpc::{CallJournal, HandlerSection, JournalOptions};
use rockbot_toolkit::files::FilesConfig;
use rockbot_tools::{
    LayerOptions, Outputs, OutputsSection, Redactor, ToolOutput, limits::fleet::FleetStore,
};
use secrecy::ExposeSecret;

/// Calls cause many small allocations that cross threads, which this allocator is optimized for.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const PROCESS: Process = Process {
    name: "rockbot-tool-handler",
    about: "Runs tools for agents over RabbitMQ.",
    version: env!("CARGO_PKG_VERSION"),
    defaults: DEFAULT_CONFIG,
};

struct Settings {
    service: ServiceSection,
    bus: BusSection,
    handler: HandlerSection,
    files: FilesConfig,
    scripts: ScriptsSection,
    store: StoreSection,
    outputs: OutputsSection,
    hooks: HookSettings,
}

fn main() -> ExitCode {
    PROCESS.serve(read, serve)
}

fn read(configuration: &mut Configuration) -> Settings {
    let mut settings = Settings {
        service: configuration.section("service"),
        bus: configuration.section("bus"),
        handler: configuration.section("handler"),
        files: configuration.section("files"),
        scripts: configuration.section("scripts"),
        store: configuration.section("store"),
        outputs: configuration.section("outputs"),
        hooks: HookSettings::read(configuration),
    };
    for problem in settings.handler.validate().into_iter().chain(settings.outputs.validate()) {
        configuration.problem(problem);
    }
    let rabbit = RabbitConfig::from_section(&settings.bus, "");
    let production = settings.service.is_production();
    for problem in settings.store.validate(production) {
        configuration.problem(problem);
    }
    let scripts = settings.scripts.validate(&[RunnerName::Local, RunnerName::Docker], production);
    for problem in rabbit.validation_errors(production).into_iter().chain(scripts) {
        configuration.problem(problem);
    }
    // If this service has its own broker user, all services have one, so requests must name their user.
    settings.handler.identify(rabbit.user(), production || rabbit.has_own_user());
    if let Err(problem) = rockbot_toolkit::files::tools(&settings.files) {
        configuration.problem(format!("files: {problem}"));
    }
    settings
}

async fn serve(settings: Settings, shutdown: &Shutdown, health: &Health) -> Result<(), ServeError> {
    let Settings { service, bus, handler, files, scripts, store, outputs, hooks } = settings;
    let instance = service.instance();
    let hooks = OperatorHooks::start(&hooks, SERVICE, &instance)
        .map_err(|error| ServeError::Configuration(error.to_string()))?;
    let name = format!("{SERVICE}/{instance}");
    let url = store.parse().map_err(ServeError::Configuration)?;
    let options = JournalOptions::from_section(&store, &url);
    let addresses = [Some(&bus.url), store.url.as_ref()].into_iter().flatten();
    let secrets: Vec<_> = addresses.map(|url| url.expose_secret().to_owned()).collect();
    let namespace = bus.namespace.clone();
    // First of all, because the isolation of scripts may be insufficient.
    let scripts = scripts.start().await;
    let scripts =
        scripts.map_err(|error| ServeError::Configuration(format!("scripts: {error}")))?;
    let opened = connect_with_retry(&url, Clock::System, shutdown.requested()).await;
    let opened =
        opened.map_err(|error| ServeError::Configuration(format!("store.url: {url}: {error}")))?;
    let Some(store) = opened else { return Ok(()) };
    let queue = QueueSpec::work(&tool_invoke()).name;
    let connection =
        join(&RabbitConfig::from_section(&bus, &name), queue, health, shutdown).await?;
    let Some(FleetConnection { bus, queue: queue_check }) = connection else { return Ok(()) };
    health.needs("store", reachable(store.clone()));
    let journal = CallJournal::start(store.clone(), &instance, options);
    let mut tools = tools(&files, scripts.as_ref())
        .map_err(|error| ServeError::Configuration(error.to_string()))?;
    let fleet = FleetStore {
        store: store.clone(),
        namespace: namespace.as_str().into(),
        instance: instance.as_str().into(),
    };
    let layers = handler.layers(Some(&fleet), Redactor::from_environment(secrets));
    let outputs = outputs.enabled.then(|| Outputs::new(store.clone(), outputs));
    if let Some(outputs) = &outputs {
        tools.push(Arc::new(ToolOutput::new(outputs.clone())));
    }
    let layers = LayerOptions { outputs, hooks: hooks.hooks(), ..layers };
    let started = ToolHandler::start(bus.clone(), &handler, tools, journal, layers, instance);
    let started = tokio::select! {
        started = started => started,
        () = shutdown.requested() => return Ok(()),
    };
    let tool_handler = started.map_err(|error| match error {
        StartError::Consume(error) => ServeError::Unavailable(error.to_string()),
        other => ServeError::Configuration(other.to_string()),
    })?;
    health.refresh_with(tool_handler.handler().gauges());
    health.serving();
    tracing::info!(%name, %url, shared = options.shared, "ready");
    shutdown.requested().await;
    tool_handler.drain(service.drain()).await;
    drop(queue_check);
    if let Some(scripts) = scripts {
        scripts.close().await;
    }
    bus.close().await;
    hooks.close().await;
    store.close().await;
    Ok(())
}
