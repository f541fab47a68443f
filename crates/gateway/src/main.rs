//! `rockbot-gateway`: serves people and programs over HTTP.

mod process;

use std::{process::ExitCode, sync::Arc};

use rockbot_gateway::{
    DEFAULT_CONFIG, FaceName, Gateway, GatewayServer, Guard, McpFace, ToolCalls,
};
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
    let caller = || {
        let caller = settings.caller();
        caller.ok_or_else(|| configuration_error("gateway.calls.url: its user may not call tools"))
    };
    let mut parts = connections.parts().clone();
    if let (true, Some(bus)) = (section.call_tools, parts.calls.clone()) {
        let calls = ToolCalls::start(bus, caller()?, settings.mcp_server.clone()).await;
        parts.tool_calls = Some(Arc::new(calls.map_err(unavailable_error)?));
    }
    let mut gateway = Gateway::new(section, &parts, guard);
    let mcp = if section.faces.contains(&FaceName::Mcp) {
        McpFace::start(&parts, caller()?, settings.mcp_server.clone(), None)
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
        // Ends the streams and calls, which the server waits for.
        let stop_mcp = async {
            if let Some(mcp) = &mcp {
                mcp.stop(drain).await;
            }
        };
        let stop_calls = async {
            if let Some(calls) = &parts.tool_calls {
                calls.stop(drain).await;
            }
        };
        tokio::join!(stop_mcp, stop_calls);
    };
    let serving = server.serve(gateway, shutdown.token().clone(), drain);
    let (served, ()) = tokio::join!(serving, stopping);
    connections.close().await;
    served.map_err(|error| ServeError::Unavailable(error.to_string()))
}
