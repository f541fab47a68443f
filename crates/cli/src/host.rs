//! An agent embedded in this process, on the bus of the fleet.

use std::{sync::Arc, time::Duration};

use futures_util::future::OptionFuture;
use rockbot_agent::{
    Agent, AgentDefinition, AgentFamilies, AgentInbox, AgentMemory, AgentParts, AgentTools,
    Approvals, ConversationService, ConversationServiceBuilder, Delegation, DelegationOptions,
    Destinations, HandlerInstructions, McpParts, McpServices, Schedule, Scheduler, ServiceSearch,
    Team, serve,
};
use rockbot_bus::Bus;
use rockbot_llm::{ChatModel, ModelTiers};
use rockbot_service::exit;
use rockbot_store::{Clock, Store};
use rockbot_tool_rpc::{CatalogDirectory, HandlerView};
use rockbot_tools::ToolPins;

use crate::{
    agent_memory,
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
    /// The scheduled tasks until their scheduler is started.
    schedule: Option<(Arc<Schedule>, Agent)>,
    bus: Arc<dyn Bus>,
    scheduler: Option<Scheduler>,
    team: Team,
    pins: Option<Arc<dyn Store>>,
    memory: Option<Arc<AgentMemory>>,
    directory: CatalogDirectory,
    warnings: Vec<String>,
    _tools: AgentTools,
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
        let tiers = ModelTiers::new(model, &settings.llm, &|name| std::env::var(name).ok());
        let tiers = tiers.map_err(Failure::usage)?;
        let memory = agent_memory::open(settings).await?.map(Arc::new);
        let schedule = stores.schedule(settings, &definition.name, memory.as_deref());
        // Without MCP servers there are no services to search.
        let servers = fleet.embedded_servers().filter(|_| settings.mcp.config.is_some());
        let services = servers.map(|gateway| {
            let servers = McpServices::new(gateway, &definition);
            ServiceSearch::new(vec![Arc::new(servers)])
        });
        let delegation = Delegation::new(DelegationOptions::default());
        let families = AgentFamilies {
            definition: &definition,
            delegation: &delegation,
            // Other agents are reached over a broker only.
            exchanges_tasks: false,
            memory: memory.as_deref(),
            schedule: schedule.as_ref(),
            services: services.as_ref(),
            // The embedded handler stores outputs and runs scripts.
            outputs: None,
            scripts: None,
        };
        let mut tools = AgentTools::start(families.providers()).await;
        let registry = tools.registry().clone();
        let discovered = fleet.discover_into(definition.name.as_str(), registry).await?;
        tools.add_guides(discovered.directory.view(), fleet.embedded_servers(), &definition);
        let pins = open_pins_store(settings).await?;
        let (own, registry) = (definition.name.clone(), discovered.registry);
        settings.agent.add_aliases(&registry);
        let build_parts = {
            let (models, store) = (settings.models.clone(), pins.clone());
            let approvals = Some(Approvals::with_input(settings.approval.clone()));
            let (servers, registry) = (fleet.embedded_servers(), registry.clone());
            let may_manage_servers = settings.mcp.allow_registration;
            let handlers = discovered.directory.view();
            let (memory, redactor) = (memory.clone(), fleet.redactor.clone());
            let conversations_of = stores.factory(settings);
            let budget = settings.agent.budget;
            move |definition: AgentDefinition| {
                let name = definition.name.clone();
                let pins = store.clone().map(|store| Arc::new(ToolPins::new(store, name)));
                let mcp = servers
                    .clone()
                    .map(|servers| McpParts { may_manage_servers, ..McpParts::new(servers) });
                let model = tiers.get(definition.tier);
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
                parts.layers.logs = true;
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
        if let Some(schedule) = &schedule {
            parts.context.push(schedule.clone());
        }
        parts.delegation = Some(delegation);
        let destinations = Arc::new(Destinations::default());
        parts.destinations = Some(destinations.clone());
        let agent = Agent::new(parts);
        let server =
            ConversationServiceBuilder::for_agent(agent.clone()).with_schedule(schedule.clone());
        let team = Team::new(own, Arc::new(build_parts));
        let team = team.with_destinations(destinations);
        if let Some(folder) = &settings.agent.directory {
            // At once, so that the first turn is offered them. The watch reports a problem.
            if let Ok(definitions) = AgentDefinition::load_dir(folder) {
                team.set_definitions(definitions);
            }
            team.watch(folder.clone());
        }
        tools.add(Arc::new(team.clone())).await;
        let inbox = serve(agent.clone(), fleet.bus.clone(), CONCURRENCY)
            .await
            .or_exit(exit::UNAVAILABLE)?;
        let requests = server.serve(fleet.bus.clone()).await.or_exit(exit::UNAVAILABLE)?;
        let warnings = agent.warnings();
        let (schedule, bus) = (schedule.map(|schedule| (schedule, agent)), fleet.bus.clone());
        Ok(Self {
            inbox,
            requests,
            schedule,
            bus,
            scheduler: None,
            team,
            pins,
            memory,
            directory: discovered.directory,
            warnings,
            _tools: tools,
        })
    }

    /// Starts to fire scheduled tasks. A process that answers a single message does not.
    pub(crate) fn start_scheduler(&mut self) {
        if let Some((schedule, agent)) = self.schedule.take() {
            let scheduler = Scheduler::start(schedule, agent, self.bus.clone(), &self.inbox);
            self.scheduler = Some(scheduler);
        }
    }

    /// Returns warnings about the agent's configuration, for the user.
    pub(crate) fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Returns read access to the handlers of the fleet.
    pub(crate) fn handlers(&self) -> HandlerView {
        self.directory.view()
    }

    /// Stops the agent; running turns have `grace` to finish.
    pub(crate) async fn stop(self, grace: Duration) {
        let scheduler = self.scheduler.map(|scheduler| scheduler.drain(grace));
        let scheduler = OptionFuture::from(scheduler);
        tokio::join!(self.inbox.drain(grace), self.requests.drain(grace), scheduler);
        self.team.shut_down(Duration::ZERO).await;
        if let Some(memory) = self.memory {
            memory.close().await;
        }
        if let Some(pins) = self.pins {
            pins.close().await;
        }
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
