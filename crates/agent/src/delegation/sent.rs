//! Tasks that other agents do: sends the request, and waits for the end that a response records.

use std::{sync::Arc, time::Duration};

use rockbot_contracts::{Spending, TaskState};
use rockbot_store::StoreError;
use rockbot_tools::{BudgetGrant, BudgetLimits};
use tokio::time::{Instant, sleep};
use tracing::info;

use super::{
    ports::Delivered,
    record::{PeerTask, TaskRecord},
    run::cut,
    tasks::{Attached, Delegation, RunningTask},
};
use crate::conversation::unix_ms;

/// Interval at which the record is read, which another process may have changed.
const POLL: Duration = Duration::from_secs(1);
/// Pause before a request is sent again.
const RETRY: Duration = Duration::from_secs(2);
/// Time for which a cancelled task may confirm its end.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);
/// Larger limits count as unlimited.
const UNLIMITED: u64 = 1 << 40;

impl Delegation {
    /// Waits until another agent has ended a task. Returns `None` if another process continues to wait.
    pub(super) async fn await_agent(
        self: &Arc<Self>,
        attached: &Attached,
        running: &RunningTask,
        grant: Option<BudgetGrant>,
    ) -> Result<Option<TaskRecord>, StoreError> {
        let closing = attached.host.closing();
        let mut cancelled_at: Option<Instant> = None;
        loop {
            let changed = self.changed.notified();
            let Some(record) = attached.store.get(&running.task).await? else { return Ok(None) };
            let Some(peer) = record.peer.as_deref() else { return Ok(None) };
            let mut wait = POLL;
            let ended = match record.state {
                state if state.is_terminal() => Some(record.clone()),
                TaskState::Cancelling => match cancelled_at {
                    None => {
                        cancelled_at = Some(Instant::now());
                        self.cancel_at_agent(peer).await;
                        continue;
                    }
                    Some(at) if at.elapsed() < CANCEL_TIMEOUT => None,
                    Some(_) => {
                        let text = "Cancelled. The agent did not confirm its end.";
                        self.end_here(attached, &record, TaskState::Cancelled, text).await?
                    }
                },
                _ if unix_ms() >= record.deadline => {
                    let text = format!("No answer from {} within the time limit.", peer.agent);
                    self.end_here(attached, &record, TaskState::Expired, &text).await?
                }
                TaskState::Submitted => {
                    if peer.was_retried {
                        wait = RETRY;
                        tokio::select! {
                            biased;
                            () = closing.cancelled() => return Ok(None),
                            () = sleep(RETRY) => {}
                        }
                    }
                    self.send_request(attached, &record, peer).await?
                }
                TaskState::InputRequired if !peer.is_awaited => {
                    if peer.read_question < peer.round
                        && !self.read_question(attached, &record).await?
                    {
                        return Ok(None);
                    }
                    None
                }
                _ => None,
            };
            if let Some(ended) = ended {
                if let Some(grant) = grant {
                    grant.budget().settle(ended.spent);
                }
                self.announce_end(&ended).await;
                return Ok(Some(ended));
            }
            let left = Duration::from_millis(record.deadline.saturating_sub(unix_ms()));
            tokio::select! {
                biased;
                () = closing.cancelled() => return Ok(None),
                () = changed => {}
                () = sleep(wait.min(left)) => {}
            }
        }
    }

    /// Sends the current message of a task. Returns the record if the agent cannot be reached, which ends the task.
    pub(super) async fn send_request(
        &self,
        attached: &Attached,
        record: &TaskRecord,
        peer: &PeerTask,
    ) -> Result<Option<TaskRecord>, StoreError> {
        let sent = match self.peers() {
            Some(peers) => peers.request(record, peer).await,
            None => Delivered::Failed,
        };
        match sent {
            Delivered::Yes => {
                let update = attached.store.update(&record.task, |record| {
                    // A response may have arrived meanwhile.
                    let is_same = record.state == TaskState::Submitted
                        && record.peer.as_ref().is_some_and(|now| {
                            now.message == peer.message && now.was_retried == peer.was_retried
                        });
                    if is_same {
                        record.state = TaskState::Running;
                    }
                    is_same
                });
                update.await?;
                info!(task = %record.task, agent = %peer.agent, "task sent to an agent");
                Ok(None)
            }
            Delivered::Gone => {
                let text = unreachable_text(peer);
                self.end_here(attached, record, TaskState::Failed, &text).await
            }
            Delivered::Unconfirmed => {
                let update = attached.store.update(&record.task, |record| match &mut record.peer {
                    Some(peer) => !std::mem::replace(&mut peer.was_unconfirmed, true),
                    None => false,
                });
                update.await?;
                Ok(None)
            }
            Delivered::Failed => Ok(None),
        }
    }

    /// Asks the agent to end a task, which ends here in any case.
    pub(super) async fn cancel_at_agent(&self, peer: &PeerTask) {
        if let Some(peers) = self.peers() {
            // Without it, the task ends there at its time limit.
            let _ = peers.cancel(peer).await;
        }
    }

    /// Ends a task without a response. The first end that is recorded counts.
    pub(super) async fn end_here(
        &self,
        attached: &Attached,
        record: &TaskRecord,
        state: TaskState,
        text: &str,
    ) -> Result<Option<TaskRecord>, StoreError> {
        let change = |record: &mut TaskRecord| {
            let is_open = !record.state.is_terminal();
            if is_open {
                let spent = if may_run(record) {
                    // The agent may spend all of it.
                    unreported(record.grant)
                } else {
                    Spending::default()
                };
                end(record, state, text, spent);
            }
            is_open
        };
        self.with_retries(|| attached.store.update(&record.task, &change)).await
    }
}

/// Returns `true` if the agent may have received a request of the task and may spend on it.
fn may_run(record: &TaskRecord) -> bool {
    let was_sent = |peer: &PeerTask| {
        peer.has_begun || peer.was_retried || peer.was_unconfirmed || peer.round > 0
    };
    record.state != TaskState::Submitted || record.peer.as_deref().is_some_and(was_sent)
}

/// Records the end of a task.
pub(super) fn end(record: &mut TaskRecord, state: TaskState, text: &str, spent: Spending) {
    record.state = match record.state {
        TaskState::Cancelling => TaskState::Cancelled,
        _ => state,
    };
    record.ended = Some(unix_ms());
    record.spent = spent;
    record.result = cut(text);
    if let Some(peer) = &mut record.peer {
        peer.question = None;
    }
}

/// Returns the spending of an agent that reports none: all that it was granted.
pub(super) fn unreported(grant: BudgetLimits) -> Spending {
    let known = |amount: u64| if amount < UNLIMITED { amount } else { 0 };
    Spending {
        model_calls: known(grant.model_calls),
        unmetered_calls: known(grant.model_calls),
        prompt_tokens: known(grant.tokens),
        tool_calls: known(grant.tool_calls),
        cost_micros: grant.cost_micros.map(known).unwrap_or_default(),
        ..Spending::default()
    }
}

/// Returns the result of a task that no queue accepted.
pub(super) fn unreachable_text(peer: &PeerTask) -> String {
    format!("Agent '{}' cannot be reached: nothing serves its tasks. Nothing was sent.", peer.agent)
}

#[cfg(test)]
mod tests {
    use super::{super::record::sent_record, *};

    #[test]
    fn only_a_task_that_was_never_sent_may_not_run() {
        let with = |change: fn(&mut PeerTask)| {
            let mut record = sent_record(TaskState::Submitted);
            change(record.peer.as_deref_mut().unwrap());
            record
        };
        assert!(!may_run(&sent_record(TaskState::Submitted)));
        assert!(may_run(&sent_record(TaskState::Running)));
        for record in [
            with(|peer| peer.has_begun = true),
            with(|peer| peer.was_retried = true),
            with(|peer| peer.was_unconfirmed = true),
            with(|peer| peer.round = 1),
        ] {
            assert!(may_run(&record), "{record:?}");
        }
    }
}
