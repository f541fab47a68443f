//! One conversation: a task that owns its history and runs its turns, one after the other.

mod roster;

use std::sync::Arc;

use rockbot_contracts::{SessionId, Spending, TurnUsage, trace, user::TurnOutcome};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, info, info_span};

pub(crate) use self::roster::Roster;
use crate::{
    history::History,
    message::{Inbound, Refusal, Said},
    steering::Waiting,
    telemetry,
    turn::{Turn, TurnSetup},
};

/// How the conversations of an agent are told to end.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stop {
    /// End when the running turn and what waits is done.
    pub(crate) closing: CancellationToken,
    /// Cancel the running turn as well.
    pub(crate) abandon: CancellationToken,
}

/// The owner of one conversation.
pub(crate) struct Session {
    id: SessionId,
    inbox: mpsc::Receiver<Inbound>,
    setup: Arc<TurnSetup>,
    roster: Arc<Roster>,
    stop: Stop,
    history: History,
    waiting: Waiting,
    spent: Spending,
}

impl Session {
    pub(crate) fn new(
        id: SessionId,
        inbox: mpsc::Receiver<Inbound>,
        setup: Arc<TurnSetup>,
        roster: Arc<Roster>,
        stop: Stop,
    ) -> Self {
        let history = History::new(setup.limits.history_messages, setup.limits.history_bytes);
        let waiting = Waiting::new(setup.limits.session_inbox);
        Self { id, inbox, setup, roster, stop, history, waiting, spent: Spending::default() }
    }

    /// Runs turns until nobody said anything for long, or the agent closes.
    pub(crate) async fn run(mut self) {
        while let Some(first) = self.next().await {
            let is_handed_over = first.origin.asking.is_some();
            self.turn(first).await;
            // Work that another agent handed over is done with its answer.
            if is_handed_over && self.roster.leave(&self.id, &self.inbox) {
                return;
            }
        }
    }

    /// The message that begins the next turn.
    async fn next(&mut self) -> Option<Said> {
        if let Some(said) = self.waiting.pop() {
            return Some(said);
        }
        loop {
            tokio::select! {
                biased;
                inbound = self.inbox.recv() => match inbound? {
                    Inbound::Say(said) => return Some(said),
                    Inbound::Cancel(said) => said.answer(Refusal::NothingRuns.into()),
                },
                () = self.stop.closing.cancelled() => {
                    if self.roster.leave(&self.id, &self.inbox) {
                        return None;
                    }
                }
                () = sleep(self.setup.limits.session_idle) => {
                    if self.roster.leave(&self.id, &self.inbox) {
                        info!(session_id = %self.id, "forgetting an idle conversation");
                        return None;
                    }
                }
            }
        }
    }

    /// Runs one turn, while messages that arrive steer it, cancel it, or wait for the next.
    async fn turn(&mut self, first: Said) {
        let cancellation = self.stop.abandon.child_token();
        let Said { text, origin, progress, requester, answer } = first;
        let span = telemetry::invoke_agent(&requester, &self.setup.definition.name, &self.id);
        let begun = Instant::now();
        self.waiting.begin(origin.entry.profile());
        let turn = Turn::new(
            &self.setup,
            &self.id,
            &mut self.history,
            &self.waiting,
            &origin,
            progress,
            cancellation.clone(),
        );
        let context = trace::context_of(&span);
        let trace_id = Some(trace::id_of(&context)).filter(|id| !id.is_empty());
        let log_span = info_span!("turn", trace_id);
        let turn = turn.after(self.spent).run(text).instrument(log_span);
        let mut turn = Box::pin(turn.instrument(span.clone()));
        let mut ended = loop {
            tokio::select! {
                biased;
                ended = &mut turn => break ended,
                () = origin.withdrawn(), if !cancellation.is_cancelled() => cancellation.cancel(),
                Some(inbound) = self.inbox.recv() => match inbound {
                    Inbound::Say(said) => self.waiting.offer(said),
                    Inbound::Cancel(said) => {
                        cancellation.cancel();
                        self.waiting.join_all(said);
                    }
                },
            }
        };
        if ended.outcome == TurnOutcome::Cancelled && self.stop.abandon.is_cancelled() {
            ended.text = "The agent is shutting down, so this turn was cancelled.".to_owned();
        }
        telemetry::turn_ended(&span, ended.outcome, begun.elapsed());
        let TurnUsage { turn, session, .. } = ended.usage.as_deref().copied().unwrap_or_default();
        self.spent = session;
        self.setup.spent.add(turn);
        info!(
            session_id = %self.id,
            outcome = ?ended.outcome,
            model_calls = turn.model_calls,
            prompt_tokens = turn.prompt_tokens,
            completion_tokens = turn.completion_tokens,
            tool_calls = turn.tool_calls,
            tool_bytes = turn.tool_bytes_out,
            cost_micros = turn.cost_micros,
            "the turn ended"
        );
        for said in self.waiting.joined() {
            said.answer(ended.clone());
        }
        let _ = answer.send(ended);
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.setup.forget(&self.id);
    }
}
