//! Decisions that are given while no process of the agent runs.

use rockbot_contracts::{ApprovalDecision, ReplyBody, SessionId};

use super::{
    harness::{Replicas, assert_completed, kill, scene},
    user::User,
};
use crate::process::Running;

const JOB: &str = "the job";
const RULES: [(&str, &str); 1] = [("ROCKBOT_APPROVAL__RULES", r#"[{tool="bash",policy="ask"}]"#)];

/// Kills the only process while a request is open, decides, and starts a process. Returns it after its answer.
async fn decide_without_process(
    replicas: &Replicas,
    decision: ApprovalDecision,
) -> (Running, User) {
    let agent = replicas.start_with("agent-1", &RULES).await;
    let (mut user, session) = (replicas.user().await, SessionId::generate());
    let message = user.send(&session, JOB).await;
    let decision = user.approval(&session, &message, decision).await;
    kill(agent).await;
    user.decide(&decision).await;

    let restarted = replicas.start_with("agent-1", &RULES).await;
    assert_completed(&user.answer(&message).await, "done");
    assert_eq!(user.approval_requests(), 1, "the request is shown once");
    let kinds = replicas.kinds(&session).await;
    assert_eq!(kinds.iter().filter(|kind| *kind == "question").count(), 1, "{kinds:?}");
    (restarted, user)
}

#[tokio::test]
async fn approval_given_without_a_process_counts() {
    let replicas = Replicas::new(&scene(JOB, &["echo ran >> lines"])).await;
    let (agent, user) = decide_without_process(&replicas, ApprovalDecision::Allow).await;
    user.assert_calls_succeeded();
    assert_eq!(replicas.lines(), ["ran"]);
    replicas.finish(vec![agent], user).await;
}

#[tokio::test]
async fn denial_given_without_a_process_counts() {
    let replicas = Replicas::new(&scene(JOB, &["echo ran >> lines"])).await;
    let (agent, mut user) = decide_without_process(&replicas, ApprovalDecision::Deny).await;
    assert!(replicas.lines().is_empty());
    let message = user.first_message();
    let is_refused =
        |body: &ReplyBody| matches!(body, ReplyBody::ToolFinished { error: Some(_), .. });
    user.reply_to(&message, "a refused call", is_refused).await;
    replicas.finish(vec![agent], user).await;
}
