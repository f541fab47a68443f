//! An agent inside this process, on whatever bus the fleet has.

use std::{sync::Arc, time::Duration};

use rockbot_agent::{
    Agent, AgentDefinition, AgentMemory, AgentParts, FrontDoor, McpParts, McpServices, MemoryError,
    ServiceSearch, serve,
};
use rockbot_llm::ChatModel;
use rockbot_scripts::RunnerName;
use rockbot_service::exit;
use rockbot_store::StoreError;
use rockbot_tools::{CatalogDirectory, ToolRegistry, guide_tools, guides, outputs};

use crate::{
    ending::{Exits, Failure},
    fleet::Fleet,
    settings::Settings,
};

/// Messages in hand at once.
const CONCURRENCY: u16 = 64;

/// An embedded agent behind its queue, and what it remembers.
pub(crate) struct Host {
    door: FrontDoor,
    memory: Option<AgentMemory>,
    _directory: CatalogDirectory,
}

impl Host {
    /// Starts the agent; its tools are its own and what the fleet announces.
    pub(crate) async fn start(
        fleet: &Fleet,
        definition: AgentDefinition,
        model: Arc<dyn ChatModel>,
        settings: &Settings,
    ) -> Result<Self, Failure> {
        let memory = AgentMemory::open(&settings.memory).await.map_err(unusable)?;
        // Without servers there is nothing to search.
        let servers = fleet.embedded_servers().filter(|_| settings.mcp.config.is_some());
        let services = servers.map(|gateway| {
            let servers = McpServices::new(gateway, definition.mcp.clone());
            ServiceSearch::new(vec![Arc::new(servers)])
        });
        let registry = Arc::new(ToolRegistry::new());
        register_own(&registry, settings, memory.as_ref(), services.as_ref())?;
        let discovered = fleet.discover_into(definition.name.as_str(), registry).await?;
        let behaviour = settings.models.of(definition.model.as_deref().unwrap_or(model.name()));
        let mut parts = AgentParts::new(definition, model, discovered.registry);
        parts.behaviour = behaviour;
        parts.layers.redactor = fleet.redactor.clone();
        parts.mcp = fleet.embedded_servers().map(McpParts::new);
        if let Some(services) = services {
            parts.context.push(services);
        }
        if let Some(memory) = &memory {
            parts.remember(memory);
        }
        let agent = Agent::new(parts);
        let door = serve(agent, fleet.bus.clone(), CONCURRENCY).await.exits(exit::UNAVAILABLE)?;
        Ok(Self { door, memory, _directory: discovered.directory })
    }

    /// Ends running turns within `grace`.
    pub(crate) async fn stop(self, grace: Duration) {
        self.door.drain(grace).await;
        if let Some(memory) = self.memory {
            memory.close().await;
        }
    }
}

/// Registers the tools that no handler announces, first: no handler's tool takes their place.
fn register_own(
    registry: &ToolRegistry,
    settings: &Settings,
    memory: Option<&AgentMemory>,
    services: Option<&Arc<ServiceSearch>>,
) -> Result<(), Failure> {
    let mut guides = vec![guides::FILES, outputs::GUIDE];
    let mut tools = Vec::new();
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
        registry.register(tool).exits(exit::SOFTWARE)?;
    }
    Ok(())
}

/// Why nothing can be remembered: a store that can't be reached may be there later.
fn unusable(error: MemoryError) -> Failure {
    match error {
        MemoryError::Store { source: StoreError::Unavailable { .. }, .. } => {
            Failure::unavailable(error)
        }
        _ => Failure::usage(error),
    }
}
