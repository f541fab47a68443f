//! A closed loop of callers, and what it shows.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;

#[derive(Debug, Clone, Copy)]
pub struct Sample {
    pub per_second: f64,
    pub p50_ms: f64,
    pub p99_ms: f64,
}

/// Keeps `in_flight` calls open for `span`.
pub async fn load<F, Fut>(in_flight: usize, span: Duration, call: F) -> Sample
where
    F: Fn() -> Fut,
    Fut: Future<Output = ()> + Send + 'static,
{
    let began = Instant::now();
    let mut open = JoinSet::new();
    let mut times = Vec::new();
    let timed = |call: Fut| async move {
        let began = Instant::now();
        call.await;
        began.elapsed()
    };
    for _ in 0..in_flight {
        open.spawn(timed(call()));
    }
    while let Some(time) = open.join_next().await {
        times.push(time.expect("no panic").as_secs_f64() * 1000.0);
        if began.elapsed() < span {
            open.spawn(timed(call()));
        }
    }
    let per_second = times.len() as f64 / began.elapsed().as_secs_f64();
    times.sort_by(f64::total_cmp);
    let (p50_ms, p99_ms) = (times[times.len() / 2], times[times.len() * 99 / 100]);
    Sample { per_second, p50_ms, p99_ms }
}

/// Makes so many calls, `in_flight` of them at once.
pub async fn so_many<F, Fut>(calls: usize, in_flight: usize, call: F)
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
    while let Some(ended) = open.join_next().await {
        ended.expect("no panic");
    }
}

pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Resident memory of a process, in bytes.
pub fn rss(process: u32) -> usize {
    let statm = std::fs::read_to_string(format!("/proc/{process}/statm")).expect("Linux");
    let pages: usize = statm.split(' ').nth(1).expect("a field").parse().expect("a number");
    pages * 4096
}
