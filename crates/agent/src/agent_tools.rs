//! The tools of an agent's process: the providers of its families, and the registry of their tools.

use std::{fmt, sync::Arc};

use rockbot_tool_rpc::{HandlerView, mcp::McpGateway};
use rockbot_tools::{
    AttachedProviders, FixedTools, Guides, Outputs, Tool, ToolOutput, ToolProvider, ToolRegistry,
    ToolSource, guide_tools, outputs,
};

use crate::{
    definition::AgentDefinition,
    delegation::Delegation,
    guides::{HandlerGuides, ServerGuides},
    mcp,
    memory::AgentMemory,
    schedule::Schedule,
    services::ServiceSearch,
    wisps,
};

/// The families of tools that run in an agent's process.
pub struct AgentFamilies<'a> {
    /// Definition of the primary agent.
    pub definition: &'a AgentDefinition,
    /// Delegated work: sub-agents, and tasks at other agents.
    pub delegation: &'a Arc<Delegation>,
    /// `true` if the process exchanges tasks with other agents, by a [`PeerService`](crate::PeerService).
    pub exchanges_tasks: bool,
    /// Memory, unless it is off.
    pub memory: Option<&'a AgentMemory>,
    /// Scheduled tasks, unless they are off.
    pub schedule: Option<&'a Arc<Schedule>>,
    /// Search of agents and MCP servers. `None` in a process without MCP servers.
    pub services: Option<&'a Arc<ServiceSearch>>,
    /// Large results that the agent itself stores.
    pub outputs: Option<Arc<Outputs>>,
    /// Scripts, if the agent sends them to a runner. Otherwise handlers have the tool.
    pub scripts: Option<Arc<dyn ToolProvider>>,
}

impl AgentFamilies<'_> {
    /// Returns the providers.
    #[must_use]
    pub fn providers(&self) -> Vec<Arc<dyn ToolProvider>> {
        let mut providers = Vec::new();
        if let Some(services) = self.services {
            // The tools for servers depend on the agent and the conversation; each turn registers them.
            let servers = FixedTools::new(ToolSource::McpManagement, Vec::new());
            providers.push(Arc::new(servers.with_guides([mcp::GUIDE])) as Arc<dyn ToolProvider>);
            providers.push(services.provider());
        }
        let output = |outputs: &Arc<Outputs>| -> Arc<dyn Tool> {
            Arc::new(ToolOutput::new(outputs.clone()))
        };
        let output = self.outputs.iter().map(output).collect();
        let output = FixedTools::new(ToolSource::Internal, output);
        providers.push(Arc::new(output.with_guides([outputs::GUIDE])));
        providers.push(self.delegation.provider());
        providers.extend(self.exchanges_tasks.then(|| self.delegation.peer_provider()));
        if self.definition.internal.wisps {
            // Plans run in the turn, with the internal tools of its agent.
            let plans = FixedTools::new(ToolSource::Wisp, Vec::new());
            providers.push(Arc::new(plans.with_guides([wisps::GUIDE])));
        }
        providers.extend(self.memory.map(AgentMemory::provider));
        providers.extend(self.schedule.map(Schedule::provider));
        providers.extend(self.scripts.clone());
        providers
    }
}

/// The registry of a process that runs agents. The tools of providers stay in it until it is dropped.
pub struct AgentTools {
    registry: Arc<ToolRegistry>,
    guides: Arc<Guides>,
    attached: Vec<AttachedProviders>,
}

impl AgentTools {
    /// Registers the tools of `providers`, and those that return their guides. Must complete before
    /// handlers are discovered, so that no handler takes the name of one of these tools.
    ///
    /// # Cancellation
    /// As for [`AttachedProviders::attach`].
    pub async fn start(mut providers: Vec<Arc<dyn ToolProvider>>) -> Self {
        let guides = Guides::new(providers.iter().flat_map(|provider| provider.guides()));
        let tools = guide_tools(&guides).into();
        providers.push(Arc::new(FixedTools::new(ToolSource::Internal, tools)));
        let registry = Arc::new(ToolRegistry::new());
        let attached = AttachedProviders::attach(registry.clone(), providers).await;
        Self { registry, guides, attached: vec![attached] }
    }

    /// Adds a provider that needs the tools of others, such as a [`Team`](crate::Team). Its tools do not
    /// replace those of the same name.
    ///
    /// # Cancellation
    /// As for [`AttachedProviders::attach`].
    pub async fn add(&mut self, provider: Arc<dyn ToolProvider>) {
        let registry = self.registry.clone();
        self.attached.push(AttachedProviders::attach(registry, vec![provider]).await);
    }

    /// Offers the guides that handlers announce, and those of MCP servers that `definition` permits.
    pub fn add_guides(
        &self,
        handlers: HandlerView,
        servers: Option<Arc<dyn McpGateway>>,
        definition: &AgentDefinition,
    ) {
        self.guides.add(Arc::new(HandlerGuides::new(handlers, self.registry.clone())));
        if let Some(servers) = servers {
            self.guides.add(Arc::new(ServerGuides::new(servers, definition)));
        }
    }

    /// Returns the registry, to which the tools of handlers can be added.
    #[must_use]
    pub fn registry(&self) -> &Arc<ToolRegistry> {
        &self.registry
    }
}

impl fmt::Debug for AgentTools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentTools").field("attached", &self.attached).finish_non_exhaustive()
    }
}
