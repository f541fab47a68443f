//! The scheduled tasks of an agent: what tools, requests of users and the scheduler share.

use std::{fmt, sync::Arc};

use rockbot_contracts::{
    AgentName, MessageId, SessionId,
    schedule::{MAX_TASK_DESCRIPTION_BYTES, NewTask},
};
use rockbot_store::{Document, DocumentError, Expected, Timestamp};
use tokio::sync::Notify;

use super::{
    cron::{CronExpression, InvalidCron},
    due::{DueRules, MAX_SINGLE_AHEAD},
    notices::{NoticeStore, is_visible},
    section::ScheduleSection,
    task::{Creation, InvalidTaskName, ScheduledTask, TaskName},
    task_store::{Edit, EditError, TaskStore},
    zone::Zone,
};
use crate::{
    conversation::{ConversationError, Conversations},
    memory::{AgentMemory, TimeZones},
};

/// Fires that are compared with the shortest interval, and those that are shown of a new task.
const COMPARED_FIRES: usize = 32;
const SHOWN_FIRES: usize = 2;
/// Maximum number of tasks that the turns of one task, and of tasks that they created, may create.
const MAX_DESCENDANTS: usize = 10;

/// The scheduled tasks of an agent, in the store of its conversations.
///
/// Any process of the agent can change them: each task is one document, and a write names the version that
/// it replaces. [`Scheduler`](super::Scheduler) fires them.
pub struct Schedule {
    pub(super) agent: AgentName,
    pub(super) conversations: Conversations,
    pub(super) tasks: TaskStore,
    pub(super) notices: NoticeStore,
    pub(super) section: ScheduleSection,
    zones: Option<Arc<TimeZones>>,
    /// Notified after a change by this process.
    pub(super) changed: Notify,
}

/// The creator of a task.
#[derive(Debug, Clone, Default)]
pub(super) struct Creator {
    /// The conversation; `None` for a person with the command line program.
    pub(super) session: Option<SessionId>,
    /// The broker user, if known.
    pub(super) user: Option<String>,
}

/// Why an operation failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ScheduleError {
    #[error(transparent)]
    Name(#[from] InvalidTaskName),
    #[error(transparent)]
    Cron(#[from] InvalidCron),
    /// The task is not allowed. The text says what to change.
    #[error("{0}")]
    Refused(String),
    /// There is no such task, or it belongs to another user.
    #[error("there is no scheduled task '{0}'; list the tasks to see their names")]
    NotFound(String),
    #[error(transparent)]
    Edit(#[from] EditError),
    #[error(transparent)]
    Conversation(#[from] ConversationError),
}

impl From<DocumentError> for ScheduleError {
    fn from(error: DocumentError) -> Self {
        Self::Edit(error.into())
    }
}

impl Schedule {
    /// Creates the schedule of an agent in the store of its conversations: it ends with the process if they
    /// do. Tasks without a time zone follow that of `memory`, or of this machine.
    #[must_use]
    pub fn new(
        conversations: &Conversations,
        section: ScheduleSection,
        memory: Option<&AgentMemory>,
    ) -> Arc<Self> {
        let (store, agent) = (conversations.store().clone(), conversations.agent().clone());
        Arc::new(Self {
            tasks: TaskStore::new(store.clone(), &agent),
            notices: NoticeStore::new(store, &agent),
            agent,
            conversations: conversations.clone(),
            section,
            zones: memory.map(AgentMemory::zones),
            changed: Notify::new(),
        })
    }

    /// Creates or replaces a task. Returns a description with its next fires.
    pub(super) async fn add(
        &self,
        new: NewTask,
        creator: Creator,
    ) -> Result<String, ScheduleError> {
        let name = TaskName::new(&new.name)?;
        let now = self.tasks.now().await?;
        let (zone, own_zone) = self.zone_of_new(new.timezone.as_deref()).await?;
        let cron = CronExpression::parse(&new.cron)?;
        let first = self.check(&new, &cron, &zone, now)?;
        let all = self.tasks.list().await?;
        let owner = creator.user.clone();
        let user = owner.as_deref();
        let replaced = all.iter().find(|task| task.value.name == name);
        if replaced.is_some_and(|one| !is_owned(&one.value, user)) {
            return Err(owned_by_other(&name));
        }
        let root = self.check_number(&all, &name, creator.session.as_ref())?;
        let task = ScheduledTask {
            name: name.clone(),
            cron: cron.to_string(),
            zone: own_zone,
            description: new.description.trim().to_owned(),
            run_once: new.run_once,
            created: Creation { at: now, session: creator.session, user: owner.clone(), root },
            revision: MessageId::generate().to_string(),
            due: Some(first),
            due_zone: zone.name.clone(),
            requested: None,
            missed: None,
            cancelled: false,
            running: replaced.and_then(|one| one.value.running.clone()),
            last: replaced.and_then(|one| one.value.last.clone()),
            counts: replaced.map(|one| one.value.counts).unwrap_or_default(),
        };
        let expected = match replaced {
            Some(one) => Expected::Version(one.version),
            None => match self.tasks.unreadable(&name).await? {
                Some(one) if !is_visible(user, one.user.as_deref()) => {
                    return Err(owned_by_other(&name));
                }
                Some(one) => Expected::Version(one.version),
                None => Expected::Absent,
            },
        };
        if self.tasks.put(&task, expected).await?.is_none() {
            return Err(EditError::Contended.into());
        }
        self.changed.notify_one();
        Ok(self.describe_new(&task, &cron, &zone, now, replaced.map(|one| &one.value)))
    }

    /// Returns the tasks of a user with their zones, in the order of their next fires, and the time.
    pub(super) async fn list(
        &self,
        user: Option<&str>,
    ) -> Result<(Timestamp, Vec<ScheduledTask>), ScheduleError> {
        let now = self.tasks.now().await?;
        let tasks = self.tasks.list().await?.into_iter().map(|task| task.value);
        let mut tasks: Vec<_> = tasks.filter(|task| is_owned(task, user)).collect();
        let rules = DueRules::from(&self.section);
        tasks.sort_by_key(|task| (rules.due_at(task).is_none(), rules.due_at(task)));
        Ok((now, tasks))
    }

    /// Removes a task. Returns a description, or `None` for an unknown task. A running turn continues: the task
    /// is removed when it has ended, or when it is cancelled again.
    pub(super) async fn cancel(
        &self,
        name: &str,
        user: Option<&str>,
    ) -> Result<Option<String>, ScheduleError> {
        let name = TaskName::new(name)?;
        if let Some(unreadable) = self.tasks.unreadable(&name).await? {
            let is_removed = is_visible(user, unreadable.user.as_deref())
                && self.tasks.remove(&name, unreadable.version).await?;
            let text = format!("Removed scheduled task '{name}', which could not be read.");
            return Ok(is_removed.then_some(text));
        }
        let mut is_running = false;
        let cancelled = self.tasks.edit(&name, |task| {
            if !is_owned(task, user) {
                return Edit::Keep;
            }
            is_running = task.running.is_some();
            if !is_running || task.cancelled {
                return Edit::Remove;
            }
            (task.due, task.requested, task.run_once, task.cancelled) = (None, None, true, true);
            Edit::Put
        });
        let Some(cancelled) = cancelled.await? else { return Ok(None) };
        self.changed.notify_one();
        let running = if is_running { " Its running turn continues." } else { "" };
        Ok(Some(format!("Cancelled scheduled task '{}'.{running}", cancelled.name)))
    }

    /// Lets a task fire at once, besides its schedule. Returns a description.
    pub(super) async fn run_now(
        &self,
        name: &str,
        user: Option<&str>,
    ) -> Result<String, ScheduleError> {
        let name = TaskName::new(name)?;
        let now = self.tasks.now().await?;
        let mut is_running = false;
        let requested = self.tasks.edit(&name, |task| {
            if !is_owned(task, user) {
                return Edit::Keep;
            }
            is_running = task.running.is_some();
            if is_running {
                return Edit::Keep;
            }
            task.requested = Some(now);
            Edit::Put
        });
        let requested = requested.await?;
        if is_running {
            let text = format!("the turn of '{name}' is running; run it again when it has ended");
            return Err(ScheduleError::Refused(text));
        }
        let task = requested.ok_or_else(|| ScheduleError::NotFound(name.to_string()))?;
        self.changed.notify_one();
        Ok(format!("Scheduled task '{}' is due now.", task.name))
    }

    /// Returns the zone of a task: its own, or that of the agent. The last one is kept if the zone of the
    /// agent is not set or could not be read.
    pub(super) fn zone_of(task: &ScheduledTask, agent: Option<&Zone>) -> Zone {
        let own = task.zone.as_deref().and_then(Zone::get);
        let zone = own.or_else(|| agent.cloned());
        zone.or_else(|| Zone::get(&task.due_zone)).unwrap_or_else(Zone::system)
    }

    /// Returns the zone in which times are shown.
    pub(super) async fn shown_zone(&self) -> Zone {
        self.agent_zone().await.unwrap_or_else(Zone::system)
    }

    /// Returns `true` if the tasks outlive the process.
    pub(super) fn is_durable(&self) -> bool {
        self.conversations.is_durable()
    }

    /// Returns the zone of the agent; `None` if it is not set or cannot be read.
    pub(super) async fn agent_zone(&self) -> Option<Zone> {
        let zone = self.zones.as_ref()?.find(&self.agent).await.ok().flatten();
        zone.and_then(Zone::from_zone)
    }

    async fn zone_of_new(
        &self,
        name: Option<&str>,
    ) -> Result<(Zone, Option<String>), ScheduleError> {
        let Some(name) = name else { return Ok((self.shown_zone().await, None)) };
        let zone = Zone::get(name).ok_or_else(|| {
            ScheduleError::Refused(
                "unknown time zone; give a name of the IANA database, such as Europe/Berlin or UTC"
                    .to_owned(),
            )
        })?;
        let name = zone.name.clone();
        Ok((zone, Some(name)))
    }

    /// Checks a new task. Returns the time of its first fire.
    fn check(
        &self,
        new: &NewTask,
        cron: &CronExpression,
        zone: &Zone,
        now: Timestamp,
    ) -> Result<Timestamp, ScheduleError> {
        let refused = |text: String| Err(ScheduleError::Refused(text));
        let bytes = new.description.len();
        if new.description.trim().is_empty() || bytes > MAX_TASK_DESCRIPTION_BYTES {
            return refused(format!(
                "the description has {bytes} bytes; use 1 to {MAX_TASK_DESCRIPTION_BYTES}"
            ));
        }
        let first = cron.next_after(now, &zone.zone).ok_or_else(|| cron.never())?;
        if new.run_once {
            if first.since(now) > MAX_SINGLE_AHEAD {
                let (first, now) = (zone.local_with_zone(first), zone.local(now));
                return refused(format!(
                    "that time is over: the next one is {first}, and it is now {now}; use a later time"
                ));
            }
            return Ok(first);
        }
        let (mut before, least) = (first, self.section.min_interval);
        for _ in 1..COMPARED_FIRES {
            let Some(next) = cron.next_after(before, &zone.zone) else { break };
            if next.since(before) < least {
                return refused(format!(
                    "the task would fire every {} s, but {} s is the shortest interval; use a longer one",
                    next.since(before).as_secs(),
                    least.as_secs(),
                ));
            }
            before = next;
        }
        Ok(first)
    }

    /// Checks the number of tasks. Returns the task that the new one descends from: its turn, or that of a
    /// descendant, creates it.
    fn check_number(
        &self,
        all: &[Document<ScheduledTask>],
        name: &TaskName,
        session: Option<&SessionId>,
    ) -> Result<Option<TaskName>, ScheduleError> {
        let others = || all.iter().map(|task| &task.value).filter(|task| task.name != *name);
        let limit = self.section.max_tasks;
        if others().count() >= limit {
            return Err(ScheduleError::Refused(format!(
                "there are {limit} scheduled tasks, the most that are allowed; cancel one first"
            )));
        }
        let is_turn_of =
            |task: &&ScheduledTask| task.running.as_ref().map(|fire| &fire.session) == session;
        let creating = session.and_then(|_| all.iter().map(|task| &task.value).find(is_turn_of));
        let Some(creating) = creating else { return Ok(None) };
        let root = creating.created.root.clone().unwrap_or_else(|| creating.name.clone());
        let descends = |task: &&ScheduledTask| task.created.root.as_ref() == Some(&root);
        if others().filter(descends).count() >= MAX_DESCENDANTS {
            return Err(ScheduleError::Refused(format!(
                "turns of the scheduled task '{root}' have created {MAX_DESCENDANTS} tasks, the most that \
                 are allowed; cancel one first"
            )));
        }
        Ok(Some(root))
    }

    /// Describes a task that was created.
    fn describe_new(
        &self,
        task: &ScheduledTask,
        cron: &CronExpression,
        zone: &Zone,
        now: Timestamp,
        replaced: Option<&ScheduledTask>,
    ) -> String {
        let ScheduledTask { name, cron: text, run_once, .. } = task;
        let mut answer = format!("Scheduled task '{name}' with cron '{text}'.");
        if let Some(replaced) = replaced {
            answer += &format!(" It replaces the task with cron '{}'.", replaced.cron);
        }
        let mut fires = Vec::new();
        let mut next = task.due;
        while let Some(at) = next
            && fires.len() <= if *run_once { 0 } else { SHOWN_FIRES }
        {
            fires.push(zone.local(at));
            next = cron.next_after(at, &zone.zone);
        }
        answer += &format!(" Next fire: {}.", fires.join(", then "));
        if cron.is_either_day() {
            answer +=
                " It fires on every day that meets its day of the month or its day of the week.";
        }
        answer += &format!(" Current time: {}.", zone.local_with_zone(now));
        if !self.is_durable() {
            answer += " The task is kept in memory only: it is gone when the process ends.";
        }
        answer
    }
}

fn owned_by_other(name: &TaskName) -> ScheduleError {
    let text = format!("another user has a scheduled task '{name}'; use another name");
    ScheduleError::Refused(text)
}

/// Returns `true` if the user may see and change the task.
fn is_owned(task: &ScheduledTask, user: Option<&str>) -> bool {
    is_visible(user, task.created.user.as_deref())
}

impl fmt::Debug for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Schedule")
            .field("agent", &self.agent)
            .field("section", &self.section)
            .finish_non_exhaustive()
    }
}
