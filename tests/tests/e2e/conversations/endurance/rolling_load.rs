//! Replacement of all replicas, one after the other, under a constant rate of turns.

use std::time::Duration;

use rustix::process::Signal;
use tokio::time::{Instant, interval_at};

use super::{
    is_full,
    load::{EndedTurn, TurnClient},
    print_times, size,
};
use crate::conversations::harness::{Replicas, scene};

const REPLICAS: [&str; 3] = ["agent-1", "agent-2", "agent-3"];
const JOB: &str = "the job";
const STEPS: usize = 2;
/// Longest time of a turn beyond twice the usual one, on a machine without other load.
const TOLERANCE: Duration = Duration::from_secs(5);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rolling_restart_under_load_fails_no_turn() {
    let undisturbed = Duration::from_secs(size(4, 15));
    // At a low rate, only long turns are certainly in hand when a process is stopped.
    let pause = if is_full() { 0.1 } else { 1.0 };
    let command = format!("echo line >> lines; sleep {pause}");
    let replicas = Replicas::new(&scene(JOB, &[command.as_str(); STEPS])).await;
    let mut running = Vec::new();
    for name in REPLICAS {
        running.push(replicas.start(name).await);
    }
    let client = TurnClient::connect(&replicas).await;
    let work = async {
        pass(undisturbed).await;
        let restart = Instant::now();
        for (name, agent) in REPLICAS.into_iter().zip(std::mem::take(&mut running)) {
            agent.send(Signal::TERM);
            agent.wait().await.assert_code(0);
            running.push(replicas.start(name).await);
            pass(undisturbed / 4).await;
        }
        restart
    };
    let (turns, restart) = client.at_rate(size(5, 20), JOB, work).await;
    let failed: Vec<_> = turns.iter().filter(|turn| !turn.is_completed()).collect();
    assert!(failed.is_empty(), "{} of {} turns: {:#?}", failed.len(), turns.len(), failed[0]);
    let resumed = turns.iter().filter(|turn| turn.resumed > 0).count();
    assert!(resumed > 0, "no turn was in hand when its process was stopped");
    let times = |during: &dyn Fn(&EndedTurn) -> bool| -> Vec<Duration> {
        turns.iter().filter(|turn| during(turn)).map(|turn| turn.time).collect()
    };
    println!("{resumed} of {} turns continued in another process", turns.len());
    // On a machine with other load, no turn may end before the restarts of a short run.
    if is_full() {
        let before = times(&|turn| turn.sent + turn.time < restart);
        let during = times(&|turn| turn.sent + turn.time >= restart);
        let worst = during.iter().max().copied().expect("turns");
        let usual = print_times("turns before the restarts", before);
        print_times("turns during the restarts", during);
        assert!(worst <= usual * 2 + TOLERANCE, "{worst:?}, usually {usual:?}");
    }
    assert_eq!(replicas.lines().len(), turns.len() * STEPS, "each command runs once");
    replicas.stop(running).await;
}

/// Lets time pass in which only the load acts.
async fn pass(time: Duration) {
    interval_at(Instant::now() + time, time).tick().await;
}
