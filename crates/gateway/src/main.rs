//! `rockbot-gateway`: serves people and programs over HTTP.

mod process;

use std::process::ExitCode;

use rockbot_gateway::{DEFAULT_CONFIG, FaceName, Gateway, GatewayServer, Guard, McpFace};
use rockbot_service::{Health, Process, ServeError, Shutdown};

use self::process::{
    Connections, Settings, configuration_error, print_login_link, unavailable_error,
};

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
    let mut gateway = Gateway::new(section, connections.parts(), guard);
    let mcp = if section.faces.contains(&FaceName::Mcp) {
        let caller = settings
            .caller()
            .ok_or_else(|| configuration_error("gateway.calls.url: its user may not call tools"))?;
        let parts = connections.parts();
        McpFace::start(parts, caller, settings.mcp_server.clone(), None)
            .await
            .map_err(unavailable_error)?
    } else {
        None
    };
    if let Some(mcp) = &mcp {
        gateway = gateway.with_face(mcp.face());
    }
    health.serving();
    tracing::info!(address = %server.address(), "ready");
    let drain = settings.service.drain();
    let stopping = async {
        shutdown.requested().await;
        if let Some(mcp) = &mcp {
            // Ends its streams, which the server waits for.
            mcp.stop(drain).await;
        }
    };
    let serving = server.serve(gateway, shutdown.token().clone(), drain);
    let (served, ()) = tokio::join!(serving, stopping);
    connections.close().await;
    served.map_err(|error| ServeError::Unavailable(error.to_string()))
}
