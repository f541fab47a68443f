//! The gateway of an embedded fleet.

use std::sync::Arc;

use rockbot_bus::Bus;
use rockbot_contracts::{AgentName, InstanceId, identity::CLI};
use rockbot_gateway::{
    A2aParts, FaceName, Gateway, GatewayParts, GatewayServer, Guard, McpFace, ToolCalls,
};
use rockbot_service::exit;
use rockbot_store::{Clock, Store};
use rockbot_tool_rpc::mcp::McpGateway;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::{
    failure::{Failure, OrExit},
    settings::Settings,
    stored_conversations::ConversationStores,
};

/// A running gateway.
pub(crate) struct Web {
    stop: CancellationToken,
    serving: JoinHandle<std::io::Result<()>>,
    /// The gateway's own store; `None` if it shares that of the conversations.
    store: Option<Arc<dyn Store>>,
    notice: String,
}

/// The parts of a fleet that its gateway uses.
pub(crate) struct WebParts<'a> {
    pub(crate) bus: Arc<dyn Bus>,
    pub(crate) stores: Option<&'a ConversationStores>,
    /// The embedded agent; the configured agents are used without one.
    pub(crate) agent: Option<&'a AgentName>,
    pub(crate) servers: Option<Arc<dyn McpGateway>>,
    /// Watches calls from the start, not only while there are viewers.
    pub(crate) watches_from_start: bool,
}

impl Web {
    /// Starts a gateway.
    pub(crate) async fn start(settings: &Settings, fleet: WebParts<'_>) -> Result<Self, Failure> {
        let WebParts { bus, stores, agent, servers, watches_from_start } = fleet;
        let section = &settings.gateway;
        let (store, own) = open_store(settings, stores).await?;
        let agents = agent.map_or_else(|| section.agents.clone(), |agent| vec![agent.clone()]);
        let instance = InstanceId::generate();
        let parts = GatewayParts::connect(bus.clone(), agents, store, instance);
        let mut parts = parts.await.or_exit(exit::UNAVAILABLE)?;
        // One process has the rights of all users.
        parts.watch = Some(bus.clone());
        parts.watches_from_start = watches_from_start;
        parts.letters = Some(bus.clone());
        parts.calls = Some(bus.clone());
        parts.a2a = A2aParts::load(&section.a2a).or_exit(exit::USAGE)?;
        parts.namespace = settings.bus.namespace.as_str().into();
        let server = GatewayServer::bind(section).await.map_err(|error| {
            let address = section.address;
            Failure::unavailable(format!(
                "gateway.address: cannot listen on {address}: {error}; set another one, such as \
                 `ROCKBOT_GATEWAY__ADDRESS=127.0.0.1:0` for a free port"
            ))
        })?;
        let guard = Guard::start(section, server.address()).or_exit(exit::USAGE)?;
        let link = guard.login_link().or_exit(exit::SOFTWARE)?;
        let caller = AgentName::new(CLI).or_exit(exit::SOFTWARE)?;
        if section.call_tools {
            let calls = ToolCalls::start(bus, caller.clone(), settings.mcp_server.clone()).await;
            parts.tool_calls = Some(Arc::new(calls.or_exit(exit::UNAVAILABLE)?));
        }
        let mut gateway = Gateway::new(section, &parts, guard.clone());
        if section.faces.contains(&FaceName::Mcp) {
            let mcp = McpFace::start(&parts, caller, settings.mcp_server.clone(), servers).await;
            if let Some(mcp) = mcp.or_exit(exit::UNAVAILABLE)? {
                gateway = gateway.with_mcp(mcp);
            }
        }
        let stop = CancellationToken::new();
        let serving = tokio::spawn(server.serve(gateway, stop.clone(), settings.service.drain()));
        let notice = match link {
            Some(link) => format!("web: open {link} within 5 minutes to sign in"),
            None => format!("web: {}", guard.public_origin()),
        };
        Ok(Self { stop, serving, store: own, notice })
    }

    /// Returns the line for the person who started it, with a login link. It must not be logged.
    pub(crate) fn notice(&self) -> &str {
        &self.notice
    }

    /// Waits until open requests have ended, and closes the store.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        // It ends with the drain at the latest.
        let _ = self.serving.await;
        if let Some(store) = self.store {
            store.close().await;
        }
    }
}

/// Returns the store of the gateway, twice if it is its own.
async fn open_store(
    settings: &Settings,
    stores: Option<&ConversationStores>,
) -> Result<(Arc<dyn Store>, Option<Arc<dyn Store>>), Failure> {
    // The owners of conversations are kept as long as the conversations.
    if let (None, Some(stores)) = (&settings.gateway.store, stores) {
        return Ok((stores.stores.store.clone(), None));
    }
    let url = settings.gateway.store_url().map_err(Failure::usage)?;
    let store = rockbot_store_sql::connect(&url, Clock::System).await;
    let store = store.map_err(|error| Failure::store("gateway.store", &url, &error))?;
    Ok((store.clone(), Some(store)))
}
