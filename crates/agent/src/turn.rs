//! A turn: request an answer of the model, run its tool calls, and repeat until it answers with text.

mod calls;
mod model_request;
mod pin_check;
mod stop_reason;
mod token_budget;

use std::sync::Arc;

use crate::{
    strategy::{ExecutionStrategy, Steering},
    tool_list::{ToolList, ToolListLog, ToolNames},
};
use rockbot_contracts::{SessionId, Spending};
use rockbot_llm::{
    AssembledAnswer, ChatMessage, ChatModel, FinishReason, Media, ModelCapabilities, ToolChoice,
    ToolDefinition,
};
use rockbot_tools::{
    Approver, LayerOptions, ToolExecutor, ToolPins, ToolRegistration, ToolRegistry, ToolScope,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};

use self::{
    calls::{CallRunner, PendingCall, TimeoutStreak},
    pin_check::PinCheck,
    stop_reason::StopReason,
    token_budget::{BUDGET_EXCEEDED, MEDIA_LEFT_OUT, SHORT_TOKENS, TokenBudget},
};
use crate::{
    approvals::{Approvals, ListenerGuard},
    behavior::ModelBehavior,
    context::{ContextBuilder, ContextPart, ContextRequest, CurrentDate, StaticText, TurnContext},
    definition::AgentDefinition,
    event::{ProgressSink, TurnAnswer},
    history::History,
    large_results::LargeResults,
    limits::AgentLimits,
    mcp::McpToolProvider,
    memory::ConversationLog,
    metering::{AgentMeter, TurnMeter},
    origin::TurnOrigin,
    parts::AgentParts,
    steering::SteeringQueue,
};

/// State shared by all turns of an agent.
pub(crate) struct TurnSetup {
    pub(crate) definition: AgentDefinition,
    pub(crate) limits: AgentLimits,
    pub(crate) meter: AgentMeter,
    model: Arc<dyn ChatModel>,
    /// All callable tools.
    registry: Arc<ToolRegistry>,
    /// The tools that every conversation is offered.
    shared: Arc<ToolRegistry>,
    behavior: ModelBehavior,
    capabilities: ModelCapabilities,
    mcp: Option<McpToolProvider>,
    context: ContextBuilder,
    log: Option<Arc<ConversationLog>>,
    token_budget: TokenBudget,
    large_results: LargeResults,
    pub(crate) approvals: Option<Arc<Approvals>>,
    pins: Option<Arc<ToolPins>>,
    executor: ToolExecutor,
    list_log: ToolListLog,
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
            log,
            behavior,
            working_memory: memory,
            limits,
            layers,
        } = parts;
        let model_name = definition.model.as_deref().unwrap_or(model.name());
        let capabilities = behavior.capabilities(model_name);
        let token_budget = TokenBudget::new(model_name, &behavior, definition.max_tokens);
        let approver = approvals.clone().map(|one| -> Arc<dyn Approver> { one });
        let max_result_bytes = limits.result_bytes;
        let registry = Arc::new(ToolRegistry::with_base(shared.clone()));
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
        sources.push(Arc::new(StaticText::new(
            ContextPart::Profile,
            definition.system_prompt.as_str(),
        )));
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
            behavior,
            capabilities,
            mcp,
            context,
            log,
            token_budget,
            large_results: LargeResults { memory },
            approvals,
            pins,
            executor,
            list_log: ToolListLog::default(),
        }
    }

    /// Returns the tools that a turn with this origin may use.
    fn scope(&self, origin: &TurnOrigin) -> ToolScope {
        let AgentDefinition { name, tools, .. } = &self.definition;
        let scope = ToolScope::new(origin.entry.profile(), tools.clone()).with_agent(name.clone());
        match &origin.parent {
            Some(parent) => scope.with_parent(&parent.scope),
            None => scope,
        }
    }

    /// Returns the tools under the names that the model sees. Called for each request, because handlers
    /// start and stop at any time.
    async fn tools(
        &self,
        session: &SessionId,
        scope: &ToolScope,
    ) -> (Vec<ToolDefinition>, ToolNames) {
        let mut list = ToolList::new(scope, self.limits.request_tools);
        let mut pin_check = PinCheck::new(self.pins.as_deref());
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

/// A running turn.
pub(crate) struct Turn<'a> {
    setup: &'a TurnSetup,
    session_id: &'a SessionId,
    history: &'a mut History,
    steering: &'a SteeringQueue,
    progress: ProgressSink,
    scope: Arc<ToolScope>,
    /// Receives approval requests for the user while the turn runs.
    _approval_listener: Option<ListenerGuard>,
    /// Tool names of the last request to the model.
    names: ToolNames,
    cancellation: CancellationToken,
    deadline: Instant,
    streak: TimeoutStreak,
    context: TurnContext,
    meter: TurnMeter,
    session_spending: Spending,
    /// Texts that the user sent in this turn.
    user_texts: Vec<String>,
    /// Tokens of the system prompt and the transient context.
    context_tokens: usize,
    /// Tokens available for the conversation. `None` if the context window is unknown.
    history_budget: Option<usize>,
    /// A tool result did not fit. The next answer must be final.
    context_exhausted: bool,
}

impl<'a> Turn<'a> {
    pub(crate) fn new(
        setup: &'a TurnSetup,
        session_id: &'a SessionId,
        history: &'a mut History,
        steering: &'a SteeringQueue,
        origin: &TurnOrigin,
        progress: ProgressSink,
        cancellation: CancellationToken,
    ) -> Self {
        let deadline = Instant::now() + setup.limits.turn_timeout;
        let deadline =
            origin.parent.as_ref().map_or(deadline, |parent| deadline.min(parent.deadline));
        let streak = TimeoutStreak::new(setup.definition.max_tool_timeouts);
        Self {
            setup,
            session_id,
            history,
            steering,
            _approval_listener: setup
                .approvals
                .as_ref()
                .map(|approvals| approvals.listen(session_id, origin, &progress)),
            progress,
            scope: Arc::new(setup.scope(origin)),
            names: ToolNames::default(),
            cancellation,
            deadline,
            streak,
            context: TurnContext::default(),
            meter: TurnMeter::default(),
            session_spending: Spending::default(),
            user_texts: Vec::new(),
            context_tokens: 0,
            history_budget: None,
            context_exhausted: false,
        }
    }

    /// Sets the spending of earlier turns of the conversation.
    pub(crate) fn with_session_spending(mut self, spent: Spending) -> Self {
        self.session_spending = spent;
        self
    }

    /// Runs the turn to its end. Afterwards the history is one that every model server accepts: each call
    /// has a result, and the last message is from the assistant.
    pub(crate) async fn run(mut self, text: String) -> TurnAnswer {
        info!(session_id = %self.session_id, agent = %self.setup.definition.name, "turn started");
        self.user_texts.push(text.clone());
        let text = self.gather_context(text).await;
        self.push(ChatMessage::User(text)).await;
        let reason = self.run_loop().await;
        if let StopReason::ModelFailed(error) = &reason {
            info!(session_id = %self.session_id, %error, "model failed");
        }
        let history_text = reason.history_text();
        if let Some(log) = &self.setup.log {
            log.record(
                &self.setup.definition.name,
                self.session_id,
                &self.user_texts,
                &history_text,
            )
            .await;
        }
        self.push(ChatMessage::Assistant { text: history_text, tool_calls: Vec::new() }).await;
        self.history.fit();
        let usage = Some(Box::new(self.meter.finish(self.session_spending)));
        TurnAnswer { usage, ..reason.into_answer() }
    }

    /// Builds the context of the turn. Returns the message with the part of the context that is kept in the
    /// conversation.
    async fn gather_context(&mut self, text: String) -> String {
        let agent = &self.setup.definition.name;
        // Memories that are dropped for this message count as unread.
        self.history.make_room();
        let conversation: Vec<&str> = self.history.user_texts().collect();
        let request = ContextRequest {
            agent,
            session: self.session_id,
            message: &text,
            conversation: &conversation,
        };
        self.context = self.setup.context.build(request).await;
        let transient = self.context.transient.as_deref().unwrap_or_default();
        let budget = &self.setup.token_budget;
        self.context_tokens =
            budget.count_text(&self.context.system).await + budget.count_text(transient).await;
        match self.context.persistent.take() {
            Some(persistent) => format!("{text}\n\n{persistent}"),
            None => text,
        }
    }

    async fn run_loop(&mut self) -> StopReason {
        for iteration in 0..self.setup.definition.max_iterations {
            self.take_steering().await;
            debug!(session_id = %self.session_id, iteration, "requesting model answer");
            let answer = match self.call_model(ToolChoice::Auto).await {
                Ok(answer) => answer,
                Err(reason) => return reason,
            };
            if answer.tool_calls.is_empty() {
                return StopReason::Answered(answer);
            }
            if let Some(reason) = self.run_calls(answer).await {
                return reason;
            }
            if self.context_exhausted {
                return self
                    .call_model(ToolChoice::None)
                    .await
                    .map_or_else(|reason| reason, StopReason::Answered);
            }
        }
        self.take_steering().await;
        match self.call_model(ToolChoice::None).await {
            Ok(answer) => StopReason::IterationLimit(answer),
            Err(reason) => reason,
        }
    }

    async fn push(&mut self, message: ChatMessage) {
        let tokens = self.setup.token_budget.count(&message).await;
        self.history.push(message, tokens);
    }

    /// Adds the messages that the user sent meanwhile.
    async fn take_steering(&mut self) {
        for text in self.steering.take() {
            info!(session_id = %self.session_id, "turn steered");
            self.user_texts.push(text.clone());
            self.push(ChatMessage::User(text)).await;
        }
        self.history.fit();
    }

    /// Runs the calls of one answer and adds their results to the history, in the order of the calls.
    /// Returns the reason if the turn cannot continue.
    async fn run_calls(&mut self, answer: AssembledAnswer) -> Option<StopReason> {
        let is_truncated = answer.finish_reason == FinishReason::Length;
        let requests = answer.tool_calls.clone();
        self.push(answer.into_message()).await;
        let runner = CallRunner::new(self, is_truncated);
        let pending = requests.iter().cloned().enumerate();
        let pending = pending.map(|(position, request)| PendingCall { position, request });
        let strategy: ExecutionStrategy = self.setup.definition.strategy;
        let steer = || if self.should_stop(&runner) { Steering::Stop } else { Steering::Continue };
        let results = strategy.run(pending.collect(), |call| runner.call(call), steer).await;
        let mut media = runner.take_media();
        let streak = runner.into_streak();
        let skipped = self.skip_text(&streak);
        let mut left = requests.len();
        for (position, (request, text)) in requests.into_iter().zip(results).enumerate() {
            left -= 1;
            let text = text.unwrap_or_else(|| skipped.to_owned());
            let media = media.remove(&position).unwrap_or_default();
            self.push_result(request.id, text, media, left).await;
        }
        self.streak = streak;
        if self.cancellation.is_cancelled() {
            return Some(StopReason::Cancelled);
        }
        if Instant::now() >= self.deadline {
            return Some(self.timed_out(true));
        }
        self.streak.is_over().then(|| StopReason::ToolTimeouts(self.streak.timed_out()))
    }

    /// Adds a result to the history if it fits beside the current exchange and the `left` remaining
    /// results. Otherwise adds [`BUDGET_EXCEEDED`]. Its media is added if it fits too.
    async fn push_result(
        &mut self,
        tool_call_id: String,
        mut content: String,
        media: Vec<Media>,
        left: usize,
    ) {
        let mut tokens = self.setup.token_budget.count_text(&content).await;
        let taken = self.history.current_exchange_tokens() + left * SHORT_TOKENS;
        let fits = |tokens| self.history_budget.is_none_or(|budget| taken + tokens <= budget);
        let media_tokens: usize = media.iter().map(Media::estimated_tokens).sum();
        let mut media = Some(media).filter(|media| !media.is_empty());
        if tokens > SHORT_TOKENS && !fits(tokens) {
            info!(session_id = %self.session_id, tokens, "tool result exceeds context window; ending turn");
            self.context_exhausted = true;
            tokens = SHORT_TOKENS;
            BUDGET_EXCEEDED.clone_into(&mut content);
            media = None;
        } else if media.is_some() && !fits(tokens + media_tokens) {
            info!(session_id = %self.session_id, media_tokens, "media of tool result exceeds context window");
            tokens += SHORT_TOKENS;
            content.push_str(MEDIA_LEFT_OUT);
            media = None;
        }
        self.history.push(ChatMessage::Tool { tool_call_id, content }, tokens);
        if let Some(media) = media {
            self.history.push(ChatMessage::Media(media), media_tokens);
        }
    }

    /// Returns `true` if no further batch of calls may start.
    fn should_stop(&self, runner: &CallRunner<'_>) -> bool {
        self.cancellation.is_cancelled()
            || self.steering.has_messages()
            || Instant::now() >= self.deadline
            || runner.timeouts_exceeded()
    }

    /// Returns the result of calls that were not started.
    fn skip_text(&self, streak: &TimeoutStreak) -> &'static str {
        if self.cancellation.is_cancelled() {
            "(tool failed: cancelled)"
        } else if streak.is_over() {
            "(tool skipped: too many earlier tool calls timed out)"
        } else if Instant::now() >= self.deadline {
            "(tool skipped: the turn exceeded its time limit)"
        } else {
            "(tool skipped: the user sent a new message)"
        }
    }

    fn timed_out(&self, in_tools: bool) -> StopReason {
        StopReason::TimedOut { after: self.setup.limits.turn_timeout, in_tools }
    }
}
