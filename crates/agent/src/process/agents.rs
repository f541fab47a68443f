//! The agent of the process, and the other agents of its directory.

use std::sync::Arc;

use rockbot_agent::{
    Agent, AgentDefinition, AgentLimits, AgentMemory, AgentParts, Approvals, Destinations,
    HandlerInstructions, McpParts, ModelBehaviors, Team,
};
use rockbot_hooks::OperatorHooks;
use rockbot_llm::ModelTiers;
use rockbot_store::Store;
use rockbot_tool_rpc::{HandlerView, mcp::McpGateway};
use rockbot_tools::{CallAccount, LayerOptions, Redactor, ToolPins, ToolRegistry};

use super::{ConversationStores, FleetClient, Settings, Stores, Tools};

pub(crate) struct Agents {
    pub(crate) primary: Agent,
    pub(crate) team: Team,
}

impl Agents {
    pub(crate) fn new(
        settings: &Settings,
        tiers: ModelTiers,
        fleet: &FleetClient,
        stores: &Stores,
        conversations: Arc<ConversationStores>,
        tools: &Tools,
        hooks: &OperatorHooks,
    ) -> Self {
        let factory = PartsFactory {
            tiers,
            models: settings.models.clone(),
            registry: tools.registry().clone(),
            handlers: tools.handlers(),
            gateway: fleet.gateway.clone(),
            may_manage_servers: settings.mcp.register,
            pins: stores.pins.clone(),
            pin_handler_tools: stores.pin_handler_tools,
            memory: stores.memory.clone(),
            conversations,
            approvals: Some(Approvals::with_input(settings.approval.clone())),
            limits: AgentLimits { budget: settings.agent.budget, ..AgentLimits::default() },
            layers: LayerOptions {
                redactor: Redactor::from_environment(settings.secrets()),
                account: Some(Arc::new(CallAccount::default())),
                logs: true,
                outputs: stores.outputs.clone(),
                hooks: hooks.hooks(),
                ..LayerOptions::default()
            },
        };
        settings.agent.add_aliases(tools.registry());
        let definition = settings.definition.clone();
        let name = definition.name.clone();
        let mut parts = factory.parts(definition);
        parts.context.push(tools.services.clone());
        if let Some(schedule) = &tools.schedule {
            parts.context.push(schedule.clone());
        }
        parts.delegation = Some(tools.delegation.clone());
        let destinations = Arc::new(Destinations::default());
        parts.destinations = Some(destinations.clone());
        let primary = Agent::new(parts);
        let factory = Arc::new(move |definition| factory.parts(definition));
        let team = Team::new(name, factory);
        let team = team.with_destinations(destinations);
        if let Some(directory) = &settings.agent.directory {
            team.watch(directory.clone());
        }
        Self { primary, team }
    }
}

/// Creates the parts of each agent from what all agents of the process share.
struct PartsFactory {
    tiers: ModelTiers,
    models: ModelBehaviors,
    registry: Arc<ToolRegistry>,
    handlers: HandlerView,
    gateway: Arc<dyn McpGateway>,
    may_manage_servers: bool,
    pins: Option<Arc<dyn Store>>,
    pin_handler_tools: bool,
    memory: Option<Arc<AgentMemory>>,
    conversations: Arc<ConversationStores>,
    approvals: Option<Arc<Approvals>>,
    limits: AgentLimits,
    layers: LayerOptions,
}

impl PartsFactory {
    fn parts(&self, definition: AgentDefinition) -> AgentParts {
        let pins = self.pins.clone();
        let pins = pins.map(|store| Arc::new(ToolPins::new(store, definition.name.clone())));
        let model = self.tiers.get(definition.tier).clone();
        let behavior = self.models.for_model(definition.model.as_deref().unwrap_or(model.name()));
        let mcp = McpParts {
            pins: pins.clone(),
            may_manage_servers: self.may_manage_servers,
            ..McpParts::new(self.gateway.clone())
        };
        let registry = self.registry.clone();
        let instructions = HandlerInstructions::new(
            self.handlers.clone(),
            registry.clone(),
            definition.tools.clone(),
        );
        let conversations = self.conversations.conversations(&definition.name);
        let mut parts = AgentParts::new(definition, model, registry);
        parts.context.push(Arc::new(instructions));
        if let Some(memory) = &self.memory {
            parts.set_memory(memory);
        }
        AgentParts {
            mcp: Some(mcp),
            pins: pins.filter(|_| self.pin_handler_tools),
            approvals: self.approvals.clone(),
            limits: self.limits.clone(),
            layers: self.layers.clone(),
            behavior,
            conversations,
            ..parts
        }
    }
}
