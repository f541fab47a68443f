//! The registry of tools: the built-in ones, and those of handlers.

use std::{sync::Arc, time::Duration};

use rockbot_agent::{
    AgentDirectory, AgentFamilies, AgentServices, AgentTools, Delegation, DelegationOptions,
    McpServices, Schedule, ServiceSearch, Team,
};
use rockbot_scripts::{BusRunner, RunnerName, ScriptsProvider};
use rockbot_service::ServeError;
use rockbot_tool_rpc::{CatalogDirectory, HandlerView};
use rockbot_tools::{ToolProvider, ToolRegistry};
use tokio::time::timeout;

use super::{FleetClient, Settings, Stores, unavailable_error};

/// Maximum wait at the start for the tools of a first handler, and for those of others.
const FIRST_HANDLER_TIMEOUT: Duration = Duration::from_secs(3);
const FURTHER_HANDLERS_TIMEOUT: Duration = Duration::from_secs(1);
/// Time without an announcement after which no further handlers are expected.
const QUIET: Duration = Duration::from_millis(200);

pub(crate) struct Tools {
    tools: AgentTools,
    pub(super) services: Arc<ServiceSearch>,
    /// The scheduled tasks; `None` if scheduling is off.
    pub(super) schedule: Option<Arc<Schedule>>,
    pub(super) delegation: Arc<Delegation>,
    /// The agents that can be asked.
    pub(crate) agents: Arc<AgentDirectory>,
    directory: CatalogDirectory,
}

impl Tools {
    /// Registers the agent's own tools, then starts to discover the tools of handlers.
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
        let delegation = Delegation::new(DelegationOptions::default());
        let scripts = (settings.scripts.runner == RunnerName::Bus).then(|| {
            let runner = Arc::new(BusRunner::new(fleet.bus.clone(), fleet.address.clone()));
            Arc::new(ScriptsProvider::new(runner, true)) as Arc<dyn ToolProvider>
        });
        let families = AgentFamilies {
            definition: &settings.definition,
            delegation: &delegation,
            exchanges_tasks: true,
            memory: stores.memory.as_deref(),
            schedule: schedule.as_ref(),
            services: Some(&services),
            outputs: stores.outputs.clone(),
            scripts,
        };
        let tools = AgentTools::start(families.providers()).await;
        let directory = CatalogDirectory::start(fleet.requester.clone(), tools.registry().clone());
        let directory = directory.await.map_err(unavailable_error)?;
        tools.add_guides(directory.view(), Some(fleet.gateway.clone()), &settings.definition);
        Ok(Self { tools, services, schedule, delegation, agents, directory })
    }

    /// Returns the registry of all tools.
    pub(super) fn registry(&self) -> &Arc<ToolRegistry> {
        self.tools.registry()
    }

    /// Adds the other agents of the process.
    pub(crate) async fn add_team(&mut self, team: &Team) {
        self.tools.add(Arc::new(team.clone())).await;
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
