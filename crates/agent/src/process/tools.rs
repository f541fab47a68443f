//! The registry of tools: the built-in ones, and those of handlers.

use std::{sync::Arc, time::Duration};

use rockbot_agent::{
    AgentDirectory, AgentServices, Delegation, DelegationOptions, HandlerGuides, McpServices,
    Schedule, ServerGuides, ServiceSearch,
};
use rockbot_scripts::{BusRunner, ExecutePythonScript, RunnerName};
use rockbot_service::ServeError;
use rockbot_tool_rpc::{CatalogDirectory, HandlerView};
use rockbot_tools::{Guides, Tool, ToolOutput, ToolRegistry, guide_tools, outputs};
use tokio::time::timeout;

use super::{FleetClient, Settings, Stores, configuration_error, unavailable_error};

/// Maximum wait at the start for the tools of a first handler, and for those of others.
const FIRST_HANDLER_TIMEOUT: Duration = Duration::from_secs(3);
const FURTHER_HANDLERS_TIMEOUT: Duration = Duration::from_secs(1);
/// Time without an announcement after which no further handlers are expected.
const QUIET: Duration = Duration::from_millis(200);

pub(crate) struct Tools {
    pub(super) registry: Arc<ToolRegistry>,
    pub(super) services: Arc<ServiceSearch>,
    /// The scheduled tasks; `None` if scheduling is off.
    pub(super) schedule: Option<Arc<Schedule>>,
    pub(super) delegation: Arc<Delegation>,
    /// The agents that can be asked.
    pub(crate) agents: Arc<AgentDirectory>,
    directory: CatalogDirectory,
}

impl Tools {
    /// Registers the built-in tools, then starts to discover the tools of handlers. In this order, no
    /// handler can take the name of a built-in tool.
    pub(crate) async fn start(
        settings: &Settings,
        fleet: &FleetClient,
        stores: &Stores,
        schedule: Option<Arc<Schedule>>,
    ) -> Result<Self, ServeError> {
        let servers = McpServices::new(fleet.gateway.clone(), &settings.definition);
        let name = settings.definition.name.clone();
        let agents = settings.agent.well_known_agents.clone();
        let agents = Arc::new(AgentDirectory::new(name.clone(), agents));
        let services = AgentServices::new(name, agents.clone());
        let services = ServiceSearch::new(vec![Arc::new(services), Arc::new(servers)]);
        let registry = Arc::new(ToolRegistry::new());
        let delegation = Delegation::new(DelegationOptions::default());
        let own =
            OwnTools { services: &services, delegation: &delegation, schedule: schedule.as_ref() };
        let (tools, guides) = builtin_tools(settings, fleet, stores, own);
        for tool in tools {
            registry.register(tool).map_err(configuration_error)?;
        }
        let directory = CatalogDirectory::start(fleet.requester.clone(), registry.clone());
        let directory = directory.await.map_err(unavailable_error)?;
        guides.add(Arc::new(HandlerGuides::new(directory.view(), registry.clone())));
        guides.add(Arc::new(ServerGuides::new(fleet.gateway.clone(), &settings.definition)));
        Ok(Self { registry, services, schedule, delegation, agents, directory })
    }

    /// Waits until the handlers of the fleet have announced their tools, at most 4 s: a turn that starts or
    /// continues before that would miss them.
    pub(crate) async fn discovered(&self) {
        let handlers = self.handlers();
        if handlers.wait_for_any(FIRST_HANDLER_TIMEOUT).await {
            let _ = timeout(FURTHER_HANDLERS_TIMEOUT, handlers.settle(QUIET)).await;
        }
    }

    /// Returns read access to the handlers of the fleet.
    pub(crate) fn handlers(&self) -> HandlerView {
        self.directory.view()
    }
}

/// Parts of the agent that have tools of their own.
struct OwnTools<'a> {
    services: &'a Arc<ServiceSearch>,
    delegation: &'a Arc<Delegation>,
    schedule: Option<&'a Arc<Schedule>>,
}

/// Returns the agent's own tools, and the guides on them, to which those of other processes can be added.
fn builtin_tools(
    settings: &Settings,
    fleet: &FleetClient,
    stores: &Stores,
    OwnTools { services, delegation, schedule }: OwnTools<'_>,
) -> (Vec<Arc<dyn Tool>>, Arc<Guides>) {
    let mut guides =
        vec![rockbot_agent::mcp::GUIDE, services.guide(), outputs::GUIDE, delegation.guide()];
    guides.push(delegation.peer_guide());
    if settings.definition.internal.wisps {
        guides.push(rockbot_agent::wisps::GUIDE);
    }
    let mut tools: Vec<Arc<dyn Tool>> = vec![services.tool()];
    tools.extend(delegation.tools());
    tools.extend(delegation.peer_tools());
    if let Some(memory) = &stores.memory {
        tools.extend(memory.tools());
        guides.extend(memory.guides());
    }
    if let Some(schedule) = schedule {
        tools.extend(schedule.tools());
        guides.push(schedule.guide());
    }
    if let Some(outputs) = &stores.outputs {
        tools.push(Arc::new(ToolOutput::new(outputs.clone())));
    }
    if settings.scripts.runner == RunnerName::Bus {
        let runner = Arc::new(BusRunner::new(fleet.bus.clone(), fleet.address.clone()));
        tools.push(Arc::new(ExecutePythonScript::new(runner, true)));
        guides.push(rockbot_scripts::GUIDE);
    }
    let guides = Guides::new(guides);
    tools.extend(guide_tools(&guides));
    (tools, guides)
}
