//! Quarantine of calls that crash their handlers.

// Open files of a handler are visible on Linux only.
#![cfg(target_os = "linux")]

use std::{collections::BTreeMap, fs, path::PathBuf, sync::Arc, time::Duration};

use rockbot_bus::Bus;
use rockbot_contracts::ToolErrorCode;
use rockbot_testkit::fixture::within_timeout;
use rockbot_tools::{ToolFailure, ToolResult};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::timeout};

use crate::{caller::Caller, fleet::Fleet, handler_crashes::ambiguous_text, process::Running};

const SHARED: (&str, &str) = ("ROCKBOT_STORE__SHARED", "true");

const AGENTS: [&str; 2] = ["ada", "bob"];
const CALLS_PER_AGENT: usize = 100;
/// Parallel calls of a handler.
const CONCURRENCY: usize = 8;
/// Handlers that a call can crash: two, and three in quarantine.
const MAX_KILLED: usize = 2 + 3;
/// Time limit of the calls.
const TIMEOUT: Duration = Duration::from_secs(55);

/// Two handlers. A handler that opens the poison file is killed and replaced.
struct CrashingHandlers<'a> {
    fleet: &'a Fleet,
    poison: PathBuf,
    handlers: Vec<Running>,
    killed: usize,
}

impl<'a> CrashingHandlers<'a> {
    async fn start(fleet: &'a Fleet, poison: PathBuf) -> Self {
        let mut crashing = Self { fleet, poison, handlers: Vec::new(), killed: 0 };
        for _ in 0..2 {
            let handler = crashing.start_handler().await;
            crashing.handlers.push(handler);
        }
        crashing
    }

    async fn start_handler(&self) -> Running {
        let instance = format!("handler-{}", self.killed + self.handlers.len() + 1);
        let concurrency = CONCURRENCY.to_string();
        let settings = [
            SHARED,
            ("ROCKBOT_HANDLER__CONCURRENCY", concurrency.as_str()),
            // Each handler can hold all calls, so that a crash affects all of them.
            ("ROCKBOT_HANDLER__BACKLOG", "1000"),
        ];
        self.fleet.handler_with(&instance, &settings).await
    }

    /// Returns the index of the handler that has the poison file open.
    fn poisoned(&self) -> Option<usize> {
        let has_open_poison = |handler: &Running| {
            let open = fs::read_dir(format!("/proc/{}/fd", handler.pid())).expect("descriptors");
            let is_poison = |entry: fs::DirEntry| {
                fs::read_link(entry.path()).is_ok_and(|path| path == self.poison)
            };
            open.filter_map(Result::ok).any(is_poison)
        };
        self.handlers.iter().position(has_open_poison)
    }

    async fn replace(&mut self, index: usize) {
        let mut handler = self.handlers.remove(index);
        handler.send(Signal::KILL);
        handler.wait_for_exit().await;
        self.killed += 1;
        self.handlers.push(self.start_handler().await);
    }

    /// Kills poisoned handlers until the poison is a dead letter.
    async fn run_until_dead_lettered(&mut self, bus: &Arc<dyn Bus>) {
        let mut ticks = tokio::time::interval(Duration::from_millis(2));
        while self.fleet.waiting_and_dead(bus).await.1 == 0 {
            ticks.tick().await;
            if let Some(index) = self.poisoned() {
                self.replace(index).await;
            }
        }
    }
}

/// Returns tool, arguments and marker file of a call that does not crash handlers.
fn harmless_call(agent: &str, number: usize) -> (&'static str, Value, Option<String>) {
    if number.is_multiple_of(4) {
        return ("read_file", json!({"path": "notes.md"}), None);
    }
    let marker = format!("marker-{agent}-{number}");
    let command = format!("echo ran >> {marker}; sleep 0.1; echo done");
    ("bash", json!({"command": command}), Some(marker))
}

fn count_runs(fleet: &Fleet, marker: &str) -> usize {
    fs::read_to_string(fleet.path(marker)).unwrap_or_default().lines().count()
}

#[tokio::test(flavor = "multi_thread")]
async fn poison_request_is_quarantined_and_others_complete() {
    let fleet = Fleet::new();
    fleet.write("notes.md", "done\n");
    let poison = fleet.write("poison.txt", &ambiguous_text()).canonicalize().expect("it exists");
    let mut handlers = CrashingHandlers::start(&fleet, poison).await;
    let bus = fleet.bus(|_| {}).await;

    let callers = AGENTS.map(|agent| Caller::for_agent(agent, bus.clone(), TIMEOUT));
    let mut calls = JoinSet::new();
    for number in 0..CALLS_PER_AGENT {
        for caller in &callers {
            let caller = caller.clone();
            calls.spawn(async move {
                let agent = caller.requester.address().agent().to_string();
                let (tool, arguments, marker) = harmless_call(&agent, number);
                (marker, caller.call(tool, arguments).await)
            });
        }
    }
    let poisoner = Caller::for_agent("eve", bus.clone(), TIMEOUT);
    let search = json!({"pattern": "a[ab]{2000}[c-z]|abba", "path": "poison.txt"});
    let poison = tokio::spawn(async move { poisoner.call("search", search).await });

    let dead_lettered = handlers.run_until_dead_lettered(&bus);
    timeout(TIMEOUT, dead_lettered).await.expect("the poison is dead-lettered in time");
    let mut outcomes = BTreeMap::<&str, usize>::new();
    while let Some(call) = calls.join_next().await {
        let (marker, outcome) = call.expect("no panic");
        let runs = marker.as_deref().map(|marker| count_runs(&fleet, marker));
        *outcomes.entry(check_outcome(&outcome, runs)).or_default() += 1;
    }
    println!("{outcomes:?}; {} handlers were killed", handlers.killed);
    let unknown = outcomes.get("outcome unknown").copied().unwrap_or_default();
    assert!(unknown <= handlers.killed * CONCURRENCY, "{unknown} calls with unknown outcome");
    assert!(handlers.killed <= MAX_KILLED, "{} handlers were killed", handlers.killed);
    let late: Vec<_> = callers.iter().map(|caller| caller.requester.stats().late()).collect();
    println!("late replies: {late:?}");
    assert!(callers.iter().all(|caller| caller.requester.pending() == 0));

    check_dead_letters(&fleet).await;
    // A replayed request runs for a caller that still waits.
    fleet.write("poison.txt", "abba\n");
    fleet.run(&["dlq", "replay", "tool.invoke"]).await.assert_code(0);
    let replayed = within_timeout("its result", poison).await.expect("no panic").expect("a result");
    assert_eq!(replayed.to_text(), "poison.txt:1: abba\n");
    assert_eq!(fleet.waiting_and_dead(&bus).await, (0, 0));
}

/// Checks the outcome of a harmless call against the number of its runs, and returns its name.
fn check_outcome(outcome: &Result<ToolResult, ToolFailure>, runs: Option<usize>) -> &'static str {
    match outcome {
        Ok(result) => {
            assert_eq!(result.to_text(), "done\n");
            assert!(runs.is_none_or(|runs| runs == 1), "ran {runs:?} times");
            "succeeded"
        }
        Err(failure) if failure.code() == ToolErrorCode::OutcomeUnknown => {
            assert!(runs.is_some_and(|runs| runs <= 1), "ran {runs:?} times");
            "outcome unknown"
        }
        Err(failure) => panic!("a harmless call failed: {failure:?}"),
    }
}

/// Checks that the poison is the only dead letter.
async fn check_dead_letters(fleet: &Fleet) {
    let shown = fleet.run(&["--json", "dlq", "show", "tool.invoke.quarantine", "--body"]).await;
    shown.assert_code(0);
    let shown = shown.json();
    let letters = shown["letters"].as_array().expect("letters");
    assert_eq!(letters.len(), 1, "{shown:#}");
    let body = letters[0]["body"].as_str().expect("its body");
    assert!(body.contains("poison.txt"), "{body}");
    assert_eq!(letters[0]["source"], "eve");
    assert_eq!(letters[0]["reason"], "delivered too often");
    // Copies of calls that ended are settled one after another.
    let empty = async {
        loop {
            let queues = fleet.run(&["--json", "dlq", "list"]).await.json();
            let queue = |at: usize| [&queues[at]["name"], &queues[at]["ready"]].map(Value::clone);
            let names = [queue(0), queue(1)].map(|[name, _]| name);
            assert_eq!(names, [json!("tool.invoke"), json!("tool.invoke.quarantine")]);
            if [queue(0), queue(1)].iter().all(|[_, ready]| *ready == json!(0)) {
                return;
            }
        }
    };
    timeout(TIMEOUT, empty).await.expect("no request is left");
}

#[tokio::test]
async fn command_that_kills_handler_runs_once() {
    let fleet = Fleet::new();
    let mut first = fleet.handler_with("handler-1", &[SHARED]).await;
    let mut second = fleet.handler_with("handler-2", &[SHARED]).await;
    let command = r#"{"command": "echo ran >> marker; kill -9 $PPID"}"#;
    let called = fleet.run(&["--json", "tools", "call", "bash", command]).await;
    called.assert_code(1);
    assert_eq!(called.json()["code"], "outcome_unknown");
    assert_eq!(fs::read_to_string(fleet.path("marker")).expect("the side effect"), "ran\n");
    assert!(first.is_alive() != second.is_alive(), "one handler was killed");
    assert_eq!(fleet.waiting_and_dead(&fleet.bus(|_| {}).await).await, (0, 0));
}
