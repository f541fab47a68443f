//! Decides which changes of a task are due at a point in time.

use std::time::Duration;

use rockbot_contracts::{MessageId, SessionId};
use rockbot_store::Timestamp;
use sha2::{Digest, Sha256};

use super::{
    cron::CronExpression,
    section::ScheduleSection,
    task::{Fire, ScheduledTask, hex},
    zone::Zone,
};

/// A fire that is less late than this is not missed.
const GRACE: Duration = Duration::from_secs(60);
/// Occurrences that are counted in one step. More count as this many.
const MAX_COUNTED: u64 = 10_000;
/// Time in which the newest of more occurrences is searched.
const LAST_HOUR: Duration = Duration::from_secs(3600);
/// A single fire that is further away is a mistake: its time is over.
pub(super) const MAX_SINGLE_AHEAD: Duration = Duration::from_secs(300 * 24 * 3600);
/// Longest part of a task's name in the id of a conversation, in bytes.
const MAX_SLUG_BYTES: usize = 40;

/// Rules for late fires.
#[derive(Debug, Clone, Copy)]
pub(super) struct DueRules {
    /// Age up to which the last missed fire is made up for.
    catch_up: Duration,
    jitter: Duration,
}

/// A change of a task that is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Change {
    /// The task afterwards.
    pub(super) task: ScheduledTask,
    pub(super) missed: u64,
    pub(super) overlapped: u64,
    /// The task fired: [`ScheduledTask::running`] is new.
    pub(super) has_fired: bool,
}

impl From<&ScheduleSection> for DueRules {
    fn from(section: &ScheduleSection) -> Self {
        let catch_up = section.catch_up.duration().unwrap_or_default().max(GRACE);
        Self { catch_up, jitter: section.jitter }
    }
}

impl DueRules {
    /// Returns the change that is due for `task` at `now`, if any. `zone` is the zone of
    /// the task, or that of the agent.
    pub(super) fn change(
        &self,
        task: &ScheduledTask,
        zone: &Zone,
        now: Timestamp,
    ) -> Option<Change> {
        let cron = CronExpression::parse(&task.cron).ok()?;
        let mut change = Change { task: task.clone(), missed: 0, overlapped: 0, has_fired: false };
        if let Some(at) = task.requested
            && task.running.is_none()
        {
            change.task.requested = None;
            change.fire(FireTime { at, late: now.since(at), missed: 0, is_requested: true }, zone);
            return Some(change);
        }
        let due = task.due?;
        if task.has_to_wait() {
            return None;
        }
        if task.due_zone != zone.name {
            // Nothing is made up for a change of the zone.
            change.task.due_zone.clone_from(&zone.name);
            change.task.due = cron.next_after(now, &zone.zone);
            let is_near = |next: Timestamp| next.since(now) <= MAX_SINGLE_AHEAD;
            if task.run_once && !change.task.due.is_some_and(is_near) {
                change.miss(due);
            }
            return Some(change);
        }
        let delay = self.delay(task, &cron);
        if due.after(delay) > now {
            return None;
        }
        // The newest time whose fire, with the delay of the task, is due.
        let horizon = before(now, delay);
        let (count, newest) = occurrences(&cron, zone, due, horizon);
        change.task.due = cron.next_after(horizon, &zone.zone);
        if task.running.is_some() {
            change.overlapped = count;
            change.task.counts.overlapped += count;
            return Some(change);
        }
        let late = horizon.since(newest);
        if late <= self.catch_up {
            let missed = count - 1;
            change.fire(FireTime { at: newest, late, missed, is_requested: false }, zone);
            change.missed = missed;
        } else {
            change.missed = count;
            if task.run_once {
                change.miss(newest);
                return Some(change);
            }
        }
        change.task.counts.missed += change.missed;
        Some(change)
    }

    /// Returns the time at which the task is due; `None` if it is not.
    pub(super) fn due_at(&self, task: &ScheduledTask) -> Option<Timestamp> {
        if task.requested.is_some() && task.running.is_none() {
            return task.requested;
        }
        if task.has_to_wait() {
            return None;
        }
        let cron = CronExpression::parse(&task.cron).ok()?;
        Some(task.due?.after(self.delay(task, &cron)))
    }

    /// Returns the constant delay of a task's fires.
    fn delay(&self, task: &ScheduledTask, cron: &CronExpression) -> Duration {
        let jitter = u64::try_from(self.jitter.as_millis()).unwrap_or(u64::MAX);
        if jitter == 0 || cron.has_seconds() {
            return Duration::ZERO;
        }
        let digest = Sha256::digest(&task.revision);
        let random = digest.iter().take(8).fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        Duration::from_millis(random % jitter)
    }
}

/// The time of a fire, and how late it is.
#[derive(Debug, Clone, Copy)]
struct FireTime {
    at: Timestamp,
    late: Duration,
    /// Earlier fires that were missed.
    missed: u64,
    is_requested: bool,
}

impl Change {
    /// Notes that the only fire of the task was missed.
    fn miss(&mut self, at: Timestamp) {
        self.missed = self.missed.max(1);
        self.task.counts.missed += self.missed;
        (self.task.due, self.task.missed) = (None, Some(at));
    }

    fn fire(&mut self, time: FireTime, zone: &Zone) {
        let FireTime { at, is_requested, .. } = time;
        let task = &mut self.task;
        let digest = Sha256::digest(format!("{}/{}/{is_requested}", task.revision, at.as_millis()));
        let random = hex(&digest[..16]);
        task.running = Some(Fire {
            at,
            session: session_id(task, at, &random[..8]),
            message: message_id(at, &random),
            text: time.message(task, zone),
        });
        if task.run_once && !is_requested {
            task.due = None;
        }
        task.counts.fired += 1;
        self.has_fired = true;
    }
}

impl FireTime {
    /// Returns the message that starts the turn.
    fn message(&self, task: &ScheduledTask, zone: &Zone) -> String {
        let Self { at, late, missed, is_requested } = self;
        let when = zone.local_with_zone(*at);
        let due = if *is_requested { "requested" } else { "due" };
        let minutes = late.as_secs() / 60;
        let late = if minutes > 0 { format!(", {minutes} min late") } else { String::new() };
        let missed = match missed {
            0 => String::new(),
            1 => " The fire before it was missed.".to_owned(),
            more => format!(" {more} fires before it were missed."),
        };
        format!(
            "Scheduled task \"{}\", {due} {when}{late}.{missed} No person takes part: calls that need \
             approval are refused. Answer with NOTHING if there is nothing to report.\n\n{}",
            task.name, task.description
        )
    }
}

/// Returns the number of occurrences from `due` to `horizon`, and the newest of them.
fn occurrences(
    cron: &CronExpression,
    zone: &Zone,
    due: Timestamp,
    horizon: Timestamp,
) -> (u64, Timestamp) {
    let (mut count, mut newest) = (1, due);
    let next = |after| cron.next_after(after, &zone.zone).filter(|next| *next <= horizon);
    while let Some(found) = next(newest) {
        newest = found;
        count += 1;
        if count == MAX_COUNTED {
            let mut late = before(horizon, LAST_HOUR).max(newest);
            while let Some(found) = next(late) {
                (newest, late) = (found, found);
            }
            break;
        }
    }
    (count, newest)
}

fn before(at: Timestamp, by: Duration) -> Timestamp {
    let by = i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
    Timestamp::from_millis(at.as_millis().saturating_sub(by))
}

/// Returns the id of the message of a fire. It is ordered by time among the ids of users' messages, as a
/// UUID of version 7.
fn message_id(at: Timestamp, random: &str) -> MessageId {
    let id = format!("{:012x}7{}8{}", at.as_millis(), &random[..3], &random[3..18]);
    MessageId::new(id).unwrap_or_else(|_| MessageId::generate())
}

/// Returns the id of the conversation of a fire.
fn session_id(task: &ScheduledTask, at: Timestamp, random: &str) -> SessionId {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' };
    let slug: String = task.name.as_str().chars().take(MAX_SLUG_BYTES).map(plain).collect();
    let utc = Zone { name: String::new(), zone: jiff::tz::TimeZone::UTC };
    let time = utc.local(at).replace(['-', ':'], "").replace(' ', "T");
    let id = format!("scheduled-{}-{time}Z-{random}", slug.to_ascii_lowercase());
    SessionId::new(id).unwrap_or_else(|_| SessionId::generate())
}

#[cfg(test)]
mod tests;
