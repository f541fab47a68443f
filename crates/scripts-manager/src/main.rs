//! `rockbot-scripts-manager`: runs scripts of agents in single-use pods.

mod process;

use std::process::ExitCode;

use rockbot_contracts::topology::script_invoke;
use rockbot_fleet::HandlerConnection;
use rockbot_scripts_manager::SERVICE;
use rockbot_service::{Health, Process, ServeError, Shutdown};

use self::process::{Cluster, Settings, start_manager};

/// Calls make many small allocations that cross threads, for which this allocator is optimized.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const PROCESS: Process = Process {
    name: "rockbot-scripts-manager",
    about: "Runs scripts of agents in single-use pods. Receives them over RabbitMQ.",
    version: env!("CARGO_PKG_VERSION"),
    defaults: include_str!("../config.default.toml"),
};

fn main() -> ExitCode {
    PROCESS.serve(Settings::read, serve)
}

async fn serve(settings: Settings, shutdown: &Shutdown, health: &Health) -> Result<(), ServeError> {
    let Settings { common, scripts, outputs } = settings;
    let cluster = Cluster::find(&scripts).await?;
    let key = script_invoke();
    let opened = HandlerConnection::open(&common, SERVICE, &key, health, shutdown).await?;
    let Some(connection) = opened else { return Ok(()) };
    let manager = tokio::select! {
        started = start_manager(cluster, scripts, &common.handler, &outputs, &connection) => started?,
        () = shutdown.requested() => return Ok(()),
    };
    health.refresh_with(manager.handler().gauges());
    health.serving();
    let HandlerConnection { name, store_url, shares_journal, .. } = &connection;
    tracing::info!(%name, %store_url, shares_journal, "ready");

    let served = shutdown.requested_before(manager.ended()).await;
    manager.drain(common.service.drain()).await;
    connection.close().await;
    served
}
