//! Sub-agents of an agent whose processes die, and users who cancel.

mod approvals;
mod crashes;
mod internal;
mod planned_model;
mod processes;
mod team;

use std::time::Duration;

use rockbot_contracts::{ReplyBody, TaskState};
use rockbot_testkit::fixture::within_timeout;
use serde_json::json;
use tokio::time::timeout;

use self::{
    planned_model::{Asked, Planned},
    team::Team,
};
use super::harness::GATED;

/// The final answer of the turn that reads results.
const SUMMARY: &str = "All parts are done.";
/// Time in which a second follow-up would arrive.
const QUIET: Duration = Duration::from_secs(3);

/// Starts a sub-agent for each part that the message names, and summarizes their results.
fn root(asked: &Asked) -> Planned {
    if asked.reads_results() {
        return Planned::text(SUMMARY);
    }
    match asked.user.split_once("parts: ") {
        Some((_, parts)) if asked.results.is_empty() => {
            let parts = parts.lines().next().unwrap_or_default();
            Planned::spawns(parts.split_whitespace().map(|part| format!("do part {part}")))
        }
        _ => Planned::text("Started."),
    }
}

/// Runs the gated command in the first step of each sub-agent.
fn runs_command(asked: &Asked) -> Planned {
    match asked.is_sub_agent() {
        true if asked.results.is_empty() => Planned::calls([("bash", json!({"command": GATED}))]),
        true => Planned::text("Found."),
        false => root(asked),
    }
}

/// Returns the gate of the sub-agent for a part.
fn gate_of(asked: &Asked) -> &'static str {
    let task = asked.user.split_once("# Your task").map_or("", |(_, task)| task);
    ["a", "b", "c"]
        .into_iter()
        .find(|part| task.contains(&format!("part {part}\n")))
        .unwrap_or("other")
}

fn answers_at_its_gate(asked: &Asked) -> Planned {
    if asked.is_sub_agent() { Planned::text("Found.").at(gate_of(asked)) } else { root(asked) }
}

#[tokio::test]
async fn three_of_fifty_requested_sub_agents_run() {
    let mut team = Team::start(answers_at_its_gate).await;
    let parts: Vec<String> = (1..=50).map(|part: usize| part.to_string()).collect();
    let (answer, finished) = team.ask(&format!("parts: {}", parts.join(" "))).await;
    assert_eq!((answer.as_str(), finished.len()), ("Started.", 50));
    let root_requests = team.model.asked();
    let second = root_requests.iter().find(|asked| asked.results.len() == 50).expect("a request");
    let refusal = "Error: maximum concurrent subagents (3) already running.";
    let refused = second.results.iter().filter(|text| text.contains(refusal)).count();
    assert_eq!(refused, 47, "{:#?}", second.results);
    team.model.reached("other", 3).await;
    let running = |team: &Team| team.model.asked().iter().filter(|one| one.is_sub_agent()).count();
    assert_eq!(running(&team), 3);
    team.model.open("other");
    let (tasks, text) = team.follow_up().await;
    assert_eq!((tasks.len(), text.as_str()), (3, SUMMARY));
    assert_eq!(running(&team), 3);
    // They are free again.
    team.ask("parts: a").await;
    team.model.reached("a", 1).await;
    team.model.open("a");
    assert_eq!(team.follow_up().await.0.len(), 1);
    team.stop().await;
}

#[tokio::test]
async fn sub_agent_outlives_its_turn_and_later_messages() {
    let mut team = Team::start(runs_command).await;
    assert_eq!(team.ask("parts: a").await.0, "Started.");
    let _command = team.replicas.gated_command().await;
    for text in ["still there?", "and now?"] {
        assert_eq!(team.ask(text).await.0, "Started.");
    }
    team.replicas.open_gate();
    assert_eq!(team.follow_up().await.1, SUMMARY);
    assert!(timeout(QUIET, team.follow_ups.next()).await.is_err(), "shown twice");
    assert_eq!(team.replicas.lines(), ["gated"]);
    team.stop().await;
}

#[tokio::test]
async fn results_of_one_response_are_read_in_one_turn() {
    let mut team = Team::start(answers_at_its_gate).await;
    team.ask("parts: a b c").await;
    for part in ["a", "b", "c"] {
        team.model.reached(part, 1).await;
    }
    let reads = |team: &Team| {
        team.model.asked().into_iter().filter(Asked::reads_results).collect::<Vec<_>>()
    };
    for part in ["b", "a", "c"] {
        assert_eq!(reads(&team).len(), 0);
        team.model.open(part);
        team.ended(TaskState::Completed).await;
    }
    let (tasks, text) = team.follow_up().await;
    assert_eq!((tasks.len(), text.as_str()), (3, SUMMARY));
    let reads = reads(&team);
    assert_eq!(reads.len(), 1);
    assert_eq!(reads[0].user.matches("Found.").count(), 3, "{}", reads[0].user);
    team.stop().await;
}

/// Starts sub-agents of which each calls another agent, which runs a command that does not end.
fn hands_on(asked: &Asked) -> Planned {
    hands_on_command(asked, &format!("echo $$ > pid-{}; exec sleep 600", gate_of(asked)))
}

/// Starts sub-agents of which each calls another agent, which runs a short command.
fn hands_on_one_line(asked: &Asked) -> Planned {
    hands_on_command(asked, "echo ran >> lines")
}

fn hands_on_command(asked: &Asked, command: &str) -> Planned {
    if asked.is_sub_agent() && asked.results.is_empty() {
        return Planned::calls([("agent__helper", json!({"message": format!("run: {command}")}))]);
    }
    match asked.user.split_once("run: ") {
        Some((_, command)) if asked.results.is_empty() => {
            let command = command.lines().next().unwrap_or_default();
            Planned::calls([("bash", json!({"command": command}))])
        }
        Some(_) => Planned::text("Ran."),
        None if asked.is_sub_agent() => Planned::text("Found."),
        None => root(asked),
    }
}

#[tokio::test]
async fn cancel_ends_work_at_every_depth() {
    let team = Team::start(hands_on).await;
    team.ask("parts: a b").await;
    let commands = [team.command("pid-a").await, team.command("pid-b").await];
    let before = team.model.asked().len();
    let cancelled =
        within_timeout("an answer in time", timeout(Duration::from_secs(10), team.cancel()));
    let text = cancelled.await.expect("within 10 s");
    assert_eq!(text, "Cancelled, with 2 of its sub-agents.");
    for command in commands {
        command.wait_for_exit().await;
    }
    let tasks = team.tasks().await;
    assert_eq!(tasks.len(), 2);
    for task in tasks {
        assert_eq!(task.state, TaskState::Cancelled);
        assert!(
            task.usage.expect("known").model_calls >= 2,
            "its own call, and that of the agent it called"
        );
    }
    // A message that is answered shows that nothing else was asked meanwhile.
    team.ask("and now?").await;
    assert_eq!(team.model.asked().len(), before + 1);
    team.stop().await;
}

/// Calls a tool in every response that may have calls.
fn is_greedy(asked: &Asked) -> Planned {
    let list = || Planned::calls([("bash", json!({"command": "echo ran >> lines"}))]);
    match asked.is_sub_agent() {
        _ if asked.must_answer => Planned::text("I could not do the rest."),
        true => list(),
        false if asked.reads_results() => list(),
        false => root(asked),
    }
}

#[tokio::test]
async fn greedy_sub_agents_end_within_the_budget_of_the_message() {
    let settings = [("ROCKBOT_AGENT__BUDGET__MODEL_CALLS", "20")];
    let mut team = Team::start_with(is_greedy, &settings).await;
    assert_eq!(team.ask("parts: a b c").await.0, "Started.");
    let (tasks, text) = team.follow_up().await;
    assert_eq!((tasks.len(), text.as_str()), (3, "I could not do the rest."));
    let asked = team.model.asked();
    assert!(asked.len() <= 20, "{} calls", asked.len());
    let reads = asked.iter().find(|one| one.reads_results()).expect("a turn on results");
    assert_eq!(reads.user.matches("I could not do the rest.").count(), 3, "{}", reads.user);
    let spent: u64 =
        team.tasks().await.iter().map(|task| task.usage.expect("known").model_calls).sum();
    let counted = asked.iter().filter(|one| one.is_sub_agent()).count();
    assert_eq!(spent, counted as u64);
    // A new message has a budget of its own.
    assert_eq!(team.ask("parts: a").await.0, "Started.");
    team.follow_up().await;
    team.stop().await;
}

/// Returns `true` for a reply that a sub-agent ended in a state.
fn is_end(body: &ReplyBody, expected: TaskState) -> bool {
    matches!(body, ReplyBody::DelegationEnded { state, .. } if *state == expected)
}
