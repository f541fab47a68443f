//! `rockbot-gateway`: serves people and programs over HTTP.

mod process;

use std::process::ExitCode;

use rockbot_gateway::{DEFAULT_CONFIG, Gateway, GatewayServer, Guard};
use rockbot_service::{Health, Process, ServeError, Shutdown};

use self::process::{Connections, Settings, configuration_error, print_login_link};

/// Requests make many small allocations that cross threads, which this allocator is optimized for.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const PROCESS: Process = Process {
    name: "rockbot-gateway",
    about: "Serves people and programs over HTTP, at http://127.0.0.1:8420.",
    version: env!("CARGO_PKG_VERSION"),
    defaults: DEFAULT_CONFIG,
};

fn main() -> ExitCode {
    PROCESS.serve(Settings::read, serve)
}

async fn serve(settings: Settings, shutdown: &Shutdown, health: &Health) -> Result<(), ServeError> {
    let Some(connections) = Connections::open(&settings, health, shutdown).await? else {
        return Ok(());
    };
    let section = &settings.gateway;
    let server = GatewayServer::bind(section).await.map_err(|error| {
        let address = section.address;
        ServeError::Unavailable(format!("gateway.address: cannot listen on {address}: {error}"))
    })?;
    let guard = Guard::start(section, server.address()).map_err(configuration_error)?;
    print_login_link(&guard)?;
    let gateway = Gateway::new(section, connections.parts(), guard);
    health.serving();
    tracing::info!(address = %server.address(), "ready");
    let drain = settings.service.drain();
    let served = server.serve(gateway, shutdown.token().clone(), drain).await;
    connections.close().await;
    served.map_err(|error| ServeError::Unavailable(error.to_string()))
}
