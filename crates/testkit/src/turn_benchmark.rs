//! The loop of the programs of `cargo xtask bench turns`, which is compiled into programs of other workspaces too.
//!
//! A program prints `ready`, then reads measurements from standard input, `VARIANT IN_FLIGHT MILLISECONDS`, and prints
//! for each the steps per second and the times of a turn at p50 and p99 in microseconds.

use std::{
    io::BufRead,
    time::{Duration, Instant},
};

use tokio::task::JoinSet;

/// Steps of a turn: a response of the model that requests a call, and the result of the call.
pub const STEPS: usize = 8;

/// Reads and prints measurements until the end of the input. `variant` returns the function that runs one turn of the
/// variant with this name.
///
/// # Panics
/// When a measurement cannot be read, or a turn panics.
#[allow(clippy::print_stdout, reason = "results go to standard output")]
pub async fn serve<F, T>(variant: impl Fn(&str) -> F)
where
    F: Fn() -> T + Clone + Send + Sync + 'static,
    T: Future<Output = ()> + Send,
{
    println!("ready");
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let words: Vec<_> = line.split_whitespace().collect();
        let [name, in_flight, milliseconds] = words[..] else { panic!("invalid: {line}") };
        let in_flight = in_flight.parse().expect("a number");
        let length = Duration::from_millis(milliseconds.parse().expect("a number"));
        let [rate, p50, p99] = measure(variant(name), in_flight, length).await;
        println!("{rate:.0} {p50:.0} {p99:.0}");
    }
}

/// Returns the steps per second, and the times of a turn in microseconds at p50 and p99.
async fn measure<F, T>(turn: F, in_flight: usize, length: Duration) -> [f64; 3]
where
    F: Fn() -> T + Clone + Send + Sync + 'static,
    T: Future<Output = ()> + Send,
{
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..in_flight {
        let turn = turn.clone();
        tasks.spawn(async move {
            let mut times = Vec::new();
            while start.elapsed() < length {
                let began = Instant::now();
                turn().await;
                times.push(began.elapsed());
            }
            times
        });
    }
    let mut times: Vec<_> = tasks.join_all().await.into_iter().flatten().collect();
    let seconds = start.elapsed().as_secs_f64();
    times.sort_unstable();
    let at = |share: f64| {
        let index = (times.len() as f64 * share) as usize;
        times[index.min(times.len() - 1)].as_secs_f64() * 1e6
    };
    [(times.len() * STEPS) as f64 / seconds, at(0.5), at(0.99)]
}
