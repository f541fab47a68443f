//! Fires the tasks of an agent.
//!
//! Every process of the agent runs a scheduler. A fire is decided by one write, which sets the next time of
//! the task and the ids of the fire's conversation and message. Any process may then run it: the lease on the
//! conversation avoids that two do, and the log of the conversation ensures that one turn runs.

use std::{collections::HashMap, sync::Arc, time::Duration};

use metrics::{counter, gauge, histogram};
use rockbot_bus::Bus;
use rockbot_contracts::{InstanceId, MessageId};
use rockbot_store::{Document, DocumentError, Expected, Timestamp, Version};
use tokio::{
    task::{JoinHandle, JoinSet},
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::{
    due::{Change, DueRules},
    fire::{FireEnd, FireRunner, PendingFire},
    handle::Schedule,
    task::{Fire, ScheduledTask},
    task_store::EditError,
};
use crate::{
    agent::{Agent, CANCEL_GRACE},
    inbox::{AgentInbox, Ownership, Sharing},
};

/// Longest time between two scans of the tasks, which other processes change too.
const MAX_PAUSE: Duration = Duration::from_secs(5);
/// Pause after the store failed.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// Pause after another process changed a task first.
const CONFLICT_PAUSE: Duration = Duration::from_millis(20);
/// Time limit of a scan.
const SCAN_TIMEOUT: Duration = Duration::from_secs(30);
/// Time until a fire that could not be run is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(10);

/// The scheduler of an agent in this process. Dropping it aborts it: other processes, or the next one,
/// continue its fires.
#[derive(Debug)]
pub struct Scheduler {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Scheduler {
    /// Starts to fire the tasks of `schedule` as turns of `agent`, whose `inbox` is served in this process.
    /// Results are announced on `bus`.
    #[must_use]
    pub fn start(
        schedule: Arc<Schedule>,
        agent: Agent,
        bus: Arc<dyn Bus>,
        inbox: &AgentInbox,
    ) -> Self {
        // Without sharing, only fires need to be owned: several processes may use one file.
        let ownership = inbox.ownership().cloned().unwrap_or_else(|| {
            let store = schedule.conversations.store().clone();
            let (name, own) = (agent.name().clone(), InstanceId::generate());
            Ownership::new(store, name, own, Sharing::LEASE, agent.loss_handler())
        });
        let stop = CancellationToken::new();
        let runner = Arc::new(FireRunner { schedule, agent, bus, ownership });
        let task = tokio::spawn(TaskScanner::new(runner).run(stop.clone()));
        Self { stop, task }
    }

    /// Stops firing, and waits for the running turns, which end with the agent: call it together with
    /// [`AgentInbox::drain`]. Returns `true` if all ended within `grace` and the time that cancelled turns
    /// have.
    pub async fn drain(mut self, grace: Duration) -> bool {
        self.stop.cancel();
        timeout(grace + 2 * CANCEL_GRACE, &mut self.task).await.is_ok()
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Scans the tasks, and runs their fires.
struct TaskScanner {
    runner: Arc<FireRunner>,
    rules: DueRules,
    fires: JoinSet<(MessageId, FireEnd)>,
    /// Fires that could not be run, and when.
    failed: HashMap<MessageId, Instant>,
    is_store_down: bool,
}

/// The result of a scan.
#[derive(Debug, Default)]
struct ScanResult {
    /// Time until the next task is due; `None` if none is.
    next: Option<Duration>,
    /// Another process changed a task first.
    has_conflict: bool,
}

impl TaskScanner {
    fn new(runner: Arc<FireRunner>) -> Self {
        let rules = DueRules::from(&runner.schedule.section);
        let (fires, failed) = (JoinSet::new(), HashMap::new());
        Self { runner, rules, fires, failed, is_store_down: false }
    }

    async fn run(mut self, stop: CancellationToken) {
        let schedule = self.runner.schedule.clone();
        info!(agent = %schedule.agent, "scheduler started");
        loop {
            let scan = timeout(SCAN_TIMEOUT, self.scan());
            let Some(found) = stop.run_until_cancelled(scan).await else { break };
            let pause = self.pause_after(found.unwrap_or_else(|_| Err(late())));
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                Some(ended) = self.fires.join_next(), if !self.fires.is_empty() => {
                    if let Ok((message, end)) = ended {
                        self.ended(message, end);
                    }
                }
                () = schedule.changed.notified() => {}
                () = sleep(pause) => {}
            }
        }
        self.join_fires().await;
    }

    /// Waits for all fires that run in this process.
    async fn join_fires(&mut self) {
        while let Some(ended) = self.fires.join_next().await {
            if let Ok((message, end)) = ended {
                self.ended(message, end);
            }
        }
    }

    fn ended(&mut self, message: MessageId, end: FireEnd) {
        if end == FireEnd::Open {
            self.failed.insert(message, Instant::now());
        }
    }

    fn pause_after(&mut self, found: Result<ScanResult, EditError>) -> Duration {
        let was_down = self.is_store_down;
        self.is_store_down = found.is_err();
        match found {
            Ok(ScanResult { has_conflict: true, .. }) => CONFLICT_PAUSE,
            Ok(ScanResult { next, .. }) => next.unwrap_or(MAX_PAUSE).min(MAX_PAUSE),
            Err(error) if was_down => {
                debug!(%error, "scheduled tasks still unavailable");
                RETRY_PAUSE
            }
            Err(error) => {
                warn!(%error, "scheduled tasks unavailable; retrying each second");
                RETRY_PAUSE
            }
        }
    }

    /// Writes the changes that are due, and runs fires that no process runs.
    async fn scan(&mut self) -> Result<ScanResult, EditError> {
        let (schedule, started) = (self.runner.schedule.clone(), Instant::now());
        let now = schedule.tasks.now().await?;
        let documents = schedule.tasks.list().await?;
        let agent_zone = schedule.agent_zone().await;
        gauge!("rockbot_schedule_tasks").set(count(documents.len()));
        let (mut found, mut fires, mut next) =
            (ScanResult::default(), Vec::new(), None::<Timestamp>);
        for Document { value: task, version, .. } in documents {
            if let Some(due) = task.missed {
                self.end_missed(&task, due, version).await?;
                continue;
            }
            let zone = Schedule::zone_of(&task, agent_zone.as_ref());
            let task = match self.rules.change(&task, &zone, now) {
                None => task,
                Some(change) => match self.write(change, version).await? {
                    Written::Done(task) => *task,
                    Written::Removed => continue,
                    Written::Conflict => {
                        found.has_conflict = true;
                        continue;
                    }
                },
            };
            fires.extend(PendingFire::of(&task));
            next = next.into_iter().chain(self.rules.due_at(&task)).min();
        }
        self.start_fires(fires, now).await?;
        found.next = next.map(|next| next.since(now).saturating_sub(started.elapsed()));
        Ok(found)
    }

    async fn write(&self, change: Change, version: Version) -> Result<Written, EditError> {
        let Change { task, missed, overlapped, has_fired } = change;
        let tasks = &self.runner.schedule.tasks;
        let Some(version) = tasks.put(&task, Expected::Version(version)).await? else {
            return Ok(Written::Conflict);
        };
        if missed > 0 {
            counter!("rockbot_schedule_missed_total").increment(missed);
            warn!(missed, "fires of a scheduled task were missed");
        }
        if overlapped > 0 {
            counter!("rockbot_schedule_overlapped_total").increment(overlapped);
            debug!(task = %task.name, overlapped, "fires skipped: the turn of an earlier one runs");
        }
        if has_fired {
            debug!(task = %task.name, "scheduled task fired");
        }
        if let Some(due) = task.missed {
            self.end_missed(&task, due, version).await?;
            return Ok(Written::Removed);
        }
        Ok(Written::Done(Box::new(task)))
    }

    /// Notifies the user of a task whose only fire was missed, and removes it. A process that dies in between
    /// leaves that to the next scan.
    async fn end_missed(
        &self,
        task: &ScheduledTask,
        due: Timestamp,
        version: Version,
    ) -> Result<(), EditError> {
        self.runner.report_missed(task, due).await?;
        self.runner.schedule.tasks.remove(&task.name, version).await?;
        Ok(())
    }

    /// Runs fires that no process runs, up to the limit of this process.
    async fn start_fires(
        &mut self,
        mut fires: Vec<PendingFire>,
        now: Timestamp,
    ) -> Result<(), DocumentError> {
        // Tasks that fire often must not keep others from starting.
        fires.sort_by_key(|pending| pending.fire.at);
        self.failed.retain(|_, at| at.elapsed() < RETRY_AFTER);
        let mut free =
            usize::from(self.runner.schedule.section.concurrency).saturating_sub(self.fires.len());
        if fires.is_empty() || free == 0 {
            return Ok(());
        }
        let sessions = fires.iter().map(|pending| pending.fire.session.clone()).collect();
        let unheld = self.runner.ownership.unheld(sessions).await?;
        for pending in fires {
            let Fire { session, message, .. } = &pending.fire;
            if free == 0 || self.failed.contains_key(message) || !unheld.contains(session) {
                continue;
            }
            free -= 1;
            histogram!("rockbot_schedule_lateness_seconds")
                .record(now.since(pending.fire.at).as_secs_f64());
            let runner = self.runner.clone();
            self.fires.spawn(async move {
                let end = runner.run(&pending).await;
                (pending.fire.message, end)
            });
        }
        Ok(())
    }
}

/// Outcome of a change.
enum Written {
    /// The task as written.
    Done(Box<ScheduledTask>),
    Removed,
    /// Another process changed it first.
    Conflict,
}

fn late() -> EditError {
    let reason = format!("no response within {SCAN_TIMEOUT:?}");
    DocumentError::Store(rockbot_store::StoreError::Unavailable { reason }).into()
}

fn count(number: usize) -> f64 {
    f64::from(u32::try_from(number).unwrap_or(u32::MAX))
}
