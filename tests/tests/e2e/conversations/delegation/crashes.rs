//! Agents killed with SIGKILL while their sub-agents work. Another process continues: the user reads each result once, and
//! no command runs twice.

use serde_json::json;
use tokio::time::timeout;

use super::{
    QUIET, SUMMARY,
    planned_model::{Asked, Plan, Planned},
    root, runs_command,
    team::Team,
};
use crate::conversations::harness::GATED;

const COMMAND: &str = "echo ran >> lines";

/// Runs a command in the sub-agent, and holds these responses: of the turn that started the sub-agent, of the sub-agent
/// before and after its command, and of the turn that reads its result.
fn plan(asked: &Asked, held: &'static str) -> Planned {
    let (point, response) = match asked.is_sub_agent() {
        true if asked.results.is_empty() => {
            ("before the command", Planned::calls([("bash", json!({"command": COMMAND}))]))
        }
        true => ("after the command", Planned::text("Found.")),
        false if asked.reads_results() => ("reading results", root(asked)),
        false if asked.results.is_empty() => ("first", root(asked)),
        false => ("after the start", root(asked)),
    };
    if point == held { response.at(held) } else { response }
}

/// Kills the first process when the model is asked for the response `held`, and checks the rest in another one.
async fn check_kill_at(held: &'static str, plan: Plan) {
    for is_restarted in [true, false] {
        let mut team = Team::start(plan).await;
        let session = team.session.clone();
        let message = rockbot_contracts::UserMessage::new(session, "parts: a");
        let replies = team.client.send(&team.replicas.agent, &message).await.expect("sent");
        team.model.reached(held, 1).await;
        if !is_restarted {
            team.start_replica("agent-2").await;
        }
        team.kill_first().await;
        team.model.open(held);
        if is_restarted {
            team.start_replica("agent-1").await;
        }
        let answer = replies.last().await.expect("an answer").body;
        let rockbot_contracts::ReplyBody::Answer { text, .. } = answer else {
            panic!("{answer:?}")
        };
        assert_eq!(text, "Started.", "{held}");
        let (tasks, text) = team.follow_up().await;
        assert_eq!((tasks.len(), text.as_str()), (1, SUMMARY), "{held}");
        assert!(timeout(QUIET, team.follow_ups.next()).await.is_err(), "{held}: shown twice");
        assert_eq!(team.replicas.lines(), ["ran"], "{held}");
        let tasks = team.tasks().await;
        assert!(tasks.len() == 1 && tasks[0].is_folded, "{held}: {tasks:#?}");
        team.stop().await;
    }
}

#[tokio::test]
async fn agent_killed_in_the_turn_that_started_the_sub_agent() {
    check_kill_at("after the start", |asked| plan(asked, "after the start")).await;
}

#[tokio::test]
async fn agent_killed_before_the_first_call_of_the_sub_agent() {
    check_kill_at("before the command", |asked| plan(asked, "before the command")).await;
}

#[tokio::test]
async fn agent_killed_after_a_recorded_result_of_the_sub_agent() {
    check_kill_at("after the command", |asked| plan(asked, "after the command")).await;
}

#[tokio::test]
async fn agent_killed_in_the_turn_that_reads_the_result() {
    check_kill_at("reading results", |asked| plan(asked, "reading results")).await;
}

#[tokio::test]
async fn agent_killed_while_a_remote_tool_of_the_sub_agent_runs() {
    let mut team = Team::start(runs_command).await;
    team.ask("parts: a").await;
    let command = team.replicas.gated_command().await;
    team.start_replica("agent-2").await;
    team.kill_first().await;
    team.replicas.open_gate();
    command.wait_for_exit().await;
    assert_eq!(team.follow_up().await.1, SUMMARY);
    assert!(timeout(QUIET, team.follow_ups.next()).await.is_err(), "shown twice");
    assert_eq!(team.replicas.lines(), ["gated"]);
    let asked = team.model.asked();
    let read = asked.iter().find(|one| one.is_sub_agent() && !one.results.is_empty());
    let results = &read.expect("a request with the result").results;
    assert!(results[0].contains("passed"), "{GATED} did not run to its end: {results:?}");
    team.stop().await;
}

#[tokio::test]
async fn agent_killed_after_the_answer_shows_it_once() {
    let mut team = Team::start(runs_command).await;
    team.replicas.open_gate();
    team.ask("parts: a").await;
    assert_eq!(team.follow_up().await.1, SUMMARY);
    // The end of the work may not be recorded yet.
    team.kill_first().await;
    let asked = team.model.asked().len();
    team.start_replica("agent-1").await;
    assert!(timeout(QUIET, team.follow_ups.next()).await.is_err(), "shown twice");
    assert_eq!(team.model.asked().len(), asked, "no turn runs again");
    assert_eq!(team.replicas.lines(), ["gated"]);
    team.stop().await;
}
