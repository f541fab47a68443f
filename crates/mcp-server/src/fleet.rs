//! A fleet for MCP clients: its tools, calls and large results.

use std::{fmt, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use rockbot_contracts::{AgentName, SessionId};
use rockbot_tool_rpc::mcp::McpGateway;
use rockbot_tools::{
    Guides, LayerOptions, RegisterError, Tool, ToolContext, ToolExecutor, ToolRegistry,
    registry::RegisteredTool,
};
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{Instant, timeout},
};
use tracing::warn;

use crate::{
    catalog_changes::CatalogChanges, client::McpClient, known_outputs::KnownOutputs,
    section::McpServerSection, server_tools::ServerTools, shared_calls::SharedCalls,
};

/// Time that the first list of tools waits for the tools of the fleet. Clients wait ten seconds or more.
const LOAD_TIMEOUT: Duration = Duration::from_secs(8);

/// The parts of a [`McpFleet`].
pub struct FleetParts {
    /// Name of this process as a caller: its broker user must be that of this caller.
    pub caller: AgentName,
    /// The tools of the handlers, which another part of the process keeps current.
    pub registry: Arc<ToolRegistry>,
    /// The MCP servers of the fleet. `None`: no tools of MCP servers.
    pub servers: Option<Arc<dyn McpGateway>>,
    /// Agents as tools.
    pub agents: Vec<Arc<dyn Tool>>,
    /// Guides, which clients get as prompts.
    pub guides: Arc<Guides>,
    /// Layers around each call.
    pub layers: LayerOptions,
    /// Ends when the handlers and bridges have announced their tools. The first list of a client waits for it, 8 s
    /// at most.
    pub announced: BoxFuture<'static, ()>,
    /// Limits.
    pub section: McpServerSection,
}

/// The tools of a fleet and the calls of all clients.
pub struct McpFleet {
    pub(crate) caller: AgentName,
    pub(crate) section: McpServerSection,
    pub(crate) executor: Arc<ToolExecutor>,
    pub(crate) guides: Arc<Guides>,
    pub(crate) calls: SharedCalls,
    pub(crate) outputs: KnownOutputs,
    handlers: Arc<ToolRegistry>,
    loaded: watch::Receiver<bool>,
    loading: JoinHandle<()>,
    _servers: Option<ServerTools>,
}

impl McpFleet {
    /// Combines the tools of handlers, MCP servers and agents. Tools of handlers keep their names; an agent whose
    /// name is taken is not offered.
    #[must_use]
    pub fn start(parts: FleetParts) -> Arc<Self> {
        let FleetParts { caller, registry: handlers, servers, agents, guides, layers, .. } = parts;
        let registry = Arc::new(ToolRegistry::with_base(handlers.clone()));
        for agent in agents {
            if let Err(error) = register_agent(&registry, agent) {
                warn!(%error, "agent not offered as a tool");
            }
        }
        let servers =
            servers.map(|gateway| ServerTools::start(gateway, registry.clone(), handlers.clone()));
        let (sender, loaded) = watch::channel(false);
        let servers_loaded = servers.as_ref().map(ServerTools::loaded);
        let announced = parts.announced;
        let loading = tokio::spawn(async move {
            let load = async {
                announced.await;
                if let Some(servers) = servers_loaded {
                    servers.await;
                }
            };
            if timeout(LOAD_TIMEOUT, load).await.is_err() {
                warn!(timeout = ?LOAD_TIMEOUT, "tools of the fleet not complete yet; clients are notified of later ones");
            }
            sender.send_replace(true);
        });
        Arc::new(Self {
            caller,
            executor: Arc::new(ToolExecutor::with_layers(registry, layers)),
            guides,
            calls: SharedCalls::new(parts.section.concurrent_calls),
            outputs: KnownOutputs::default(),
            section: parts.section,
            handlers,
            loaded,
            loading,
            _servers: servers,
        })
    }

    /// Rejects further calls, waits for the running ones until `limit`, and cancels those that are left.
    pub async fn stop(&self, limit: Duration) {
        self.calls.stop(limit).await;
    }

    /// Waits until the tools of the fleet are known, 8 s after the start at most.
    pub(crate) async fn loaded(&self) {
        let mut loaded = self.loaded.clone();
        // An error means that the fleet is being dropped.
        let _ = loaded.wait_for(|loaded| *loaded).await;
    }

    /// Returns a tool. Waits for an unknown one until the tools of the fleet are known, because a call may be the first
    /// request to a process that was just started.
    pub(crate) async fn find_tool(&self, name: &str) -> Option<Arc<RegisteredTool>> {
        if let Some(tool) = self.registry().get(name) {
            return Some(tool);
        }
        self.loaded().await;
        self.registry().get(name)
    }

    /// Returns all tools.
    pub(crate) fn registry(&self) -> &Arc<ToolRegistry> {
        self.executor.registry()
    }

    /// Returns a receiver of changes of the tools.
    pub(crate) fn changes(&self) -> CatalogChanges {
        CatalogChanges::new([self.handlers.subscribe(), self.registry().subscribe()])
    }

    /// Returns the context of a call of `tool` by a client, with a new id and the default timeout.
    pub(crate) fn context(&self, client: &McpClient, tool: &str) -> ToolContext {
        let session = client.session().unwrap_or_else(SessionId::generate);
        let mut context = ToolContext::new(tool, session, self.caller.clone());
        context.scope = client.scope();
        context.deadline = Instant::now() + self.section.call_timeout;
        context
    }
}

/// Registers an agent, unless a tool of a handler has its name.
fn register_agent(registry: &ToolRegistry, agent: Arc<dyn Tool>) -> Result<(), RegisterError> {
    let new = agent.registration();
    match registry.get(&new.name) {
        Some(existing) => Err(RegisterError::Duplicate {
            name: new.name.clone(),
            existing: existing.registration().source.clone(),
            new: new.source.clone(),
        }),
        None => registry.register(agent),
    }
}

impl Drop for McpFleet {
    fn drop(&mut self) {
        self.loading.abort();
    }
}

impl fmt::Debug for McpFleet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpFleet")
            .field("caller", &self.caller)
            .field("section", &self.section)
            .finish_non_exhaustive()
    }
}
