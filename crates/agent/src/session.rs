//! A conversation: a task that owns the history and runs the turns one after the other.

mod registry;

use std::sync::Arc;

use rockbot_contracts::{SessionId, Spending, TurnUsage, trace, user::TurnOutcome};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, info, info_span};

pub(crate) use self::registry::SessionRegistry;
use crate::{
    history::History,
    message::{Inbound, PendingMessage, Rejection},
    steering::SteeringQueue,
    telemetry,
    turn::{Turn, TurnSetup},
};

/// Signals that end the conversations of an agent.
#[derive(Debug, Clone, Default)]
pub(crate) struct ShutdownSignal {
    /// End after the running turn and the queued messages.
    pub(crate) closing: CancellationToken,
    /// Cancel the running turn too.
    pub(crate) cancel_turns: CancellationToken,
}

/// The task of one conversation.
pub(crate) struct Session {
    id: SessionId,
    inbox: mpsc::Receiver<Inbound>,
    setup: Arc<TurnSetup>,
    registry: Arc<SessionRegistry>,
    shutdown: ShutdownSignal,
    history: History,
    steering: SteeringQueue,
    spent: Spending,
}

impl Session {
    pub(crate) fn new(
        id: SessionId,
        inbox: mpsc::Receiver<Inbound>,
        setup: Arc<TurnSetup>,
        registry: Arc<SessionRegistry>,
        shutdown: ShutdownSignal,
    ) -> Self {
        let history = History::new(setup.limits.history_messages, setup.limits.history_bytes);
        let steering = SteeringQueue::new(setup.limits.session_inbox);
        Self { id, inbox, setup, registry, shutdown, history, steering, spent: Spending::default() }
    }

    /// Runs turns until the conversation is idle for too long or the agent shuts down.
    pub(crate) async fn run(mut self) {
        while let Some(first) = self.next().await {
            let has_parent = first.origin.parent.is_some();
            self.turn(first).await;
            // A conversation that another agent started has a single turn.
            if has_parent && self.registry.try_remove(&self.id, &self.inbox) {
                return;
            }
        }
    }

    /// Waits for the message that starts the next turn.
    async fn next(&mut self) -> Option<PendingMessage> {
        if let Some(message) = self.steering.pop_next() {
            return Some(message);
        }
        loop {
            tokio::select! {
                biased;
                inbound = self.inbox.recv() => match inbound? {
                    Inbound::Message(message) => return Some(message),
                    Inbound::Cancel(message) => message.answer(Rejection::NoRunningTurn.into()),
                },
                () = self.shutdown.closing.cancelled() => {
                    if self.registry.try_remove(&self.id, &self.inbox) {
                        return None;
                    }
                }
                () = sleep(self.setup.limits.session_idle) => {
                    if self.registry.try_remove(&self.id, &self.inbox) {
                        info!(session_id = %self.id, "idle conversation dropped");
                        return None;
                    }
                }
            }
        }
    }

    /// Runs one turn. Messages that arrive meanwhile steer it, cancel it or wait for the next turn.
    async fn turn(&mut self, first: PendingMessage) {
        let cancellation = self.shutdown.cancel_turns.child_token();
        let PendingMessage { text, origin, progress, requester, answer } = first;
        let span = telemetry::invoke_agent(&requester, &self.setup.definition.name, &self.id);
        let started = Instant::now();
        self.steering.begin_turn(origin.entry.profile());
        let turn = Turn::new(
            &self.setup,
            &self.id,
            &mut self.history,
            &self.steering,
            &origin,
            progress,
            cancellation.clone(),
        );
        let context = trace::context_of(&span);
        let trace_id = Some(trace::id_of(&context)).filter(|id| !id.is_empty());
        let log_span = info_span!("turn", trace_id);
        let turn = turn.with_session_spending(self.spent).run(text).instrument(log_span);
        let mut turn = Box::pin(turn.instrument(span.clone()));
        let mut ended = loop {
            tokio::select! {
                biased;
                ended = &mut turn => break ended,
                () = origin.parent_cancelled(), if !cancellation.is_cancelled() => cancellation.cancel(),
                Some(inbound) = self.inbox.recv() => match inbound {
                    Inbound::Message(message) => self.steering.push(message),
                    Inbound::Cancel(message) => {
                        cancellation.cancel();
                        self.steering.cancel_all(message);
                    }
                },
            }
        };
        if ended.outcome == TurnOutcome::Cancelled && self.shutdown.cancel_turns.is_cancelled() {
            ended.text = "The turn was cancelled because the agent is shutting down.".to_owned();
        }
        telemetry::turn_ended(&span, ended.outcome, started.elapsed());
        let TurnUsage { turn, session, .. } = ended.usage.as_deref().copied().unwrap_or_default();
        self.spent = session;
        self.setup.meter.add(turn);
        info!(
            session_id = %self.id,
            outcome = ?ended.outcome,
            model_calls = turn.model_calls,
            prompt_tokens = turn.prompt_tokens,
            completion_tokens = turn.completion_tokens,
            tool_calls = turn.tool_calls,
            tool_bytes = turn.tool_bytes_out,
            cost_micros = turn.cost_micros,
            "turn finished"
        );
        for message in self.steering.take_joined() {
            message.answer(ended.clone());
        }
        let _ = answer.send(ended);
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.setup.forget(&self.id);
    }
}
