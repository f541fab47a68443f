//! State that all turns of an agent share.

use std::{
    collections::BTreeMap,
    sync::{Arc, Once},
};

use rockbot_contracts::{AgentName, SessionId};
use rockbot_llm::{ChatModel, ModelCapabilities, TokenCounter, ToolDefinition};
use rockbot_memory::WorkingMemory;
use rockbot_tools::{
    Approver, EntryPoint, LayerOptions, Tool, ToolExecutor, ToolPins, ToolRegistration,
    ToolRegistry, ToolScope, registry::RegisteredTool,
};
use tracing::warn;

use super::{
    narrow_window::NarrowWindow,
    pin_check::PinCheck,
    token_budget::{TokenBudget, estimate_tool},
};
use crate::{
    approvals::Approvals,
    behavior::ModelBehavior,
    context::{ContextBuilder, ContextPart, CurrentDate, StaticText, SystemPrompt},
    conversation::{CalledTool, ConversationError, Conversations, McpUse, SubConversation},
    definition::AgentDefinition,
    delegation::{Delegation, TaskHost},
    handoff::{Destinations, session_of},
    history::History,
    large_results::LargeResults,
    limits::AgentLimits,
    mcp::McpToolProvider,
    memory::ConversationLog,
    metering::AgentMeter,
    origin::TurnOrigin,
    parts::AgentParts,
    session_data::SessionData,
    subagent_tool::{self, HostSlot},
    tool_list::{ToolList, ToolListLog, ToolNames},
    wisps::Repetitions,
};

/// A tool that a turn may use.
pub(crate) struct UsableTool {
    pub(crate) registration: ToolRegistration,
    /// Set if a tool handler announced it.
    pub(crate) is_announced: bool,
}

/// State shared by all turns of an agent.
pub(crate) struct TurnSetup {
    pub(crate) definition: AgentDefinition,
    pub(crate) limits: AgentLimits,
    pub(crate) meter: AgentMeter,
    pub(super) model: Arc<dyn ChatModel>,
    /// All callable tools.
    pub(super) registry: Arc<ToolRegistry>,
    /// The tools that every conversation is offered.
    pub(super) shared: Arc<ToolRegistry>,
    pub(super) behavior: ModelBehavior,
    /// For models whose prices are unknown.
    pub(super) unpriced: ModelBehavior,
    pub(super) capabilities: ModelCapabilities,
    pub(super) mcp: Option<McpToolProvider>,
    pub(super) context: ContextBuilder,
    pub(crate) conversations: Conversations,
    pub(super) log: Option<Arc<ConversationLog>>,
    pub(super) token_budget: TokenBudget,
    narrow_window_reported: Once,
    pub(super) large_results: LargeResults,
    pub(crate) approvals: Option<Arc<Approvals>>,
    pub(super) pins: Option<Arc<ToolPins>>,
    pub(super) executor: ToolExecutor,
    pub(super) list_log: ToolListLog,
    session_data: SessionData,
    /// The internal tools of the definition.
    internal: Vec<Arc<RegisteredTool>>,
    /// Runs of equal plans.
    pub(super) repetitions: Repetitions,
    /// Starts turns of this agent.
    host: HostSlot,
    /// The agents that messages may be handed off to.
    pub(super) destinations: Option<Arc<Destinations>>,
    pub(crate) delegation: Option<Arc<Delegation>>,
}

impl TurnSetup {
    pub(crate) fn new(parts: AgentParts) -> Self {
        let AgentParts {
            definition,
            model,
            registry: shared,
            mcp,
            pins,
            approvals,
            context: mut sources,
            conversations,
            log,
            behavior,
            working_memory: memory,
            limits,
            layers,
            delegation,
            destinations,
        } = parts;
        let model_name = definition.model.as_deref().unwrap_or(model.name());
        let capabilities = behavior.capabilities(model_name);
        let token_budget = TokenBudget::new(model_name, &behavior, definition.max_tokens);
        let approver = approvals.clone().filter(|one| one.has_rules());
        let approver = approver.map(|one| -> Arc<dyn Approver> { one });
        let max_result_bytes = limits.result_bytes;
        let registry = Arc::new(ToolRegistry::with_base(shared.clone()));
        let host = HostSlot::default();
        let is_durable = conversations.is_durable();
        let subagents = subagent_tool::tools(&definition.subagents, &host, is_durable);
        let internal = register_internal(&definition, subagents, &registry);
        let session_data = SessionData { memory: memory.clone(), outputs: layers.outputs.clone() };
        let layers = LayerOptions {
            max_result_bytes,
            pins: pins.clone(),
            approver: approver.clone(),
            ..layers
        };
        let executor = ToolExecutor::with_layers(registry.clone(), layers);
        let mcp = mcp.map(|parts| {
            let (own, shared) = (registry.clone(), shared.clone());
            McpToolProvider::new(parts, &definition, own, shared, approver, limits.activated_tools)
        });
        if let Some(mcp) = &mcp {
            sources.push(mcp.instructions());
        }
        sources.push(Arc::new(SystemPrompt::new(definition.system_prompt.as_str())));
        if let Some(prompt) = &behavior.prompt {
            sources.push(Arc::new(StaticText::new(ContextPart::Model, prompt.as_str())));
        }
        if sources.iter().all(|source| source.part() != ContextPart::Clock) {
            sources.push(Arc::new(CurrentDate::new(None)));
        }
        let budget = limits.context.clone();
        let context = ContextBuilder::new(sources, budget, behavior.context_window);
        let meter = AgentMeter::default();
        Self {
            definition,
            limits,
            meter,
            model,
            registry,
            shared,
            unpriced: ModelBehavior { input_price: None, output_price: None, ..behavior.clone() },
            behavior,
            capabilities,
            mcp,
            context,
            conversations,
            log,
            token_budget,
            narrow_window_reported: Once::new(),
            session_data,
            large_results: LargeResults { memory },
            approvals,
            pins,
            executor,
            list_log: ToolListLog::default(),
            internal,
            repetitions: Repetitions::default(),
            host,
            destinations,
            delegation,
        }
    }

    /// Returns the working memory, if it is on.
    pub(crate) fn working_memory(&self) -> Option<&WorkingMemory> {
        self.session_data.memory.as_ref()
    }

    /// Returns the tools that a turn with this origin may use.
    pub(super) fn scope(&self, origin: &TurnOrigin) -> ToolScope {
        let AgentDefinition { name, tools, .. } = &self.definition;
        let scope = ToolScope::new(origin.entry.profile(), tools.clone())
            .with_agent(name.clone())
            .with_entry(origin.entry);
        let scope = match &origin.step {
            Some(step) => scope.with_step(step.tools.clone()),
            None => scope,
        };
        match (&origin.parent, origin.task(), origin.fold_back()) {
            // Steps are turns of the same agent.
            (Some(parent), ..) if origin.step.is_some() => {
                scope.with_steps_of(&parent.scope).with_parent(&parent.scope)
            }
            (Some(parent), ..) => scope.with_parent(&parent.scope),
            (None, Some((entry, ..)), _) => scope.with_recorded_parent(&entry.scope),
            (None, None, Some(entry)) => scope.with_generation(entry.generation),
            (None, None, None) => scope,
        }
    }

    /// Returns `true` if the messages of turns with this origin are marked until their answer was published.
    /// Those of a called agent are not: the turn that called it calls it again. Nor are those with results of
    /// delegated work, whose own message stays marked.
    pub(crate) fn is_marked(&self, origin: &TurnOrigin) -> bool {
        let is_repeated = origin.parent.is_some() || origin.fold_back().is_some();
        self.conversations.is_durable() && !is_repeated
    }

    /// Returns the tools under the names that the model sees. Called for each request, because handlers
    /// start and stop at any time.
    pub(super) async fn tools(
        &self,
        session: &SessionId,
        scope: &ToolScope,
    ) -> (Vec<ToolDefinition>, ToolNames) {
        let mut list = ToolList::new(scope, self.limits.request_tools);
        let mut pin_check = PinCheck::new(self.pins.as_deref());
        self.internal.iter().for_each(|tool| list.add(tool));
        for tool in self.shared.all() {
            if !scope.permits(tool.registration()) || pin_check.allows(&tool).await {
                list.add(&tool);
            } else {
                list.count_quarantined();
            }
        }
        if let Some(mcp) = &self.mcp {
            list.extend(mcp.tools(session, scope, list.remaining()).await);
        }
        let (tools, names) = list.finish(self.behavior.tool_name_bytes, &self.list_log);
        let definition = |tool: ToolRegistration| ToolDefinition {
            description: tool.model_description().to_owned(),
            name: tool.name,
            parameters: tool.parameters,
        };
        (tools.into_iter().map(definition).collect(), names)
    }

    /// Returns a description of the context window if the prompts and the tools that are registered now leave
    /// little of it for the conversation. Rules, memories and tools of MCP servers are not counted.
    pub(crate) fn narrow_window(&self) -> Option<NarrowWindow> {
        let scope = self.scope(&TurnOrigin::new(EntryPoint::UserTurn));
        let window = self.behavior.context_window;
        let prompts = [
            (ContextPart::Profile, Some(&self.definition.system_prompt)),
            (ContextPart::Model, self.behavior.prompt.as_ref()),
        ];
        let prompts = prompts.into_iter().filter_map(|(part, prompt)| {
            let most = self.limits.context.max_bytes(part, window) / 4;
            Some(TokenCounter::estimate(prompt?).min(most))
        });
        let shared = self.shared.all();
        let shared = shared.iter().filter(|tool| scope.permits(tool.registration()));
        let tools = self.internal.iter().chain(shared).take(self.limits.request_tools);
        let tools = tools.map(|tool| {
            let tool = tool.registration();
            estimate_tool(&tool.name, tool.model_description(), &tool.parameters)
        });
        self.token_budget.narrow_window(prompts.chain(tools).sum())
    }

    /// Logs a narrow context window once.
    pub(crate) fn report_narrow_window(&self, narrow: Option<NarrowWindow>) {
        let Some(narrow) = narrow else { return };
        self.narrow_window_reported.call_once(|| {
            let (agent, model) = (&self.definition.name, self.model_name());
            warn!(%agent, model, reason = %narrow, "context window leaves little for the conversation");
        });
    }

    /// Returns all tools that a turn of a user may use, ordered by name.
    pub(crate) async fn usable_tools(&self) -> Vec<UsableTool> {
        let scope = self.scope(&TurnOrigin::new(EntryPoint::UserTurn));
        let mut pin_check = PinCheck::new(self.pins.as_deref());
        let mut tools = BTreeMap::new();
        for tool in self.internal.iter().cloned().chain(self.shared.all()) {
            let registration = tool.registration();
            if scope.permits(registration) && pin_check.allows(&tool).await {
                let is_announced = tool.tool().is_announced();
                let usable = UsableTool { registration: registration.clone(), is_announced };
                tools.insert(registration.name.clone(), usable);
            }
        }
        if let Some(mcp) = &self.mcp {
            for registration in mcp.usable_tools(&scope).await {
                let name = registration.name.clone();
                tools.entry(name).or_insert(UsableTool { registration, is_announced: false });
            }
        }
        tools.into_values().collect()
    }

    /// Sets how turns of this agent are started. Later calls change nothing.
    pub(crate) fn set_host(&self, host: Arc<dyn TaskHost>) {
        let _ = self.host.set(host);
    }

    pub(super) fn host(&self) -> Option<&Arc<dyn TaskHost>> {
        self.host.get()
    }

    /// Returns `true` if `written` is the internal tool `name`, which the agent has.
    pub(super) fn is_internal(&self, written: &str, name: &str) -> bool {
        written == name && self.internal.iter().any(|tool| tool.registration().name == name)
    }

    /// Returns the name of the model.
    pub(crate) fn model_name(&self) -> &str {
        self.definition.model.as_deref().unwrap_or(self.model.name())
    }

    /// Offers a conversation the tools of MCP servers that it found or called in other processes.
    pub(crate) fn restore_mcp_tools(&self, session: &SessionId, used: &McpUse) {
        if let Some(mcp) = &self.mcp {
            mcp.restore(session, used);
        }
    }

    /// Returns what the conversation uses of MCP servers since the last call of this function.
    pub(super) fn take_mcp_use(&self, session: &SessionId) -> Option<Box<McpUse>> {
        let used = self.mcp.as_ref()?.take_unrecorded(session);
        (!used.is_empty()).then(|| Box::new(used))
    }

    /// Returns what a process needs to find the tool of a model's call, besides the name.
    pub(super) fn called_tool(&self, names: &ToolNames, written: &str) -> Option<Box<CalledTool>> {
        let own = names.own(written);
        let tool = self.registry.get(own);
        let mcp = tool.zip(self.mcp.as_ref());
        let mcp = mcp.and_then(|(tool, mcp)| mcp.target(&tool.registration().name));
        (own != written || mcp.is_some())
            .then(|| Box::new(CalledTool { name: own.to_owned(), mcp }))
    }

    /// Counts the tokens of a history that was read from the log.
    pub(crate) async fn recount(&self, history: &mut History) {
        let mut tokens = Vec::with_capacity(history.messages().len());
        for message in history.messages() {
            tokens.push(self.token_budget.count(message).await);
        }
        history.set_tokens(tokens);
    }

    /// Deletes the conversations with sub-agents that the entries below `before` of a conversation started,
    /// and their stored data.
    ///
    /// # Errors
    /// When the store fails; repeat it then.
    pub(crate) async fn delete_sub_conversations(
        &self,
        session: &SessionId,
        before: u64,
    ) -> Result<(), ConversationError> {
        let started = self.conversations.sub_conversations(session, before).await?;
        // Inner ones first: the outer ones name them.
        for conversation in started.iter().rev() {
            let SubConversation { agent, session, .. } = conversation;
            self.session_data.delete(agent, session).await?;
            self.conversations.delete_sub_conversation(conversation).await?;
        }
        Ok(())
    }

    /// Deletes the conversations of destinations to which messages of a conversation were handed off, and their
    /// stored data.
    ///
    /// # Errors
    /// When the store fails; repeat it then.
    pub(crate) async fn delete_handed_off(
        &self,
        session: &SessionId,
    ) -> Result<(), ConversationError> {
        for destination in &self.definition.router.destinations {
            let (Ok(agent), Some(session)) =
                (AgentName::new(destination.as_str()), session_of(session, destination))
            else {
                continue;
            };
            let Some(conversation) = SubConversation::new(&agent, &session) else { continue };
            self.session_data.delete(&agent, &session).await?;
            self.conversations.delete_sub_conversation(&conversation).await?;
        }
        Ok(())
    }

    /// Deletes what working memory and stored outputs hold for a conversation.
    ///
    /// # Errors
    /// When the store fails.
    pub(crate) async fn delete_session_data(
        &self,
        session: &SessionId,
    ) -> Result<(), ConversationError> {
        self.session_data.delete(&self.definition.name, session).await
    }

    /// Drops the state of a conversation that ended.
    pub(crate) fn forget(&self, session: &SessionId) {
        if let Some(mcp) = &self.mcp {
            mcp.forget(session);
        }
        if let Some(approvals) = &self.approvals {
            approvals.forget(session);
        }
    }
}

/// Registers the internal tools of a definition and its sub-agents, and returns those whose names are free.
fn register_internal(
    definition: &AgentDefinition,
    subagents: Vec<Arc<dyn Tool>>,
    registry: &ToolRegistry,
) -> Vec<Arc<RegisteredTool>> {
    let mut registered = Vec::new();
    let own = definition.internal.tools().into_iter().chain(definition.router.tool());
    for tool in own.chain(subagents) {
        let name = tool.registration().name.clone();
        match registry.register(tool) {
            Ok(()) => registered.extend(registry.get(&name)),
            Err(error) => {
                warn!(agent = %definition.name, tool = %name, %error, "internal tool not offered");
            }
        }
    }
    registered
}
