//! Processes that fall silent for longer than their lease, and continue.

use std::time::Duration;

use rockbot_contracts::SessionId;
use rustix::process::Signal;
use tokio::time::Instant;

use super::{
    endurance::size,
    harness::{GATED, Replicas, assert_completed, scene},
};

const JOB: &str = "the job";
/// Entries of a turn of the job, and those with another process in the middle of its first call, which records
/// the takeover and that it acts.
const ENTRIES: [&str; 6] = ["message", "model", "result", "model", "result", "answer"];
const RESUMED_ENTRIES: [&str; 8] =
    ["message", "model", "takeover", "takeover", "result", "model", "result", "answer"];

/// When the stalled process continues.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Continues {
    DuringCall,
    AfterAnswer,
}

async fn check_stalled_owner(continues: Continues) {
    let replicas = Replicas::new(&scene(JOB, &[GATED, "echo after >> lines"])).await;
    let mut stalled = replicas.start("agent-1").await;
    let (mut user, session) = (replicas.user().await, SessionId::generate());
    let message = user.send(&session, JOB).await;
    let _command = replicas.gated_command().await;
    let second = replicas.start("agent-2").await;
    stalled.send(Signal::STOP);
    let stopped = Instant::now();
    let on = user.resumed(&message).await;
    assert!(on.as_str().starts_with("agent-2"), "resumed on {on}");
    if continues == Continues::DuringCall {
        stalled.send(Signal::CONT);
        stalled.expect_log("conversation lease lost").await;
    }
    replicas.open_gate();
    assert_completed(&user.answer(&message).await, "done");
    if continues == Continues::AfterAnswer {
        let stall = Duration::from_secs(size(0, 60)).saturating_sub(stopped.elapsed());
        user.expect_no_reply(stall).await;
        stalled.send(Signal::CONT);
        stalled.expect_log("conversation lease lost").await;
    }
    assert_eq!(replicas.lines(), ["gated", "after"]);

    // Either process may receive the next message of the conversation.
    let next = user.send(&session, JOB).await;
    assert_completed(&user.answer(&next).await, "done");
    assert_eq!(replicas.lines(), ["gated", "after", "gated", "after"]);
    assert_eq!(replicas.kinds(&session).await, [&RESUMED_ENTRIES[..], &ENTRIES].concat());
    user.assert_calls_succeeded();
    replicas.finish(vec![stalled, second], user).await;
}

#[tokio::test]
async fn stalled_owner_that_continues_during_call_repeats_nothing() {
    check_stalled_owner(Continues::DuringCall).await;
}

#[tokio::test]
async fn stalled_owner_that_continues_after_answer_repeats_nothing() {
    check_stalled_owner(Continues::AfterAnswer).await;
}
