//! What it costs to count and to trace every call.
//!
//! Three fleets of an agent and a handler, each in processes of their own, on one broker: one counts
//! everything and sends the spans of every call over OTLP to a collector that reads and forgets, one
//! does so for a tenth of the calls, and one neither counts nor traces.

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

/// Where spans go; the process neither counts nor traces without it.
const COLLECTOR: &str = "ROCKBOT_BENCH_COLLECTOR";
/// The share of calls whose spans are sent.
const SHARE: &str = "ROCKBOT_BENCH_SHARE";

static RUNNING: OnceLock<(Traces, Metrics)> = OnceLock::new();

/// Switches on what the environment asks for.
pub fn start() {
    let Ok(endpoint) = std::env::var(COLLECTOR) else { return };
    let share = std::env::var(SHARE).expect("comes with the collector");
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

/// The bus as a process of the fleet has it.
pub fn observed(bus: Arc<dyn Bus>) -> Arc<dyn Bus> {
    match RUNNING.get() {
        Some(_) => Observed::new(bus, "rabbitmq"),
        None => bus,
    }
}

/// Calls at once.
const LOADS: [usize; 3] = [1, 16, 256];

/// Calls a second and their median of each fleet.
type Round = [(f64, f64); 3];

/// Calls as often as its parent says, and tells how fast that was.
pub async fn call_on_demand(namespace: &str) {
    let agent = Agent::connect(namespace).await;
    let mut asked = BufReader::new(tokio::io::stdin()).lines();
    println!("ready");
    while let Some(line) = asked.next_line().await.expect("a line") {
        let (in_flight, millis) = line.split_once(' ').expect("two numbers");
        let span = Duration::from_millis(millis.parse().expect("a number"));
        let in_flight = in_flight.parse().expect("a number");
        let sample = measure::load(in_flight, span, || agent.call()).await;
        println!("{} {}", sample.per_second, sample.p50_ms);
    }
}

/// How often each fleet comes in a round: the machine's own speed changes within seconds.
const TURNS: u32 = 6;

/// Rounds of all at each load, alternated. Each round has fleets of its own, since one may be a few
/// per cent faster than another of its kind for as long as it lives.
pub async fn compare(rounds: usize, span: Duration) {
    let collector = Drain::start().await;
    let kinds =
        [("all of them", Some("1")), ("a tenth", Some("0.1")), ("none, and no counts", None)];
    let mut samples: [Vec<Round>; LOADS.len()] = Default::default();
    for round in 0..rounds {
        let order = [0, 1, 2].map(|place| (place + round) % kinds.len());
        let mut fleets = Vec::new();
        for kind in order {
            let collector = kinds[kind].1.map(|share| (collector.endpoint.as_str(), share));
            fleets.push((kind, Pair::start(&fresh("told"), collector).await));
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
            let of = |pick: &dyn Fn(&Round) -> f64| median(samples.iter().map(pick).collect());
            println!(
                "| {in_flight} | {name} | {:.0} | {:.2} ms | {:.3} | {:.3} |",
                of(&|one| one[kind].0),
                of(&|one| one[kind].1),
                of(&|one| one[kind].0 / one[2].0),
                of(&|one| one[kind].1 / one[2].1),
            );
        }
    }
    let bytes = collector.bytes.load(std::sync::atomic::Ordering::Relaxed);
    println!("the collector was sent {} MiB", bytes / 1024 / 1024);
}

/// An agent and its handler.
struct Pair {
    _handler: Child,
    _agent: Child,
    asks: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Pair {
    async fn start(namespace: &str, collector: Option<(&str, &str)>) -> Self {
        let mut handler = spawn(&["handler", namespace, "256", "0"], collector);
        let said = handler.stdout.take().expect("piped");
        assert_ready(&mut BufReader::new(said).lines()).await;
        let mut agent = spawn(&["observed-agent", namespace], collector);
        let mut answers = BufReader::new(agent.stdout.take().expect("piped")).lines();
        assert_ready(&mut answers).await;
        let asks = agent.stdin.take().expect("piped");
        Self { _handler: handler, _agent: agent, asks, answers }
    }

    /// Calls a second, and the median in milliseconds.
    async fn load(&mut self, in_flight: usize, span: Duration) -> (f64, f64) {
        let asked = format!("{in_flight} {}\n", span.as_millis());
        self.asks.write_all(asked.as_bytes()).await.expect("asked");
        let line = self.answers.next_line().await.expect("a line").expect("an answer");
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

/// A collector of traces over HTTP that reads what it is sent and forgets it.
struct Drain {
    endpoint: String,
    bytes: Arc<std::sync::atomic::AtomicU64>,
}

impl Drain {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
        let bytes = Arc::<std::sync::atomic::AtomicU64>::default();
        let counted = bytes.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(swallow(stream, counted.clone()));
            }
        });
        Self { endpoint, bytes }
    }
}

async fn swallow(stream: TcpStream, bytes: Arc<std::sync::atomic::AtomicU64>) {
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
                assert!(read > 0, "the body ends early");
                stream.consume(read);
                left -= read;
            }
            bytes.fetch_add(length as u64, std::sync::atomic::Ordering::Relaxed);
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
            stream.get_mut().write_all(answer).await.expect("answered");
        }
        line.clear();
    }
}
