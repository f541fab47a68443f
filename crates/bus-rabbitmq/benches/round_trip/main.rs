//! Tool calls over RabbitMQ, compared with an equivalent exchange on the plain AMQP client.
//!
//! Agent and handler are separate processes: this program starts itself in another role. Both sides use
//! the same kinds of queues, publisher confirms for requests and replies, `mandatory`, manual acks after
//! the confirmed reply, and a task for each delivery. They alternate in one run, which reports the
//! median of the ratios of all rounds.
//!
//! `cargo xtask bench` provides the broker and runs the benchmark.

#![allow(missing_docs, unreachable_pub, reason = "a program")]
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a benchmark stops by panicking")]
#![allow(clippy::print_stdout, reason = "its results go to standard output")]

mod child;
mod guarantees;
mod isolation;
mod measure;
mod pools;
mod raw;
mod rockbot;
mod telemetry;

use std::time::Duration;

use self::{
    child::Child,
    measure::{Sample, median},
};

/// The allocator of the binaries, used on both sides.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const IN_FLIGHT: [usize; 3] = [1, 16, 256];

fn main() {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    arguments.retain(|argument| argument != "--bench");
    let role: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        telemetry::start();
        match role.as_slice() {
            ["handler", namespace, concurrency, pause_ms] => {
                let pause = Duration::from_millis(pause_ms.parse().expect("a number"));
                let concurrency = concurrency.parse().expect("a number");
                rockbot::serve(namespace, concurrency, pause).await;
            }
            ["guarded-handler", namespace, step] => rockbot::serve_relaxed(namespace, step).await,
            ["guarantees"] => guarantees::compare(7, Duration::from_secs(1)).await,
            ["shared-handler", namespace] => rockbot::serve_shared(namespace).await,
            ["isolation"] => isolation::compare(7, Duration::from_secs(2)).await,
            ["pool-handler", namespace, pool] => pools::serve(namespace, pool).await,
            ["pools"] => pools::compare(7, Duration::from_secs(2)).await,
            ["observed-agent", namespace] => telemetry::call_on_demand(namespace).await,
            ["telemetry"] => telemetry::compare(9, Duration::from_millis(1800)).await,
            ["raw-server", namespace] => raw::serve(namespace, usize::MAX).await,
            ["raw-client", namespace, calls, in_flight] => {
                let client = raw::Client::connect(namespace).await;
                measure::run_calls(number(calls), number(in_flight), || client.call()).await;
            }
            ["raw-serve-calls", namespace, calls] => raw::serve(namespace, number(calls)).await,
            ["agent", namespace, calls, in_flight] => {
                let agent = rockbot::Agent::connect(namespace).await;
                measure::run_calls(number(calls), number(in_flight), || agent.call()).await;
            }
            ["serve-calls", namespace, calls] => {
                rockbot::serve_counted(namespace, number(calls)).await;
            }
            ["memory", calls] => memory(number(calls)).await,
            ["scaling"] => scaling().await,
            [] => compare(7, Duration::from_secs(2)).await,
            ["quick"] => compare(3, Duration::from_millis(700)).await,
            other => panic!("unknown role {other:?}"),
        }
    });
}

/// Compares both sides at each load, in alternating rounds.
async fn compare(rounds: usize, span: Duration) {
    let (rockbot, raw) = (fresh("bench"), fresh("raw"));
    let _handler = Child::start(&["handler", &rockbot, "256", "0"]);
    let _server = Child::start(&["raw-server", &raw]);
    let agent = rockbot::Agent::connect(&rockbot).await;
    let client = raw::Client::connect(&raw).await;
    println!(
        "| in flight | RockBot calls/s | raw calls/s | ratio | RockBot p50 | raw p50 | ratio |"
    );
    println!("|---:|---:|---:|---:|---:|---:|---:|");
    for in_flight in IN_FLIGHT {
        let warm = span / 3;
        measure::load(in_flight, warm, || agent.call()).await;
        measure::load(in_flight, warm, || client.call()).await;
        let mut samples: Vec<(Sample, Sample)> = Vec::new();
        for round in 0..rounds {
            // The order alternates, so that neither always follows the other.
            let pair = if round % 2 == 0 {
                let rockbot = measure::load(in_flight, span, || agent.call()).await;
                (rockbot, measure::load(in_flight, span, || client.call()).await)
            } else {
                let raw = measure::load(in_flight, span, || client.call()).await;
                (measure::load(in_flight, span, || agent.call()).await, raw)
            };
            samples.push(pair);
        }
        let median_of =
            |pick: fn(&(Sample, Sample)) -> f64| median(samples.iter().map(pick).collect());
        println!(
            "| {in_flight} | {:.0} | {:.0} | {:.3} | {:.2} ms | {:.2} ms | {:.3} |",
            median_of(|pair| pair.0.per_second),
            median_of(|pair| pair.1.per_second),
            median_of(|pair| pair.0.per_second / pair.1.per_second),
            median_of(|pair| pair.0.p50_ms),
            median_of(|pair| pair.1.p50_ms),
            median_of(|pair| pair.0.p50_ms / pair.1.p50_ms),
        );
    }
}

/// Memory per call in flight on either side: the difference between few and many calls.
async fn memory(calls: usize) {
    let namespace = fresh("memory");
    let few = calls / 4;
    let concurrency = u16::try_from(calls + few).expect("a prefetch").to_string();
    let handler = Child::start(&["handler", &namespace, &concurrency, "12000"]);
    let agent = rockbot::Agent::connect(&namespace).await;
    let resident = || (measure::rss(std::process::id()), measure::rss(handler.id()));
    // Before the first measurement, so that one-time allocations are not counted.
    let first = rockbot::hold(&agent, few).await;
    let before = resident();
    let more = rockbot::hold(&agent, calls).await;
    let after = resident();
    let per_call = |before: usize, after: usize| after.saturating_sub(before) / calls;
    println!(
        "{calls} more calls in flight: agent {} bytes a call, handler {} bytes a call",
        per_call(before.0, after.0),
        per_call(before.1, after.1)
    );
    first.finish().await;
    more.finish().await;
}

/// Compares four handlers with one, for a tool that takes 5 ms.
async fn scaling() {
    let mut rates = Vec::new();
    for handlers in [1, 4] {
        let namespace = fresh("scaling");
        let _children: Vec<Child> =
            (0..handlers).map(|_| Child::start(&["handler", &namespace, "2", "5"])).collect();
        let agent = rockbot::Agent::connect(&namespace).await;
        measure::load(32, Duration::from_millis(500), || agent.call()).await;
        let sample = measure::load(32, Duration::from_secs(4), || agent.call()).await;
        println!("{handlers} handlers: {:.0} calls/s", sample.per_second);
        rates.push(sample.per_second);
    }
    println!("four handlers are {:.2} times one", rates[1] / rates[0]);
}

fn number(text: &str) -> usize {
    text.parse().expect("a number")
}

fn fresh(name: &str) -> String {
    format!("{name}-{}", rockbot_contracts::InstanceId::generate())
}
