//! The records of turns of 8 steps, each a response of a model and the result of a tool: to a log of each turn,
//! or with one insert for each.
//!
//! `cargo xtask bench turns` runs it beside other programs that promise durability. It prints `ready`, then
//! reads measurements from standard input, `VARIANT IN_FLIGHT MILLISECONDS`, and prints for each the steps
//! per second and the times of a turn at p50 and p99 in microseconds.

use std::{
    collections::BTreeMap,
    io::BufRead,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use rockbot_store::LogName;
use tokio::task::JoinSet;

use crate::{Append, Database};

const STEPS: u64 = 8;
const RECORDS: u64 = 2 * STEPS;

/// The ways to record, by the names of the variants: `log-sqlite`, `inserts-postgresql`.
pub(crate) async fn serve(databases: Vec<Database>) {
    let mut variants = BTreeMap::new();
    for Database { name, log, inserts } in databases {
        let name = name.to_lowercase();
        variants.insert(format!("log-{name}"), log);
        variants.insert(format!("inserts-{name}"), inserts);
    }
    let turns = Arc::new(AtomicU64::new(0));
    println!("ready");
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let words: Vec<_> = line.split_whitespace().collect();
        let [variant, in_flight, milliseconds] = words[..] else { panic!("invalid: {line}") };
        let in_flight = in_flight.parse().expect("a number");
        let length = Duration::from_millis(milliseconds.parse().expect("a number"));
        let [rate, p50, p99] = measure(&variants[variant], &turns, in_flight, length).await;
        println!("{rate:.0} {p50:.0} {p99:.0}");
    }
}

/// Returns the steps per second, and the times of a turn in microseconds at p50 and p99.
async fn measure(
    append: &Append,
    turns: &Arc<AtomicU64>,
    in_flight: usize,
    length: Duration,
) -> [f64; 3] {
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..in_flight {
        let (append, turns) = (append.clone(), turns.clone());
        tasks.spawn(async move {
            let mut times = Vec::new();
            while start.elapsed() < length {
                let began = Instant::now();
                let turn = turns.fetch_add(1, Ordering::Relaxed);
                let name = LogName::new(["turn", &turn.to_string()]).expect("a name");
                for number in 1..=RECORDS {
                    append(name.clone(), number).await;
                }
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
    [(times.len() as u64 * STEPS) as f64 / seconds, at(0.5), at(0.99)]
}
