//! Runs the turns of fires, and records and announces their results.

use std::{sync::Arc, time::Duration};

use metrics::counter;
use rockbot_bus::{Bus, Publication};
use rockbot_contracts::{
    ContentTrust, Envelope, MessageId, ScheduledEnded, UserMessage, topology::user_notice,
    user::TurnOutcome,
};
use rockbot_store::Timestamp;
use rockbot_tools::EntryPoint;
use tracing::{debug, info, warn};

use super::{
    handle::Schedule,
    notices::{Notice, truncate},
    task::{Fire, LastFire, ScheduledTask, TaskName},
    task_store::{Edit, EditError},
};
use crate::{
    agent::Agent,
    event::{TurnAnswer, TurnEnd},
    inbox::{Claim, Ownership},
    origin::TurnOrigin,
    telemetry::outcome_label,
};

/// Longest answer that is stored with the task and announced, in bytes.
const MAX_TEXT_BYTES: usize = 4 * 1024;
/// Answer of a turn that has nothing to report.
const NOTHING: &str = "NOTHING";
/// Answer of a fire that is older than the retention of its conversation.
const EXPIRED: &str = "The conversation of this fire has expired before its turn had an answer. The turn may \
    have run; it is not run again. Check what was done.";
/// Time limit of an announcement.
const ANNOUNCE_TIMEOUT: Duration = Duration::from_secs(5);

/// Runs fires in this process.
pub(super) struct FireRunner {
    pub(super) schedule: Arc<Schedule>,
    pub(super) agent: Agent,
    pub(super) bus: Arc<dyn Bus>,
    pub(super) ownership: Ownership,
}

/// A fire to run.
#[derive(Debug, Clone)]
pub(super) struct PendingFire {
    pub(super) task: TaskName,
    /// The broker user of the task, if known.
    pub(super) user: Option<String>,
    pub(super) fire: Fire,
}

/// Outcome of an attempt to run a fire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FireEnd {
    /// The answer of its turn is recorded.
    Answered,
    /// Another process runs it.
    Held,
    /// The turn has no answer, or it could not be recorded.
    Open,
}

impl PendingFire {
    /// Returns the fire of a task that has no answer yet.
    pub(super) fn of(task: &ScheduledTask) -> Option<Self> {
        let fire = task.running.clone()?;
        Some(Self { task: task.name.clone(), user: task.created.user.clone(), fire })
    }
}

impl FireRunner {
    /// Runs the turn of a fire, or continues it. The conversation decides that it runs once: its message
    /// has the same id in every process, and an answered message gets the recorded answer.
    pub(super) async fn run(&self, pending: &PendingFire) -> FireEnd {
        let session = &pending.fire.session;
        let hold = match self.ownership.claim(session).await {
            Ok(Claim::Owned(hold, order)) => {
                drop(order);
                hold
            }
            Ok(Claim::Held(_)) => return FireEnd::Held,
            Err(error) => {
                debug!(session_id = %session, %error, "fire not claimed");
                return FireEnd::Open;
            }
        };
        let answer = self.answer(pending).await;
        let end = if answer.ended == TurnEnd::Answered {
            match self.finish(pending, answer).await {
                Ok(()) => FireEnd::Answered,
                Err(error) => {
                    debug!(session_id = %session, %error, "result of a fire not recorded; retrying");
                    FireEnd::Open
                }
            }
        } else {
            debug!(session_id = %session, ended = ?answer.ended, "turn of a fire has no answer yet");
            FireEnd::Open
        };
        hold.release().await;
        end
    }

    /// Returns the answer of the turn, or that of a turn that cannot run any more.
    async fn answer(&self, pending: &PendingFire) -> TurnAnswer {
        let Fire { at, session, message, .. } = &pending.fire;
        let conversations = self.agent.conversations();
        let Ok(now) = self.schedule.tasks.now().await else {
            return TurnAnswer::new(TurnOutcome::Overloaded, "").with_end(TurnEnd::Unrecorded);
        };
        if now.since(*at) >= conversations.retention()
            && !matches!(conversations.message(session, message).await, Ok(Some(_)))
        {
            return TurnAnswer::new(TurnOutcome::ModelFailed, EXPIRED);
        }
        debug!(session_id = %session, task = %pending.task, "turn of a scheduled task starts");
        let answer = self.turn(pending).await;
        if answer.ended == TurnEnd::Unrecorded
            && let Err(error) = conversations.message(session, message).await
            && error.is_unreadable()
        {
            let text = format!("The turn ended, and what it did is not undone: {error}.");
            return TurnAnswer::new(TurnOutcome::ModelFailed, text);
        }
        answer
    }

    async fn turn(&self, pending: &PendingFire) -> TurnAnswer {
        let Fire { session, message, text, .. } = pending.fire.clone();
        let mut origin = TurnOrigin::new(EntryPoint::ScheduledTask).with_message(message);
        if let Some(user) = &pending.user {
            origin = origin.with_sender(user.as_str().into());
        }
        let message = UserMessage::new(session, text);
        self.agent.run_turn(origin, message, Arc::new(|_| {})).await
    }

    /// Records the result, then announces it. A process that dies in between repeats it; the result is shown
    /// once.
    async fn finish(&self, pending: &PendingFire, answer: TurnAnswer) -> Result<(), EditError> {
        let PendingFire { task, user, fire } = pending;
        let TurnAnswer { mut text, outcome, .. } = answer;
        let ended = self.schedule.tasks.now().await?;
        truncate(&mut text, MAX_TEXT_BYTES);
        let is_reported = !is_nothing(outcome, &text);
        if is_reported {
            let notice = Notice {
                message: fire.message.clone(),
                task: task.clone(),
                fire: fire.at,
                session: Some(fire.session.clone()),
                user: user.clone(),
                outcome,
                text: text.clone(),
                turn: None,
            };
            self.schedule.notices.add(notice).await?;
        }
        let last = LastFire {
            at: fire.at,
            session: fire.session.clone(),
            ended,
            outcome,
            text: text.clone(),
        };
        let finished = self.schedule.tasks.edit(task, |task| {
            let running = task.running.as_ref().map(|fire| &fire.message);
            if running != Some(&fire.message) {
                return Edit::Keep;
            }
            task.running = None;
            task.counts.failed += u64::from(is_failure(outcome));
            task.last = Some(last.clone());
            // A single fire, or a task that was cancelled meanwhile.
            if task.due.is_none() { Edit::Remove } else { Edit::Put }
        });
        if finished.await?.is_some() {
            counter!("rockbot_schedule_fires_total", "outcome" => outcome_label(outcome))
                .increment(1);
            info!(session_id = %fire.session, ?outcome, "scheduled task ended");
            if is_reported {
                self.announce(task, fire, outcome, text).await;
            }
        }
        Ok(())
    }

    /// Announces a result to the programs of users that listen. The next turn shows it too.
    async fn announce(&self, task: &TaskName, fire: &Fire, outcome: TurnOutcome, text: String) {
        let ended = ScheduledEnded {
            agent: self.schedule.agent.clone(),
            task: task.to_string(),
            fire_ms: u64::try_from(fire.at.as_millis()).unwrap_or_default(),
            session_id: fire.session.clone(),
            outcome,
            text,
        };
        let envelope = Envelope::from_payload(&ended)
            .with_source(self.schedule.agent.as_str())
            .with_trust(ContentTrust::AgentMessage);
        let publication = Publication::announcement(user_notice(&self.schedule.agent), envelope);
        if let Err(error) = self.bus.publish(publication.within(ANNOUNCE_TIMEOUT)).await {
            warn!(%error, "result of a scheduled task not announced");
        }
    }

    /// Adds the notice that the only fire of a task was missed.
    pub(super) async fn report_missed(
        &self,
        task: &ScheduledTask,
        due: Timestamp,
    ) -> Result<(), EditError> {
        // The id is the same for every process that notices it.
        let id = format!("missed-{}", task.revision);
        let message = MessageId::new(id).unwrap_or_else(|_| MessageId::generate());
        let text = "It did not run: no process of the agent ran at its time, or a new time zone moved its \
                    time to the past. The task was removed.";
        let notice = Notice {
            message,
            task: task.name.clone(),
            fire: due,
            session: None,
            user: task.created.user.clone(),
            outcome: TurnOutcome::Expired,
            text: text.to_owned(),
            turn: None,
        };
        self.schedule.notices.add(notice).await
    }
}

/// Returns `true` if the answer is not reported to the user.
fn is_nothing(outcome: TurnOutcome, text: &str) -> bool {
    let text = text.trim().trim_end_matches('.');
    outcome == TurnOutcome::Completed && (text.is_empty() || text == NOTHING)
}

fn is_failure(outcome: TurnOutcome) -> bool {
    let is_answered = matches!(
        outcome,
        TurnOutcome::Completed | TurnOutcome::IterationLimit | TurnOutcome::BudgetExceeded
    );
    !is_answered
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_empty_answer_is_not_reported() {
        let reported = |outcome, text| !is_nothing(outcome, text);
        assert!(!reported(TurnOutcome::Completed, " NOTHING.\n"));
        assert!(!reported(TurnOutcome::Completed, ""));
        assert!(reported(TurnOutcome::Completed, "NOTHING to do, but the disk is full"));
        assert!(reported(TurnOutcome::ModelFailed, "NOTHING"));
    }
}
