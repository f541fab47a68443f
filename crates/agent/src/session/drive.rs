//! A turn in progress, and the messages that arrive meanwhile.

use std::sync::Arc;

use futures_util::future::{BoxFuture, OptionFuture};
use rockbot_contracts::{MessageId, SessionId, trace, user::TurnOutcome};
use tokio::time::Instant;
use tracing::{Instrument, info, info_span, warn};

use super::{Session, TurnRequest};
use crate::{
    conversation::{
        AnswerEntry, CancelEntry, ConversationEntry, ConversationError, OpenTurn, PutDownEntry,
        Recorder,
    },
    event::{TurnAnswer, TurnEnd, TurnEvent},
    message::{Inbound, PendingMessage, Rejection},
    shared_progress::SharedProgress,
    telemetry,
    turn::{Turn, TurnOutput, TurnParts, TurnSetup},
};

/// What the session keeps of a turn while it runs.
struct TurnFacts {
    /// Ids of the messages that the log has for the turn.
    ids: Vec<MessageId>,
    attempt: u32,
    /// Set if nobody publishes the answer of the message.
    is_internal: bool,
}

impl Session {
    /// Runs a turn, whose message is recorded. Messages that arrive meanwhile steer it, cancel it or wait
    /// for the next turn.
    pub(super) async fn turn(&mut self, open: OpenTurn, request: TurnRequest, is_resumed: bool) {
        let TurnRequest { origin, progress, requester, done } = request;
        let is_internal = origin.reply_to.is_none();
        let facts = TurnFacts { ids: open.ids.clone(), attempt: open.attempt, is_internal };
        let shared = SharedProgress::default();
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
        let span = telemetry::invoke_agent(&requester, &self.setup.definition.name, &self.id);
        let started = Instant::now();
        self.steering.begin_turn(origin.entry.profile());
        let Some(state) = &mut self.state else { return done.answer(TurnAnswer::fenced()) };
        let cancellation = self.shutdown.cancel_turns.child_token();
        if open.is_cancelled {
            cancellation.cancel();
        }
        let handover = self.shutdown.handover.child_token();
        let recorder = state.recorder.clone();
        let turn = Turn::new(TurnParts {
            setup: &self.setup,
            session_id: &self.id,
            history: &mut state.history,
            steering: &self.steering,
            origin: &origin,
            progress,
            cancellation: cancellation.clone(),
            handover: handover.clone(),
            closing: self.setup.conversations.is_durable().then(|| self.shutdown.closing.clone()),
            recorder: recorder.clone(),
            session_spending: state.totals.spent,
            open,
        });
        let context = trace::context_of(&span);
        let trace_id = Some(trace::id_of(&context)).filter(|id| !id.is_empty());
        let log_span = info_span!("turn", trace_id);
        let mut turn = Box::pin(turn.run().instrument(log_span).instrument(span.clone()));
        let mut cancelling: Option<BoxFuture<'static, PendingMessage>> = None;
        let mut output = loop {
            tokio::select! {
                biased;
                Some(message) = OptionFuture::from(cancelling.as_mut()) => {
                    cancelling = None;
                    cancellation.cancel();
                    self.steering.cancel_all(message);
                }
                output = &mut turn => break output,
                () = origin.parent_cancelled(), if !cancellation.is_cancelled() => cancellation.cancel(),
                () = origin.parent_handed_over(), if !handover.is_cancelled() => handover.cancel(),
                Some(inbound) = self.inbox.recv() => match inbound {
                    Inbound::Message(message) if facts.ids.contains(&message.id) => {
                        if facts.ids.first() == Some(&message.id) {
                            shared.add(message.progress.clone());
                        }
                        self.steering.join(message);
                    }
                    Inbound::Message(message) if self.steering.has_joined(&message.id) => {
                        self.steering.join(message);
                    }
                    Inbound::Message(message) if state.messages.contains_key(&message.id) => {
                        if self.copies.len() < self.setup.limits.session_inbox {
                            self.copies.push_back(message);
                        } else {
                            message.answer(Rejection::Busy.into());
                        }
                    }
                    Inbound::Message(message)
                        if self.registry.is_cancelled(&self.id, message.origin.message.as_ref()) =>
                    {
                        message.answer(Rejection::Cancelled.into());
                    }
                    Inbound::Message(message) => self.steering.push(message),
                    Inbound::Cancel(message) if cancelling.is_some() || cancellation.is_cancelled() => {
                        cancellation.cancel();
                        self.steering.cancel_all(message);
                    }
                    Inbound::Cancel(message) => {
                        let is_marked = Self::is_marked(&self.setup, &message.origin);
                        let (setup, id) = (self.setup.clone(), self.id.clone());
                        let recorder = recorder.clone();
                        cancelling = Some(Box::pin(async move {
                            let recorded = record_cancel(&setup, &id, &recorder, &message, is_marked);
                            if let Err(error) = recorded.await {
                                warn!(session_id = %id, %error, "cancel not recorded");
                            }
                            message
                        }));
                    }
                    Inbound::Resume(request) => request.decline(),
                },
            }
        };
        drop(turn);
        if let Some(cancelling) = cancelling {
            let message = cancelling.await;
            self.steering.join(message);
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
        let answer = self.finish(output, &facts).await;
        let is_answered = answer.ended == TurnEnd::Answered;
        done.answer(answer);
        if is_answered && let Err(error) = self.bound_log().await {
            warn!(session_id = %self.id, %error, "checkpoint not recorded");
            self.state = None;
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
            TurnEnd::PutDown => {
                self.record_put_down().await;
                output.answer
            }
            TurnEnd::Fenced | TurnEnd::Unrecorded => output.answer,
        };
        if answer.ended != TurnEnd::Answered {
            self.state = None;
        }
        if !answer.ended.is_answer() {
            self.steering.answer_queued(&answer);
            while let Ok(inbound) = self.inbox.try_recv() {
                inbound.answer(answer.clone());
            }
        }
        log_end(&self.id, &answer);
        for message in joined {
            message.answer(answer.clone());
        }
        answer
    }

    async fn record_answer(
        &mut self,
        output: TurnOutput,
        facts: &TurnFacts,
        joined: &[PendingMessage],
    ) -> Result<TurnAnswer, ConversationError> {
        let TurnOutput { mut answer, history_text, context, .. } = output;
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
        state.answered(&facts.ids, joined, number);
        let internal = joined.iter().filter(|message| message.origin.reply_to.is_none());
        let internal = internal.map(|message| &message.id);
        let first = facts.ids.first().filter(|_| facts.is_internal);
        if self.setup.conversations.is_durable() {
            for id in first.into_iter().chain(internal) {
                if let Err(error) = self.setup.conversations.answered(&self.id, id).await {
                    warn!(session_id = %self.id, %error, "marker not removed");
                }
            }
        }
        Ok(answer)
    }

    async fn record_put_down(&self) {
        let Some(state) = &self.state else { return };
        let instance = self.setup.conversations.instance().clone();
        let mut entry = ConversationEntry::PutDown(PutDownEntry { instance });
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
    is_marked: bool,
) -> Result<(), ConversationError> {
    let (id, reply_to) = (message.id.clone(), message.origin.reply_to.clone());
    if is_marked {
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
