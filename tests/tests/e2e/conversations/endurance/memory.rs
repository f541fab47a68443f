//! Memory of an agent over many turns.

#![cfg(target_os = "linux")]

use rockbot_contracts::SessionId;

use super::{load::TurnClient, print_times, size};
use crate::{
    conversations::harness::{Replicas, scene},
    process::memory_kib,
};

const JOB: &str = "the job";
const IN_FLIGHT: usize = 16;
/// Turns of each conversation.
const TURNS: usize = 2;
/// Parts of the run after each of which the memory is measured.
const PARTS: usize = 10;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agent_needs_no_more_memory_after_many_turns() {
    // A turn a second for an hour.
    let turns = size(300, 3600);
    let replicas = Replicas::new(&scene(JOB, &["head -c 4000 /dev/zero | tr '\\0' x"])).await;
    let agent = replicas.start("agent-1").await;
    let client = TurnClient::connect(&replicas).await;
    let (mut samples, mut times) = (Vec::new(), Vec::new());
    for _ in 0..PARTS {
        let sessions: Vec<_> = (0..turns / TURNS / PARTS).map(|_| SessionId::generate()).collect();
        for _ in 0..TURNS {
            let ended = client.one_each(sessions.clone(), IN_FLIGHT, JOB).await;
            assert!(ended.iter().all(super::load::EndedTurn::is_completed), "{ended:#?}");
            times.extend(ended.iter().map(|turn| turn.time));
        }
        samples.push(memory_kib(agent.pid(), "VmRSS"));
    }
    print_times("turns", times);
    println!("resident memory after each tenth, in KiB: {samples:?}");
    // An agent keeps 1,000 idle conversations, which the full size reaches after 2,000 turns.
    let (first, last) = (samples[size(1, 6)], samples[PARTS - 1]);
    // Tolerance for the allocator.
    assert!(last <= first + first / 20 + 8192, "{samples:?}");
    replicas.stop(vec![agent]).await;
}
