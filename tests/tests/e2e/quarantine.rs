//! Quarantine of calls that crash their handlers.

// That a handler has a file open is what only Linux tells.
#![cfg(target_os = "linux")]

use std::{collections::BTreeMap, fs, path::PathBuf, sync::Arc, time::Duration};

use rockbot_bus::Bus;
use rockbot_contracts::{ToolErrorCode, topology::MAX_DELIVERIES};
use rockbot_testkit::fixture::within_timeout;
use rockbot_tools::{ToolFailure, ToolResult};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::timeout};

use crate::{caller::Caller, crashes::tangle, fleet::Fleet, process::Running};

const SHARED: (&str, &str) = ("ROCKBOT_STORE__SHARED", "true");

const AGENTS: [&str; 2] = ["ada", "bob"];
const CALLS_OF_EACH: usize = 100;
/// Calls that a handler runs at once.
const CONCURRENCY: usize = 8;
/// How many handlers a call can be lost with: two, and then three alone.
const MOST_KILLED: usize = MAX_DELIVERIES as usize;
/// Enough for all of it.
const BUDGET: Duration = Duration::from_secs(55);

/// Two handlers. Each that opens the poison is killed, and another takes its place.
struct Victims<'a> {
    fleet: &'a Fleet,
    poison: PathBuf,
    handlers: Vec<Running>,
    killed: usize,
}

impl<'a> Victims<'a> {
    async fn start(fleet: &'a Fleet, poison: PathBuf) -> Self {
        let mut victims = Self { fleet, poison, handlers: Vec::new(), killed: 0 };
        for _ in 0..2 {
            let handler = victims.another().await;
            victims.handlers.push(handler);
        }
        victims
    }

    async fn another(&self) -> Running {
        let instance = format!("handler-{}", self.killed + self.handlers.len() + 1);
        let concurrency = CONCURRENCY.to_string();
        let settings = [
            SHARED,
            ("ROCKBOT_HANDLER__CONCURRENCY", concurrency.as_str()),
            // Room for all of them in each handler, so that all are lost with it.
            ("ROCKBOT_HANDLER__BACKLOG", "1000"),
        ];
        self.fleet.handler_with(&instance, &settings).await
    }

    /// Which handler has the poison open.
    fn poisoned(&self) -> Option<usize> {
        let has_it_open = |handler: &Running| {
            let open = fs::read_dir(format!("/proc/{}/fd", handler.pid())).expect("descriptors");
            let is_poison = |entry: fs::DirEntry| {
                fs::read_link(entry.path()).is_ok_and(|path| path == self.poison)
            };
            open.filter_map(Result::ok).any(is_poison)
        };
        self.handlers.iter().position(has_it_open)
    }

    async fn dies(&mut self, at: usize) {
        let mut victim = self.handlers.remove(at);
        victim.send(Signal::KILL);
        victim.dies().await;
        self.killed += 1;
        self.handlers.push(self.another().await);
    }

    /// Goes on until the poison is a dead letter.
    async fn until_set_aside(&mut self, bus: &Arc<dyn Bus>) {
        let mut look = tokio::time::interval(Duration::from_millis(2));
        while self.fleet.waiting_and_dead(bus).await.1 == 0 {
            look.tick().await;
            if let Some(at) = self.poisoned() {
                self.dies(at).await;
            }
        }
    }
}

/// The call that `agent` makes as its `number`th, and the marker that it leaves.
fn innocent(agent: &str, number: usize) -> (&'static str, Value, Option<String>) {
    if number.is_multiple_of(4) {
        return ("read_file", json!({"path": "notes.md"}), None);
    }
    let mark = format!("mark-{agent}-{number}");
    let command = format!("echo ran >> {mark}; sleep 0.1; echo done");
    ("bash", json!({"command": command}), Some(mark))
}

fn runs_of(fleet: &Fleet, mark: &str) -> usize {
    fs::read_to_string(fleet.path(mark)).unwrap_or_default().lines().count()
}

#[tokio::test(flavor = "multi_thread")]
async fn poison_request_is_quarantined_and_others_complete() {
    let fleet = Fleet::new();
    fleet.write("notes.md", "done\n");
    let poison = fleet.write("poison.txt", &tangle()).canonicalize().expect("it exists");
    let mut victims = Victims::start(&fleet, poison).await;
    let bus = fleet.bus(|_| {}).await;

    let callers = AGENTS.map(|agent| Caller::of(agent, bus.clone(), BUDGET));
    let mut calls = JoinSet::new();
    for number in 0..CALLS_OF_EACH {
        for caller in &callers {
            let caller = caller.clone();
            calls.spawn(async move {
                let agent = caller.requester.address().agent().to_string();
                let (tool, arguments, mark) = innocent(&agent, number);
                (mark, caller.call(tool, arguments).await)
            });
        }
    }
    let poisoner = Caller::of("eve", bus.clone(), BUDGET);
    let search = json!({"pattern": "a[ab]{2000}[c-z]|abba", "path": "poison.txt"});
    let poison = tokio::spawn(async move { poisoner.call("search", search).await });

    let setting_aside = victims.until_set_aside(&bus);
    timeout(BUDGET, setting_aside).await.expect("the poison is set aside in time");
    let mut told = BTreeMap::<&str, usize>::new();
    while let Some(call) = calls.join_next().await {
        let (mark, outcome) = call.expect("no panic");
        let runs = mark.as_deref().map(|mark| runs_of(&fleet, mark));
        *told.entry(judge(&outcome, runs)).or_default() += 1;
    }
    println!("{told:?}; {} handlers were killed", victims.killed);
    let begun = told.get("outcome unknown").copied().unwrap_or_default();
    assert!(begun <= victims.killed * CONCURRENCY, "more than ran when handlers were killed");
    assert!(victims.killed <= MOST_KILLED, "{} handlers were killed", victims.killed);
    let late: Vec<_> = callers.iter().map(|caller| caller.requester.stats().late()).collect();
    println!("late answers: {late:?}");
    assert!(callers.iter().all(|caller| caller.requester.pending() == 0));

    only_the_poison_is_dead(&fleet).await;
    // Once repaired, it runs for callers that still wait.
    fleet.write("poison.txt", "abba\n");
    fleet.run(&["dlq", "replay", "tool.invoke"]).await.assert_code(0);
    let mended = within_timeout("its answer", poison).await.expect("no panic").expect("a result");
    assert_eq!(mended.to_text(), "poison.txt:1: abba\n");
    assert_eq!(fleet.waiting_and_dead(&bus).await, (0, 0));
}

/// What an innocent call's agent was told, which must fit how often it left its mark.
fn judge(outcome: &Result<ToolResult, ToolFailure>, runs: Option<usize>) -> &'static str {
    match outcome {
        Ok(result) => {
            assert_eq!(result.to_text(), "done\n");
            assert!(runs.is_none_or(|runs| runs == 1), "ran {runs:?} times");
            "answered"
        }
        Err(failure) if failure.code() == ToolErrorCode::OutcomeUnknown => {
            assert!(runs.is_some_and(|runs| runs <= 1), "ran {runs:?} times");
            "outcome unknown"
        }
        Err(failure) => panic!("an innocent call failed: {failure:?}"),
    }
}

async fn only_the_poison_is_dead(fleet: &Fleet) {
    let said = fleet.run(&["--json", "dlq", "show", "tool.invoke.quarantine", "--body"]).await;
    said.assert_code(0);
    let said = said.json();
    let letters = said["letters"].as_array().expect("letters");
    assert_eq!(letters.len(), 1, "{said:#}");
    let body = letters[0]["body"].as_str().expect("its body");
    assert!(body.contains("poison.txt"), "{body}");
    assert_eq!(letters[0]["source"], "eve");
    assert_eq!(letters[0]["reason"], "delivered too often");
    assert_eq!(letters[0]["deliveries"], MAX_DELIVERIES);
    let queues = fleet.run(&["--json", "dlq", "list"]).await.json();
    let told = |at: usize| [&queues[at]["name"], &queues[at]["ready"]].map(Value::clone);
    assert_eq!(told(0), [json!("tool.invoke"), json!(0)]);
    assert_eq!(told(1), [json!("tool.invoke.quarantine"), json!(0)]);
}

#[tokio::test]
async fn command_that_kills_handler_runs_once() {
    let fleet = Fleet::new();
    let mut first = fleet.handler_with("handler-1", &[SHARED]).await;
    let mut second = fleet.handler_with("handler-2", &[SHARED]).await;
    let command = r#"{"command": "echo ran >> mark; kill -9 $PPID"}"#;
    let called = fleet.run(&["--json", "tools", "call", "bash", command]).await;
    called.assert_code(1);
    assert_eq!(called.json()["code"], "outcome_unknown");
    assert_eq!(fs::read_to_string(fleet.path("mark")).expect("the side effect"), "ran\n");
    assert!(first.is_alive() != second.is_alive(), "one of them lives");
    assert_eq!(fleet.waiting_and_dead(&fleet.bus(|_| {}).await).await, (0, 0));
}
