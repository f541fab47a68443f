//! The task that does delegated work: it runs the turn, or waits for another agent, and then passes the
//! result on.

use std::{sync::Arc, time::Duration};

use metrics::{counter, gauge};
use rockbot_contracts::{
    ReplyBody, TaskId, TaskState, UserMessage,
    outside_text::stripped,
    user::{ReplyDetail, TurnOutcome},
};
use rockbot_store::StoreError;
use rockbot_tools::{Budget, BudgetGrant, EntryPoint};
use tokio::{sync::oneshot, time::sleep};
use tracing::{info, warn};

use super::{
    frame::first_chars,
    ports::Claimed,
    record::{TaskKind, TaskRecord, session_of},
    tasks::{Attached, Delegation, RunningTask},
};
use crate::{
    conversation::unix_ms,
    event::{ProgressSink, TurnAnswer, TurnEnd, TurnEvent},
    origin::{DelegatedWork, TurnOrigin, WorkRole},
};

/// Interval at which work is checked for a cancel that another process recorded.
const CANCEL_INTERVAL: Duration = Duration::from_secs(1);
/// Pause before an operation is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// Attempts to record the end of work.
const ATTEMPTS: u32 = 30;
/// Longest result that is recorded, in bytes.
const MAX_RESULT_BYTES: usize = 64 * 1024;
/// Longest start of a result that users see, in characters.
const PREVIEW_CHARS: usize = 500;

impl Delegation {
    /// Starts to do work, unless this process does it already.
    pub(super) fn start(
        self: &Arc<Self>,
        kind: TaskKind,
        task: TaskId,
        grant: Option<BudgetGrant>,
    ) {
        let Some(attached) = self.attached() else { return };
        let Some(running) = self.begin(kind, &task) else { return };
        let delegation = self.clone();
        attached.host.spawn(Box::pin(async move {
            let Some(session) = session_of(kind, &task) else { return };
            for _ in 0..ATTEMPTS {
                match delegation.claim(&session).await {
                    Ok(Claimed::Owned(_hold)) => {
                        delegation.run(running, grant).await;
                        return;
                    }
                    // That process does the work.
                    Ok(Claimed::Held) => return,
                    Err(error) => warn!(%task, %error, "delegated work not claimed; retrying"),
                }
                sleep(RETRY).await;
            }
        }));
    }

    /// Does work whose conversation this process has claimed. Returns `true` if it ended and its result was
    /// passed on.
    pub(super) async fn run(
        self: &Arc<Self>,
        running: RunningTask,
        grant: Option<BudgetGrant>,
    ) -> bool {
        let Some(attached) = self.attached() else { return false };
        match self.try_run(attached, &running, grant).await {
            Ok(is_done) => is_done,
            Err(error) => {
                warn!(task = %running.task, %error, "delegated work stopped; it continues later");
                false
            }
        }
    }

    async fn try_run(
        self: &Arc<Self>,
        attached: &Attached,
        running: &RunningTask,
        mut grant: Option<BudgetGrant>,
    ) -> Result<bool, StoreError> {
        let task = &running.task;
        loop {
            let Some(mut record) = attached.store.get(task).await? else {
                self.remove_marker(attached, running).await;
                return Ok(true);
            };
            if !record.state.is_terminal() {
                let grant = grant.take();
                let ended = match record.kind {
                    TaskKind::Sent => self.await_agent(attached, running, grant).await?,
                    TaskKind::Subagent | TaskKind::Received => {
                        self.work(attached, running, record, grant).await?
                    }
                };
                let Some(ended) = ended else { return Ok(false) };
                record = ended;
            }
            if !self.pass_on(attached, &record).await? {
                return Ok(false);
            }
            self.remove_marker(attached, running).await;
            // Another process may have recorded an answer or a late result, whose marker was removed too. The marker
            // is set after the record, so later records have one.
            let recorded = attached.store.get(task).await?;
            let Some(record) = recorded.filter(TaskRecord::is_to_continue) else { return Ok(true) };
            attached.mark(&record).await?;
        }
    }

    /// Passes the result of ended work on: to the conversation that delegated it, or to the agent that asked
    /// for it. Returns `false` if another process must do it.
    async fn pass_on(
        self: &Arc<Self>,
        attached: &Attached,
        record: &TaskRecord,
    ) -> Result<bool, StoreError> {
        if record.kind == TaskKind::Received {
            return self.respond(attached, record).await;
        }
        let has_result = record.folded_by.is_none() && record.state != TaskState::Cancelled;
        if has_result && record.is_read_in_turn() && !self.fold_back(attached, record).await? {
            return Ok(false);
        }
        self.fold_late(attached, &record.task).await
    }

    /// Runs the turn. Returns the record of the work that ended; `None` if another process continues it.
    async fn work(
        self: &Arc<Self>,
        attached: &Attached,
        running: &RunningTask,
        record: TaskRecord,
        grant: Option<BudgetGrant>,
    ) -> Result<Option<TaskRecord>, StoreError> {
        let Attached { host, store, .. } = attached;
        if record.state == TaskState::InputRequired {
            // Its question may not have been sent.
            return Ok(Some(record));
        }
        let closing = host.closing();
        let permit = tokio::select! {
            biased;
            () = closing.cancelled() => return Ok(None),
            permit = self.permits[record.level()].acquire() => Some(permit),
            // Cancelled work needs no permit: it requests no model.
            () = self.cancel_requested(attached, running) => None,
            () = start_limit(&record) => {
                return self.ended(attached, &record, &not_started_answer()).await.map(Some);
            }
        };
        let started = store.update(&record.task, |record| {
            let may_start = record.state == TaskState::Submitted;
            if may_start {
                record.state = TaskState::Running;
                if let Some(peer) = &mut record.peer {
                    peer.has_begun = true;
                }
            }
            may_start
        });
        let Some(record) = started.await? else { return Ok(None) };
        if record.state == TaskState::Cancelling {
            // A turn that another process began counts its spending, and closes its calls. One that asked its
            // caller has ended.
            running.cancellation.cancel();
            if record.asks_caller() || !self.has_begun(attached, &record).await {
                return self.ended(attached, &record, &cancelled_answer()).await.map(Some);
            }
        }
        self.report_start(&record).await;
        let budget = grant.as_ref().map(|grant| grant.budget().clone());
        gauge!("rockbot_agent_delegations_running").increment(1.0);
        let answer = loop {
            let turn = self.start_turn(attached, running, &record, budget.clone());
            let Some(answered) = turn else { break None };
            match self.await_answer(attached, running, answered).await {
                // The agent has no capacity for another conversation now.
                Some(answer) if answer.ended == TurnEnd::Deferred => {
                    if closing.run_until_cancelled(sleep(RETRY)).await.is_none() {
                        break None;
                    }
                }
                answer => break answer,
            }
        };
        gauge!("rockbot_agent_delegations_running").decrement(1.0);
        drop((permit, grant));
        match answer {
            Some(answer) if answer.ended == TurnEnd::Answered => {
                self.ended(attached, &record, &answer).await.map(Some)
            }
            // Another process continues the turn, or this one later.
            _ => Ok(None),
        }
    }

    /// Returns `true` if a process may have begun the turn of the work.
    async fn has_begun(&self, attached: &Attached, record: &TaskRecord) -> bool {
        let Some((session, message)) = record.session().zip(record.message()) else { return false };
        !matches!(attached.conversations.message(&session, &message).await, Ok(None))
    }

    /// Waits until a cancel of the work is recorded, by this process or another one.
    async fn cancel_requested(&self, attached: &Attached, running: &RunningTask) {
        loop {
            if let Ok(Some(record)) = attached.store.get(&running.task).await
                && record.state == TaskState::Cancelling
            {
                running.cancellation.cancel();
            }
            let soon = sleep(CANCEL_INTERVAL);
            if running.cancellation.run_until_cancelled(soon).await.is_none() {
                return;
            }
        }
    }

    fn start_turn(
        self: &Arc<Self>,
        attached: &Attached,
        running: &RunningTask,
        record: &TaskRecord,
        budget: Option<Budget>,
    ) -> Option<oneshot::Receiver<TurnAnswer>> {
        let entry = record.entry();
        let budget = budget.unwrap_or_else(|| {
            let budget = Budget::new(record.grant);
            // Earlier turns of a task that required input.
            budget.restore(record.spent, 0);
            budget
        });
        let cancellation = running.cancellation.clone();
        let work = DelegatedWork {
            role: WorkRole::Task { entry, budget, cancellation },
            root: record.root.session.clone(),
            requests: self.requests(record),
            trace: record.trace(),
        };
        let point = match record.kind {
            TaskKind::Received => EntryPoint::A2aTask,
            TaskKind::Subagent | TaskKind::Sent => EntryPoint::Subagent,
        };
        let mut origin = TurnOrigin {
            work: Some(Arc::new(work)),
            ..TurnOrigin::new(point).with_message(record.message()?)
        };
        origin.sender = record.root.sender.as_deref().map(Arc::from);
        let (session_id, text) = (record.session()?, record.text.clone());
        let message = UserMessage::new(session_id, text);
        Some(attached.host.start_turn(origin, message, Arc::new(|_| ())))
    }

    /// Waits for the answer, and cancels the turn when the work is cancelled. Returns `None` if the agent
    /// was dropped.
    async fn await_answer(
        &self,
        attached: &Attached,
        running: &RunningTask,
        mut answered: oneshot::Receiver<TurnAnswer>,
    ) -> Option<TurnAnswer> {
        tokio::select! {
            biased;
            answer = &mut answered => return answer.ok(),
            () = self.cancel_requested(attached, running) => {}
        }
        answered.await.ok()
    }

    /// Records the end of work. The first end that is recorded counts.
    async fn ended(
        &self,
        attached: &Attached,
        record: &TaskRecord,
        answer: &TurnAnswer,
    ) -> Result<TaskRecord, StoreError> {
        let now = unix_ms();
        let change = |record: &mut TaskRecord| {
            if record.state.is_terminal() || record.state == TaskState::InputRequired {
                return false;
            }
            let spent = answer.usage.as_deref().map(|usage| usage.turn).unwrap_or_default();
            record.spent += spent;
            let is_cancelled =
                record.state == TaskState::Cancelling || answer.outcome == TurnOutcome::Cancelled;
            if !is_cancelled && record.asks_caller() {
                record.state = TaskState::InputRequired;
                return true;
            }
            record.state = match (record.state, answer.outcome) {
                (TaskState::Cancelling, _) | (_, TurnOutcome::Cancelled) => TaskState::Cancelled,
                (
                    _,
                    TurnOutcome::Completed
                    | TurnOutcome::IterationLimit
                    | TurnOutcome::BudgetExceeded,
                ) => TaskState::Completed,
                _ if now >= record.deadline => TaskState::Expired,
                _ => TaskState::Failed,
            };
            record.ended = Some(now);
            record.result = cut(&answer.text);
            true
        };
        let ended = self.with_retries(|| attached.store.update(&record.task, &change)).await?;
        let ended = ended.unwrap_or_else(|| {
            let mut ended = record.clone();
            change(&mut ended);
            ended
        });
        if ended.state.is_terminal() {
            self.announce_end(&ended).await;
        }
        Ok(ended)
    }

    /// Reports the end of work to its user.
    pub(super) async fn announce_end(&self, ended: &TaskRecord) {
        let (kind, state) = (ended.kind.as_str(), ended.state.as_str());
        info!(task = %ended.task, kind, state, "delegated work ended");
        counter!("rockbot_agent_delegations_ended_total", "kind" => kind, "state" => state)
            .increment(1);
        let tokens = ended.spent.prompt_tokens + ended.spent.completion_tokens;
        counter!("rockbot_agent_delegations_tokens_total").increment(tokens);
        if let Some(message) = ended.message().filter(|_| ended.kind != TaskKind::Received) {
            let body = ReplyBody::DelegationEnded {
                task_id: ended.task.clone(),
                state: ended.state,
                preview: first_chars(&stripped(&ended.result), PREVIEW_CHARS),
            };
            // The result follows in any case.
            let _ = self.notify_user(&ended.root, message, body).await;
        }
        // After the reply, so that users see the end before the answer on it.
        self.changed.notify_waiters();
    }

    /// Repeats an operation of the store while the store is unavailable.
    pub(super) async fn with_retries<T, F: Future<Output = Result<T, StoreError>>>(
        &self,
        operation: impl Fn() -> F,
    ) -> Result<T, StoreError> {
        let mut left = ATTEMPTS;
        loop {
            match operation().await {
                Err(StoreError::Unavailable { .. } | StoreError::Unconfirmed { .. })
                    if left > 0 =>
                {
                    left -= 1;
                    sleep(RETRY).await;
                }
                done => return done,
            }
        }
    }

    /// Returns the sink that shows approval requests, and how they were closed, to the user.
    pub(super) fn requests(self: &Arc<Self>, record: &TaskRecord) -> Option<ProgressSink> {
        if record.kind == TaskKind::Received {
            // No user attends it.
            return None;
        }
        let (delegation, task, message) = (self.clone(), record.task.clone(), record.message()?);
        Some(Arc::new(move |event| {
            if !matches!(event, TurnEvent::ApprovalAsked { .. } | TurnEvent::ApprovalClosed { .. })
            {
                return;
            }
            let (delegation, task, message) = (delegation.clone(), task.clone(), message.clone());
            let Some(attached) = delegation.attached() else { return };
            let host = attached.host.clone();
            host.spawn(Box::pin(async move {
                let Some(attached) = delegation.attached() else { return };
                if let Ok(Some(record)) = attached.store.get(&task).await {
                    // Without an answer the request expires, and the call is denied.
                    let _ = delegation
                        .notify_user(&record.root, message, event.into_reply(ReplyDetail::Brief))
                        .await;
                }
            }));
        }))
    }

    /// Removes the marker by which other processes find the work.
    async fn remove_marker(&self, attached: &Attached, running: &RunningTask) {
        let task = &running.task;
        let Some(session) = session_of(running.kind, task) else { return };
        let conversations = &attached.conversations;
        let marked = conversations.marked(&session).await.unwrap_or_default();
        for message in marked {
            if let Err(error) = conversations.unmark(&session, &message).await {
                warn!(%task, %error, "marker not removed; the work is checked again");
            }
        }
    }
}

/// Waits until the time limit of work that has not started is over. Never returns for work that a process
/// has started: its turn ends at the limit.
async fn start_limit(record: &TaskRecord) {
    if record.state != TaskState::Submitted {
        std::future::pending::<()>().await;
    }
    sleep(Duration::from_millis(record.deadline.saturating_sub(unix_ms()))).await;
}

/// The answer of work whose time limit was over before it began.
fn not_started_answer() -> TurnAnswer {
    let text = "The time limit was over before the work began, because too many sub-agents ran.";
    TurnAnswer::new(TurnOutcome::Expired, text)
}

/// The answer of work that was cancelled before it began.
fn cancelled_answer() -> TurnAnswer {
    TurnAnswer::new(TurnOutcome::Cancelled, "Cancelled before it began.")
}

/// Returns the part of a text that is recorded.
pub(super) fn cut(text: &str) -> String {
    let cut = text.floor_char_boundary(MAX_RESULT_BYTES);
    text[..cut].to_owned()
}
