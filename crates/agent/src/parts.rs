//! The parts that an agent is built from.

use std::{fmt, sync::Arc};

use rockbot_llm::ChatModel;
use rockbot_memory::WorkingMemory;
use rockbot_tools::{LayerOptions, ToolHook, ToolPins, ToolRegistry};

use crate::{
    approvals::Approvals,
    behaviour::ModelBehaviour,
    context::ContextSource,
    definition::AgentDefinition,
    limits::AgentLimits,
    mcp::McpParts,
    memory::{AgentMemory, ConversationLog},
};

/// What an agent is made of.
pub struct AgentParts {
    /// Who it is and what it may do.
    pub definition: AgentDefinition,
    /// Its model.
    pub model: Arc<dyn ChatModel>,
    /// The tools; those that the definition permits are offered to the model.
    pub registry: Arc<ToolRegistry>,
    /// MCP servers, if it is to use any.
    pub mcp: Option<McpParts>,
    /// Which definitions of tools that handlers announce are trusted. Without, all.
    pub pins: Option<Arc<ToolPins>>,
    /// Whom to ask about calls. Without, nobody.
    pub approvals: Option<Arc<Approvals>>,
    /// What runs around each tool call, in this order.
    pub hooks: Vec<Arc<dyn ToolHook>>,
    /// What the model is told beside its prompt and the conversation.
    pub context: Vec<Arc<dyn ContextSource>>,
    /// Where what was said is kept, if it is.
    pub log: Option<Arc<ConversationLog>>,
    /// How to work with its model.
    pub behaviour: ModelBehaviour,
    /// Takes results that are too long for the model, in chunks; without it they are cut.
    pub working_memory: Option<WorkingMemory>,
    /// Its bounds.
    pub limits: AgentLimits,
    /// What every tool call passes through here; the cap on results is that of the bounds, and
    /// pins and approvals are those above.
    pub layers: LayerOptions,
}

impl AgentParts {
    /// Without hooks, MCP servers and anything to remember, and with the default bounds and layers.
    #[must_use]
    pub fn new(
        definition: AgentDefinition,
        model: Arc<dyn ChatModel>,
        registry: Arc<ToolRegistry>,
    ) -> Self {
        Self {
            definition,
            model,
            registry,
            mcp: None,
            pins: None,
            approvals: None,
            hooks: Vec::new(),
            context: Vec::new(),
            log: None,
            behaviour: ModelBehaviour::default(),
            working_memory: None,
            limits: AgentLimits::default(),
            layers: LayerOptions::default(),
        }
    }

    /// Tells the model what the agent remembers, keeps what is said, and puts long results into
    /// working memory. The tools of `memory` are registered by whoever fills the registry.
    pub fn remember(&mut self, memory: &AgentMemory) {
        self.working_memory = Some(memory.working().clone());
        self.context.extend(memory.sources());
        self.log = memory.log();
    }
}

impl fmt::Debug for AgentParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentParts")
            .field("definition", &self.definition)
            .field("model", &self.model.name())
            .field("mcp", &self.mcp)
            .field("pins", &self.pins)
            .field("approvals", &self.approvals)
            .field("hooks", &self.hooks.len())
            .field("context", &self.context.len())
            .field("log", &self.log)
            .field("behaviour", &self.behaviour)
            .field("working_memory", &self.working_memory)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}
