//! `rockbot-gateway`: serves people and programs over HTTP.

mod process;

use std::{process::ExitCode, sync::Arc};

use rockbot_contracts::AgentName;
use rockbot_gateway::{
    A2aParts, DEFAULT_CONFIG, FaceName, Gateway, GatewayParts, GatewayServer, Guard, McpFace,
    RemoteAgents, ToolCalls,
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
    let a2a = A2aParts::load(&section.a2a).map_err(configuration_error)?;
    if let Some(key_id) = a2a.signing_key_id() {
        tracing::info!(key_id, "cards of agents are signed");
    }
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
    let mut parts = GatewayParts { a2a, ..connections.parts().clone() };
    if let (true, Some(bus)) = (section.call_tools, parts.calls.clone()) {
        let calls = ToolCalls::start(bus, caller()?, settings.mcp_server.clone()).await;
        parts.tool_calls = Some(Arc::new(calls.map_err(unavailable_error)?));
    }
    let mut gateway = Gateway::new(section, &parts, guard);
    if section.faces.contains(&FaceName::Mcp) {
        let mcp = McpFace::start(&parts, caller()?, settings.mcp_server.clone(), None).await;
        if let Some(mcp) = mcp.map_err(unavailable_error)? {
            gateway = gateway.with_mcp(mcp);
        }
    }
    if section.may_repeat_remote_tasks() {
        tracing::warn!(
            "gateway.store is in memory: after a restart, or with a second replica, remote agents can get a task \
             again; set gateway.store to \"sqlite:PATH\" or a postgres:// URL"
        );
    }
    let (store, instance, drain) = (&parts.store, &parts.instance, settings.service.drain());
    let bus = |agent: &AgentName| connections.remote_agent(agent);
    let remote_agents = RemoteAgents::start(&section.remote_agents, store, instance, drain, bus);
    let remote_agents = remote_agents.map_err(configuration_error)?;
    health.serving();
    tracing::info!(address = %server.address(), "ready");
    let stopping = async {
        shutdown.token().cancelled().await;
        remote_agents.stop().await;
        Ok(())
    };
    let serving = server.serve(gateway, shutdown.token().clone(), drain);
    let served = tokio::try_join!(serving, stopping);
    connections.close().await;
    served.map(|_| ()).map_err(|error| ServeError::Unavailable(error.to_string()))
}
