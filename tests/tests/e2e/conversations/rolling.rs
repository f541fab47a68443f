//! Replacement of all replicas, one after the other, with turns in hand.

use rockbot_contracts::SessionId;
use rockbot_testkit::fixture::wait_until;
use rustix::process::Signal;

use super::harness::{Replicas, assert_completed, scene};

const TURNS: usize = 6;

/// Returns a turn of two steps that wait for a file each, and one that does not.
fn turn(number: usize) -> String {
    let step = |step: usize| {
        format!("echo {number}-{step} >> lines; until [ -e go-{step} ]; do sleep 0.05; done")
    };
    let (first, second, last) = (step(1), step(2), format!("echo {number}-3 >> lines"));
    scene(&format!("turn {number}"), &[&first, &second, &last])
}

#[tokio::test]
async fn rolling_restart_fails_no_turn() {
    let script: String = (0..TURNS).map(turn).collect();
    let replicas = Replicas::new(&script).await;
    let mut running = vec![replicas.start("agent-1").await, replicas.start("agent-2").await];
    let mut user = replicas.user().await;
    let mut messages = Vec::new();
    for number in 0..TURNS {
        messages.push(user.send(&SessionId::generate(), &format!("turn {number}")).await);
    }
    for (step, replacement) in [(1, "agent-3"), (2, "agent-4")] {
        let lines = TURNS * step;
        wait_until("the calls of all turns", || replicas.lines().len() == lines).await;
        let stopped = running.remove(0);
        running.push(replicas.start(replacement).await);
        stopped.send(Signal::TERM);
        replicas.fleet.write(&format!("go-{step}"), "");
        stopped.wait().await.assert_code(0);
    }
    for message in &messages {
        assert_completed(&user.answer(message).await, "done");
    }
    let mut lines = replicas.lines();
    lines.sort();
    let expected: Vec<_> =
        (0..TURNS).flat_map(|number| (1..=3).map(move |step| format!("{number}-{step}"))).collect();
    assert_eq!(lines, expected);
    assert!(user.resumptions() > 0, "no turn was in hand when its process was stopped");
    user.assert_calls_succeeded();
    replicas.finish(running, user).await;
}
