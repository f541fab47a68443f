//! Pages that are made to exhaust a parser, read by `web_browse`: time and memory of each, and calls of other
//! pages beside them. `cargo xtask bench hostile`.

#![allow(clippy::print_stdout, clippy::expect_used, clippy::unwrap_used, reason = "a benchmark")]

#[path = "../tests/it/hostile_pages.rs"]
mod hostile_pages;

use std::{
    fs,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    Router,
    extract::{Path, State},
    response::Html,
    routing::get,
};
use proptest::{
    collection::vec,
    strategy::{Strategy, ValueTree},
    test_runner::TestRunner,
};
use rockbot_contracts::{AgentName, SessionId};
use rockbot_tools::{Tool, ToolContext, ToolProvider};
use rockbot_web::{RobotsMode, WebOptions, WebProvider, WebSection};
use serde_json::json;

/// Number of generated pages.
const GENERATED: usize = 1_000;
/// Rounds of the comparison, and their duration.
const ROUNDS: usize = 7;
const SPAN: Duration = Duration::from_secs(2);
/// Goals: time of a page, time of the page with 100,000 attributes, growth of memory in MiB, ratio of the p99
/// of other calls.
const PAGE_GOAL: Duration = Duration::from_secs(5);
const ATTRIBUTES_GOAL: Duration = Duration::from_secs(1);
const MEMORY_GOAL: u64 = 300;
const RATIO_GOAL: f64 = 1.10;

type Pages = Arc<Vec<(String, String)>>;

#[tokio::main]
async fn main() {
    let named = hostile_pages::pages().into_iter().map(|(name, html)| (name.to_owned(), html));
    let named: Vec<_> = named.collect();
    let count = named.len();
    let pages: Pages = Arc::new(named.into_iter().chain(generated()).collect());
    let browser = Browser::start(pages.clone()).await;
    println!("| page | time | goal | memory | goal | |\n|---|---:|---:|---:|---:|---|");
    for (number, (name, _)) in pages.iter().enumerate().take(count) {
        print_page(name, browser.measured(number..=number).await);
    }
    let measured = browser.measured(count..=pages.len() - 1).await;
    print_page(&format!("{GENERATED} generated, the slowest"), measured);
    browser.compare(count).await;
}

fn print_page(name: &str, (time, memory): (Duration, u64)) {
    let is_attributes = name == hostile_pages::MANY_ATTRIBUTES;
    let goal = if is_attributes { ATTRIBUTES_GOAL } else { PAGE_GOAL };
    println!(
        "| {name} | {:.0} ms | ≤ {} ms | {memory} MiB | ≤ {MEMORY_GOAL} MiB | {} |",
        1000.0 * time.as_secs_f64(),
        goal.as_millis(),
        verdict(time <= goal && memory <= MEMORY_GOAL)
    );
}

fn verdict(is_met: bool) -> &'static str {
    if is_met { "ok" } else { "missed" }
}

/// Returns generated markup that parsers repair, the same in each run.
fn generated() -> impl Iterator<Item = (String, String)> {
    let strategy = (vec(hostile_pages::piece(), 0..60), 1_usize..200);
    let mut runner = TestRunner::deterministic();
    (0..GENERATED).map(move |number| {
        let (pieces, copies) = strategy.new_tree(&mut runner).expect("markup").current();
        (format!("generated {number}"), pieces.concat().repeat(copies))
    })
}

/// The tool, and a server with the pages.
#[derive(Clone)]
struct Browser {
    tool: Arc<dyn Tool>,
    address: String,
}

impl Browser {
    async fn start(pages: Pages) -> Self {
        let page = async |State(pages): State<Pages>, Path(number): Path<usize>| {
            Html(pages[number].1.clone())
        };
        let routes =
            Router::new().route("/{number}", get(page)).route("/other", get("another page"));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        tokio::spawn(async move { axum::serve(listener, routes.with_state(pages)).await });
        let section = WebSection {
            ports: vec![address.port()],
            allow_private: vec!["127.0.0.0/8".to_owned()],
            robots: RobotsMode::Ignore,
            ..WebSection::default()
        };
        let provider = WebProvider::new(&section, WebOptions::default()).expect("a provider");
        let tool = provider.get("web_browse").expect("the tool");
        Self { tool, address: format!("http://{address}") }
    }

    /// Reads a page. A page that cannot be read is an answer as well.
    async fn read(&self, path: &str) {
        let (session, agent) = (SessionId::generate(), AgentName::new("bench").expect("a name"));
        let context = ToolContext::new("web_browse", session, agent);
        let arguments = json!({"url": format!("{}/{path}", self.address)});
        let _ = self.tool.call(arguments, &context).await;
    }

    /// Reads pages one after the other. Returns the longest time, and the growth of memory in MiB.
    async fn measured(&self, pages: impl Iterator<Item = usize>) -> (Duration, u64) {
        // Resets the peak.
        fs::write("/proc/self/clear_refs", "5").expect("Linux");
        let before = memory("VmRSS:");
        let mut slowest = Duration::ZERO;
        for page in pages {
            let start = Instant::now();
            self.read(&page.to_string()).await;
            slowest = slowest.max(start.elapsed());
        }
        (slowest, memory("VmHWM:").saturating_sub(before) / 1024)
    }

    /// Compares calls of a page in plain text alone and beside hostile pages, in alternating rounds.
    async fn compare(&self, hostile: usize) {
        let mut ratios = Vec::new();
        let (mut alone, mut beside) = (Vec::new(), Vec::new());
        for round in 0..ROUNDS {
            let mut measured = [0.0, 0.0];
            for is_beside in [round % 2 == 1, round % 2 == 0] {
                let reader = is_beside.then(|| tokio::spawn(self.clone().read_for_ever(hostile)));
                measured[usize::from(is_beside)] = self.p99_of_other_page().await;
                if let Some(reader) = reader {
                    reader.abort();
                    let _ = reader.await;
                }
            }
            alone.push(measured[0]);
            beside.push(measured[1]);
            ratios.push(measured[1] / measured[0]);
        }
        println!("\n| another page, p99 | beside hostile pages, p99 | ratio | goal | |");
        println!("|---:|---:|---:|---:|---|");
        let (alone, beside, ratio) = (median(alone), median(beside), median(ratios));
        let is_met = verdict(ratio <= RATIO_GOAL);
        println!("| {alone:.2} ms | {beside:.2} ms | {ratio:.3} | ≤ {RATIO_GOAL:.2} | {is_met} |");
    }

    async fn read_for_ever(self, hostile: usize) {
        for page in (0..hostile).cycle() {
            self.read(&page.to_string()).await;
        }
    }

    async fn p99_of_other_page(&self) -> f64 {
        let start = Instant::now();
        let mut times = Vec::new();
        while start.elapsed() < SPAN {
            let call = Instant::now();
            self.read("other").await;
            times.push(1000.0 * call.elapsed().as_secs_f64());
        }
        times.sort_by(f64::total_cmp);
        times[times.len() * 99 / 100]
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Returns a value of this process's memory in KiB.
fn memory(key: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix(key)).expect("a line");
    line.trim().strip_suffix(" kB").and_then(|count| count.parse().ok()).expect("a number")
}
