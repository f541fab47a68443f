//! Overhead of the layers: one tool called directly, through the default layers, and through more and
//! more enabled layers, none of which limits a call. The calls alternate in one run.
//!
//! `cargo xtask bench layers` runs it.

#![allow(missing_docs, reason = "a program")]
#![allow(clippy::expect_used, reason = "a benchmark stops by panicking")]
#![allow(clippy::print_stdout, reason = "results go to standard output")]

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::future::BoxFuture;
use rockbot_contracts::{AgentName, SessionId};
use rockbot_store::{Clock, MemoryStore};
use rockbot_tool_rpc::HandlerSection;
use rockbot_tools::{
    CallPolicy, LayerOptions, Redactor, Tool, ToolCall, ToolContext, ToolExecutor, ToolFailure,
    ToolHints, ToolRegistration, ToolRegistry, ToolResult, ToolSource, limits::fleet::FleetStore,
};
use serde_json::{Value, json};

/// The allocator of the binaries.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const ROUNDS: usize = 20_000;

struct Echo(ToolRegistration);

impl Tool for Echo {
    fn registration(&self) -> &ToolRegistration {
        &self.0
    }

    fn call<'a>(
        &'a self,
        arguments: Value,
        _: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolResult, ToolFailure>> {
        Box::pin(
            async move { Ok(ToolResult::text(arguments["text"].as_str().unwrap_or_default())) },
        )
    }
}

fn registration() -> ToolRegistration {
    ToolRegistration {
        name: "echo".to_owned(),
        label: None,
        description: "Returns its argument.".to_owned(),
        tool_description: None,
        parameters: json!({"type": "object", "properties": {"text": {"type": "string"}},
            "required": ["text"], "additionalProperties": false}),
        source: ToolSource::Internal,
        hints: ToolHints::READ_ONLY,
        timeout_ms: None,
    }
}

fn call(text: &str) -> ToolCall {
    let session = SessionId::new("session").expect("a valid id");
    let agent = AgentName::new("bench").expect("a valid name");
    let context = ToolContext::new("echo", session, agent);
    ToolCall { context, arguments: format!(r#"{{"text":"{text}"}}"#).into() }
}

/// Returns an executor with layers of this policy.
fn configured(policy: &Value) -> ToolExecutor {
    let section: HandlerSection = serde_json::from_value(json!({
        "queues": {"all": {"concurrency": 64}},
        "tools": {"echo": policy},
    }))
    .expect("a section");
    let fleet = FleetStore {
        store: Arc::new(MemoryStore::new(Clock::System)),
        namespace: "bench".into(),
        instance: "one".into(),
    };
    let secrets = (0..16).map(|number| format!("secret-number-{number}"));
    let queues = section.queues();
    executor(section.layers_with_queues(&queues, Some(&fleet), Redactor::with_secrets(secrets)))
}

fn executor(layers: LayerOptions) -> ToolExecutor {
    let registry = Arc::new(ToolRegistry::new());
    registry.register(Arc::new(Echo(registration()))).expect("registered");
    ToolExecutor::with_layers(registry, layers)
}

fn main() {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(measure());
}

async fn measure() {
    let all = json!({"queue": "all", "timeout": "1h", "idle_timeout": "1h", "breaker": {},
        "rate": {"calls": 1_000_000_000, "per": "1h"}});
    let with = |key: &str, value: Value| {
        let mut policy = all.clone();
        policy[key] = value;
        configured(&policy)
    };
    let variants: [(&str, Option<ToolExecutor>, bool); 6] = [
        ("the tool alone", None, false),
        ("default layers", Some(executor(LayerOptions::default())), false),
        ("all in-process layers", Some(configured(&all)), false),
        ("the same, with a cache miss", Some(with("cache", json!("1h"))), false),
        ("the same, with a cache hit", Some(with("cache", json!("1h"))), true),
        ("all, with a fleet limit", Some(with("fleet", json!({"concurrency": 64}))), false),
    ];
    let tool = Echo(registration());
    let mut times = [const { Vec::new() }; 6];
    for round in 0..ROUNDS + ROUNDS / 10 {
        for ((_, executor, repeat), times) in variants.iter().zip(&mut times) {
            let text = if *repeat { "again".to_owned() } else { format!("number {round}") };
            let call = call(&text);
            let start = Instant::now();
            match executor {
                Some(executor) => drop(executor.execute(call).await.expect("a result")),
                None => {
                    let arguments = serde_json::from_str(&call.arguments).expect("JSON");
                    drop(tool.call(arguments, &call.context).await.expect("a result"));
                }
            }
            let took = start.elapsed();
            if round >= ROUNDS / 10 {
                times.push(took);
            }
        }
    }
    let figures = times.map(Percentiles::from_times);
    let alone = figures[0].p50;
    println!("{ROUNDS} calls each, a policy of {} bytes:", size_of::<CallPolicy>());
    for ((name, ..), Percentiles { p50, p99 }) in variants.iter().zip(figures) {
        let [more, p50, p99] = [p50.saturating_sub(alone), p50, p99].map(|t| t.as_secs_f64() * 1e6);
        let ratio = p50 / (alone.as_secs_f64() * 1e6);
        println!(
            "  {name:<32} p50 {p50:6.2} µs   p99 {p99:7.2} µs   + {more:5.2} µs   × {ratio:4.1}"
        );
    }
}

#[derive(Clone, Copy)]
struct Percentiles {
    p50: Duration,
    p99: Duration,
}

impl Percentiles {
    fn from_times(mut times: Vec<Duration>) -> Self {
        times.sort();
        Self { p50: times[times.len() / 2], p99: times[times.len() * 99 / 100] }
    }
}
