//! Tests of due changes.

use rockbot_contracts::Period;

use super::*;
use crate::schedule::task::{Creation, FireCounts, TaskName};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

fn at(text: &str) -> Timestamp {
    let at: jiff::Timestamp = text.parse().unwrap();
    Timestamp::from_millis(at.as_millisecond())
}

fn berlin() -> Zone {
    Zone::get("Europe/Berlin").unwrap()
}

fn rules(catch_up: &str) -> DueRules {
    let catch_up: Period = catch_up.parse().unwrap();
    DueRules::from(&ScheduleSection { catch_up, ..ScheduleSection::default() })
}

/// Returns a task of Berlin that was armed at `now`.
fn task(cron: &str, now: Timestamp) -> ScheduledTask {
    let zone = berlin();
    ScheduledTask {
        name: TaskName::new("Daily report").unwrap(),
        cron: cron.to_owned(),
        zone: None,
        description: "Report.".to_owned(),
        run_once: false,
        created: Creation { at: now, session: None, user: None, root: None },
        revision: "r1".to_owned(),
        due: CronExpression::parse(cron).unwrap().next_after(now, &zone.zone),
        due_zone: zone.name,
        requested: None,
        missed: None,
        cancelled: false,
        running: None,
        last: None,
        counts: FireCounts::default(),
    }
}

#[test]
fn due_task_fires_with_ids_of_its_own_time() {
    let task = task("0 9 * * *", at("2026-11-25T07:00:00Z"));
    let rules = rules("1h");
    assert_eq!(rules.change(&task, &berlin(), at("2026-11-25T07:59:59.999Z")), None);
    let change = |now| rules.change(&task, &berlin(), at(now)).unwrap();
    let fired = change("2026-11-25T08:00:00.040Z");
    assert!(fired.has_fired && fired.missed == 0);
    assert_eq!(fired.task.due, Some(at("2026-11-26T08:00:00Z")));
    let fire = fired.task.running.unwrap();
    assert_eq!(fire.at, at("2026-11-25T08:00:00Z"));
    let session = fire.session.as_str();
    assert!(session.starts_with("scheduled-daily-report-20261125T080000Z-"), "{session}");
    assert!(fire.text.starts_with(
        "Scheduled task \"Daily report\", due 2026-11-25 09:00:00 (Europe/Berlin, UTC+01:00). No person"
    ));
    // Another process that decides the same fire a moment later computes the same ids.
    let again = change("2026-11-25T08:00:03Z").task.running.unwrap();
    assert_eq!((&again.session, &again.message), (&fire.session, &fire.message));
    // The id of the message has the form and order of the ids of users' messages.
    let now = MessageId::generate();
    assert_eq!(fire.message.as_str().len(), now.as_str().len());
    assert_eq!(&fire.message.as_str()[..12], format!("{:012x}", fire.at.as_millis()));
}

#[test]
fn last_of_many_missed_fires_is_made_up_for() {
    let task = task("*/15 * * * *", at("2026-11-25T07:50:00Z"));
    let change = rules("1h").change(&task, &berlin(), at("2026-11-25T10:59:00Z")).unwrap();
    // 08:00 to 10:45 are twelve fires.
    assert_eq!((change.missed, change.task.counts.missed, change.task.counts.fired), (11, 11, 1));
    let fire = change.task.running.unwrap();
    assert_eq!(fire.at, at("2026-11-25T10:45:00Z"));
    assert!(fire.text.contains(", 14 min late. 11 fires before it were missed."), "{}", fire.text);
    assert_eq!(change.task.due, Some(at("2026-11-25T11:00:00Z")));
}

#[test]
fn old_missed_fire_is_counted_only() {
    let task = task("0 9 * * *", at("2026-11-25T07:00:00Z"));
    let late = at("2026-11-25T10:00:00Z");
    for (catch_up, fires) in [("1h", 0), ("off", 0), ("24h", 1)] {
        let change = rules(catch_up).change(&task, &berlin(), late).unwrap();
        let counts = change.task.counts;
        assert_eq!((counts.fired, counts.missed), (fires, 1 - fires), "{catch_up}");
        assert_eq!(change.task.missed, None);
    }
    let single = ScheduledTask { run_once: true, ..task };
    let missed = rules("1h").change(&single, &berlin(), late).unwrap();
    assert!(missed.missed > 0 && missed.task.missed.is_some() && missed.task.due.is_none());
}

#[test]
fn fire_is_not_missed_within_a_minute() {
    let task = task("0 9 * * *", at("2026-11-25T07:00:00Z"));
    let change = |now| rules("off").change(&task, &berlin(), at(now)).unwrap();
    assert!(change("2026-11-25T08:01:00Z").has_fired);
    assert!(!change("2026-11-25T08:01:01Z").has_fired);
}

#[test]
fn fires_of_a_very_frequent_task_are_counted_within_bounds() {
    let task = task("* * * * * *", at("2026-11-20T00:00:00Z"));
    let now = at("2026-11-25T00:00:00.500Z");
    let change = rules("1h").change(&task, &berlin(), now).unwrap();
    assert_eq!(change.missed, MAX_COUNTED - 1);
    assert_eq!(change.task.running.unwrap().at, at("2026-11-25T00:00:00Z"));
}

#[test]
fn fires_during_a_running_turn_are_skipped() {
    let task = task("*/15 * * * *", at("2026-11-25T07:50:00Z"));
    let rules = rules("1h");
    let running = rules.change(&task, &berlin(), at("2026-11-25T08:00:00Z")).unwrap().task;
    let change = rules.change(&running, &berlin(), at("2026-11-25T08:31:00Z")).unwrap();
    assert_eq!((change.overlapped, change.has_fired), (2, false));
    assert_eq!(change.task.running, running.running);
    assert_eq!(change.task.due, Some(at("2026-11-25T08:45:00Z")));
    assert_eq!(rules.change(&change.task, &berlin(), at("2026-11-25T08:32:00Z")), None);
}

#[test]
fn new_zone_of_the_agent_moves_the_next_fire_without_catch_up() {
    let task = task("0 9 * * *", at("2026-11-25T07:00:00Z"));
    let new_york = Zone::get("America/New_York").unwrap();
    let now = at("2026-11-25T07:30:00Z");
    let change = rules("1h").change(&task, &new_york, now).unwrap();
    assert!(!change.has_fired && change.missed == 0);
    assert_eq!(change.task.due, Some(at("2026-11-25T14:00:00Z")));
    assert_eq!(change.task.due_zone, "America/New_York");
    // East of it, nine o'clock is over: nothing is made up for.
    let tokyo = Zone::get("Asia/Tokyo").unwrap();
    let change = rules("1h").change(&task, &tokyo, now).unwrap();
    assert!(!change.has_fired);
    assert_eq!(change.task.due, Some(at("2026-11-26T00:00:00Z")));
}

#[test]
fn requested_fire_leaves_the_schedule_unchanged() {
    let now = at("2026-11-25T07:10:00Z");
    let mut task = task("0 9 * * *", at("2026-11-25T07:00:00Z"));
    task.requested = Some(now);
    assert_eq!(rules("1h").due_at(&task), Some(now));
    let change = rules("1h").change(&task, &berlin(), now.after(MINUTE / 2)).unwrap();
    assert_eq!((change.task.due, change.task.requested), (task.due, None));
    let fire = change.task.running.unwrap();
    assert!(fire.text.contains("requested 2026-11-25 08:10:00"), "{}", fire.text);
}

#[test]
fn single_task_keeps_its_fire_during_another_turn() {
    let mut task = task("0 9 * * *", at("2026-11-25T07:00:00Z"));
    (task.run_once, task.requested) = (true, Some(at("2026-11-25T07:50:00Z")));
    let rules = rules("1h");
    let requested = rules.change(&task, &berlin(), at("2026-11-25T07:50:00Z")).unwrap().task;
    assert_eq!(requested.due, Some(at("2026-11-25T08:00:00Z")), "a request does not replace it");
    let during = at("2026-11-25T08:05:00Z");
    assert_eq!(
        (rules.change(&requested, &berlin(), during), rules.due_at(&requested)),
        (None, None)
    );
    let ended = ScheduledTask { running: None, ..requested };
    let change = rules.change(&ended, &berlin(), during).unwrap();
    assert_eq!((change.has_fired, change.overlapped, change.task.due), (true, 0, None));
    assert_eq!(change.task.running.unwrap().at, at("2026-11-25T08:00:00Z"));
}

#[test]
fn single_task_has_no_next_fire_once_it_fired() {
    let mut task = task("0 9 * * *", at("2026-11-25T07:00:00Z"));
    task.run_once = true;
    let change = rules("1h").change(&task, &berlin(), at("2026-11-25T08:00:00Z")).unwrap();
    assert_eq!((change.task.due, change.has_fired), (None, true));
    assert_eq!(rules("1h").change(&change.task, &berlin(), at("2026-12-25T08:00:00Z")), None);
}

#[test]
fn jitter_is_constant_for_a_task_and_spreads_tasks() {
    let section = ScheduleSection { jitter: HOUR / 4, ..ScheduleSection::default() };
    let rules = DueRules::from(&section);
    let mut delays = std::collections::BTreeSet::new();
    for revision in 0..20 {
        let mut task = task("0 9 * * *", at("2026-11-25T07:00:00Z"));
        task.revision = format!("r{revision}");
        let due = rules.due_at(&task).unwrap();
        let delay = due.since(task.due.unwrap());
        assert!(delay < HOUR / 4);
        delays.insert(delay);
        let before = Timestamp::from_millis(due.as_millis() - 1);
        assert_eq!(rules.change(&task, &berlin(), before), None);
        let change = rules.change(&task, &berlin(), due).unwrap();
        assert_eq!(change.task.running.unwrap().at, task.due.unwrap());
        assert_eq!(change.task.due, Some(at("2026-11-26T08:00:00Z")));
    }
    assert!(delays.len() > 10, "{delays:?}");
    let seconds = task("0 0 9 * * *", at("2026-11-25T07:00:00Z"));
    assert_eq!(rules.due_at(&seconds), seconds.due);
}

#[test]
fn single_fire_that_a_new_zone_moves_to_the_past_is_missed() {
    let now = at("2026-11-25T07:00:00Z");
    let single = ScheduledTask { run_once: true, ..task("30 14 25 11 *", now) };
    let (due, rules) = (single.due.unwrap(), rules("1h"));
    let moved = |zone: &str| rules.change(&single, &Zone::get(zone).unwrap(), now).unwrap().task;
    let later = moved("America/New_York");
    assert_eq!((later.due, later.missed), (Some(at("2026-11-25T19:30:00Z")), None));
    // It is 16:00 there.
    let over = moved("Asia/Tokyo");
    assert_eq!((over.due, over.missed, over.counts.missed), (None, Some(due), 1));
    // A task that fires each year has another time.
    let yearly = ScheduledTask { run_once: false, ..single.clone() };
    let next = rules.change(&yearly, &Zone::get("Asia/Tokyo").unwrap(), now).unwrap().task;
    assert_eq!((next.due.is_some(), next.missed), (true, None));
}
