//! Time until another process continues a turn whose process was killed or fell silent.

use std::time::Duration;

use rockbot_contracts::SessionId;
use rustix::process::Signal;
use tokio::time::Instant;

use super::{print_times, size};
use crate::{
    conversations::{
        harness::{Replicas, assert_completed, kill, scene},
        user::User,
    },
    process::Running,
};

/// The loss of a turn's process, and the process that continues it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Takeover {
    /// Killed; started again.
    Restart,
    /// Killed; another replica waits.
    Waiting,
    /// Stopped with SIGSTOP; another replica waits.
    Silent,
}

fn rounds() -> usize {
    size(2, 20)
}

fn message(round: usize) -> String {
    format!("round {round}.")
}

/// Returns the script of all rounds: a command that waits for a file of its round.
fn script() -> String {
    let command = |round| {
        format!(
            "echo {round} >> lines; echo > begun-{round}; until [ -e go-{round} ]; do sleep 0.05; done"
        )
    };
    (0..rounds()).map(|round| scene(&message(round), &[&command(round)])).collect()
}

/// Measures the time from the loss of a process until the user learns that another one continues the turn. After
/// a restart it returns the time from the start, and that from the log line `ready`.
async fn measure(takeover: Takeover) -> Vec<(Duration, Duration)> {
    let replicas = Replicas::new(&script()).await;
    let mut owner = replicas.start("agent-0").await;
    let mut user = replicas.user().await;
    let mut times = Vec::new();
    for round in 0..rounds() {
        let id = user.send(&SessionId::generate(), &message(round)).await;
        replicas.fleet.wait_for_file(&format!("begun-{round}")).await;
        let next = format!("agent-{}", round + 1);
        let time;
        (owner, time) = match takeover {
            Takeover::Restart => {
                kill(owner).await;
                let start = Instant::now();
                let mut restarted = replicas.launch("agent-0", &[]);
                let ready = async {
                    restarted.expect_log("ready").await;
                    start.elapsed()
                };
                let resumed = async {
                    user.resumed(&id).await;
                    start.elapsed()
                };
                let (ready, resumed) = tokio::join!(ready, resumed);
                (restarted, (resumed, resumed.saturating_sub(ready)))
            }
            Takeover::Waiting | Takeover::Silent => {
                let waiting = replicas.start(&next).await;
                let time = lose(&owner, takeover, &mut user, &id, &next).await;
                kill(owner).await;
                (waiting, (time, time))
            }
        };
        times.push(time);
        replicas.fleet.write(&format!("go-{round}"), "");
        assert_completed(&user.answer(&id).await, "done");
    }
    let mut lines = replicas.lines();
    lines.sort_by_key(|line| line.parse::<usize>().ok());
    let expected: Vec<_> = (0..rounds()).map(|round| round.to_string()).collect();
    assert_eq!(lines, expected);
    user.assert_calls_succeeded();
    replicas.finish(vec![owner], user).await;
    times
}

/// Takes the owner of a turn away, and returns the time until `next` continues it.
async fn lose(
    owner: &Running,
    takeover: Takeover,
    user: &mut User,
    id: &rockbot_contracts::MessageId,
    next: &str,
) -> Duration {
    let start = Instant::now();
    owner.send(if takeover == Takeover::Silent { Signal::STOP } else { Signal::KILL });
    let on = user.resumed(id).await;
    let time = start.elapsed();
    assert!(on.as_str().starts_with(next), "resumed on {on}");
    time
}

#[tokio::test]
async fn restarted_process_continues_each_killed_turn() {
    let times = measure(Takeover::Restart).await;
    print_times("takeover by the restarted process, from its start", first(&times));
    print_times("takeover by the restarted process, from `ready`", second(&times));
}

#[tokio::test]
async fn waiting_replica_continues_each_killed_turn() {
    let times = measure(Takeover::Waiting).await;
    print_times("takeover by a waiting replica, from SIGKILL", first(&times));
}

#[tokio::test]
async fn waiting_replica_continues_each_silent_turn() {
    let times = measure(Takeover::Silent).await;
    print_times("takeover by a waiting replica, from SIGSTOP", first(&times));
}

fn first(times: &[(Duration, Duration)]) -> Vec<Duration> {
    times.iter().map(|(time, _)| *time).collect()
}

fn second(times: &[(Duration, Duration)]) -> Vec<Duration> {
    times.iter().map(|(_, time)| *time).collect()
}
