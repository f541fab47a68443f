//! A turn: request an answer of the model, run its tool calls, and repeat until it answers with text.

mod calls;
mod model_request;
mod pin_check;
mod stop_reason;
mod token_budget;

use std::{collections::HashMap, fmt, sync::Arc};

use crate::{
    strategy::{ExecutionStrategy, Steering},
    tool_list::{ToolList, ToolListLog, ToolNames},
};
use rockbot_contracts::{Executed, SessionId, Spending, ToolCallId};
use rockbot_llm::{
    AssembledAnswer, ChatMessage, ChatModel, FinishReason, ToolCallRequest, ToolChoice,
    ToolDefinition,
};
use rockbot_memory::MemoryOwner;
use rockbot_store::StoreError;
use rockbot_tools::{
    Approver, LayerOptions, ToolExecutor, ToolPins, ToolRegistration, ToolRegistry, ToolScope,
    outputs::Outputs,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};

use self::{
    calls::{CallRunner, TimeoutStreak},
    pin_check::PinCheck,
    stop_reason::StopReason,
    token_budget::{BUDGET_EXCEEDED, SHORT_TOKENS, TokenBudget},
};
use crate::{
    approvals::{Approvals, ListenerGuard},
    behavior::ModelBehavior,
    context::{ContextBuilder, ContextPart, ContextRequest, CurrentDate, StaticText, TurnContext},
    conversation::{
        CallEntry, ConversationEntry, ConversationError, Conversations, ModelEntry, OpenStep,
        OpenTurn, Recorder, ResultEntry, SteerEntry, TurnApprovals, with_context,
    },
    definition::AgentDefinition,
    event::{ProgressSink, TurnAnswer, TurnEnd, TurnEvent},
    history::History,
    large_results::LargeResults,
    limits::AgentLimits,
    mcp::McpToolProvider,
    memory::ConversationLog,
    metering::{AgentMeter, TurnMeter},
    origin::TurnOrigin,
    parts::AgentParts,
    steering::{SteeringMessage, SteeringQueue},
};

/// Processes that may be lost on one step; the turn then ends as failed.
const MAX_LOST_PROCESSES: u32 = 3;

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
    mcp: Option<McpToolProvider>,
    context: ContextBuilder,
    pub(crate) conversations: Conversations,
    log: Option<Arc<ConversationLog>>,
    token_budget: TokenBudget,
    large_results: LargeResults,
    pub(crate) approvals: Option<Arc<Approvals>>,
    pins: Option<Arc<ToolPins>>,
    executor: ToolExecutor,
    list_log: ToolListLog,
    outputs: Option<Arc<Outputs>>,
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
        } = parts;
        let model_name = definition.model.as_deref().unwrap_or(model.name());
        let token_budget = TokenBudget::new(model_name, &behavior, definition.max_tokens);
        let approver = approvals.clone().map(|one| -> Arc<dyn Approver> { one });
        let max_result_bytes = limits.result_bytes;
        let registry = Arc::new(ToolRegistry::with_base(shared.clone()));
        let outputs = layers.outputs.clone();
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
            mcp,
            context,
            conversations,
            log,
            token_budget,
            large_results: LargeResults { memory },
            approvals,
            pins,
            executor,
            list_log: ToolListLog::default(),
            outputs,
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

    /// Counts the tokens of a history that was read from the log.
    pub(crate) async fn recount(&self, history: &mut History) {
        let mut tokens = Vec::with_capacity(history.messages().len());
        for message in history.messages() {
            tokens.push(self.token_budget.count(message).await);
        }
        history.set_tokens(tokens);
    }

    /// Deletes what working memory and stored outputs hold for a conversation.
    ///
    /// # Errors
    /// When the store fails.
    pub(crate) async fn delete_session_data(
        &self,
        session: &SessionId,
    ) -> Result<(), ConversationError> {
        let (agent, session) = (self.definition.name.clone(), session.clone());
        let owner = MemoryOwner { agent, session };
        let failed = |error: &dyn fmt::Display| {
            ConversationError::Store(StoreError::Unavailable { reason: error.to_string() })
        };
        if let Some(memory) = &self.large_results.memory {
            let namespace = owner.namespace();
            let entries = memory.list(&owner, Some(&namespace)).await;
            for entry in entries.map_err(|error| failed(&error))? {
                memory.delete(&owner, &entry.key).await.map_err(|error| failed(&error))?;
            }
        }
        if let Some(outputs) = &self.outputs {
            let deleted = outputs.delete_all(&owner.agent, &owner.session).await;
            deleted.map_err(|error| failed(&error))?;
        }
        Ok(())
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
    /// Cancelled when another process continues the turn.
    handover: CancellationToken,
    /// Cancelled when the turn is to be left after its step.
    closing: Option<CancellationToken>,
    recorder: Arc<Recorder>,
    /// Markers are written for the messages that it takes in.
    is_marked: bool,
    deadline: Instant,
    streak: TimeoutStreak,
    context: TurnContext,
    /// Context that is part of the message, until it is recorded.
    unrecorded_context: Option<String>,
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
    start: TurnStart,
}

/// Where a turn begins in this process.
struct TurnStart {
    text: String,
    /// The message is part of the history.
    is_started: bool,
    iterations: u32,
    step: Option<OpenStep>,
    /// Number of this process among those that ran the turn, from 1.
    attempt: u32,
    /// Processes that were lost on the same step.
    lost: u32,
}

/// Everything that a turn is made of.
pub(crate) struct TurnParts<'a> {
    pub(crate) setup: &'a TurnSetup,
    pub(crate) session_id: &'a SessionId,
    pub(crate) history: &'a mut History,
    pub(crate) steering: &'a SteeringQueue,
    pub(crate) origin: &'a TurnOrigin,
    pub(crate) progress: ProgressSink,
    /// Ends the turn with an answer.
    pub(crate) cancellation: CancellationToken,
    /// Ends the turn at once, for another process to continue.
    pub(crate) handover: CancellationToken,
    /// Ends the turn after its step, for another process to continue.
    pub(crate) closing: Option<CancellationToken>,
    pub(crate) recorder: Arc<Recorder>,
    /// Spending of earlier turns of the conversation.
    pub(crate) session_spending: Spending,
    /// The turn, as its log tells it.
    pub(crate) open: OpenTurn,
}

/// The end of a turn in this process.
pub(crate) struct TurnOutput {
    pub(crate) answer: TurnAnswer,
    /// The text that the model sees in later turns.
    pub(crate) history_text: String,
    /// Context that was appended to the message and is not recorded.
    pub(crate) context: Option<String>,
    /// Spending in this process.
    pub(crate) own_spending: Spending,
}

impl<'a> Turn<'a> {
    pub(crate) fn new(parts: TurnParts<'a>) -> Self {
        let TurnParts {
            setup,
            session_id,
            history,
            steering,
            origin,
            progress,
            cancellation,
            handover,
            closing,
            recorder,
            session_spending,
            open,
        } = parts;
        let deadline = Instant::now() + setup.limits.turn_timeout;
        let deadline =
            origin.parent.as_ref().map_or(deadline, |parent| deadline.min(parent.deadline));
        let streak = TimeoutStreak::new(setup.definition.max_tool_timeouts);
        let log = Arc::new(TurnApprovals::new(recorder.clone(), open.approvals));
        let approval_listener = setup
            .approvals
            .as_ref()
            .map(|approvals| approvals.listen(session_id, origin, &progress, log));
        let start = TurnStart {
            text: open.message.text,
            is_started: open.is_started,
            iterations: open.iterations,
            step: open.step,
            attempt: open.attempt,
            lost: open.lost_on_step,
        };
        Self {
            setup,
            session_id,
            history,
            steering,
            _approval_listener: approval_listener,
            progress,
            scope: Arc::new(setup.scope(origin)),
            names: ToolNames::default(),
            cancellation,
            handover,
            closing,
            recorder,
            is_marked: setup.conversations.is_durable() && origin.parent.is_none(),
            deadline,
            streak,
            context: TurnContext::default(),
            unrecorded_context: None,
            meter: TurnMeter::resumed(open.spent),
            session_spending,
            user_texts: open.user_texts,
            context_tokens: 0,
            history_budget: None,
            context_exhausted: false,
            start,
        }
    }

    /// Runs the turn to its end. Unless another process continues it, the history is one that every model
    /// server accepts afterwards: each call has a result, and the last message is from the assistant.
    pub(crate) async fn run(mut self) -> TurnOutput {
        info!(session_id = %self.session_id, agent = %self.setup.definition.name, "turn started");
        let text = self.gather_context().await;
        if !self.start.is_started {
            self.push(ChatMessage::User(text)).await;
        }
        let reason = self.run_loop().await;
        if let StopReason::ModelFailed(error) = &reason {
            info!(session_id = %self.session_id, %error, "model failed");
        }
        let history_text = reason.history_text();
        let answer = reason.into_answer();
        if answer.ended == TurnEnd::Answered {
            if let Some(log) = &self.setup.log {
                let agent = &self.setup.definition.name;
                log.record(agent, self.session_id, &self.user_texts, &history_text).await;
            }
            let text = history_text.clone();
            self.push(ChatMessage::Assistant { text, tool_calls: Vec::new() }).await;
            self.history.fit();
        }
        let usage = Some(Box::new(self.meter.finish(self.session_spending)));
        TurnOutput {
            answer: TurnAnswer { usage, ..answer },
            history_text,
            context: self.unrecorded_context,
            own_spending: self.meter.own(),
        }
    }

    /// Builds the context of the turn. Returns the message with the part of the context that is kept in the
    /// conversation.
    async fn gather_context(&mut self) -> String {
        let text = self.start.text.clone();
        let agent = &self.setup.definition.name;
        if !self.start.is_started {
            // Memories that are dropped for this message count as unread.
            self.history.make_room();
        }
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
        // The context of a turn that another process started is part of its history.
        let persistent = self.context.persistent.take().filter(|_| !self.start.is_started);
        self.unrecorded_context.clone_from(&persistent);
        with_context(&text, persistent)
    }

    async fn run_loop(&mut self) -> StopReason {
        let step = self.start.step.take();
        if self.start.lost >= MAX_LOST_PROCESSES {
            if let Some(step) = step {
                self.push_open_step(step).await;
            }
            return StopReason::ProcessesLost(self.start.lost);
        }
        if let Some(step) = step
            && let Some(reason) = self.run_step(step).await
        {
            return reason;
        }
        for iteration in self.start.iterations..self.setup.definition.max_iterations {
            if let Some(reason) = self.end_step().await {
                return reason;
            }
            if self.context_exhausted {
                return self
                    .call_model(ToolChoice::None)
                    .await
                    .map_or_else(|reason| reason, StopReason::Answered);
            }
            debug!(session_id = %self.session_id, iteration, "requesting model answer");
            let answer = match self.call_model(ToolChoice::Auto).await {
                Ok(answer) => answer,
                Err(reason) => return reason,
            };
            if answer.tool_calls.is_empty() {
                return StopReason::Answered(answer);
            }
            let step = match self.record_step(answer).await {
                Ok(step) => step,
                Err(error) => return error.into(),
            };
            if let Some(reason) = self.run_step(step).await {
                return reason;
            }
        }
        if let Some(reason) = self.end_step().await {
            return reason;
        }
        let exhausted = self.context_exhausted;
        match self.call_model(ToolChoice::None).await {
            Ok(answer) if exhausted => StopReason::Answered(answer),
            Ok(answer) => StopReason::IterationLimit(answer),
            Err(reason) => reason,
        }
    }

    /// Ends the turn between two steps if the agent shuts down. Otherwise adds the messages that the user
    /// sent meanwhile.
    async fn end_step(&mut self) -> Option<StopReason> {
        if self.closing.as_ref().is_some_and(CancellationToken::is_cancelled) {
            return Some(StopReason::PutDown);
        }
        self.take_steering().await.err().map(StopReason::from)
    }

    async fn push(&mut self, message: ChatMessage) {
        let tokens = self.setup.token_budget.count(&message).await;
        self.history.push(message, tokens);
    }

    /// Adds the messages that the user sent meanwhile.
    async fn take_steering(&mut self) -> Result<(), ConversationError> {
        for message in self.steering.take() {
            let SteeringMessage { id, text, reply_to, progress } = message;
            if self.is_marked {
                self.setup.conversations.mark(self.session_id, &id).await?;
            }
            let context = self.unrecorded_context.take();
            let steer = SteerEntry { id, reply_to, text: text.clone(), context };
            self.recorder.record(&mut ConversationEntry::Steer(steer)).await?;
            info!(session_id = %self.session_id, "turn steered");
            progress(TurnEvent::Steered);
            self.user_texts.push(text.clone());
            self.push(ChatMessage::User(text)).await;
        }
        self.history.fit();
        Ok(())
    }

    /// Records an answer with calls, before the first of them is made.
    async fn record_step(
        &mut self,
        answer: AssembledAnswer,
    ) -> Result<OpenStep, ConversationError> {
        let truncated = answer.finish_reason == FinishReason::Length;
        let call = |request: ToolCallRequest| {
            let ToolCallRequest { id, name, arguments } = request;
            CallEntry { call: ToolCallId::generate(), id, name, arguments }
        };
        let calls: Vec<_> = answer.tool_calls.into_iter().map(call).collect();
        let mut entry = ConversationEntry::Model(ModelEntry {
            text: answer.text.clone(),
            calls: calls.clone(),
            truncated,
            context: self.unrecorded_context.take(),
            cost: self.meter.take_unrecorded(),
        });
        self.recorder.record(&mut entry).await?;
        // A later loss of the process is on the calls of this step, not on those of another process.
        self.start.attempt = 1;
        Ok(OpenStep { text: answer.text, calls, truncated, results: HashMap::new() })
    }

    /// Runs the calls of a step that have no result, and adds the step to the history, with the results in
    /// the order of the calls. Returns the reason if the turn cannot continue.
    async fn run_step(&mut self, step: OpenStep) -> Option<StopReason> {
        let OpenStep { text, calls, truncated, results } = step;
        let tool_calls = calls.iter().map(CallEntry::request).collect();
        self.push(ChatMessage::Assistant { text, tool_calls }).await;
        let runner = CallRunner::new(self, truncated, &calls, &results);
        let pending =
            calls.iter().enumerate().filter(|(_, call)| !results.contains_key(&call.call));
        let pending: Vec<_> = pending.collect();
        let strategy: ExecutionStrategy = self.setup.definition.strategy;
        let steer = || if self.should_stop(&runner) { Steering::Stop } else { Steering::Continue };
        strategy.run(pending, |(at, call)| runner.call(at, call), steer).await;
        let (streak, mut texts, failure) = runner.finish();
        if let Some(error) = failure {
            return Some(error.into());
        }
        if self.handover.is_cancelled() {
            return Some(StopReason::PutDown);
        }
        if let Err(error) = self.record_skipped(&calls, &mut texts, &streak).await {
            return Some(error.into());
        }
        let mut left = calls.len();
        for (call, text) in calls.into_iter().zip(texts) {
            left -= 1;
            self.push_result(call.id, text.unwrap_or_default(), left).await;
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

    /// Records the results of calls that were not started.
    async fn record_skipped(
        &self,
        calls: &[CallEntry],
        texts: &mut [Option<String>],
        streak: &TimeoutStreak,
    ) -> Result<(), ConversationError> {
        let skipped = self.skip_text(streak);
        let mut entries = Vec::new();
        for (call, text) in calls.iter().zip(texts) {
            if text.is_none() {
                *text = Some(skipped.to_owned());
                entries.push(ConversationEntry::Result(ResultEntry {
                    call: call.call.clone(),
                    text: skipped.to_owned(),
                    executed: Executed::No,
                    error: None,
                    ms: 0,
                    child: Spending::default(),
                }));
            }
        }
        if !entries.is_empty() {
            self.recorder.record_all(&mut entries).await?;
        }
        Ok(())
    }

    /// Adds a step whose missing results will not be known.
    async fn push_open_step(&mut self, step: OpenStep) {
        for message in step.into_messages() {
            self.push(message).await;
        }
    }

    /// Adds a result to the history if it fits beside the current exchange and the `left` remaining
    /// results. Otherwise adds [`BUDGET_EXCEEDED`].
    async fn push_result(&mut self, tool_call_id: String, content: String, left: usize) {
        let mut tokens = self.setup.token_budget.count_text(&content).await;
        let mut message = ChatMessage::Tool { tool_call_id, content };
        let taken = self.history.current_exchange_tokens() + left * SHORT_TOKENS;
        let fits = |tokens| self.history_budget.is_none_or(|budget| taken + tokens <= budget);
        if tokens > SHORT_TOKENS && !fits(tokens) {
            info!(session_id = %self.session_id, tokens, "tool result exceeds context window; ending turn");
            self.context_exhausted = true;
            tokens = SHORT_TOKENS;
            if let ChatMessage::Tool { content, .. } = &mut message {
                BUDGET_EXCEEDED.clone_into(content);
            }
        }
        self.history.push(message, tokens);
    }

    /// Returns `true` if no further batch of calls may start.
    fn should_stop(&self, runner: &CallRunner<'_>) -> bool {
        self.cancellation.is_cancelled()
            || self.handover.is_cancelled()
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
