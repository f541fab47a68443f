//! A turn in progress, and the messages that arrive meanwhile.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use futures_util::future::{BoxFuture, OptionFuture};
use rockbot_contracts::{MessageId, SessionId, trace, user::TurnOutcome};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, info, info_span, warn};

use super::{
    Session, SessionRegistry, TurnRequest,
    state::{SessionState, is_foreign},
};
use crate::{
    conversation::{
        AnswerEntry, CancelEntry, ConversationEntry, ConversationError, KnownMessage, LatestCancel,
        OpenTurn, Recorder, ReleasedEntry, digest, retry,
    },
    delegation::{DelegatingTurn, UnreadBy, UnreadWork},
    event::{TurnAnswer, TurnEnd, TurnEvent},
    message::{Inbound, PendingMessage, Rejection},
    origin::TurnOrigin,
    shared_progress::SharedProgress,
    steering::SteeringQueue,
    telemetry,
    turn::{Turn, TurnOutput, TurnParts, TurnSetup},
};

/// Receives the messages that arrive while a turn runs.
struct Arrivals<'a> {
    setup: &'a Arc<TurnSetup>,
    id: &'a SessionId,
    registry: &'a SessionRegistry,
    steering: &'a SteeringQueue,
    copies: &'a mut VecDeque<PendingMessage>,
    recorder: &'a Arc<Recorder>,
    recorded: &'a HashMap<MessageId, KnownMessage>,
    /// Broker user that started the conversation, if known.
    starter: Option<&'a str>,
    latest_cancel: &'a LatestCancel,
    facts: &'a TurnFacts,
    shared: SharedProgress,
    cancellation: &'a CancellationToken,
    handover: &'a CancellationToken,
    /// Another process runs the conversation.
    is_lost: bool,
    /// A cancel that is being recorded.
    cancelling: Option<BoxFuture<'static, RecordedCancel>>,
}

/// A cancel, and whether this process may still cancel the turn.
struct RecordedCancel {
    message: PendingMessage,
    is_fenced: bool,
}

impl Arrivals<'_> {
    fn receive(&mut self, inbound: Inbound) {
        match inbound {
            Inbound::Message(message) | Inbound::Cancel(message)
                if is_foreign(self.starter, &message) =>
            {
                message.answer(Rejection::OtherUser.into());
            }
            Inbound::Message(message) => self.message(message),
            Inbound::Cancel(message)
                if self.cancelling.is_some() || self.cancellation.is_cancelled() =>
            {
                self.cancel_recorded(message);
            }
            Inbound::Cancel(message) => self.cancelling = Some(self.record_cancel(message)),
            Inbound::Resume(request) => request.decline(),
            Inbound::Lost => self.lose(),
        }
    }

    /// Leaves the turn to the process that runs the conversation.
    fn lose(&mut self) {
        self.is_lost = true;
        self.handover.cancel();
    }

    fn message(&mut self, message: PendingMessage) {
        if self.has_other_text(&message) {
            // The turn does not answer it.
            message.answer(Rejection::OtherText.into());
        } else if self.facts.ids.contains(&message.id) || self.steering.has_joined(&message.id) {
            if self.facts.ids.first() == Some(&message.id) {
                self.shared.add(message.progress.clone());
            }
            self.steering.join(message);
        } else if self.recorded.contains_key(&message.id) {
            if self.copies.len() < self.setup.limits.session_inbox {
                self.copies.push_back(message);
            } else {
                // It is recorded, so this does not answer it.
                message.answer(Rejection::Busy.deferred());
            }
        } else if message.origin.work.is_none()
            && (self.latest_cancel.covers(&message.id)
                || self.registry.is_cancelled(self.id, &message.origin))
        {
            message.answer(Rejection::Cancelled.into());
        } else {
            self.steering.push(message);
        }
    }

    /// Returns `true` if an earlier message with the same id has another text.
    fn has_other_text(&self, message: &PendingMessage) -> bool {
        if message.origin.work.is_some() {
            return false;
        }
        let known = self.recorded.get(&message.id);
        known.is_some_and(|known| known.digest != digest(&message.text))
            || self.steering.has_other_text(&message.id, &message.text)
    }

    /// Cancels the turn, or leaves it to the process that continues it, whose calls must not be cancelled.
    fn cancel_or_lose(&mut self, cancel: RecordedCancel) {
        let RecordedCancel { message, is_fenced } = cancel;
        if is_fenced {
            self.cancelling = None;
            self.lose();
            message.answer(TurnAnswer::fenced());
        } else {
            self.cancel_recorded(message);
        }
    }

    /// Cancels the turn. Its answer goes to the sender of the cancel, and to all queued messages.
    fn cancel_recorded(&mut self, message: PendingMessage) {
        self.cancelling = None;
        self.cancellation.cancel();
        self.steering.cancel_all(message);
    }

    /// Records a cancel. If the store is unavailable, it takes effect too: the user wants the turn to end.
    fn record_cancel(&self, message: PendingMessage) -> BoxFuture<'static, RecordedCancel> {
        let (setup, id, recorder) = (self.setup.clone(), self.id.clone(), self.recorder.clone());
        Box::pin(async move {
            let recorded = record_cancel(&setup, &id, &recorder, &message).await;
            if let Err(error) = &recorded {
                warn!(session_id = %id, %error, "cancel not recorded");
            }
            let is_fenced = recorded.is_err_and(|error| error.is_fenced());
            RecordedCancel { message, is_fenced }
        })
    }
}

/// State of a running turn that the session keeps.
struct TurnFacts {
    /// Ids of the messages that the log has for the turn.
    ids: Vec<MessageId>,
    attempt: u32,
    /// Set if the answer of the message is returned within the process only.
    is_internal: bool,
}

impl Session {
    /// Runs a turn, whose message is recorded. Messages that arrive meanwhile steer it, cancel it or wait
    /// for the next turn.
    pub(super) async fn turn(&mut self, open: OpenTurn, request: TurnRequest, is_resumed: bool) {
        let TurnRequest { origin, progress, requester, span, done } = request;
        // The marker of delegated work is removed when its result was passed on.
        let is_internal = origin.reply_to.is_none() && origin.task().is_none();
        let facts = TurnFacts { ids: open.ids.clone(), attempt: open.attempt, is_internal };
        let shared = SharedProgress::new(self.setup.approvals.clone());
        if let Some(progress) = progress {
            shared.add(progress);
        }
        let progress = shared.sink();
        if is_resumed {
            let (attempt, on) = (open.attempt, self.setup.conversations.instance().clone());
            info!(session_id = %self.id, attempt, "turn resumed");
            metrics::counter!("rockbot_agent_turns_resumed_total").increment(1);
            progress(TurnEvent::Resumed { attempt, on });
        }
        let span = span.unwrap_or_else(|| {
            let (agent, first) = (&self.setup.definition.name, open.message.first_context());
            telemetry::resume_agent(&requester, &first, agent, &self.id)
        });
        let started = Instant::now();
        self.steering.begin_turn(origin.entry.profile());
        let unread = match self.unread_work(&origin, &open.message.id, is_resumed).await {
            Ok(unread) => unread,
            Err(error) => {
                self.state = None;
                return done.answer(super::unprocessed(&error));
            }
        };
        let Some(state) = &mut self.state else { return done.answer(TurnAnswer::fenced()) };
        let SessionState { recorder, history, totals, messages, starter, latest_cancel, .. } =
            state;
        let cancellation = self.shutdown.cancel_turns.child_token();
        let is_task_cancelled = origin.task().is_some_and(|(.., task)| task.is_cancelled());
        if open.is_cancelled || is_task_cancelled {
            cancellation.cancel();
        }
        let handover = self.shutdown.handover.child_token();
        let _registration = self.setup.delegation.as_ref().map(|delegation| {
            delegation.turn_started(&self.id, DelegatingTurn::from_turn(&open.message, &origin))
        });
        let turn = Turn::new(TurnParts {
            setup: &self.setup,
            session_id: &self.id,
            history,
            steering: &self.steering,
            origin: &origin,
            progress,
            cancellation: cancellation.clone(),
            handover: handover.clone(),
            closing: self.setup.conversations.is_durable().then(|| self.shutdown.closing.clone()),
            recorder: recorder.clone(),
            session_spending: totals.spent,
            since_user: totals.since_user,
            unread,
            open,
        });
        let mut arrivals = Arrivals {
            setup: &self.setup,
            id: &self.id,
            registry: &self.registry,
            steering: &self.steering,
            copies: &mut self.copies,
            recorder,
            recorded: messages,
            starter: starter.as_deref(),
            latest_cancel,
            facts: &facts,
            shared,
            cancellation: &cancellation,
            handover: &handover,
            is_lost: false,
            cancelling: None,
        };
        let context = trace::context_of(&span);
        let trace_id = Some(trace::id_of(&context)).filter(|id| !id.is_empty());
        let log_span = info_span!("turn", trace_id);
        let mut turn = Box::pin(turn.run().instrument(log_span).instrument(span.clone()));
        // Dropped before the turn: if this task ends here, another process makes the calls again.
        let _leave = self.setup.conversations.is_durable().then(|| handover.clone().drop_guard());
        let mut output = loop {
            tokio::select! {
                biased;
                Some(cancel) = OptionFuture::from(arrivals.cancelling.as_mut()) => {
                    arrivals.cancel_or_lose(cancel);
                }
                output = &mut turn => break output,
                () = origin.parent_cancelled(), if !cancellation.is_cancelled() => cancellation.cancel(),
                () = origin.parent_handed_over(), if !handover.is_cancelled() => handover.cancel(),
                Some(inbound) = self.inbox.recv() => arrivals.receive(inbound),
            }
        };
        drop(turn);
        let is_lost = arrivals.is_lost;
        if let Some(cancelling) = arrivals.cancelling {
            let RecordedCancel { message, .. } = cancelling.await;
            self.steering.join(message);
        }
        if is_lost && output.answer.ended == TurnEnd::Released {
            output.answer = TurnAnswer::fenced();
        }
        if output.answer.outcome == TurnOutcome::Cancelled
            && self.shutdown.cancel_turns.is_cancelled()
        {
            output.answer.text =
                "The turn was cancelled because the agent is shutting down.".to_owned();
        }
        if output.answer.ended.is_answer() {
            telemetry::turn_ended(&span, output.answer.outcome, started.elapsed());
        }
        self.setup.meter.add(output.own_spending);
        if output.answer.outcome == TurnOutcome::Cancelled
            && output.answer.ended == TurnEnd::Answered
            && !self.shutdown.cancel_turns.is_cancelled()
            && origin.task().is_none()
        {
            self.cancel_tasks(&mut output.answer).await;
        }
        let answer = self.finish(output, &facts).await;
        let is_answered = answer.ended == TurnEnd::Answered;
        drop(origin);
        done.answer(answer);
        if is_answered && let Err(error) = self.bound_log().await {
            warn!(session_id = %self.id, %error, "checkpoint not recorded");
            self.state = None;
        }
    }

    /// Returns the delegated work that needs a part of the turn's budget. A turn that this process begins
    /// has delegated none.
    async fn unread_work(
        &self,
        origin: &TurnOrigin,
        message: &MessageId,
        is_resumed: bool,
    ) -> Result<UnreadWork, ConversationError> {
        let by = match origin.fold_back() {
            Some(fold) => Some(UnreadBy::FoldBack(&fold.tasks)),
            None => is_resumed.then_some(UnreadBy::Resumed(message)),
        };
        let delegation = self.setup.delegation.as_ref().filter(|_| origin.task().is_none());
        let Some((delegation, by)) = delegation.zip(by) else { return Ok(UnreadWork::default()) };
        let timeout = self.setup.conversations.store_timeout();
        retry(timeout, || delegation.unread_work(&self.id, by)).await
    }

    /// Cancels the work that the conversation delegated, and adds its number and spending to the answer.
    async fn cancel_tasks(&self, answer: &mut TurnAnswer) {
        let Some(delegation) = &self.setup.delegation else { return };
        let cancelled = delegation.cancel_all(&self.id).await;
        if let Some(text) = cancelled.text() {
            answer.text = text;
        }
        if let Some(usage) = &mut answer.usage {
            usage.turn += cancelled.spent;
            usage.children += cancelled.spent;
            usage.session += cancelled.spent;
        }
    }

    /// Records the end of a turn, and sends its answer to the messages that joined it.
    async fn finish(&mut self, output: TurnOutput, facts: &TurnFacts) -> TurnAnswer {
        let joined = self.steering.take_joined();
        let answer = match output.answer.ended {
            TurnEnd::Answered => match self.record_answer(output, facts, &joined).await {
                Ok(answer) => answer,
                Err(error) => {
                    self.state = None;
                    error.into()
                }
            },
            TurnEnd::Released => {
                self.record_released().await;
                output.answer
            }
            TurnEnd::Fenced
            | TurnEnd::Unrecorded
            | TurnEnd::Undecided
            | TurnEnd::Suspended
            | TurnEnd::Deferred => output.answer,
        };
        let is_suspended = answer.ended == TurnEnd::Suspended;
        let answer = if is_suspended && !self.setup.conversations.is_durable() {
            // Nothing can resume it.
            answer.with_end(TurnEnd::Unrecorded)
        } else {
            answer
        };
        if answer.ended != TurnEnd::Answered {
            self.state = None;
        }
        // Messages that wait during a suspended turn are not recorded. They are tried next.
        if !answer.ended.is_answer() && !is_suspended {
            self.steering.answer_queued(&answer);
            while let Ok(inbound) = self.inbox.try_recv() {
                inbound.answer(answer.clone());
            }
        }
        log_end(&self.id, &answer);
        for message in joined {
            message.answer(answer.for_joined());
        }
        answer
    }

    async fn record_answer(
        &mut self,
        output: TurnOutput,
        facts: &TurnFacts,
        joined: &[PendingMessage],
    ) -> Result<TurnAnswer, ConversationError> {
        let TurnOutput { mut answer, history_text, context, delegations, .. } = output;
        let state = self.load().await?;
        let usage = answer.usage.as_deref().copied().unwrap_or_default();
        let mut entry = ConversationEntry::Answer(Box::new(AnswerEntry {
            history: (history_text != answer.text).then_some(history_text),
            text: std::mem::take(&mut answer.text),
            outcome: answer.outcome,
            context,
            usage,
            turns: state.totals.turns,
            attempt: facts.attempt,
            title: state.totals.title.clone(),
            created: state.totals.created,
        }));
        let number = state.recorder.record(&mut entry).await?;
        if let ConversationEntry::Answer(entry) = entry {
            answer.text = entry.text;
        }
        state.totals.spent = usage.session;
        state.totals.turn_ended(usage.turn, delegations);
        state.answered(&facts.ids, joined, number);
        let internal = joined.iter().filter(|message| message.origin.reply_to.is_none());
        let internal = internal.map(|message| &message.id);
        let first = facts.ids.first().filter(|_| facts.is_internal);
        if self.setup.conversations.is_durable() {
            for id in first.into_iter().chain(internal) {
                if let Err(error) = self.setup.conversations.unmark(&self.id, id).await {
                    warn!(session_id = %self.id, %error, "marker not removed");
                }
            }
        }
        Ok(answer)
    }

    async fn record_released(&self) {
        let Some(state) = &self.state else { return };
        let instance = self.setup.conversations.instance().clone();
        let mut entry = ConversationEntry::Released(ReleasedEntry { instance });
        if let Err(error) = state.recorder.record(&mut entry).await {
            warn!(session_id = %self.id, %error, "end of the process not recorded");
        }
    }

    /// Removes old entries of a conversation that is too long.
    async fn bound_log(&mut self) -> Result<(), ConversationError> {
        if !self.setup.conversations.is_too_long(&self.id).await? {
            return Ok(());
        }
        let setup = self.setup.clone();
        let id = self.id.clone();
        self.load().await?.checkpoint(&setup, &id).await
    }
}

/// Records a cancel before it takes effect.
pub(super) async fn record_cancel(
    setup: &TurnSetup,
    session: &SessionId,
    recorder: &Arc<Recorder>,
    message: &PendingMessage,
) -> Result<(), ConversationError> {
    let (id, reply_to) = (message.id.clone(), message.origin.reply_to.clone());
    if setup.is_marked(&message.origin) {
        setup.conversations.mark(session, &id).await?;
    }
    let mut entry = ConversationEntry::Cancel(CancelEntry { id, reply_to });
    recorder.record(&mut entry).await.map(drop)
}

fn log_end(session: &SessionId, answer: &TurnAnswer) {
    let turn = answer.usage.as_deref().copied().unwrap_or_default().turn;
    info!(
        session_id = %session,
        outcome = ?answer.outcome,
        ended = ?answer.ended,
        model_calls = turn.model_calls,
        prompt_tokens = turn.prompt_tokens,
        completion_tokens = turn.completion_tokens,
        tool_calls = turn.tool_calls,
        tool_bytes = turn.tool_bytes_out,
        cost_micros = turn.cost_micros,
        "turn finished"
    );
}
