//! `rockbot-mcp-bridge`: serves the tools of MCP servers over RabbitMQ.

use std::process::ExitCode;

use rockbot_bus_rabbitmq::{BusSection, RabbitConfig};
use rockbot_contracts::{QueueSpec, topology::tool_invoke_mcp};
use rockbot_fleet::{FleetConnection, join};
use rockbot_hooks::{HookSettings, OperatorHooks};
use rockbot_llm::LlmConfig;
use rockbot_mcp_bridge::{Bridge, BridgeOptions, BridgeService, McpSection, SERVICE};
use rockbot_service::{Configuration, Health, Process, ServeError, ServiceSection, Shutdown};
use rockbot_store::{Clock, StoreSection, StoreUrl, reachable};
use rockbot_store_sql::connect_with_retry;
use rockbot_tool_rpc::{CallJournal, HandlerSection, JournalOptions};
use rockbot_tools::{LayerOptions, Redactor, limits::fleet::FleetStore};
use secrecy::ExposeSecret;

/// Calls make many small allocations that cross threads.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const PROCESS: Process = Process {
    name: "rockbot-mcp-bridge",
    about: "Serves the tools of MCP servers over RabbitMQ.",
    version: env!("CARGO_PKG_VERSION"),
    defaults: include_str!("../config.default.toml"),
};

struct Settings {
    service: ServiceSection,
    bus: BusSection,
    mcp: McpSection,
    handler: HandlerSection,
    store: StoreSection,
    llm: LlmConfig,
    hooks: HookSettings,
}

fn main() -> ExitCode {
    PROCESS.serve(read, serve)
}

fn read(configuration: &mut Configuration) -> Settings {
    let mut settings = Settings {
        service: configuration.section("service"),
        bus: configuration.section("bus"),
        mcp: configuration.section("mcp"),
        handler: configuration.section("handler"),
        store: configuration.section("store"),
        llm: configuration.section("llm"),
        hooks: HookSettings::read(configuration),
    };
    let llm = settings.llm.validate().into_iter().map(|problem| format!("llm: {problem}"));
    for problem in settings.handler.validate().into_iter().chain(settings.mcp.validate()).chain(llm)
    {
        configuration.problem(problem);
    }
    let rabbit = RabbitConfig::from_section(&settings.bus, "");
    let production = settings.service.is_production();
    for problem in settings.store.validate(production) {
        configuration.problem(problem);
    }
    for problem in rabbit.validation_errors(production) {
        configuration.problem(problem);
    }
    // With a broker user of its own, every service has one: unsigned senders are rejected.
    settings.handler.identify(rabbit.user(), production || rabbit.has_own_user());
    settings
}

async fn serve(settings: Settings, shutdown: &Shutdown, health: &Health) -> Result<(), ServeError> {
    let Settings { service, bus, mcp, handler, store, llm, hooks } = settings;
    let instance = service.instance();
    let hooks = OperatorHooks::start(&hooks, SERVICE, &instance)
        .map_err(|error| ServeError::Configuration(error.to_string()))?;
    let name = format!("{SERVICE}/{instance}");
    let url = store.parse().map_err(ServeError::Configuration)?;
    let options = JournalOptions::from_section(&store, &url);
    let key = llm.key_to_redact();
    let known = [Some(&bus.url), store.url.as_ref(), key.as_ref()].into_iter().flatten();
    let secrets: Vec<_> = known.map(|secret| secret.expose_secret().to_owned()).collect();
    let model = if mcp.summaries {
        let resolved = rockbot_llm::resolve(&llm, &|name| std::env::var(name).ok())
            .map_err(|problem| ServeError::Configuration(format!("llm: {problem}")))?;
        Some(resolved.model)
    } else {
        None
    };
    let store = connect_with_retry(&url, Clock::System, shutdown.requested())
        .await
        .map_err(|error| ServeError::Configuration(format!("store.url: {url}: {error}")))?;
    let Some(store) = store else { return Ok(()) };
    let namespace = bus.namespace.clone();
    let work_queue = QueueSpec::work(&tool_invoke_mcp()).name;
    let rabbit = RabbitConfig::from_section(&bus, &name);
    let connection = join(&rabbit, work_queue, health, shutdown).await?;
    let Some(FleetConnection { bus, queue }) = connection else { return Ok(()) };
    health.needs("store", reachable(store.clone()));
    // An in-memory store is not shared with other bridges.
    let shared = (!matches!(url, StoreUrl::Memory))
        .then(|| (store.clone(), namespace.clone(), instance.clone()));
    let fleet = FleetStore {
        store: store.clone(),
        namespace: namespace.as_str().into(),
        instance: instance.as_str().into(),
    };
    let layers = handler.layers(Some(&fleet), Redactor::from_environment(secrets));
    let layers = LayerOptions { hooks: hooks.hooks(), ..layers };
    let bridge = Bridge::new(BridgeOptions { shared, model, layers, ..mcp.options() });
    health.refresh_with(bridge.gauges());
    let required = bridge.clone();
    health.needs("required_servers", move || {
        let missing = required.missing_required();
        let status = if missing.is_empty() { Ok(()) } else { Err(missing.join(", ")) };
        Box::pin(std::future::ready(status))
    });
    let journal = CallJournal::start(store.clone(), &instance, options);
    let invoke = handler.options().with_journal(journal);
    let started = BridgeService::start(bus.clone(), bridge, mcp.config, invoke, instance);
    let running = tokio::select! {
        started = started => started.map_err(|error| ServeError::Unavailable(error.to_string()))?,
        () = shutdown.requested() => return Ok(()),
    };
    health.refresh_with(running.handler().gauges());
    health.serving();
    tracing::info!(%name, %url, shared = options.shared, "ready");
    shutdown.requested().await;
    running.drain(service.drain()).await;
    drop(queue);
    bus.close().await;
    hooks.close().await;
    store.close().await;
    Ok(())
}
