//! One turn: ask the model, run its tool calls, and so on until it answers in words.

mod asking;
mod calls;
mod ending;
mod room;
mod trust;

use std::sync::Arc;

use crate::{
    model_list::{ModelList, ModelListLog, ModelNames},
    strategy::{ExecutionStrategy, Steering},
};
use rockbot_contracts::{SessionId, Spending};
use rockbot_llm::{
    AssembledAnswer, ChatMessage, ChatModel, FinishReason, ToolChoice, ToolDefinition,
};
use rockbot_tools::{
    Approver, LayerOptions, ToolExecutor, ToolPins, ToolRegistration, ToolRegistry, ToolScope,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};

use self::{
    calls::{Caller, PendingCall, TimeoutStreak},
    ending::Ending,
    room::{BUDGET_EXCEEDED, Room, SHORT_TOKENS},
    trust::Trust,
};
use crate::{
    account::{AgentAccount, TurnAccount},
    agent::AgentParts,
    approvals::{Approvals, Seat},
    behaviour::ModelBehaviour,
    context::{ContextBuilder, ContextPart, Fixed, Moment, TodaysDate, TurnContext},
    definition::AgentDefinition,
    event::{ProgressSink, TurnAnswer},
    history::History,
    large::LargeResults,
    limits::AgentLimits,
    mcp::McpOffer,
    memory::ConversationLog,
    origin::TurnOrigin,
    session::Waiting,
};

/// What all turns of an agent share.
pub(crate) struct TurnSetup {
    pub(crate) definition: AgentDefinition,
    pub(crate) limits: AgentLimits,
    pub(crate) spent: AgentAccount,
    model: Arc<dyn ChatModel>,
    /// All tools that can be called.
    registry: Arc<ToolRegistry>,
    /// Those among them that every conversation is offered.
    shared: Arc<ToolRegistry>,
    behaviour: ModelBehaviour,
    mcp: Option<McpOffer>,
    context: ContextBuilder,
    log: Option<Arc<ConversationLog>>,
    room: Room,
    large: LargeResults,
    pub(crate) approvals: Option<Arc<Approvals>>,
    pins: Option<Arc<ToolPins>>,
    executor: ToolExecutor,
    list_log: ModelListLog,
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
            behaviour,
            working_memory: memory,
            limits,
            layers,
        } = parts;
        let model_name = definition.model.as_deref().unwrap_or(model.name());
        let room = Room::new(model_name, &behaviour, definition.max_tokens);
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
            McpOffer::new(parts, &definition, own, shared, approver, limits.activated_tools)
        });
        sources.push(Arc::new(Fixed::new(ContextPart::Profile, definition.system_prompt.as_str())));
        if let Some(prompt) = &behaviour.prompt {
            sources.push(Arc::new(Fixed::new(ContextPart::Model, prompt.as_str())));
        }
        if sources.iter().all(|source| source.part() != ContextPart::Clock) {
            sources.push(Arc::new(TodaysDate::new(None)));
        }
        let budget = limits.context.clone();
        let context = ContextBuilder::new(sources, budget, behaviour.context_window);
        let spent = AgentAccount::default();
        Self {
            definition,
            limits,
            spent,
            model,
            registry,
            shared,
            behaviour,
            mcp,
            context,
            log,
            room,
            large: LargeResults { memory },
            approvals,
            pins,
            executor,
            list_log: ModelListLog::default(),
        }
    }

    /// What a turn may use that begins for this reason.
    fn scope(&self, origin: &TurnOrigin) -> ToolScope {
        let AgentDefinition { name, tools, .. } = &self.definition;
        let scope = ToolScope::new(origin.entry.profile(), tools.clone()).with_agent(name.clone());
        match &origin.asking {
            Some(asking) => scope.with_parent(&asking.scope),
            None => scope,
        }
    }

    /// The tools as the model sees them, looked up anew each time because handlers come and go.
    async fn tools(
        &self,
        session: &SessionId,
        scope: &ToolScope,
    ) -> (Vec<ToolDefinition>, ModelNames) {
        let mut list = ModelList::new(scope, self.limits.request_tools);
        let mut trust = Trust::by(self.pins.as_deref());
        for tool in self.shared.all() {
            if !scope.permits(tool.registration()) || trust.has(&tool).await {
                list.add(&tool);
            } else {
                list.hold_back();
            }
        }
        if let Some(mcp) = &self.mcp {
            list.extend(mcp.tools(session, scope, list.room()).await);
        }
        let (tools, names) = list.finish(self.behaviour.tool_name_bytes, &self.list_log);
        let definition = |tool: ToolRegistration| ToolDefinition {
            description: tool.model_description().to_owned(),
            name: tool.name,
            parameters: tool.parameters,
        };
        (tools.into_iter().map(definition).collect(), names)
    }

    /// A conversation ended.
    pub(crate) fn forget(&self, session: &SessionId) {
        if let Some(mcp) = &self.mcp {
            mcp.forget(session);
        }
        if let Some(approvals) = &self.approvals {
            approvals.forget(session);
        }
        self.context.forget(session);
    }
}

/// One running turn.
pub(crate) struct Turn<'a> {
    setup: &'a TurnSetup,
    session_id: &'a SessionId,
    history: &'a mut History,
    waiting: &'a Waiting,
    progress: ProgressSink,
    scope: Arc<ToolScope>,
    /// While it lives, the person can be asked.
    _seat: Option<Seat>,
    /// Of the tools that the model was told of last.
    names: ModelNames,
    cancellation: CancellationToken,
    deadline: Instant,
    streak: TimeoutStreak,
    context: TurnContext,
    account: TurnAccount,
    spent_before: Spending,
    /// What the person said in this turn.
    said: Vec<String>,
    /// Tokens of the system prompt and of what passes.
    context_tokens: usize,
    /// Tokens that the conversation may have; unknown like the model's window.
    room_for_history: Option<usize>,
    /// A result did not fit, so the turn comes to its end.
    is_out_of_room: bool,
}

impl<'a> Turn<'a> {
    pub(crate) fn new(
        setup: &'a TurnSetup,
        session_id: &'a SessionId,
        history: &'a mut History,
        waiting: &'a Waiting,
        origin: &TurnOrigin,
        progress: ProgressSink,
        cancellation: CancellationToken,
    ) -> Self {
        let deadline = Instant::now() + setup.limits.turn_timeout;
        let deadline = origin.asking.as_ref().map_or(deadline, |one| deadline.min(one.deadline));
        let streak = TimeoutStreak::new(setup.definition.max_tool_timeouts);
        Self {
            setup,
            session_id,
            history,
            waiting,
            _seat: setup.approvals.as_ref().map(|one| one.seat(session_id, origin, &progress)),
            progress,
            scope: Arc::new(setup.scope(origin)),
            names: ModelNames::default(),
            cancellation,
            deadline,
            streak,
            context: TurnContext::default(),
            account: TurnAccount::default(),
            spent_before: Spending::default(),
            said: Vec::new(),
            context_tokens: 0,
            room_for_history: None,
            is_out_of_room: false,
        }
    }

    /// In a conversation that took so much before.
    pub(crate) fn after(mut self, spent: Spending) -> Self {
        self.spent_before = spent;
        self
    }

    /// Runs the turn to its end. Whatever the end, the history is one that a model server accepts:
    /// every call has its result, and the assistant had the last word.
    pub(crate) async fn run(mut self, text: String) -> TurnAnswer {
        info!(session_id = %self.session_id, agent = %self.setup.definition.name, "a turn begins");
        self.said.push(text.clone());
        let text = self.look_around(text).await;
        self.say(ChatMessage::User(text)).await;
        let ending = self.converse().await;
        if let Ending::ModelFailed(error) = &ending {
            info!(session_id = %self.session_id, %error, "the model gave no answer");
        }
        let last_word = ending.last_word();
        if let Some(log) = &self.setup.log {
            log.keep(&self.setup.definition.name, self.session_id, &self.said, &last_word).await;
        }
        self.say(ChatMessage::Assistant { text: last_word, tool_calls: Vec::new() }).await;
        self.history.fit();
        let usage = Some(Box::new(self.account.closed(self.spent_before)));
        TurnAnswer { usage, ..ending.into_answer() }
    }

    /// Learns what the model is to know in this turn, and returns the message with what stays of it
    /// in the conversation.
    async fn look_around(&mut self, text: String) -> String {
        let agent = &self.setup.definition.name;
        let moment = Moment { agent, session: self.session_id, said: &text };
        self.context = self.setup.context.build(moment).await;
        let passing = self.context.passing.as_deref().unwrap_or_default();
        let room = &self.setup.room;
        self.context_tokens =
            room.count_text(&self.context.system).await + room.count_text(passing).await;
        match self.context.staying.take() {
            Some(staying) => format!("{text}\n\n{staying}"),
            None => text,
        }
    }

    async fn converse(&mut self) -> Ending {
        for iteration in 0..self.setup.definition.max_iterations {
            self.hear().await;
            debug!(session_id = %self.session_id, iteration, "asking the model");
            let answer = match self.ask(ToolChoice::Auto).await {
                Ok(answer) => answer,
                Err(ending) => return ending,
            };
            if answer.tool_calls.is_empty() {
                return Ending::Answered(answer);
            }
            if let Some(ending) = self.run_calls(answer).await {
                return ending;
            }
            if self.is_out_of_room {
                return self.ask(ToolChoice::None).await.map_or_else(|end| end, Ending::Answered);
            }
        }
        self.hear().await;
        match self.ask(ToolChoice::None).await {
            Ok(answer) => Ending::IterationLimit(answer),
            Err(ending) => ending,
        }
    }

    async fn say(&mut self, message: ChatMessage) {
        let tokens = self.setup.room.count(&message).await;
        self.history.push(message, tokens);
    }

    /// Takes in what the person said meanwhile.
    async fn hear(&mut self) {
        for text in self.waiting.take() {
            info!(session_id = %self.session_id, "the turn is steered");
            self.said.push(text.clone());
            self.say(ChatMessage::User(text)).await;
        }
        self.history.fit();
    }

    /// Runs the calls of one answer and puts their results into the history, in the calls' order.
    /// An ending when the turn can't go on.
    async fn run_calls(&mut self, answer: AssembledAnswer) -> Option<Ending> {
        let is_cut = answer.finish_reason == FinishReason::Length;
        let requests = answer.tool_calls.clone();
        self.say(answer.into_message()).await;
        let caller = Caller::new(self, is_cut);
        let pending = requests.iter().cloned().enumerate();
        let pending = pending.map(|(position, request)| PendingCall { position, request });
        let strategy: ExecutionStrategy = self.setup.definition.strategy;
        let steer = || if self.must_stop(&caller) { Steering::Stop } else { Steering::Continue };
        let ended = strategy.run(pending.collect(), |call| caller.call(call), steer).await;
        let streak = caller.into_streak();
        let unstarted = self.why_unstarted(&streak);
        let mut left = requests.len();
        for (request, text) in requests.into_iter().zip(ended) {
            left -= 1;
            let text = text.unwrap_or_else(|| unstarted.to_owned());
            self.read_result(request.id, text, left).await;
        }
        self.streak = streak;
        if self.cancellation.is_cancelled() {
            return Some(Ending::Cancelled);
        }
        if Instant::now() >= self.deadline {
            return Some(self.out_of_time(true));
        }
        self.streak.is_over().then(|| Ending::ToolTimeouts(self.streak.timed_out()))
    }

    /// Puts a result into the history, if the model can read it beside the running exchange and the
    /// results that are `left`; else only that it was too much.
    async fn read_result(&mut self, tool_call_id: String, content: String, left: usize) {
        let mut tokens = self.setup.room.count_text(&content).await;
        let mut message = ChatMessage::Tool { tool_call_id, content };
        let taken = self.history.running_tokens() + left * SHORT_TOKENS;
        let fits = |tokens| self.room_for_history.is_none_or(|room| taken + tokens <= room);
        if tokens > SHORT_TOKENS && !fits(tokens) {
            info!(session_id = %self.session_id, tokens, "a tool result does not fit; the turn ends");
            self.is_out_of_room = true;
            tokens = SHORT_TOKENS;
            if let ChatMessage::Tool { content, .. } = &mut message {
                BUDGET_EXCEEDED.clone_into(content);
            }
        }
        self.history.push(message, tokens);
    }

    /// Asked between two batches of calls.
    fn must_stop(&self, caller: &Caller<'_>) -> bool {
        self.cancellation.is_cancelled()
            || self.waiting.any()
            || Instant::now() >= self.deadline
            || caller.timed_out_too_often()
    }

    fn why_unstarted(&self, streak: &TimeoutStreak) -> &'static str {
        if self.cancellation.is_cancelled() {
            "(tool failed: cancelled)"
        } else if streak.is_over() {
            "(tool skipped: too many tools timed out before it)"
        } else if Instant::now() >= self.deadline {
            "(tool skipped: the turn ran out of time)"
        } else {
            "(tool skipped: the user said something new)"
        }
    }

    fn out_of_time(&self, in_tools: bool) -> Ending {
        Ending::OutOfTime { after: self.setup.limits.turn_timeout, in_tools }
    }
}
