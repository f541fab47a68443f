//! Isolation: calls with and without another tool that hangs, in alternating rounds.

use std::time::Duration;

use crate::{
    child::Child,
    fresh,
    measure::{self, Sample, median},
    rockbot,
};

/// More than the calls of one tool that run and wait in a handler.
const HANGING: usize = 300;

/// Concurrency of the handler: 48 calls of a tool run, up to 512 wait.
pub const CONCURRENCY: u16 = 64;

pub async fn compare(rounds: usize, span: Duration) {
    let namespace = fresh("isolation");
    let _handler = Child::start(&["shared-handler", &namespace]);
    let caller = rockbot::Agent::connect(&namespace).await;
    // A separate connection, so that its calls don't delay the others in this process.
    let hanging = rockbot::Agent::connect(&namespace).await;
    println!("| in flight | alone, p99 | beside {HANGING} hanging calls, p99 | ratio |");
    println!("|---:|---:|---:|---:|");
    for in_flight in [1, 16] {
        measure::load(in_flight, span, || caller.call()).await;
        let mut samples: Vec<(Sample, Sample)> = Vec::new();
        for round in 0..rounds {
            let alone = || measure::load(in_flight, span, || caller.call());
            let beside = async || {
                let held = rockbot::hang(&hanging, HANGING).await;
                let sample = measure::load(in_flight, span, || caller.call()).await;
                held.cancel().await;
                sample
            };
            samples.push(if round % 2 == 0 {
                let alone = alone().await;
                (alone, beside().await)
            } else {
                let beside = beside().await;
                (alone().await, beside)
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
