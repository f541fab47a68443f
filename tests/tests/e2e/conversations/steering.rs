//! Messages that a replica receives for a turn running in another one.

use rockbot_contracts::{ReplyBody, SessionId, user::TurnOutcome};

use super::{
    harness::{GATED, Replicas, assert_completed, scene},
    user::User,
};
use crate::{fleet::ProcessGroup, process::Running};

const JOB: &str = "the job";
const STEERING: &str = "change of plan";

/// Starts a turn, and then a second replica. The first process has no permit left, so the second process
/// receives all later messages.
async fn running_turn(replicas: &Replicas) -> (Vec<Running>, User, SessionId) {
    let first = replicas.start_with("agent-1", &[("ROCKBOT_AGENT__CONCURRENCY", "1")]).await;
    let (mut user, session) = (replicas.user().await, SessionId::generate());
    user.send(&session, JOB).await;
    replicas.fleet.wait_for_file("pid").await;
    let second = replicas.start("agent-2").await;
    (vec![first, second], user, session)
}

fn script() -> String {
    // Steering takes effect between steps. Eight short steps leave the message time to arrive.
    let mut steps = vec![GATED];
    steps.extend(["sleep 0.3"; 8]);
    format!("{}{}", scene(JOB, &steps), scene(STEERING, &["echo steered >> lines"]))
}

#[tokio::test]
async fn steering_reaches_turn_in_other_replica() {
    let replicas = Replicas::new(&script()).await;
    let (agents, mut user, session) = running_turn(&replicas).await;
    let steering = user.send(&session, STEERING).await;
    replicas.open_gate();
    let is_steered = |body: &ReplyBody| matches!(body, ReplyBody::Steered {});
    user.reply_to(&steering, "a steered turn", is_steered).await;
    let turn = user.first_message();
    assert_completed(&user.answer(&turn).await, "done");
    assert_eq!(replicas.lines(), ["gated", "steered"]);
    user.answer(&steering).await;
    replicas.finish(agents, user).await;
}

#[tokio::test]
async fn cancel_reaches_turn_in_other_replica() {
    let replicas = Replicas::new(&script()).await;
    let (agents, mut user, session) = running_turn(&replicas).await;
    let command = ProcessGroup::from_file(&replicas.fleet, "pid").await;
    let cancel = user.cancel(&session).await;
    let turn = user.first_message();
    let answer = user.answer(&turn).await;
    let is_cancelled = matches!(answer, ReplyBody::Answer { outcome: TurnOutcome::Cancelled, .. });
    assert!(is_cancelled, "{answer:?}");
    command.wait_for_exit().await;
    user.answer(&cancel).await;
    replicas.finish(agents, user).await;
}
