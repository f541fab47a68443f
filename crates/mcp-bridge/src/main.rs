//! `rockbot-mcp-bridge`: serves the tools of MCP servers over RabbitMQ.

mod process;

use std::process::ExitCode;

use rockbot_contracts::topology::tool_invoke_mcp;
use rockbot_fleet::HandlerConnection;
use rockbot_hooks::OperatorHooks;
use rockbot_mcp_bridge::SERVICE;
use rockbot_service::{Health, Process, ServeError, Shutdown};

use self::process::{Settings, configuration_error, start_service};

/// Calls make many small allocations that cross threads.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const PROCESS: Process = Process {
    name: "rockbot-mcp-bridge",
    about: "Serves the tools of MCP servers over RabbitMQ.",
    version: env!("CARGO_PKG_VERSION"),
    defaults: include_str!("../config.default.toml"),
};

fn main() -> ExitCode {
    PROCESS.serve(Settings::read, serve)
}

async fn serve(settings: Settings, shutdown: &Shutdown, health: &Health) -> Result<(), ServeError> {
    let common = &settings.common;
    let hooks = OperatorHooks::start(&settings.hooks, SERVICE, &common.service.instance())
        .map_err(configuration_error)?;
    let model = settings.summary_model()?;
    let key = tool_invoke_mcp();
    let opened = HandlerConnection::open(common, SERVICE, &key, health, shutdown).await?;
    let Some(connection) = opened else { return Ok(()) };
    let service = tokio::select! {
        started = start_service(&settings, &connection, &hooks, model, health) => started?,
        () = shutdown.requested() => return Ok(()),
    };
    health.refresh_with(service.handler().gauges());
    health.serving();
    let HandlerConnection { name, store_url, shares_journal, .. } = &connection;
    tracing::info!(%name, %store_url, shares_journal, "ready");

    let served = shutdown.requested_before(service.ended()).await;
    service.drain(common.service.drain()).await;
    connection.close().await;
    hooks.close().await;
    served
}
