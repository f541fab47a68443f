//! Agents killed with SIGKILL while a batch, a plan, or the agent that answers for them runs.

use rockbot_contracts::{ReplyBody, UserMessage};
use serde_json::json;

use super::{
    planned_model::{Asked, Plan, Planned},
    team::Team,
};
use crate::conversations::harness::GATED;

const HANDOFF: &str = "router__handoff-to";

/// Answers with the results after the first response.
fn after(asked: &Asked, first: Planned) -> Planned {
    match asked.results.first() {
        Some(result) => Planned::text(format!("Read: {result}")),
        None => first,
    }
}

fn batches(asked: &Asked) -> Planned {
    let call = |id: u32, command: &str| json!({"id": id, "tool": "bash", "parameters": {"command": command}});
    let calls = json!({"calls": [call(1, "echo ran >> lines; echo one"), call(2, GATED)]});
    after(asked, Planned::calls([("agent__batch", calls)]))
}

fn plans(asked: &Asked) -> Planned {
    if asked.user.contains("You do one step of a plan") {
        return Planned::text("A thought.");
    }
    let command = |id: &str, command: &str| json!({"id": id, "mode": "Direct", "tool": "bash", "params": {"command": command}});
    let steps = json!([
        {"id": "think", "mode": "Llm", "prompt": "Think."},
        command("first", "echo ran >> lines"),
        command("second", GATED),
    ]);
    let plan = json!({"description": "Two commands", "steps": steps});
    after(asked, Planned::calls([("spawn_wisps", json!({"definitions": [plan]}))]))
}

fn hands_off(asked: &Asked) -> Planned {
    if asked.tools.iter().any(|tool| tool == HANDOFF) {
        return Planned::calls([(HANDOFF, json!({"agent": "helper", "message": "Be brief."}))]);
    }
    after(asked, Planned::calls([("bash", json!({"command": GATED}))]))
}

/// Kills the agent while the gated command runs. Returns the answer of the process that continues.
async fn answer_after_kill(plan: Plan) -> (Team, String) {
    let mut team = Team::start(plan).await;
    let message = UserMessage::new(team.session.clone(), "go");
    let replies = team.client.send(&team.replicas.agent, &message).await.expect("sent");
    let command = team.replicas.gated_command().await;
    team.start_replica("agent-2").await;
    team.kill_first().await;
    team.replicas.open_gate();
    command.wait_for_exit().await;
    let answer = replies.last().await.expect("an answer").body;
    let ReplyBody::Answer { text, .. } = answer else { panic!("{answer:?}") };
    (team, text)
}

#[tokio::test]
async fn batch_of_a_killed_agent_runs_each_command_once() {
    let (team, text) = answer_after_kill(batches).await;
    let mut lines = team.replicas.lines();
    lines.sort();
    assert_eq!(lines, ["gated", "ran"]);
    assert!(text.contains("one") && text.contains("passed") && !text.contains("error"), "{text}");
    team.stop().await;
}

#[tokio::test]
async fn plan_of_a_killed_agent_runs_each_step_once() {
    let (team, text) = answer_after_kill(plans).await;
    assert_eq!(team.replicas.lines(), ["ran", "gated"]);
    assert!(text.contains("1 wisp(s) completed (1 succeeded, 0 failed"), "{text}");
    assert!(text.contains("Output: ") && text.contains("passed"), "{text}");
    let steps = |one: &&Asked| one.user.contains("You do one step of a plan");
    assert_eq!(team.model.asked().iter().filter(steps).count(), 1);
    team.stop().await;
}

#[tokio::test]
async fn destination_of_a_killed_agent_continues_its_turn() {
    let (team, text) = answer_after_kill(hands_off).await;
    assert_eq!(team.replicas.lines(), ["gated"]);
    assert!(text.starts_with("Read: ") && text.contains("passed"), "{text}");
    let asked = team.model.asked();
    let is_destination = |one: &&Asked| !one.tools.iter().any(|tool| tool == HANDOFF);
    let destination: Vec<_> = asked.iter().filter(is_destination).collect();
    assert!(destination.len() >= 2, "{asked:#?}");
    assert!(destination.iter().all(|one| one.user.contains("Be brief.")), "{destination:#?}");
    team.stop().await;
}
