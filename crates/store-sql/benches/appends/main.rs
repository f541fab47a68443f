//! Appends to logs against one fenced insert by sqlx for each entry, on SQLite and PostgreSQL. Both
//! alternate in one run.
//!
//! `cargo xtask bench appends` runs it. Arguments: the number of rounds (7), and the length of a
//! measurement in milliseconds (500); or `steps`, see there.

#![allow(missing_docs, reason = "a program")]
#![allow(clippy::expect_used, reason = "a benchmark stops by panicking")]
#![allow(clippy::print_stdout, reason = "results go to standard output")]

mod inserts;
mod steps;

use std::{
    future::Future,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use rockbot_store::{Clock, Log, LogName, StoreUrl};
use tokio::task::JoinSet;

/// The allocator of the binaries.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const WRITERS: [usize; 3] = [1, 16, 64];
const ENTRY_BYTES: usize = 500;

/// Appends entries to the log of one writer: the entry has this number.
type Append = Arc<dyn Fn(LogName, u64) -> BoxFuture<'static, ()> + Send + Sync>;

/// One database with both ways to append.
struct Database {
    name: &'static str,
    log: Append,
    inserts: Append,
}

#[tokio::main]
async fn main() {
    let folder = tempfile::tempdir().expect("a folder");
    let databases = databases(folder.path().to_owned()).await;
    if std::env::args().nth(1).is_some_and(|argument| argument == "steps") {
        return steps::serve(databases).await;
    }
    let mut arguments = std::env::args().skip(1).filter_map(|argument| argument.parse().ok());
    let rounds = arguments.next().unwrap_or(7);
    let length = Duration::from_millis(arguments.next().unwrap_or(500));
    println!("| database | writers | log appends/s | inserts/s | ratio |");
    println!("|---|---:|---:|---:|---:|");
    for database in &databases {
        for writers in WRITERS {
            let [log, inserts, ratio] = compare(database, writers, rounds, length).await;
            let name = database.name;
            println!("| {name} | {writers} | {log:.0} | {inserts:.0} | {ratio:.2} |");
        }
    }
}

/// Returns the medians of both rates, and of the ratios of the rounds.
async fn compare(database: &Database, writers: usize, rounds: u64, length: Duration) -> [f64; 3] {
    let mut samples = [const { Vec::new() }; 3];
    // The first round warms up.
    for round in 0..=rounds {
        let mut rates = [0.0; 2];
        for turn in 0..2 {
            let which = ((turn + round) % 2) as usize;
            let append = [&database.log, &database.inserts][which];
            rates[which] = appends_per_second(append, writers, round, length).await;
        }
        if round > 0 {
            for (samples, sample) in
                samples.iter_mut().zip([rates[0], rates[1], rates[0] / rates[1]])
            {
                samples.push(sample);
            }
        }
    }
    samples.map(|mut samples| {
        samples.sort_by(f64::total_cmp);
        samples.get(samples.len() / 2).copied().unwrap_or_default()
    })
}

/// Measures writers that each append to their own log, one entry at a time.
async fn appends_per_second(append: &Append, writers: usize, round: u64, length: Duration) -> f64 {
    let done = Arc::new(AtomicU64::new(0));
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for writer in 0..writers {
        let (append, done) = (append.clone(), done.clone());
        let segments = ["bench", &format!("{writers}-{round}"), &writer.to_string()];
        let name = LogName::new(segments).expect("a name");
        tasks.spawn(async move {
            let mut number = 1;
            while start.elapsed() < length {
                append(name.clone(), number).await;
                number += 1;
                done.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    tasks.join_all().await;
    // Counts of a short measurement are exact in an f64.
    let count = u32::try_from(done.load(Ordering::Relaxed)).unwrap_or(u32::MAX);
    f64::from(count) / start.elapsed().as_secs_f64()
}

async fn databases(folder: PathBuf) -> Vec<Database> {
    let mut databases = vec![Database {
        name: "SQLite",
        log: log(&StoreUrl::Sqlite(folder.join("log.db"))).await,
        inserts: inserts::sqlite(&folder.join("inserts.db")).await,
    }];
    if let Ok(url) = std::env::var("ROCKBOT_TEST_POSTGRES_URL") {
        databases.push(Database {
            name: "PostgreSQL",
            log: log(&StoreUrl::parse(&url.clone().into()).expect("a URL of a store")).await,
            inserts: inserts::postgres(&url).await,
        });
    }
    databases
}

async fn log(url: &StoreUrl) -> Append {
    let opened = rockbot_store_sql::connect_stores(url, Clock::System).await;
    let log: Arc<dyn Log> = opened.expect("a store").log;
    boxed(move |name, number| {
        let log = log.clone();
        async move {
            let entries = vec![entry()];
            let appended = log.append(&name, number.into(), entries, None).await.expect("appended");
            assert_eq!(appended.number(), Ok(number + 1));
        }
    })
}

fn boxed<F>(append: impl Fn(LogName, u64) -> F + Send + Sync + 'static) -> Append
where
    F: Future<Output = ()> + Send + 'static,
{
    Arc::new(move |name, number| Box::pin(append(name, number)))
}

fn entry() -> Bytes {
    Bytes::from_static(&[b'x'; ENTRY_BYTES])
}
