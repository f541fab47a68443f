//! An agent embedded in this process, on the bus of the fleet.

use std::{sync::Arc, time::Duration};

use rockbot_agent::{
    Agent, AgentDefinition, AgentInbox, AgentMemory, AgentParts, Approvals, ConversationServer,
    ConversationService, Delegation, DelegationOptions, HandlerInstructions, McpParts, McpServices,
    MemoryError, ServiceSearch, Team, serve,
};
use rockbot_llm::ChatModel;
use rockbot_scripts::RunnerName;
use rockbot_service::exit;
use rockbot_store::{Clock, Store, StoreError};
use rockbot_tool_rpc::CatalogDirectory;
use rockbot_tools::{ToolPins, ToolRegistry, guide_tools, guides, outputs};

use crate::{
    failure::{Failure, OrExit},
    fleet::Fleet,
    settings::Settings,
    stored_conversations::ConversationStores,
};

/// The number of messages processed concurrently.
const CONCURRENCY: u16 = 64;

/// An embedded agent with its memory, and the other agents of its directory as tools.
pub(crate) struct Host {
    inbox: AgentInbox,
    requests: ConversationService,
    team: Team,
    pins: Option<Arc<dyn Store>>,
    memory: Option<Arc<AgentMemory>>,
    _directory: CatalogDirectory,
}

impl Host {
    /// Starts the agent; its tools are its own and those that the fleet announces.
    pub(crate) async fn start(
        fleet: &Fleet,
        settings: &Settings,
        stores: &ConversationStores,
        definition: AgentDefinition,
        model: Arc<dyn ChatModel>,
    ) -> Result<Self, Failure> {
        let memory = AgentMemory::open(&settings.memory, |url| async move {
            rockbot_store_sql::connect(&url, Clock::System).await
        })
        .await
        .map_err(memory_failure)?
        .map(Arc::new);
        // Without MCP servers there are no services to search.
        let servers = fleet.embedded_servers().filter(|_| settings.mcp.config.is_some());
        let services = servers.map(|gateway| {
            let servers = McpServices::new(gateway, &definition);
            ServiceSearch::new(vec![Arc::new(servers)])
        });
        let registry = Arc::new(ToolRegistry::new());
        let delegation = Delegation::new(DelegationOptions::default());
        let own = (services.as_ref(), &delegation);
        register_agent_tools(&registry, settings, memory.as_deref(), own)?;
        let discovered = fleet.discover_into(definition.name.as_str(), registry).await?;
        let pins = open_pins_store(settings).await?;
        let (own, registry) = (definition.name.clone(), discovered.registry);
        let build_parts = {
            let (models, store) = (settings.models.clone(), pins.clone());
            let approvals = Approvals::new(settings.approval.clone());
            let (servers, registry) = (fleet.embedded_servers(), registry.clone());
            let handlers = discovered.directory.view();
            let (memory, redactor) = (memory.clone(), fleet.redactor.clone());
            let conversations_of = stores.factory(settings);
            let budget = settings.agent.budget;
            move |definition: AgentDefinition| {
                let name = definition.name.clone();
                let pins = store.clone().map(|store| Arc::new(ToolPins::new(store, name)));
                let mcp = servers.clone().map(McpParts::new);
                let behavior =
                    models.for_model(definition.model.as_deref().unwrap_or(model.name()));
                let instructions = HandlerInstructions::new(
                    handlers.clone(),
                    registry.clone(),
                    definition.tools.clone(),
                );
                let conversations = conversations_of(&definition.name);
                let mut parts = AgentParts::new(definition, model.clone(), registry.clone());
                parts.context.push(Arc::new(instructions));
                parts.layers.redactor = redactor.clone();
                parts.limits.budget = budget;
                if let Some(memory) = &memory {
                    parts.set_memory(memory);
                }
                AgentParts {
                    mcp: mcp.map(|parts| McpParts { pins: pins.clone(), ..parts }),
                    pins,
                    approvals: approvals.clone(),
                    conversations,
                    behavior,
                    ..parts
                }
            }
        };
        let mut parts = build_parts(definition);
        if let Some(services) = services {
            parts.context.push(services);
        }
        parts.delegation = Some(delegation);
        let agent = Agent::new(parts);
        let server = ConversationServer::for_agent(agent.clone());
        let team = Team::new(own, registry, Arc::new(build_parts));
        if let Some(folder) = &settings.agent.directory {
            team.watch(folder.clone());
        }
        let inbox =
            serve(agent, fleet.bus.clone(), CONCURRENCY).await.or_exit(exit::UNAVAILABLE)?;
        let requests = server.serve(fleet.bus.clone()).await.or_exit(exit::UNAVAILABLE)?;
        Ok(Self { inbox, requests, team, pins, memory, _directory: discovered.directory })
    }

    /// Stops the agent; running turns have `grace` to finish.
    pub(crate) async fn stop(self, grace: Duration) {
        let (_, _) = tokio::join!(self.inbox.drain(grace), self.requests.drain(grace));
        self.team.shut_down(Duration::ZERO).await;
        if let Some(memory) = self.memory {
            memory.close().await;
        }
        if let Some(pins) = self.pins {
            pins.close().await;
        }
    }
}

/// Registers the agent's own tools. It must run before the discovery, so that no handler's tool takes
/// their names.
fn register_agent_tools(
    registry: &ToolRegistry,
    settings: &Settings,
    memory: Option<&AgentMemory>,
    (services, delegation): (Option<&Arc<ServiceSearch>>, &Arc<Delegation>),
) -> Result<(), Failure> {
    let mut guides =
        vec![guides::FILES, guides::WEB, guides::REST, outputs::GUIDE, delegation.guide()];
    let mut tools = delegation.tools();
    if settings.scripts.runner != RunnerName::Off {
        guides.push(rockbot_scripts::GUIDE);
    }
    if let Some(services) = services {
        guides.extend([rockbot_agent::mcp::GUIDE, services.guide()]);
        tools.push(services.tool());
    }
    if let Some(memory) = memory {
        guides.extend(memory.guides());
        tools.extend(memory.tools());
    }
    tools.extend(guide_tools(&guides));
    for tool in tools {
        registry.register(tool).or_exit(exit::SOFTWARE)?;
    }
    Ok(())
}

/// Returns the failure for a memory store that cannot be opened: unavailable when it cannot be reached,
/// otherwise a configuration error.
fn memory_failure(error: MemoryError) -> Failure {
    match error {
        MemoryError::Store { source: StoreError::Unavailable { .. }, .. } => {
            Failure::unavailable(error)
        }
        _ => Failure::usage(error),
    }
}

/// Opens the store of approved tool definitions, if one is configured.
pub(crate) async fn open_pins_store(
    settings: &Settings,
) -> Result<Option<Arc<dyn Store>>, Failure> {
    let Some(url) = settings.pins.url().map_err(Failure::usage)? else { return Ok(None) };
    let store = rockbot_store_sql::connect(&url, Clock::System).await;
    store.map(Some).map_err(|error| Failure::unavailable(format!("pins.store: {url}: {error}")))
}
