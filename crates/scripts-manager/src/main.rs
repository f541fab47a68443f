//! `rockbot-scripts-manager`: runs scripts of agents in throw-away pods.

use std::{net::SocketAddr, process::ExitCode, sync::Arc};

use kube::{Client, Config};
use rockbot_bus_rabbitmq::{BusSection, RabbitConfig};
use rockbot_contracts::{QueueSpec, topology::script_invoke};
use rockbot_fleet::{FleetConnection, join};
use rockbot_scripts_manager::{KubernetesRunner, PodsSection, SERVICE, ScriptsManager, StartError};
use rockbot_service::{Configuration, Health, Process, ServeError, ServiceSection, Shutdown};
use rockbot_store::{Clock, StoreSection, reachable};
use rockbot_store_sql::connect_with_retry;
use rockbot_tool_rpc::{CallJournal, HandlerSection, JournalOptions};

/// Calls make many small allocations that cross threads, for which this allocator is optimized.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const PROCESS: Process = Process {
    name: "rockbot-scripts-manager",
    about: "Runs scripts of agents in throw-away pods. Receives them over RabbitMQ.",
    version: env!("CARGO_PKG_VERSION"),
    defaults: include_str!("../config.default.toml"),
};

struct Settings {
    service: ServiceSection,
    bus: BusSection,
    scripts: PodsSection,
    handler: HandlerSection,
    store: StoreSection,
}

fn main() -> ExitCode {
    PROCESS.serve(read, serve)
}

fn read(configuration: &mut Configuration) -> Settings {
    let mut settings = Settings {
        service: configuration.section("service"),
        bus: configuration.section("bus"),
        scripts: configuration.section("scripts"),
        handler: configuration.section("handler"),
        store: configuration.section("store"),
    };
    for problem in settings.handler.validate().into_iter().chain(settings.scripts.validate()) {
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
    // If this process has its own broker user, all processes have one: unsigned requests have no sender.
    settings.handler.identify(rabbit.user(), production || rabbit.has_own_user());
    settings
}

async fn serve(settings: Settings, shutdown: &Shutdown, health: &Health) -> Result<(), ServeError> {
    let Settings { service, bus, scripts, handler, store } = settings;
    let instance = service.instance();
    let name = format!("{SERVICE}/{instance}");
    let url = store.parse().map_err(ServeError::Configuration)?;
    let options = JournalOptions::from_section(&store, &url);
    let cluster_error = |error: &dyn std::fmt::Display| {
        ServeError::Configuration(format!(
            "Kubernetes cluster unavailable: {error}; run in a pod with a service account, or set KUBECONFIG"
        ))
    };
    let cluster = Config::infer().await.map_err(|error| cluster_error(&error))?;
    let probe_addresses =
        if scripts.probe_network { api_server_addresses(&cluster).await } else { Vec::new() };
    let client = Client::try_from(cluster).map_err(|error| cluster_error(&error))?;
    let opened = connect_with_retry(&url, Clock::System, shutdown.requested()).await;
    let opened =
        opened.map_err(|error| ServeError::Configuration(format!("store.url: {url}: {error}")))?;
    let Some(store) = opened else { return Ok(()) };
    let queue_name = QueueSpec::work(&script_invoke()).name;
    let joined =
        join(&RabbitConfig::from_section(&bus, &name), queue_name, health, shutdown).await?;
    let Some(FleetConnection { bus, queue }) = joined else { return Ok(()) };
    health.needs("store", reachable(store.clone()));
    let runner = KubernetesRunner::start(client, scripts)
        .map_err(|error| ServeError::Configuration(format!("scripts.images: {error}")))?;
    let runner = Arc::new(runner);
    let journal = CallJournal::start(store.clone(), &instance, options);
    let started =
        ScriptsManager::start(bus.clone(), runner, &handler, journal, instance, probe_addresses);
    let started = tokio::select! {
        started = started => started,
        () = shutdown.requested() => return Ok(()),
    };
    let running = started.map_err(|error| match error {
        StartError::Consume(error) => ServeError::Unavailable(error.to_string()),
        other => ServeError::Configuration(other.to_string()),
    })?;
    health.refresh_with(running.handler().gauges());
    health.serving();
    tracing::info!(%name, %url, shared = options.shared, "ready");
    shutdown.requested().await;
    running.drain(service.drain()).await;
    drop(queue);
    bus.close().await;
    store.close().await;
    Ok(())
}

/// Returns the addresses of the API server, for the probe script.
async fn api_server_addresses(cluster: &Config) -> Vec<SocketAddr> {
    let url = &cluster.cluster_url;
    let port = url.port_u16().unwrap_or(if url.scheme_str() == Some("http") { 80 } else { 443 });
    let host = url.host().unwrap_or_default().trim_matches(['[', ']']);
    match tokio::net::lookup_host((host, port)).await {
        Ok(found) => found.take(4).collect(),
        Err(error) => {
            tracing::warn!(%error, "API server address lookup failed; network isolation not probed");
            Vec::new()
        }
    }
}
