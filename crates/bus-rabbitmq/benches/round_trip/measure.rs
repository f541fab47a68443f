//! Closed-loop load generation and measurement.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;

#[derive(Debug, Clone, Copy)]
pub struct Sample {
    pub per_second: f64,
    pub p50_ms: f64,
    pub p99_ms: f64,
}

/// Keeps `in_flight` calls in flight for `span`.
pub async fn load<F, Fut>(in_flight: usize, span: Duration, call: F) -> Sample
where
    F: Fn() -> Fut,
    Fut: Future<Output = ()> + Send + 'static,
{
    let start = Instant::now();
    let mut open = JoinSet::new();
    let mut times = Vec::new();
    let timed = |call: Fut| async move {
        let start = Instant::now();
        call.await;
        start.elapsed()
    };
    for _ in 0..in_flight {
        open.spawn(timed(call()));
    }
    while let Some(time) = open.join_next().await {
        times.push(time.expect("no panic").as_secs_f64() * 1000.0);
        if start.elapsed() < span {
            open.spawn(timed(call()));
        }
    }
    let per_second = times.len() as f64 / start.elapsed().as_secs_f64();
    times.sort_by(f64::total_cmp);
    let (p50_ms, p99_ms) = (times[times.len() / 2], times[times.len() * 99 / 100]);
    Sample { per_second, p50_ms, p99_ms }
}

/// Makes `calls` calls, `in_flight` of them concurrently.
pub async fn run_calls<F, Fut>(calls: usize, in_flight: usize, call: F)
where
    F: Fn() -> Fut,
    Fut: Future<Output = ()> + Send + 'static,
{
    let mut open = JoinSet::new();
    for _ in 0..calls {
        if open.len() == in_flight {
            open.join_next().await.expect("one is open").expect("no panic");
        }
        open.spawn(call());
    }
    while let Some(finished) = open.join_next().await {
        finished.expect("no panic");
    }
}

pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Returns the resident memory of a process in bytes.
pub fn rss(process: u32) -> usize {
    let statm = std::fs::read_to_string(format!("/proc/{process}/statm")).expect("Linux");
    let pages: usize = statm.split(' ').nth(1).expect("a field").parse().expect("a number");
    pages * 4096
}
