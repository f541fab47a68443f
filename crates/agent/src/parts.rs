//! The parts that an agent is built from.

use std::{fmt, sync::Arc};

use rockbot_llm::{AdaptedModel, ChatModel};
use rockbot_memory::WorkingMemory;
use rockbot_tools::{LayerOptions, ToolPins, ToolRegistry};

use crate::{
    approvals::Approvals,
    behavior::ModelBehavior,
    context::ContextSource,
    conversation::Conversations,
    definition::AgentDefinition,
    delegation::Delegation,
    handoff::Destinations,
    limits::AgentLimits,
    mcp::McpParts,
    memory::{AgentMemory, ConversationLog},
};

/// The parts of an [`Agent`](crate::Agent).
pub struct AgentParts {
    /// Name, prompt and permissions.
    pub definition: AgentDefinition,
    /// The chat model.
    pub model: Arc<dyn ChatModel>,
    /// The tools. The model is offered those that the definition permits.
    pub registry: Arc<ToolRegistry>,
    /// Access to MCP servers, if the agent uses any.
    pub mcp: Option<McpParts>,
    /// Pins for tool definitions that handlers announce. `None` trusts every definition.
    pub pins: Option<Arc<ToolPins>>,
    /// Approval backend. `None` runs every call without approval.
    pub approvals: Option<Arc<Approvals>>,
    /// Sources of additional context for the model.
    pub context: Vec<Arc<dyn ContextSource>>,
    /// The stored conversations. Default: in memory.
    pub conversations: Conversations,
    /// Storage of conversations for later search, if enabled.
    pub log: Option<Arc<ConversationLog>>,
    /// Settings of the model.
    pub behavior: ModelBehavior,
    /// Storage for results that are too long for the model. `None` truncates them.
    pub working_memory: Option<WorkingMemory>,
    /// Limits of the agent.
    pub limits: AgentLimits,
    /// Layers around each tool call. The agent sets the result limit, the pins and the approver from the
    /// fields above.
    pub layers: LayerOptions,
    /// Sub-agents of the agent, if it may start any. The caller registers its tools.
    pub delegation: Option<Arc<Delegation>>,
    /// The agents that messages may be handed off to, if there may be any.
    pub destinations: Option<Arc<Destinations>>,
}

impl AgentParts {
    /// Creates parts with default limits and layers, without hooks, MCP servers and memory.
    #[must_use]
    pub fn new(
        definition: AgentDefinition,
        model: Arc<dyn ChatModel>,
        registry: Arc<ToolRegistry>,
    ) -> Self {
        let conversations = Conversations::in_memory(definition.name.clone());
        Self {
            definition,
            model,
            registry,
            mcp: None,
            pins: None,
            approvals: None,
            context: Vec::new(),
            conversations,
            log: None,
            behavior: ModelBehavior::default(),
            working_memory: None,
            limits: AgentLimits::default(),
            layers: LayerOptions::default(),
            delegation: None,
            destinations: None,
        }
    }

    /// Adapts requests to the capabilities of the definition's model.
    pub(crate) fn with_adapted_model(mut self) -> Self {
        let name = self.definition.model.as_deref().unwrap_or(self.model.name());
        let capabilities = self.behavior.capabilities(name);
        self.model = Arc::new(AdaptedModel::new(self.model.clone(), name, capabilities));
        self
    }

    /// Uses `memory` for context, conversation history and long results. The caller registers the tools
    /// of `memory`.
    pub fn set_memory(&mut self, memory: &AgentMemory) {
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
            .field("context", &self.context.len())
            .field("conversations", &self.conversations)
            .field("log", &self.log)
            .field("behavior", &self.behavior)
            .field("working_memory", &self.working_memory)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}
