//! A turn: request an answer of the model, run its tool calls, and repeat until it answers with text.

mod batch;
mod calls;
mod ended_calls;
mod handoff;
mod internal_calls;
mod model_request;
mod narrow_window;
mod pin_check;
mod resumed_step;
mod setup;
mod step;
mod stop_reason;
mod token_budget;
mod wisps;

use std::{collections::HashSet, sync::Arc, time::Duration};

use rockbot_contracts::{MessageId, SessionId, Spending, ToolCallId};
use rockbot_llm::{ChatMessage, ToolChoice};
use rockbot_tools::{Budget, BudgetError, BudgetGrant, ToolScope};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};

pub(crate) use self::setup::{TurnSetup, UsableTool};
use self::{calls::TimeoutStreak, internal_calls::InternalState, stop_reason::StopReason};
use crate::{
    approvals::ListenerGuard,
    context::{ContextRequest, TurnContext},
    conversation::{
        BudgetUse, ConversationEntry, ConversationError, OpenStep, OpenTurn, Recorder, SteerEntry,
        TurnApprovals, unix_ms, with_context,
    },
    delegation::UnreadWork,
    event::{ProgressSink, TurnAnswer, TurnEnd, TurnEvent},
    history::History,
    message_media::media_message,
    metering::TurnMeter,
    origin::{ParentTurn, TurnOrigin},
    steering::{SteeringMessage, SteeringQueue},
    tool_list::ToolNames,
};

/// Processes that may be lost after they acted on one step; the turn then ends as failed.
const MAX_LOST_PROCESSES: u32 = 3;

/// A running turn.
pub(crate) struct Turn<'a> {
    setup: &'a TurnSetup,
    session_id: &'a SessionId,
    history: &'a mut History,
    steering: &'a SteeringQueue,
    origin: &'a TurnOrigin,
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
    time_limit: Duration,
    streak: TimeoutStreak,
    context: TurnContext,
    /// Context that is part of the message, until it is recorded.
    unrecorded_context: Option<String>,
    meter: TurnMeter,
    session_spending: Spending,
    /// Work that earlier turns on the same message delegated.
    delegations_before: u64,
    /// Texts that the user sent in this turn.
    user_texts: Vec<String>,
    /// Tokens of the system prompt and the transient context.
    context_tokens: usize,
    /// Tokens available for the conversation. `None` if the context window is unknown.
    history_budget: Option<usize>,
    /// A tool result did not fit. The next answer must be final.
    context_exhausted: bool,
    /// The budget is used up. The next answer must be final.
    budget_exceeded: bool,
    internal: InternalState,
    /// Number of requests with tools.
    max_iterations: u32,
    start: TurnStart,
}

/// The point at which a turn begins in this process.
struct TurnStart {
    /// Id of the message.
    id: MessageId,
    text: String,
    /// Images and recordings of the message, in base64.
    media: Vec<String>,
    /// The message is part of the history.
    is_started: bool,
    iterations: u32,
    step: Option<OpenStep>,
    /// Number of this process among those that ran the turn, from 1.
    attempt: u32,
    /// Another process ran the turn before.
    is_resumed: bool,
    /// This process started the turn, or recorded that it acts on it.
    has_acted: bool,
    /// Processes that were lost on the same step.
    lost: u32,
    /// Calls of the step that no process has run, because an approval was missing.
    unapproved: HashSet<ToolCallId>,
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
    /// Use of the budget since the last message of a user.
    pub(crate) since_user: BudgetUse,
    /// Work that needs a part of the budget.
    pub(crate) unread: UnreadWork,
    /// The turn, folded from its log.
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
    /// Work that the turn delegated.
    pub(crate) delegations: u64,
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
            since_user,
            unread,
            open,
        } = parts;
        let (time_limit, rest) = time_limit(setup, origin, &open);
        let deadline = Instant::now() + rest;
        let deadline =
            origin.parent.as_ref().map_or(deadline, |parent| deadline.min(parent.deadline));
        let budget = budget(setup, origin, since_user, &unread);
        let streak = TimeoutStreak::new(setup.definition.max_tool_timeouts);
        let unapproved = open.unapproved_calls();
        let log = Arc::new(TurnApprovals::new(recorder.clone(), open.approvals));
        let approval_listener = setup
            .approvals
            .as_ref()
            .map(|approvals| approvals.listen(session_id, origin, &progress, log));
        let start = TurnStart {
            id: open.message.id,
            text: open.message.text,
            media: open.message.media,
            is_started: open.is_started,
            iterations: open.iterations,
            step: open.step,
            attempt: open.attempt,
            is_resumed: open.attempt > 1,
            has_acted: open.attempt == 1,
            lost: open.lost_on_step,
            unapproved,
        };
        Self {
            setup,
            session_id,
            history,
            steering,
            origin,
            _approval_listener: approval_listener,
            progress,
            scope: Arc::new(setup.scope(origin)),
            names: ToolNames::default(),
            cancellation,
            handover,
            closing,
            recorder,
            is_marked: setup.is_marked(origin),
            deadline,
            time_limit,
            streak,
            context: TurnContext::default(),
            unrecorded_context: None,
            meter: TurnMeter::new(budget, open.spent, open.delegations),
            session_spending,
            delegations_before: origin.fold_back().map_or(0, |_| since_user.delegations),
            user_texts: open.user_texts,
            context_tokens: 0,
            history_budget: None,
            context_exhausted: false,
            budget_exceeded: false,
            internal: InternalState::default(),
            max_iterations: max_iterations(setup, origin),
            start,
        }
    }

    /// Returns this turn as the parent of one that it starts.
    fn as_parent(&self, budget: Arc<BudgetGrant>, deadline: Instant) -> ParentTurn {
        ParentTurn {
            session: self.session_id.clone(),
            scope: self.scope.clone(),
            budget,
            deadline,
            cancellation: self.cancellation.child_token(),
            handover: self.handover.clone(),
        }
    }

    /// Runs the turn to its end. Unless another process continues it, the history is one that every model
    /// server accepts afterwards: each call has a result, and the last message is from the assistant.
    pub(crate) async fn run(mut self) -> TurnOutput {
        info!(session_id = %self.session_id, agent = %self.setup.definition.name, "turn started");
        let text = self.gather_context().await;
        if !self.start.is_started {
            self.push(ChatMessage::User(text)).await;
            let media = std::mem::take(&mut self.start.media);
            self.push_media(&media).await;
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
            delegations: self.meter.budget().delegations().saturating_sub(self.delegations_before),
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
            id: &self.start.id,
            message: &text,
            entry: self.origin.entry,
            user: self.origin.sender.as_deref(),
            prompt: self.origin.step.as_ref().and_then(|step| step.prompt.as_deref()),
            is_continued: self.start.is_started,
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
            if let Some(step) = step
                && let Err(error) = self.close_open_step(step).await
            {
                return error.into();
            }
            return StopReason::ProcessesLost(self.start.lost);
        }
        if let Some(step) = step {
            self.find_tools(&step).await;
            if let Err(error) = self.record_acts().await {
                return error.into();
            }
            if let Some(reason) = self.run_step(step).await {
                return reason;
            }
        }
        if self.start.is_resumed {
            self.find_called_tools().await;
            if let Err(error) = self.record_acts().await {
                return error.into();
            }
        }
        for iteration in self.start.iterations..self.max_iterations {
            if let Some(reason) = self.end_step().await {
                return reason;
            }
            if self.context_exhausted || self.internal.must_answer {
                let answer = self.request_final_answer().await;
                return answer.map_or_else(|reason| reason, StopReason::Answered);
            }
            debug!(session_id = %self.session_id, iteration, "requesting model answer");
            let answer = match self.call_model(ToolChoice::Auto).await {
                Ok(answer) => answer,
                Err(StopReason::BudgetExceeded(error, None)) => {
                    return self.answer_without_budget(error).await;
                }
                Err(reason) => return reason,
            };
            if answer.tool_calls.is_empty() {
                return StopReason::Answered(answer);
            }
            let step = match self.record_step(answer).await {
                Ok(step) => step,
                Err(reason) => return reason,
            };
            if let Some(reason) = self.run_step(step).await {
                return reason;
            }
        }
        if let Some(reason) = self.end_step().await {
            return reason;
        }
        let exhausted = self.context_exhausted;
        match self.request_final_answer().await {
            Ok(answer) if exhausted => StopReason::Answered(answer),
            Ok(answer) => StopReason::IterationLimit(answer),
            Err(reason) => reason,
        }
    }

    /// Requests the answer with the model call that is held back.
    async fn answer_without_budget(&mut self, error: BudgetError) -> StopReason {
        info!(session_id = %self.session_id, %error, "budget used up; requesting the answer");
        self.budget_exceeded = true;
        match self.request_final_answer().await {
            Ok(answer) => StopReason::BudgetExceeded(error, Some(answer)),
            Err(reason) => reason,
        }
    }

    /// Ends the turn between two steps if the agent shuts down. Otherwise adds the messages that the user
    /// sent meanwhile.
    async fn end_step(&mut self) -> Option<StopReason> {
        if self.closing.as_ref().is_some_and(CancellationToken::is_cancelled) {
            return Some(StopReason::Released);
        }
        self.take_steering().await.err().map(StopReason::from)
    }

    async fn push(&mut self, message: ChatMessage) {
        let tokens = self.setup.token_budget.count(&message).await;
        self.history.push(message, tokens);
    }

    /// Adds the images and recordings of the user message before.
    async fn push_media(&mut self, media: &[String]) {
        if let Some(message) = media_message(media) {
            self.push(message).await;
        }
    }

    /// Adds the messages that the user sent meanwhile.
    async fn take_steering(&mut self) -> Result<(), ConversationError> {
        for message in self.steering.take() {
            let SteeringMessage { id, text, media, reply_to, progress } = message;
            if self.is_marked {
                self.setup.conversations.mark(self.session_id, &id).await?;
            }
            let context = self.unrecorded_context.take();
            let (text_copy, media_copy) = (text.clone(), media.clone());
            let steer = SteerEntry { id, reply_to, text: text_copy, media: media_copy, context };
            self.recorder.record(&mut ConversationEntry::Steer(steer)).await?;
            info!(session_id = %self.session_id, "turn steered");
            progress(TurnEvent::Steered);
            self.user_texts.push(text.clone());
            self.push(ChatMessage::User(text)).await;
            self.push_media(&media).await;
        }
        self.history.fit();
        Ok(())
    }

    fn timed_out(&self, in_tools: bool) -> StopReason {
        StopReason::TimedOut { after: self.time_limit, in_tools }
    }
}

/// Returns the time limit of a turn without a parent, and the rest of it that earlier processes left. Delegated
/// work has its own.
fn time_limit(setup: &TurnSetup, origin: &TurnOrigin, open: &OpenTurn) -> (Duration, Duration) {
    match origin.task() {
        Some((entry, ..)) => {
            let rest = Duration::from_millis(entry.deadline.saturating_sub(unix_ms()));
            (rest, rest)
        }
        None => open.time_limit(setup.limits.turn_timeout),
    }
}

fn max_iterations(setup: &TurnSetup, origin: &TurnOrigin) -> u32 {
    let most = setup.definition.max_iterations;
    origin.step.as_ref().map_or(most, |step| most.min(step.iterations))
}

/// Returns the budget of a turn. Turns on results of delegated work have the rest of the budget of the
/// last message.
fn budget(
    setup: &TurnSetup,
    origin: &TurnOrigin,
    since_user: BudgetUse,
    unread: &UnreadWork,
) -> Budget {
    if let Some(parent) = &origin.parent {
        return parent.budget.budget().clone();
    }
    if let Some((_, budget, _)) = origin.task() {
        return budget.clone();
    }
    let budget = Budget::new(setup.limits.budget);
    if origin.fold_back().is_some() {
        budget.restore(since_user.spent, since_user.delegations);
    }
    unread.reserve(&budget);
    budget
}
