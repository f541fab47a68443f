//! Cost of metrics and traces.
//!
//! Three fleets of an agent process and a handler process share a broker. One has metrics and exports the
//! spans of all calls over OTLP to a collector that discards them, one exports those of a tenth of the
//! calls, and one has neither metrics nor traces.

use std::{
    process::Stdio,
    sync::{Arc, OnceLock},
    time::Duration,
};

use rockbot_bus::{Bus, Observed};
use rockbot_service::{
    LogSection, Metrics, TelemetrySection, logging,
    telemetry::{
        section::OtlpProtocol,
        traces::{Identity, Traces},
    },
};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    net::{TcpListener, TcpStream},
    process::{Child, ChildStdin, ChildStdout, Command},
};

use crate::{
    fresh,
    measure::{self, median},
    rockbot::Agent,
};

/// Variable with the endpoint of the collector. Without it, metrics and traces are off.
const COLLECTOR: &str = "ROCKBOT_BENCH_COLLECTOR";
/// Variable with the share of calls whose spans are exported.
const SHARE: &str = "ROCKBOT_BENCH_SHARE";

static RUNNING: OnceLock<(Traces, Metrics)> = OnceLock::new();

/// Starts metrics and traces as set in the environment.
pub fn start() {
    let Ok(endpoint) = std::env::var(COLLECTOR) else { return };
    let share = std::env::var(SHARE).expect("set with the collector");
    let section = TelemetrySection {
        otlp_endpoint: Some(endpoint),
        sample_ratio: Some(share.parse().expect("a number")),
        otlp_protocol: Some(OtlpProtocol::Http),
        ..TelemetrySection::default()
    };
    let identity = Identity { name: "bench", version: "0", instance: "one" };
    let traces = Traces::start(&section, identity).expect("a usable endpoint").expect("traces");
    let log = LogSection { level: "error".to_owned(), ..LogSection::default() };
    logging::start(&log, Some(&traces)).expect("a filter");
    let _ = RUNNING.set((traces, Metrics::start("bench", "0")));
}

/// Wraps the bus like a process of the fleet.
pub fn observed(bus: Arc<dyn Bus>) -> Arc<dyn Bus> {
    match RUNNING.get() {
        Some(_) => Observed::new(bus, "rabbitmq"),
        None => bus,
    }
}

/// Calls in flight.
const LOADS: [usize; 3] = [1, 16, 256];

/// Calls per second and median latency of each fleet.
type Round = [(f64, f64); 3];

/// Runs the loads that its parent requests, and reports their rates.
pub async fn call_on_demand(namespace: &str) {
    let agent = Agent::connect(namespace).await;
    let mut commands = BufReader::new(tokio::io::stdin()).lines();
    println!("ready");
    while let Some(line) = commands.next_line().await.expect("a line") {
        let (in_flight, millis) = line.split_once(' ').expect("two numbers");
        let span = Duration::from_millis(millis.parse().expect("a number"));
        let in_flight = in_flight.parse().expect("a number");
        let sample = measure::load(in_flight, span, || agent.call()).await;
        println!("{} {}", sample.per_second, sample.p50_ms);
    }
}

/// Turns of each fleet in a round; the speed of the machine changes within seconds.
const TURNS: u32 = 6;

/// Compares all fleets at each load, in alternating rounds. Each round starts new fleets, since processes
/// of one kind can differ by a few percent for their whole lifetime.
pub async fn compare(rounds: usize, span: Duration) {
    let collector = Collector::start().await;
    let kinds =
        [("all of them", Some("1")), ("a tenth", Some("0.1")), ("none, without metrics", None)];
    let mut samples: [Vec<Round>; LOADS.len()] = Default::default();
    for round in 0..rounds {
        let order = [0, 1, 2].map(|offset| (offset + round) % kinds.len());
        let mut fleets = Vec::new();
        for kind in order {
            let collector = kinds[kind].1.map(|share| (collector.endpoint.as_str(), share));
            fleets.push((kind, Pair::start(&fresh("telemetry"), collector).await));
        }
        for (in_flight, samples) in LOADS.into_iter().zip(&mut samples) {
            for (_, pair) in &mut fleets {
                pair.load(in_flight, span / 4).await;
            }
            let mut means: Round = [(0.0, 0.0); 3];
            for _ in 0..TURNS {
                for (kind, pair) in &mut fleets {
                    let (per_second, p50) = pair.load(in_flight, span / TURNS).await;
                    means[*kind].0 += per_second / f64::from(TURNS);
                    means[*kind].1 += p50 / f64::from(TURNS);
                }
            }
            samples.push(means);
        }
    }
    println!("| in flight | traced | calls/s | p50 | calls/s to none | p50 to none |");
    println!("|---:|---|---:|---:|---:|---:|");
    for (in_flight, samples) in LOADS.into_iter().zip(&samples) {
        for (kind, (name, _)) in kinds.iter().enumerate() {
            let median_of =
                |pick: &dyn Fn(&Round) -> f64| median(samples.iter().map(pick).collect());
            println!(
                "| {in_flight} | {name} | {:.0} | {:.2} ms | {:.3} | {:.3} |",
                median_of(&|one| one[kind].0),
                median_of(&|one| one[kind].1),
                median_of(&|one| one[kind].0 / one[2].0),
                median_of(&|one| one[kind].1 / one[2].1),
            );
        }
    }
    let bytes = collector.bytes.load(std::sync::atomic::Ordering::Relaxed);
    println!("the collector received {} MiB", bytes / 1024 / 1024);
}

/// An agent process and its handler process.
struct Pair {
    _handler: Child,
    _agent: Child,
    commands: ChildStdin,
    results: Lines<BufReader<ChildStdout>>,
}

impl Pair {
    async fn start(namespace: &str, collector: Option<(&str, &str)>) -> Self {
        let mut handler = spawn(&["handler", namespace, "256", "0"], collector);
        let output = handler.stdout.take().expect("piped");
        assert_ready(&mut BufReader::new(output).lines()).await;
        let mut agent = spawn(&["observed-agent", namespace], collector);
        let mut results = BufReader::new(agent.stdout.take().expect("piped")).lines();
        assert_ready(&mut results).await;
        let commands = agent.stdin.take().expect("piped");
        Self { _handler: handler, _agent: agent, commands, results }
    }

    /// Runs a load. Returns calls per second and the median latency in milliseconds.
    async fn load(&mut self, in_flight: usize, span: Duration) -> (f64, f64) {
        let command = format!("{in_flight} {}\n", span.as_millis());
        self.commands.write_all(command.as_bytes()).await.expect("sent");
        let line = self.results.next_line().await.expect("a line").expect("a result");
        let (rate, median) = line.split_once(' ').expect("two numbers");
        (rate.parse().expect("a number"), median.parse().expect("a number"))
    }
}

fn spawn(role: &[&str], collector: Option<(&str, &str)>) -> Child {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(role).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
    if let Some((collector, share)) = collector {
        command.env(COLLECTOR, collector).env(SHARE, share);
    }
    command.spawn().expect("started")
}

async fn assert_ready(lines: &mut Lines<BufReader<ChildStdout>>) {
    let line = lines.next_line().await.expect("a line");
    assert_eq!(line.as_deref(), Some("ready"));
}

/// A trace collector over HTTP that discards its input.
struct Collector {
    endpoint: String,
    bytes: Arc<std::sync::atomic::AtomicU64>,
}

impl Collector {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
        let bytes = Arc::<std::sync::atomic::AtomicU64>::default();
        let counted = bytes.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(discard(stream, counted.clone()));
            }
        });
        Self { endpoint, bytes }
    }
}

async fn discard(stream: TcpStream, bytes: Arc<std::sync::atomic::AtomicU64>) {
    let mut stream = BufReader::with_capacity(64 * 1024, stream);
    let mut length = 0;
    let mut line = String::new();
    while matches!(stream.read_line(&mut line).await, Ok(1..)) {
        let lower = line.to_ascii_lowercase();
        if let Some(value) = lower.strip_prefix("content-length:") {
            length = value.trim().parse().expect("a length");
        }
        if line == "\r\n" {
            let mut left = length;
            while left > 0 {
                let read = stream.fill_buf().await.expect("a body").len().min(left);
                assert!(read > 0, "the body is truncated");
                stream.consume(read);
                left -= read;
            }
            bytes.fetch_add(length as u64, std::sync::atomic::Ordering::Relaxed);
            let response = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
            stream.get_mut().write_all(response).await.expect("sent");
        }
        line.clear();
    }
}
