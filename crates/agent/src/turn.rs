//! One turn: ask the model, run its tool calls, and so on until it answers in words.

mod calls;
mod ending;

use std::sync::Arc;

use futures_util::StreamExt;
use rockbot_contracts::{SessionId, Spending};
use rockbot_llm::{
    AssembledAnswer, Assembler, ChatError, ChatEvent, ChatMessage, ChatModel, ChatRequest,
    FinishReason, ToolChoice, ToolDefinition,
};
use rockbot_tools::{
    Approver, ExecutionStrategy, LayerOptions, ModelList, ModelListLog, Steering, ToolHook,
    ToolRegistration, ToolRegistry, ToolScope, layers::pin, model_list::ModelNames,
};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};

use self::{
    calls::{Caller, PendingCall, TimeoutStreak},
    ending::Ending,
};
use crate::{
    account::{AgentAccount, TurnAccount},
    agent::AgentParts,
    approvals::{Approvals, Seat},
    behaviour::ModelBehaviour,
    context::{ContextBuilder, ContextPart, Fixed, Moment, TodaysDate, TurnContext},
    definition::AgentDefinition,
    event::{ProgressSink, TurnAnswer, TurnEvent},
    history::History,
    limits::AgentLimits,
    mcp::McpOffer,
    origin::TurnOrigin,
    session::Waiting,
};

/// Said to the model when it has used up its calls. It goes into the system prompt: many servers
/// take a system message nowhere else.
const NO_MORE_TOOLS: &str = "You have used all the tool calls of this turn, so no tool can be \
    called now. Answer with what you have, and say what is left undone.";

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
    hooks: Vec<Arc<dyn ToolHook>>,
    pub(crate) approvals: Option<Arc<Approvals>>,
    layers: LayerOptions,
    list_log: ModelListLog,
}

impl TurnSetup {
    pub(crate) fn new(parts: AgentParts) -> Self {
        let AgentParts {
            definition,
            model,
            registry: shared,
            mcp,
            hooks,
            pins,
            approvals,
            context: mut sources,
            behaviour,
            limits,
            layers,
        } = parts;
        let approver = approvals.clone().map(|one| -> Arc<dyn Approver> { one });
        let max_result_bytes = limits.result_bytes;
        let layers = LayerOptions { max_result_bytes, pins, approver: approver.clone(), ..layers };
        let registry = Arc::new(ToolRegistry::over(shared.clone()));
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
            hooks,
            approvals,
            layers,
            list_log: ModelListLog::default(),
        }
    }

    /// What a turn may use that begins for this reason.
    fn scope(&self, origin: &TurnOrigin) -> ToolScope {
        let AgentDefinition { name, tools, .. } = &self.definition;
        let scope = ToolScope::new(origin.entry.profile(), tools.clone()).of_agent(name.clone());
        match &origin.asking {
            Some(asking) => scope.on_behalf_of(&asking.scope),
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
        for tool in self.shared.all() {
            match &self.layers.pins {
                Some(pins) if scope.permits(tool.registration()) => {
                    if pin::check(pins, &tool).await.is_ok() {
                        list.add(&tool)
                    } else {
                        list.hold_back()
                    }
                }
                _ => list.add(&tool),
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
    shortened: bool,
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
        spent_before: Spending,
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
            spent_before,
            shortened: false,
        }
    }

    /// Runs the turn to its end. Whatever the end, the history is one that a model server accepts:
    /// every call has its result, and the assistant had the last word.
    pub(crate) async fn run(mut self, text: String) -> TurnAnswer {
        info!(session_id = %self.session_id, agent = %self.setup.definition.name, "a turn begins");
        let text = self.look_around(text).await;
        self.history.push(ChatMessage::User(text));
        let ending = self.converse().await;
        if let Ending::ModelFailed(error) = &ending {
            info!(session_id = %self.session_id, %error, "the model gave no answer");
        }
        let last_word = ending.last_word();
        self.history.push(ChatMessage::Assistant { text: last_word, tool_calls: Vec::new() });
        self.history.fit();
        let usage = Some(self.account.closed(self.spent_before));
        TurnAnswer { usage, ..ending.into_answer() }
    }

    /// Learns what the model is to know in this turn, and returns the message with what stays of it
    /// in the conversation.
    async fn look_around(&mut self, text: String) -> String {
        let agent = &self.setup.definition.name;
        let moment = Moment { agent, session: self.session_id, said: &text };
        self.context = self.setup.context.build(moment).await;
        match self.context.staying.take() {
            Some(staying) => format!("{text}\n\n{staying}"),
            None => text,
        }
    }

    async fn converse(&mut self) -> Ending {
        for iteration in 0..self.setup.definition.max_iterations {
            self.hear();
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
        }
        self.hear();
        match self.ask(ToolChoice::None).await {
            Ok(answer) => Ending::IterationLimit(answer),
            Err(ending) => ending,
        }
    }

    /// Takes in what the person said meanwhile.
    fn hear(&mut self) {
        for text in self.waiting.take() {
            info!(session_id = %self.session_id, "the turn is steered");
            self.history.push(ChatMessage::User(text));
        }
        self.history.fit();
    }

    /// Asks the model; once in a turn again with less to read, when it says that it was too much.
    async fn ask(&mut self, tool_choice: ToolChoice) -> Result<AssembledAnswer, Ending> {
        match self.ask_in_time(tool_choice).await {
            Err(Ending::ModelFailed(ChatError::ContextOverflow { .. }))
                if !self.shortened && self.history.shorten() =>
            {
                info!(session_id = %self.session_id, "the conversation was too long; shortened it");
                self.shortened = true;
                self.ask_in_time(tool_choice).await
            }
            asked => asked,
        }
    }

    async fn ask_in_time(&mut self, tool_choice: ToolChoice) -> Result<AssembledAnswer, Ending> {
        let answer = async {
            let (request, names) = self.request(tool_choice).await;
            Ok((self.receive(request).await?, names))
        };
        let (answer, names) = tokio::select! {
            biased;
            () = self.cancellation.cancelled() => Err(Ending::Cancelled),
            () = sleep_until(self.deadline) => Err(self.out_of_time(false)),
            answer = answer => answer.map_err(Ending::ModelFailed),
        }?;
        self.names = names;
        Ok(answer)
    }

    async fn request(&self, tool_choice: ToolChoice) -> (ChatRequest, ModelNames) {
        let definition = &self.setup.definition;
        let mut prompt = self.context.system.clone();
        if tool_choice == ToolChoice::None {
            prompt.push_str("\n\n");
            prompt.push_str(NO_MORE_TOOLS);
        }
        let mut messages = Vec::with_capacity(self.history.messages().len() + 1);
        messages.push(ChatMessage::System(prompt));
        messages.extend_from_slice(self.history.messages());
        let last_said = messages.iter_mut().rev().find_map(|message| match message {
            ChatMessage::User(text) => Some(text),
            _ => None,
        });
        if let (Some(said), Some(passing)) = (last_said, &self.context.passing) {
            said.push_str("\n\n");
            said.push_str(passing);
        }
        // Also when none may be called: servers want to know the tools of earlier calls.
        let (tools, names) = self.setup.tools(self.session_id, &self.scope).await;
        let request = ChatRequest {
            model: definition.model.clone(),
            messages,
            tools,
            tool_choice,
            max_tokens: definition.max_tokens,
            temperature: definition.temperature,
            session: self.session_id.to_string(),
        };
        (request, names)
    }

    async fn receive(&self, request: ChatRequest) -> Result<AssembledAnswer, ChatError> {
        let mut events = self.setup.model.stream(request).await?;
        let mut assembler = Assembler::new();
        while let Some(event) = events.next().await {
            let event = event?;
            let piece = if let ChatEvent::Text(text) = &event { Some(text.clone()) } else { None };
            assembler.push(event)?;
            if let Some(text) = piece.filter(|text| !text.is_empty()) {
                (self.progress)(TurnEvent::TextDelta { text });
            }
        }
        let answer = assembler.finish()?;
        self.account.model_answered(answer.usage, &self.setup.behaviour);
        Ok(answer)
    }

    /// Runs the calls of one answer and puts their results into the history, in the calls' order.
    /// An ending when the turn can't go on.
    async fn run_calls(&mut self, answer: AssembledAnswer) -> Option<Ending> {
        let is_cut = answer.finish_reason == FinishReason::Length;
        let requests = answer.tool_calls.clone();
        self.history.push(answer.into_message());
        let caller = Caller::new(self, is_cut);
        let pending = requests.iter().cloned().enumerate();
        let pending = pending.map(|(position, request)| PendingCall { position, request });
        let strategy: ExecutionStrategy = self.setup.definition.strategy;
        let steer = || if self.must_stop(&caller) { Steering::Stop } else { Steering::Continue };
        let ended = strategy.run(pending.collect(), |call| caller.call(call), steer).await;
        let streak = caller.into_streak();
        let unstarted = self.why_unstarted(&streak);
        for (request, text) in requests.into_iter().zip(ended) {
            let content = text.unwrap_or_else(|| unstarted.to_owned());
            self.history.push(ChatMessage::Tool { tool_call_id: request.id, content });
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
