//! Handler pools: calls of one pool with and without the loss of another pool's handler, in alternating
//! rounds.

use std::time::Duration;

use rockbot_contracts::{HandlerPool, InstanceId, PoolName};

use crate::{
    child::Child,
    fresh,
    measure::{self, Sample, median},
    rockbot,
};

/// Calls that the killed handler runs. No other handler receives them, and their callers wait.
const HELD: usize = 32;
/// Concurrency of the handlers.
const CONCURRENCY: u16 = 64;

/// Serves the tool, and one that hangs, in a pool until the parent exits.
pub async fn serve(namespace: &str, pool: &str) {
    rockbot::serve_with_hanging_tool(namespace, &pool_of(pool), CONCURRENCY).await;
}

pub async fn compare(rounds: usize, span: Duration) {
    let namespace = fresh("pools");
    let _handler = Child::start(&["pool-handler", &namespace, "kept"]);
    let caller = rockbot::Agent::of_pool(&namespace, &pool_of("kept")).await;
    println!("| in flight | other handler runs, p99 | other handler killed, p99 | ratio |");
    println!("|---:|---:|---:|---:|");
    for in_flight in [1, 16] {
        measure::load(in_flight, span, || caller.call()).await;
        let mut samples: Vec<(Sample, Sample)> = Vec::new();
        for round in 0..rounds {
            let measured = |is_killed| beside(&namespace, &caller, in_flight, span, is_killed);
            samples.push(if round % 2 == 0 {
                let running = measured(false).await;
                (running, measured(true).await)
            } else {
                let killed = measured(true).await;
                (measured(false).await, killed)
            });
        }
        let median_of =
            |pick: fn(&(Sample, Sample)) -> f64| median(samples.iter().map(pick).collect());
        println!(
            "| {in_flight} | {:.2} ms | {:.2} ms | {:.3} |",
            median_of(|pair| pair.0.p99_ms),
            median_of(|pair| pair.1.p99_ms),
            median_of(|pair| pair.1.p99_ms / pair.0.p99_ms),
        );
    }
}

/// Measures calls beside another pool, whose handler runs calls that hang, and is killed after a quarter
/// of the time if `is_killed`.
async fn beside(
    namespace: &str,
    caller: &rockbot::Agent,
    in_flight: usize,
    span: Duration,
    is_killed: bool,
) -> Sample {
    // A new pool for each round: calls of a killed handler stay in its queue.
    let other = format!("other-{}", InstanceId::generate());
    let other: String = other.chars().take(32).collect();
    let mut handler = Child::start(&["pool-handler", namespace, &other]);
    let agent = rockbot::Agent::of_pool(namespace, &pool_of(&other)).await;
    let held = rockbot::hang(&agent, HELD).await;
    let killed = async {
        tokio::time::sleep(span / 4).await;
        if is_killed {
            handler.stop();
        }
    };
    let (sample, ()) = tokio::join!(measure::load(in_flight, span, || caller.call()), killed);
    held.cancel().await;
    sample
}

fn pool_of(name: &str) -> HandlerPool {
    HandlerPool::Named(PoolName::new(name).expect("a name"))
}
