//! Turns of 8 steps with a scripted model and a no-op tool: without a log, and with the log in SQLite and
//! PostgreSQL.
//!
//! `cargo xtask bench turns` runs it beside other programs that promise durability. It prints `ready`, then
//! reads measurements from standard input, `VARIANT IN_FLIGHT MILLISECONDS`, and prints for each the steps
//! per second and the times of a turn at p50 and p99 in microseconds.

#![allow(clippy::print_stdout, clippy::expect_used, reason = "a benchmark prints and may panic")]

use std::{
    collections::BTreeMap,
    io::BufRead,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::future::BoxFuture;
use rockbot_agent::{Agent, AgentDefinition, AgentParts, ConversationOptions, Conversations};
use rockbot_contracts::{AgentName, SessionId, UserMessage, user::TurnOutcome};
use rockbot_llm::{ScriptedModel, ScriptedTurn};
use rockbot_store::{Clock, StoreUrl};
use rockbot_tools::{
    Tool, ToolContext, ToolFailure, ToolHints, ToolRegistration, ToolRegistry, ToolResult,
    ToolSource,
};
use serde_json::{Value, json};
use tokio::task::JoinSet;

/// The allocator of the binaries.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Steps of a turn: a response of the model that requests a call, and the result of the call.
const STEPS: usize = 8;
/// Text of each response.
const TEXT_BYTES: usize = 500;

struct Noop(ToolRegistration);

impl Tool for Noop {
    fn registration(&self) -> &ToolRegistration {
        &self.0
    }

    fn call<'a>(
        &'a self,
        _: Value,
        _: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolResult, ToolFailure>> {
        Box::pin(std::future::ready(Ok(ToolResult::text("done"))))
    }
}

#[tokio::main]
async fn main() {
    let folder = tempfile::tempdir().expect("a folder");
    let agents = agents(folder.path().to_owned()).await;
    println!("ready");
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let words: Vec<_> = line.split_whitespace().collect();
        let [variant, in_flight, milliseconds] = words[..] else { panic!("invalid: {line}") };
        let agent = &agents[variant];
        let in_flight = in_flight.parse().expect("a number");
        let length = Duration::from_millis(milliseconds.parse().expect("a number"));
        let [rate, p50, p99] = measure(agent, in_flight, length).await;
        println!("{rate:.0} {p50:.0} {p99:.0}");
    }
}

async fn agents(folder: PathBuf) -> BTreeMap<&'static str, Agent> {
    let name = AgentName::new("bench").expect("a name");
    let mut agents = BTreeMap::from([("memory", agent(Conversations::in_memory(name)))]);
    agents.insert("sqlite", stored(&StoreUrl::Sqlite(folder.join("turns.db"))).await);
    if let Ok(url) = std::env::var("ROCKBOT_TEST_POSTGRES_URL") {
        let url = StoreUrl::parse(&url.into()).expect("a URL of a store");
        agents.insert("postgresql", stored(&url).await);
    }
    agents
}

async fn stored(url: &StoreUrl) -> Agent {
    let opened = rockbot_store_sql::connect_stores(url, Clock::System).await.expect("a store");
    let name = AgentName::new("bench").expect("a name");
    let options = ConversationOptions::default();
    agent(Conversations::new(opened.log, opened.store, name, options))
}

fn agent(conversations: Conversations) -> Agent {
    let call = || ScriptedTurn::text("x".repeat(TEXT_BYTES)).call("noop", json!({}));
    let script: Vec<_> =
        (0..STEPS).map(|_| call()).chain([ScriptedTurn::text("All done.")]).collect();
    let registry = ToolRegistry::new();
    let registration = ToolRegistration {
        name: "noop".to_owned(),
        label: None,
        description: "Does nothing.".to_owned(),
        tool_description: None,
        parameters: json!({"type": "object"}),
        source: ToolSource::Internal,
        hints: ToolHints::default(),
        timeout_ms: None,
    };
    registry.register(Arc::new(Noop(registration))).expect("registered");
    let name = AgentName::new("bench").expect("a name");
    let definition = AgentDefinition::new(name, "Do what the user asks for.");
    let model = Arc::new(ScriptedModel::new(script));
    let parts = AgentParts { conversations, ..AgentParts::new(definition, model, registry.into()) };
    Agent::new(parts)
}

/// Returns the steps per second, and the times of a turn in microseconds at p50 and p99.
async fn measure(agent: &Agent, in_flight: usize, length: Duration) -> [f64; 3] {
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..in_flight {
        let agent = agent.clone();
        tasks.spawn(async move {
            let mut times = Vec::new();
            while start.elapsed() < length {
                let began = Instant::now();
                let session_id = SessionId::generate();
                let message = UserMessage::new(session_id, "go");
                let answer = agent.send(message, Arc::new(|_| ())).await;
                assert_eq!(answer.outcome, TurnOutcome::Completed, "{}", answer.text);
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
