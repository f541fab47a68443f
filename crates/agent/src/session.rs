//! A conversation: a task that owns its state and runs the turns one after the other.

mod drive;
mod registry;
mod resume;
mod state;

use std::{collections::VecDeque, sync::Arc};

use rockbot_contracts::{SessionId, TraceContext, trace, user::TurnOutcome};
use rockbot_tools::EntryPoint;
use tokio::{
    sync::{mpsc, oneshot},
    time::sleep,
};
use tokio_util::sync::CancellationToken;
use tracing::{Span, info, warn};

pub(crate) use self::registry::SessionRegistry;
use self::state::{SessionState, Standing, is_foreign};
use crate::{
    conversation::{AnswerEntry, ConversationError, MessageEntry, OpenTurn, retry, unix_ms},
    event::{ProgressSink, TurnAnswer, TurnEnd},
    message::{Inbound, PendingMessage, RecordedMessage, Rejection},
    origin::{DelegatedWork, TurnOrigin},
    steering::SteeringQueue,
    telemetry,
    turn::TurnSetup,
};

/// Attempts to continue a conversation that other processes continue too.
const LOAD_ATTEMPTS: usize = 4;

/// Signals that end the conversations of an agent.
#[derive(Debug, Clone, Default)]
pub(crate) struct ShutdownSignal {
    /// End after the running turn and the queued messages. Turns of stored conversations are released
    /// after their step.
    pub(crate) closing: CancellationToken,
    /// Cancel the running turn too.
    pub(crate) cancel_turns: CancellationToken,
    /// Leave the running turn of a stored conversation without waiting for its step.
    pub(crate) handover: CancellationToken,
}

/// The task of one conversation.
pub(crate) struct Session {
    id: SessionId,
    inbox: mpsc::Receiver<Inbound>,
    setup: Arc<TurnSetup>,
    registry: Arc<SessionRegistry>,
    shutdown: ShutdownSignal,
    steering: SteeringQueue,
    /// Copies of answered messages that arrived during a turn.
    copies: VecDeque<PendingMessage>,
    /// `None` until it is read, and after another process continued the conversation.
    state: Option<SessionState>,
}

/// The requester of a turn.
struct TurnRequest {
    origin: TurnOrigin,
    progress: Option<ProgressSink>,
    /// Trace context of the sender, which the turn continues.
    requester: TraceContext,
    /// The span of the turn, if this process starts it.
    span: Option<Span>,
    done: Done,
}

/// Receiver of the answer of a turn, besides the messages that joined it.
enum Done {
    Message(oneshot::Sender<TurnAnswer>),
    Resume(RecordedMessage, oneshot::Sender<Option<(RecordedMessage, TurnAnswer)>>),
    Nowhere,
}

impl Done {
    fn answer(self, answer: TurnAnswer) {
        // A receiver that was dropped is ignored.
        match self {
            Self::Message(sender) => drop(sender.send(answer)),
            Self::Resume(message, sender) => drop(sender.send(Some((message, answer)))),
            Self::Nowhere => {}
        }
    }
}

impl Session {
    pub(crate) fn new(
        id: SessionId,
        inbox: mpsc::Receiver<Inbound>,
        setup: Arc<TurnSetup>,
        registry: Arc<SessionRegistry>,
        shutdown: ShutdownSignal,
    ) -> Self {
        let steering = SteeringQueue::new(setup.limits.session_inbox);
        let copies = VecDeque::new();
        Self { id, inbox, setup, registry, shutdown, steering, copies, state: None }
    }

    /// Runs turns until the conversation is idle for too long or the agent shuts down.
    pub(crate) async fn run(mut self) {
        // A conversation in memory is lost with its task, so only its idle time ends it.
        let is_durable = self.setup.conversations.is_durable();
        while let Some(next) = self.next().await {
            let is_single = match next {
                Inbound::Message(message) => {
                    let TurnOrigin { parent, entry, .. } = &message.origin;
                    // A conversation that a call or a fire started has a single turn.
                    let is_single = parent.is_some() && *entry == EntryPoint::Subagent
                        || is_durable && *entry == EntryPoint::ScheduledTask;
                    self.message(message).await;
                    is_single
                }
                Inbound::Cancel(message) => !self.cancel(message).await && is_durable,
                Inbound::Resume(request) => !self.resume(request).await && is_durable,
                Inbound::Lost => {
                    self.state = None;
                    is_durable
                }
            };
            if is_single && self.steering.is_empty() && self.try_remove() {
                break;
            }
        }
        if !is_durable && let Err(error) = self.setup.conversations.delete(&self.id).await {
            warn!(session_id = %self.id, %error, "conversation not deleted");
        }
    }

    /// Waits for the next input. Returns `None` when the conversation is removed from the registry.
    async fn next(&mut self) -> Option<Inbound> {
        if self.is_closing_durably() {
            let answer = TurnAnswer::released();
            self.steering.answer_queued(&answer);
            self.copies.drain(..).for_each(|message| message.answer(answer.clone()));
        }
        if let Some(message) = self.copies.pop_front().or_else(|| self.steering.pop_next()) {
            return Some(Inbound::Message(message));
        }
        self.registry.set_idle(&self.id, &self.inbox);
        loop {
            tokio::select! {
                biased;
                inbound = self.inbox.recv() => {
                    let inbound = inbound?;
                    if !self.is_closing_durably() {
                        return Some(inbound);
                    }
                    inbound.answer(TurnAnswer::released());
                }
                () = self.shutdown.closing.cancelled() => {
                    if self.try_remove() {
                        return None;
                    }
                }
                () = sleep(self.setup.limits.session_idle) => {
                    if self.try_remove() {
                        info!(session_id = %self.id, "idle conversation dropped");
                        return None;
                    }
                }
            }
        }
    }

    fn is_closing_durably(&self) -> bool {
        self.shutdown.closing.is_cancelled() && self.setup.conversations.is_durable()
    }

    fn try_remove(&self) -> bool {
        self.registry.try_remove(&self.id, &self.inbox)
    }

    /// Answers a message: with the recorded answer, or with that of a turn.
    async fn message(&mut self, mut message: PendingMessage) {
        for _ in 0..LOAD_ATTEMPTS {
            match self.try_message(message).await {
                Ok(()) => return,
                // Another process continued the conversation meanwhile.
                Err(again) => (self.state, message) = (None, *again),
            }
        }
        message.answer(TurnAnswer::fenced());
    }

    /// Answers a message. Returns it if the conversation must be read again.
    async fn try_message(&mut self, first: PendingMessage) -> Result<(), Box<PendingMessage>> {
        let is_cached = self.state.is_some();
        let state = match self.load().await {
            Ok(state) => state,
            Err(error) => return self.reject(first, &error, unprocessed),
        };
        if is_foreign(state.starter.as_deref(), &first) {
            first.answer(Rejection::OtherUser.into());
            return Ok(());
        }
        let (standing, is_open) = (state.standing(&first), state.open.is_some());
        // Delegated work has cancels of its own.
        let is_cancelled = first.origin.work.is_none()
            && (standing == Standing::Cancelled
                || self.registry.is_cancelled(&self.id, &first.origin));
        match standing {
            Standing::Answered(number) => {
                let answer = self.recorded_answer(number).await;
                first.answer(answer.unwrap_or_else(|error| unread_answer(&error)));
                return Ok(());
            }
            Standing::OtherText => first.answer(Rejection::OtherText.into()),
            Standing::New | Standing::Cancelled if is_cancelled => {
                if is_cached {
                    // Another process may have answered it meanwhile.
                    return Err(Box::new(first));
                }
                first.answer(Rejection::Cancelled.into());
            }
            _ if is_open => return self.continue_with(first).await,
            Standing::Open | Standing::New | Standing::Cancelled => {
                let span = self.turn_span(&first.requester);
                match self.begin(&first, &span).await {
                    Ok(open) => {
                        let PendingMessage { origin, progress, requester, answer, .. } = first;
                        let (progress, done) = (Some(progress), Done::Message(answer));
                        let span = Some(span);
                        let request = TurnRequest { origin, progress, requester, span, done };
                        self.turn(open, request, false).await;
                    }
                    Err(error) => {
                        trace::fail(&span, "not_recorded");
                        return self.reject(first, &error, not_begun);
                    }
                }
            }
        }
        Ok(())
    }

    /// Continues the open turn for its own message, or before another one.
    async fn continue_with(&mut self, first: PendingMessage) -> Result<(), Box<PendingMessage>> {
        let open = match self.take_over().await {
            Ok(open) => open,
            Err(error) => return self.reject(first, &error, unprocessed),
        };
        let Some(open) = open else { return Err(Box::new(first)) };
        let request = if first.id == open.message.id {
            let PendingMessage { origin, progress, requester, answer, .. } = first;
            let origin = TurnOrigin { entry: open.message.entry, ..origin };
            let (progress, done) = (Some(progress), Done::Message(answer));
            TurnRequest { origin, progress, requester, span: None, done }
        } else if open.message.entry.is_handed_over() {
            // Only the calling turn knows which tools the turn may use.
            first.answer(Rejection::Busy.into());
            self.state = None;
            return Ok(());
        } else {
            if open.ids.contains(&first.id) {
                self.steering.join(first);
            } else {
                self.steering.push(first);
            }
            TurnRequest::unattended(&self.id, &open.message)
        };
        self.turn(open, request, true).await;
        Ok(())
    }

    /// Returns the state, which is read if needed.
    async fn load(&mut self) -> Result<&mut SessionState, ConversationError> {
        let state = match self.state.take() {
            Some(state) => state,
            None => {
                let timeout = self.setup.conversations.store_timeout();
                retry(timeout, || SessionState::load(&self.setup, &self.id)).await?
            }
        };
        Ok(self.state.insert(state))
    }

    /// Records that this process continues the open turn.
    async fn take_over(&mut self) -> Result<Option<OpenTurn>, ConversationError> {
        let Some(state) = &mut self.state else { return Ok(None) };
        state.take_over(&self.setup).await
    }

    /// Returns the span of a turn that this process starts.
    fn turn_span(&self, requester: &TraceContext) -> Span {
        telemetry::invoke_agent(requester, &self.setup.definition.name, &self.id)
    }

    /// Records the message that starts a turn.
    async fn begin(
        &mut self,
        first: &PendingMessage,
        span: &Span,
    ) -> Result<OpenTurn, ConversationError> {
        let PendingMessage { id, text, media, origin, requester, .. } = first;
        if self.setup.is_marked(origin) {
            self.setup.conversations.mark(&self.id, id).await?;
        }
        let message = MessageEntry {
            id: id.clone(),
            sender: origin.sender.as_deref().map(ToOwned::to_owned),
            reply_to: origin.reply_to.clone(),
            text: text.clone(),
            media: media.clone(),
            entry: origin.entry,
            deadline: origin.task().is_none().then(|| {
                let limit = self.setup.limits.turn_timeout.as_millis();
                unix_ms().saturating_add(u64::try_from(limit).unwrap_or(u64::MAX))
            }),
            trace: requester.parent.as_deref().map(ToOwned::to_owned),
            span: trace::context_of(span).parent.as_deref().map(ToOwned::to_owned),
            task: origin.task().map(|(entry, ..)| Box::new(entry.clone())),
            task_results: origin.fold_back().map(|entry| Box::new(entry.clone())),
        };
        self.load().await?.begin_turn(message).await
    }

    async fn record_cancel(&mut self, message: &PendingMessage) -> Result<(), ConversationError> {
        let recorder = self.load().await?.recorder.clone();
        drive::record_cancel(&self.setup, &self.id, &recorder, message).await
    }

    async fn recorded_answer(&self, number: u64) -> Result<TurnAnswer, ConversationError> {
        self.setup.conversations.answer(&self.id, number).await.map(answer_of)
    }

    /// Answers a message that was not processed, or returns it if the conversation must be read again.
    fn reject(
        &mut self,
        message: PendingMessage,
        error: &ConversationError,
        answer: fn(&ConversationError) -> TurnAnswer,
    ) -> Result<(), Box<PendingMessage>> {
        self.state = None;
        if error.is_stale() {
            return Err(Box::new(message));
        }
        warn!(session_id = %self.id, %error, "message not processed");
        message.answer(answer(error));
        Ok(())
    }
}

impl TurnRequest {
    /// Creates the request for a turn whose sender does not wait in this process.
    fn unattended(id: &SessionId, message: &MessageEntry) -> Self {
        let origin = TurnOrigin {
            message: Some(message.id.clone()),
            reply_to: message.reply_to.clone(),
            sender: message.sender.as_deref().map(Arc::from),
            work: message
                .task_results
                .as_deref()
                .map(|results| Arc::new(DelegatedWork::results(id, results))),
            ..TurnOrigin::new(message.entry)
        };
        let requester = message.trace_context();
        Self { origin, progress: None, requester, span: None, done: Done::Nowhere }
    }
}

/// Answers a message whose conversation cannot be read or continued. An earlier process may have recorded
/// it, so it stays marked.
fn unprocessed(error: &ConversationError) -> TurnAnswer {
    if error.is_fenced() {
        return TurnAnswer::fenced();
    }
    let text = format!(
        "The message was not processed: {error}. If it was recorded before, its turn continues when the \
         conversation can be read and recorded again."
    );
    let ended = if error.is_temporary() { TurnEnd::Undecided } else { TurnEnd::Unrecorded };
    TurnAnswer::new(failed_outcome(error), text).with_end(ended)
}

/// Answers a message whose recorded answer cannot be read. It stays marked.
fn unread_answer(error: &ConversationError) -> TurnAnswer {
    let text = format!(
        "The message was answered, but its answer cannot be read: {error}. Ask for it again later."
    );
    let ended = if error.is_temporary() { TurnEnd::Undecided } else { TurnEnd::Unrecorded };
    TurnAnswer::new(failed_outcome(error), text).with_end(ended)
}

/// Answers a message whose turn was not begun. The log was read and lacks the message.
fn not_begun(error: &ConversationError) -> TurnAnswer {
    if !matches!(error, ConversationError::Store(_)) {
        return TurnAnswer::new(failed_outcome(error), format!("Nothing was done: {error}."));
    }
    // The store may have recorded it without a confirmation.
    let text = format!(
        "The message could not be recorded: {error}. If the store has recorded it without confirming it, \
         its turn runs when the store is available again. Check the conversation before you send it again."
    );
    let ended = if error.is_unconfirmed() { TurnEnd::Undecided } else { TurnEnd::Unrecorded };
    TurnAnswer::new(failed_outcome(error), text).with_end(ended)
}

fn failed_outcome(error: &ConversationError) -> TurnOutcome {
    if error.is_unreadable() { TurnOutcome::ModelFailed } else { TurnOutcome::Overloaded }
}

fn answer_of(entry: AnswerEntry) -> TurnAnswer {
    let AnswerEntry { text, outcome, usage, .. } = entry;
    TurnAnswer { usage: Some(Box::new(usage)), ..TurnAnswer::new(outcome, text) }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.setup.forget(&self.id);
    }
}
