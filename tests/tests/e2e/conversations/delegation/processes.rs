//! Sub-agents whose processes fall silent or die again and again, and their traces.

use rockbot_contracts::TaskState;
use rockbot_testkit::{Collector, postgres::PrivatePostgres};
use rustix::process::Signal;
use serde_json::json;
use tokio::{task::spawn_blocking, time::timeout};

use super::{
    QUIET, SUMMARY, gate_of,
    planned_model::{Asked, Planned},
    root,
    team::Team,
};
use crate::conversations::outages::{on_server, short_outage};

const COMMAND: &str = "echo ran >> lines";
const HELD: &str = "after the command";

/// Runs a command in the sub-agent, and holds its response after that.
fn held_after_command(asked: &Asked) -> Planned {
    match asked.is_sub_agent() {
        true if asked.results.is_empty() => Planned::calls([("bash", json!({"command": COMMAND}))]),
        true => Planned::text("Found.").at(HELD),
        false => root(asked),
    }
}

#[tokio::test]
async fn silent_process_of_a_sub_agent_changes_nothing_after_the_takeover() {
    let mut team = Team::start(held_after_command).await;
    team.ask("parts: a").await;
    team.model.reached(HELD, 1).await;
    team.start_replica("agent-2").await;
    team.agents[0].send(Signal::STOP);
    team.model.reached(HELD, 2).await;
    team.model.open(HELD);
    assert_eq!(team.follow_up().await.1, SUMMARY);
    let asked = team.model.asked().len();
    // Its response arrived meanwhile.
    team.agents[0].send(Signal::CONT);
    team.agents[0].expect_log("conversation lease lost").await;
    assert!(timeout(QUIET, team.follow_ups.next()).await.is_err(), "shown twice");
    assert_eq!(team.model.asked().len(), asked, "no turn runs again");
    assert_eq!(team.replicas.lines(), ["ran"]);
    let tasks = team.tasks().await;
    assert!(tasks.len() == 1 && tasks[0].is_folded, "{tasks:#?}");
    assert_eq!(tasks[0].state, TaskState::Completed);
    team.stop().await;
}

/// Holds the sub-agent for part `a` for ever, and lets the others answer.
fn holds_part_a(asked: &Asked) -> Planned {
    match asked.is_sub_agent() {
        true if gate_of(asked) == "a" => Planned::text("Found.").at("a"),
        true => Planned::text("Found."),
        false => root(asked),
    }
}

#[tokio::test]
async fn sub_agent_that_loses_three_processes_fails_alone() {
    let mut team = Team::start(holds_part_a).await;
    team.ask("parts: a b").await;
    // Otherwise, a busy machine could lose processes of both.
    team.ended(TaskState::Completed).await;
    for lost in 1..=3 {
        team.model.reached("a", lost).await;
        team.kill_first().await;
        team.start_replica("agent-1").await;
    }
    let (tasks, text) = team.follow_up().await;
    assert_eq!((tasks.len(), text.as_str()), (2, SUMMARY));
    let asked = team.model.asked();
    let of_a = asked.iter().filter(|one| one.is_sub_agent() && gate_of(one) == "a").count();
    assert_eq!(of_a, 3, "it is not tried a fourth time");
    let read = asked.iter().find(|one| one.reads_results()).expect("a turn on results");
    assert!(read.user.contains("3 processes of the agent were lost"), "{}", read.user);
    assert!(read.user.contains("completed]") && read.user.contains("failed]"), "{}", read.user);
    let mut states: Vec<_> = team.tasks().await.iter().map(|task| task.state.as_str()).collect();
    states.sort_unstable();
    assert_eq!(states, ["completed", "failed"]);
    team.stop().await;
}

#[tokio::test]
async fn spending_of_killed_sub_agents_is_never_less_than_the_requests() {
    let mut team = Team::start(held_after_command).await;
    team.ask("parts: a b").await;
    team.model.reached(HELD, 2).await;
    team.start_replica("agent-2").await;
    team.kill_first().await;
    team.model.reached(HELD, 4).await;
    team.model.open(HELD);
    team.follow_up().await;
    let counted = team.model.asked().iter().filter(|one| one.is_sub_agent()).count() as u64;
    let tasks = team.tasks().await;
    let spent: u64 = tasks.iter().map(|task| task.usage.expect("known").model_calls).sum();
    assert_eq!((counted, spent), (6, 6), "{tasks:#?}");
    team.stop().await;
}

#[tokio::test]
async fn sub_agent_continues_the_trace_of_its_conversation_in_another_process() {
    let collector = Collector::start().await;
    let endpoint: &'static str = collector.endpoint().leak();
    let settings = [("ROCKBOT_TELEMETRY__OTLP_ENDPOINT", endpoint)];
    let mut team = Team::start_with(held_after_command, &settings).await;
    team.ask("parts: a").await;
    team.model.reached(HELD, 1).await;
    let turn = format!("invoke_agent {}", team.replicas.agent);
    // A killed process exports nothing more.
    let first = collector.spans_named(&turn, 1).await.remove(0);
    team.start_replica("agent-2").await;
    team.kill_first().await;
    team.model.open(HELD);
    let (tasks, _) = team.follow_up().await;
    let spans = collector.spans_named(&turn, 3).await;
    assert!(spans.iter().all(|span| span.trace == first.trace), "{spans:#?}");
    let session = format!("subagent-{}", tasks[0]);
    let resumed: Vec<_> =
        spans.iter().filter(|span| span.attributes["gen_ai.conversation.id"] == session).collect();
    assert_eq!(resumed.len(), 1, "{spans:#?}");
    let links: Vec<_> = resumed[0].links.iter().map(|(trace, _)| trace).collect();
    assert_eq!(links, [&first.trace], "{resumed:#?}");
    team.stop().await;
}

#[tokio::test]
async fn sub_agent_is_lost_with_conversations_in_memory() {
    let settings = [("ROCKBOT_AGENT__CONVERSATIONS__STORE", "memory:")];
    let mut team = Team::start_with(held_after_command, &settings).await;
    team.ask("parts: a").await;
    team.model.reached(HELD, 1).await;
    team.kill_first().await;
    team.start_replica("agent-1").await;
    team.model.open(HELD);
    // Its own process would have passed its result on.
    assert_eq!(team.ask("and now?").await.0, "Started.");
    assert!(team.tasks().await.is_empty());
    assert!(timeout(QUIET, team.follow_ups.next()).await.is_err());
    assert_eq!(team.replicas.lines(), ["ran"]);
    team.stop().await;
}

#[tokio::test]
async fn sub_agent_waits_for_its_store() {
    let server = spawn_blocking(PrivatePostgres::start).await.expect("no panic");
    let server = server.expect("a server");
    let mut team = Team::start_on(server.url(), held_after_command).await;
    team.ask("parts: a").await;
    team.model.reached(HELD, 1).await;
    let server = on_server(server, PrivatePostgres::crash).await;
    team.model.open(HELD);
    assert!(timeout(short_outage(), team.follow_ups.next()).await.is_err(), "nothing is recorded");
    let _server = on_server(server, PrivatePostgres::restart).await;
    assert_eq!(team.follow_up().await.1, SUMMARY);
    let reads = team.model.asked().into_iter().filter(Asked::reads_results).count();
    assert_eq!((reads, team.replicas.lines()), (1, vec!["ran".to_owned()]));
    team.stop().await;
}
