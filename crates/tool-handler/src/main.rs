//! `rockbot-tool-handler`: runs tools for agents over RabbitMQ.

mod process;

use std::process::ExitCode;

use rockbot_fleet::HandlerConnection;
use rockbot_hooks::OperatorHooks;
use rockbot_service::{Health, Process, ServeError, Shutdown};
use rockbot_tool_handler::{DEFAULT_CONFIG, SERVICE};

use self::process::{Settings, configuration_error, start_handler};

/// Calls cause many small allocations that cross threads, which this allocator is optimized for.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const PROCESS: Process = Process {
    name: "rockbot-tool-handler",
    about: "Runs tools for agents over RabbitMQ.",
    version: env!("CARGO_PKG_VERSION"),
    defaults: DEFAULT_CONFIG,
};

fn main() -> ExitCode {
    #[cfg(feature = "pdf")]
    if let Some(code) = rockbot_tool_handler::families::read_pdf_if_requested() {
        return code;
    }
    PROCESS.serve(Settings::read, serve)
}

async fn serve(settings: Settings, shutdown: &Shutdown, health: &Health) -> Result<(), ServeError> {
    let common = &settings.common;
    let hooks = OperatorHooks::start(&settings.hooks, SERVICE, &common.service.instance())
        .map_err(configuration_error)?;
    // First of all, because the isolation of scripts may be insufficient.
    let scripts = settings.start_scripts().await?;
    let (pool, key) = (common.handler.pool(), common.handler.pool().invoke_key());
    let opened = HandlerConnection::open(common, SERVICE, &key, health, shutdown).await?;
    let Some(connection) = opened else { return Ok(()) };
    let handler = tokio::select! {
        started = start_handler(&settings, &connection, &hooks, scripts.as_ref()) => started?,
        () = shutdown.requested() => return Ok(()),
    };
    health.refresh_with(handler.handler().gauges());
    health.serving();
    let HandlerConnection { name, store_url, shares_journal, .. } = &connection;
    tracing::info!(%name, %pool, %store_url, shares_journal, "ready");

    let served = shutdown.requested_before(handler.ended()).await;
    handler.drain(common.service.drain()).await;
    if let Some(scripts) = scripts {
        scripts.close().await;
    }
    connection.close().await;
    hooks.close().await;
    served
}
