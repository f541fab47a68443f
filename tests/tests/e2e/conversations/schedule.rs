//! Scheduled tasks of an agent with two processes, of which one dies or falls silent.
//!
//! The clocks of both may be wrong: that of the database counts.
//!
//! `ROCKBOT_TEST_SCHEDULE_ROUNDS` and `ROCKBOT_TEST_SCHEDULE_TASKS` set the number of rounds of each test, by
//! default 1, and of the tasks that are due in the same second, by default 20.

use std::{
    env,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use jiff::{Timestamp, tz::TimeZone};
use rockbot_agent::AgentClient;
use rockbot_contracts::{
    InstanceId, ScheduleRequest, ScheduleResponse,
    schedule::{NewTask, ScheduledTaskInfo},
};
use rockbot_store::{Prefix, Stores};
use rockbot_testkit::fixture::wait_until;
use rustix::process::Signal;
use serde_json::Value;
use tokio::time::{Instant, interval, sleep_until};

use super::{
    endurance::is_full,
    harness::{GATED, Replicas, kill, scene},
};
use crate::{clocks::Clocks, process::Running};

const JOB: &str = "the job";
/// Time until the tasks are due.
const AHEAD: Duration = Duration::from_secs(5);
/// Time limit for all fires, from their time on.
const LIMIT: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(50);
/// Times of the kills of [`Disturbance::KilledAround`], in milliseconds after the fires.
const KILLS_MS: [i64; 7] = [0, 500, -1000, 1000, -500, 2000, 1500];

/// Settings of the processes.
const SETTINGS: [(&str, &str); 2] =
    [("ROCKBOT_SCHEDULE__CONCURRENCY", "16"), ("ROCKBOT_SCHEDULE__MAX_TASKS", "200")];
/// Difference of wrong clocks from that of the database, in seconds.
const WRONG_BY: i64 = 300;

/// The fault of one of the two processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Disturbance {
    KilledBefore,
    /// From a second before the fires to two seconds after them, in turn.
    KilledAround,
    KilledDuring,
    StalledDuring,
}

fn number(variable: &str, default: usize) -> usize {
    env::var(variable).map_or(default, |number| number.parse().expect("a number"))
}

/// Connects a person to the agent.
async fn client(replicas: &Replicas) -> AgentClient {
    let bus = replicas.fleet.bus(|_| {}).await;
    AgentClient::connect(bus, &InstanceId::generate()).await.expect("a queue")
}

async fn add(client: &AgentClient, replicas: &Replicas, name: String, cron: String) {
    let (description, timezone) = (JOB.to_owned(), Some("UTC".to_owned()));
    let task = NewTask { name, cron, description, run_once: true, timezone };
    let request = ScheduleRequest::Add { task };
    client.request_schedule(&replicas.agent, &request).await.expect("scheduled");
}

async fn tasks(client: &AgentClient, replicas: &Replicas) -> Vec<ScheduledTaskInfo> {
    let request = ScheduleRequest::List {};
    match client.request_schedule(&replicas.agent, &request).await.expect("a list") {
        ScheduleResponse::Tasks { tasks, .. } => tasks,
        other => panic!("unexpected response: {other:?}"),
    }
}

/// Waits until the turns of all tasks have an answer. A single task is removed then.
async fn wait_until_answered(client: &AgentClient, replicas: &Replicas, deadline: Instant) {
    let mut ticks = interval(POLL);
    loop {
        let left = tasks(client, replicas).await;
        if left.is_empty() {
            return;
        }
        assert!(Instant::now() < deadline, "{left:#?}");
        ticks.tick().await;
    }
}

/// Returns the expression of a single time, in UTC.
fn single(at: SystemTime) -> String {
    let at = Timestamp::try_from(at).expect("a time").to_zoned(TimeZone::UTC);
    at.strftime("%-S %-M %-H %-d %-m *").to_string()
}

async fn start(replicas: &Replicas, instance: &str) -> Running {
    replicas.start_with(instance, &SETTINGS).await
}

async fn check_round(disturbance: Disturbance, count: usize, round: usize) {
    let replicas = Replicas::new(&scene(JOB, &["echo ran >> lines"])).await;
    let first = start(&replicas, "agent-1").await;
    let second = start(&replicas, "agent-2").await;
    let client = client(&replicas).await;
    let (due, due_at) = (SystemTime::now() + AHEAD, Instant::now() + AHEAD);
    for number in 0..count {
        add(&client, &replicas, format!("task {number}"), single(due)).await;
    }
    match disturbance {
        Disturbance::KilledBefore => {}
        Disturbance::KilledAround => {
            let at = KILLS_MS[round % KILLS_MS.len()];
            let offset = Duration::from_millis(at.unsigned_abs());
            sleep_until(if at < 0 { due_at - offset } else { due_at + offset }).await;
        }
        _ => wait_until("a fire", || !replicas.lines().is_empty()).await,
    }
    let stalled = if disturbance == Disturbance::StalledDuring {
        first.send(Signal::STOP);
        Some(first)
    } else {
        kill(first).await;
        None
    };
    wait_until_answered(&client, &replicas, due_at + LIMIT).await;
    let late = Instant::now().saturating_duration_since(due_at);
    println!("{disturbance:?}: {count} tasks answered {late:?} after their time");
    if let Some(stalled) = &stalled {
        stalled.send(Signal::CONT);
    }
    check_conversations(&replicas, count).await;
    // On a busy machine, the handler may be too full for all calls at once.
    let ran = replicas.lines().len();
    assert!((1..=count).contains(&ran), "{disturbance:?}: {ran} runs of {count} calls");
    let user = replicas.user().await;
    replicas.finish(stalled.into_iter().chain([second]).collect(), user).await;
}

/// Returns how late the turns of all tasks began, in order. `due` is the time of a task by its number.
async fn lateness(replicas: &Replicas, due: impl Fn(usize) -> SystemTime) -> Vec<Duration> {
    let stores = replicas.open_store().await;
    let prefix = Prefix::new(["conversation", replicas.agent.as_str()]).expect("a prefix");
    let logs = stores.log.logs(&prefix, None, 1000).await.expect("logs");
    let mut late = Vec::new();
    for log in logs {
        let first = stores.log.read(&log.name, 1, 1).await.expect("an entry").remove(0);
        let first: Value = serde_json::from_slice(&first.value).expect("JSON");
        let began = Duration::from_millis(first["at"].as_u64().expect("a time"));
        let text = first["text"].as_str().expect("a text");
        let (_, rest) = text.split_once("\"task ").expect("its name");
        let number = rest.split('"').next().and_then(|number| number.parse().ok());
        let due = due(number.expect("a number")).duration_since(UNIX_EPOCH).expect("a time");
        // A task is due at the start of a second.
        late.push(began.checked_sub(Duration::from_secs(due.as_secs())).expect("not early"));
    }
    stores.close().await;
    late.sort_unstable();
    late
}

/// Returns the kinds of the entries of each conversation.
async fn kinds(stores: &Stores, replicas: &Replicas) -> Vec<Vec<String>> {
    let prefix = Prefix::new(["conversation", replicas.agent.as_str()]).expect("a prefix");
    let logs = stores.log.logs(&prefix, None, 1000).await.expect("logs");
    let mut kinds = Vec::new();
    for log in logs {
        let entries = stores.log.read(&log.name, 1, 100).await.expect("entries");
        let of_entry = |value: &[u8]| {
            let entry: Value = serde_json::from_slice(value).expect("JSON");
            entry["kind"].as_str().expect("a kind").to_owned()
        };
        kinds.push(entries.iter().map(|entry| of_entry(&entry.value)).collect());
    }
    kinds
}

/// Returns the number of entries of a kind.
fn count_of(kind: &str, kinds: &[String]) -> usize {
    kinds.iter().filter(|one| *one == kind).count()
}

/// Checks that each fire has one conversation with one message and one answer.
async fn check_conversations(replicas: &Replicas, count: usize) {
    let stores = replicas.open_store().await;
    let found = kinds(&stores, replicas).await;
    stores.close().await;
    assert_eq!(found.len(), count);
    for kinds in found {
        for kind in ["message", "answer"] {
            assert_eq!(count_of(kind, &kinds), 1, "{kinds:?}");
        }
    }
}

async fn check(disturbance: Disturbance) {
    for round in 0..number("ROCKBOT_TEST_SCHEDULE_ROUNDS", 1) {
        check_round(disturbance, number("ROCKBOT_TEST_SCHEDULE_TASKS", 20), round).await;
    }
}

#[tokio::test]
async fn tasks_fire_once_although_a_process_is_killed_before() {
    check(Disturbance::KilledBefore).await;
}

#[tokio::test]
async fn tasks_fire_once_although_a_process_is_killed_around_their_time() {
    check(Disturbance::KilledAround).await;
}

#[tokio::test]
async fn tasks_fire_once_although_a_process_is_killed_meanwhile() {
    check(Disturbance::KilledDuring).await;
}

#[tokio::test]
async fn tasks_fire_once_although_a_process_stalls_meanwhile() {
    check(Disturbance::StalledDuring).await;
}

#[tokio::test]
async fn turn_of_a_task_continues_after_its_process_is_killed() {
    let replicas = Replicas::new(&scene(JOB, &[GATED, "echo after >> lines"])).await;
    let first = start(&replicas, "agent-1").await;
    let client = client(&replicas).await;
    add(&client, &replicas, "job".to_owned(), single(SystemTime::now() + AHEAD)).await;
    let _command = replicas.gated_command().await;
    kill(first).await;
    let second = start(&replicas, "agent-2").await;
    replicas.open_gate();
    wait_until_answered(&client, &replicas, Instant::now() + LIMIT).await;
    assert_eq!(replicas.lines(), ["gated", "after"]);
    check_conversations(&replicas, 1).await;
    let user = replicas.user().await;
    replicas.finish(vec![second], user).await;
}

#[tokio::test]
async fn tasks_of_healthy_processes_begin_in_their_second() {
    const TASKS: usize = 50;
    const PER_SECOND: usize = 5;
    let replicas = Replicas::new(&scene(JOB, &["echo ran >> lines"])).await;
    let agents = vec![start(&replicas, "agent-1").await, start(&replicas, "agent-2").await];
    let client = client(&replicas).await;
    let (begin, due_at) = (SystemTime::now() + AHEAD, Instant::now() + AHEAD);
    let due = |number: usize| begin + Duration::from_secs((number / PER_SECOND) as u64);
    for number in 0..TASKS {
        add(&client, &replicas, format!("task {number}"), single(due(number))).await;
    }
    let last = Duration::from_secs((TASKS / PER_SECOND) as u64);
    wait_until_answered(&client, &replicas, due_at + last + LIMIT).await;
    let late = lateness(&replicas, due).await;
    assert_eq!(late.len(), TASKS);
    println!("lateness of {TASKS} tasks: p50 {:?}, worst {:?}", late[TASKS / 2], late[TASKS - 1]);
    if is_full() {
        assert!(late[TASKS / 2] <= Duration::from_millis(50), "{late:?}");
    }
    assert_eq!(replicas.lines().len(), TASKS);
    let user = replicas.user().await;
    replicas.finish(agents, user).await;
}

#[tokio::test]
async fn tasks_fire_at_the_time_of_the_store_although_clocks_are_wrong() {
    const TASKS: usize = 10;
    // Until the processes with wrong clocks run.
    const AHEAD: Duration = Duration::from_secs(30);
    let clocks = Clocks::start().await;
    let replicas = Replicas::new(&scene(JOB, &[])).await;
    let setup = start(&replicas, "agent-0").await;
    let client = client(&replicas).await;
    let (due, due_at) = (SystemTime::now() + AHEAD, Instant::now() + AHEAD);
    for number in 0..TASKS {
        add(&client, &replicas, format!("task {number}"), single(due)).await;
    }
    setup.send(Signal::TERM);
    setup.wait().await.assert_code(0);
    let mut agents = Vec::new();
    for (instance, offset) in [("agent-1", WRONG_BY), ("agent-2", -WRONG_BY)] {
        clocks.set(instance, offset);
        let settings = clocks.settings(instance);
        let settings = settings.iter().map(|(name, value)| (*name, value.to_str().expect("text")));
        let settings: Vec<_> = settings.chain(SETTINGS).collect();
        let mut agent = replicas.launch(instance, &settings);
        agent.expect_log("ready").await;
        agents.push(agent);
    }
    let started = Instant::now();
    assert!(started + Duration::from_secs(2) < due_at, "the processes were too slow to check");
    let stores = replicas.open_store().await;
    let mut ticks = interval(POLL);
    loop {
        ticks.tick().await;
        let found = kinds(&stores, &replicas).await;
        // A task is due at the start of a second.
        let is_early = Instant::now() + Duration::from_secs(1) < due_at;
        assert!(found.is_empty() || !is_early, "fired {:?} early", due_at - Instant::now());
        if found.iter().filter(|kinds| count_of("answer", kinds) == 1).count() == TASKS {
            break;
        }
        assert!(Instant::now() < due_at + LIMIT, "late: {found:?}");
    }
    stores.close().await;
    for agent in agents {
        agent.send(Signal::TERM);
        agent.wait().await.assert_code(0);
    }
    check_conversations(&replicas, TASKS).await;
    replicas.stop(Vec::new()).await;
}
