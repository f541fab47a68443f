//! Agents killed with SIGKILL in the middle of a tool call.

use rockbot_contracts::SessionId;
use rockbot_testkit::Collector;
use rustix::process::Signal;

use super::harness::{GATED, Replicas, assert_completed, kill, scene};

const JOB: &str = "the job";

fn job() -> String {
    scene(JOB, &[GATED, "echo after >> lines"])
}

#[tokio::test]
async fn restarted_agent_continues_turn_in_the_middle_of_a_call() {
    let replicas = Replicas::new(&job()).await;
    let agent = replicas.start("agent-1").await;
    let mut user = replicas.user().await;
    let message = user.send(&SessionId::generate(), JOB).await;
    let _command = replicas.gated_command().await;
    kill(agent).await;

    let restarted = replicas.start("agent-1").await;
    user.resumed(&message).await;
    replicas.open_gate();
    assert_completed(&user.answer(&message).await, "done");
    assert_eq!(replicas.lines(), ["gated", "after"]);
    user.assert_calls_succeeded();
    replicas.finish(vec![restarted], user).await;
}

#[tokio::test]
async fn other_replica_continues_turn_of_killed_agent() {
    let replicas = Replicas::new(&job()).await;
    let first = replicas.start("agent-1").await;
    let mut user = replicas.user().await;
    let message = user.send(&SessionId::generate(), JOB).await;
    let _command = replicas.gated_command().await;
    let second = replicas.start("agent-2").await;
    kill(first).await;

    let on = user.resumed(&message).await;
    assert!(on.as_str().starts_with("agent-2"), "resumed on {on}");
    replicas.open_gate();
    assert_completed(&user.answer(&message).await, "done");
    assert_eq!(replicas.lines(), ["gated", "after"]);
    user.assert_calls_succeeded();
    replicas.finish(vec![second], user).await;
}

#[tokio::test]
async fn rest_of_a_turn_is_linked_to_its_start() {
    let (replicas, collector) = (Replicas::new(&job()).await, Collector::start().await);
    let endpoint = collector.endpoint();
    let settings = [("ROCKBOT_TELEMETRY__OTLP_ENDPOINT", endpoint.as_str())];
    let first = replicas.start_with("agent-1", &settings).await;
    let mut user = replicas.user().await;
    let message = user.send(&SessionId::generate(), JOB).await;
    let _command = replicas.gated_command().await;
    let second = replicas.start_with("agent-2", &settings).await;
    // It leaves the turn after the call.
    first.send(Signal::TERM);
    replicas.open_gate();
    first.wait().await.assert_code(0);
    assert_completed(&user.answer(&message).await, "done");

    let name = format!("invoke_agent {}", replicas.agent);
    let turns = collector.spans_named(&name, 2).await;
    let [start, rest] = turns.as_slice() else { panic!("more than two parts: {turns:#?}") };
    assert_eq!(start.links, []);
    assert_eq!(rest.links, [(start.trace.clone(), start.id.clone())]);
    replicas.finish(vec![second], user).await;
}

#[tokio::test]
async fn result_of_a_call_that_ended_without_an_agent_is_used() {
    let replicas = Replicas::new(&job()).await;
    let agent = replicas.start("agent-1").await;
    let mut user = replicas.user().await;
    let message = user.send(&SessionId::generate(), JOB).await;
    let command = replicas.gated_command().await;
    kill(agent).await;
    replicas.open_gate();
    command.wait_for_exit().await;

    let restarted = replicas.start("agent-1").await;
    assert_completed(&user.answer(&message).await, "done");
    assert_eq!(replicas.lines(), ["gated", "after"]);
    user.assert_calls_succeeded();
    replicas.finish(vec![restarted], user).await;
}
