//! Turns of 8 steps in DBOS for Rust: each step records the response of a model and the result of a tool,
//! neither of which does anything.
//!
//! `cargo xtask bench turns` runs it. Argument: the URL of a PostgreSQL database. It prints `ready`, then reads
//! measurements from standard input, `VARIANT IN_FLIGHT MILLISECONDS`, and prints for each the steps per second
//! and the times of a turn at p50 and p99 in microseconds.

use std::{
    io::BufRead,
    sync::Arc,
    time::{Duration, Instant},
};

use dbos::{Config, DBOS, WorkflowRef, step};
use tokio::task::JoinSet;

const STEPS: usize = 8;
const TEXT_BYTES: usize = 500;
/// Connections of the pool, as many as turns run at once.
const CONNECTIONS: u32 = 64;

type Failure = Box<dyn std::error::Error + Send + Sync>;
type Turn = WorkflowRef<String, String>;

async fn turn(message: String) -> dbos::Result<String> {
    let mut read = message.len();
    for _ in 0..STEPS {
        let response: String = step("model", || async { Ok("x".repeat(TEXT_BYTES)) }).await?;
        let result: String = step("noop", || async { Ok("done".to_owned()) }).await?;
        read += response.len() + result.len();
    }
    Ok(format!("All done after {read} bytes."))
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let url = std::env::args().nth(1).ok_or("usage: dbos-turns URL")?;
    let config = Config {
        app_version: Some("1".to_owned()),
        max_connections: CONNECTIONS,
        ..Config::new("turns", url)
    };
    let dbos = DBOS::new(config);
    let workflow = Arc::new(dbos.register_workflow("turn", turn)?);
    dbos.launch().await?;
    println!("ready");
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let mut words = line.split_whitespace().skip(1);
        let mut number =
            || words.next().and_then(|word| word.parse::<u64>().ok()).ok_or("a number");
        let (in_flight, length) = (number()?, Duration::from_millis(number()?));
        let [rate, p50, p99] = measure(&workflow, in_flight, length).await?;
        println!("{rate:.0} {p50:.0} {p99:.0}");
    }
    dbos.shutdown().await;
    Ok(())
}

/// Returns the steps per second, and the times of a turn in microseconds at p50 and p99.
async fn measure(
    workflow: &Arc<Turn>,
    in_flight: u64,
    length: Duration,
) -> Result<[f64; 3], Failure> {
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..in_flight {
        let workflow = workflow.clone();
        tasks.spawn(async move {
            let mut times = Vec::new();
            while start.elapsed() < length {
                let began = Instant::now();
                let answer = workflow.run("go".to_owned()).await?;
                if !answer.starts_with("All done") {
                    return Err(Failure::from(answer));
                }
                times.push(began.elapsed());
            }
            Ok(times)
        });
    }
    let mut times = Vec::new();
    for ended in tasks.join_all().await {
        times.extend(ended?);
    }
    let seconds = start.elapsed().as_secs_f64();
    times.sort_unstable();
    let at = |share: f64| {
        let index = (times.len() as f64 * share) as usize;
        times[index.min(times.len() - 1)].as_secs_f64() * 1e6
    };
    Ok([(times.len() * STEPS) as f64 / seconds, at(0.5), at(0.99)])
}
