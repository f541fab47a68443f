//! Overhead of the in-memory bus: one tool called directly, through the layers, and across the bus, with
//! alternating calls in one run.
//!
//! `cargo xtask bench embedded` runs it.

#![allow(missing_docs, reason = "a program")]
#![allow(clippy::expect_used, reason = "a benchmark stops by panicking")]
#![allow(clippy::print_stdout, reason = "results go to standard output")]

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::future::BoxFuture;
use rockbot_bus::{Bus, MemoryBus, Requester};
use rockbot_contracts::{
    AgentName, InstanceId, SessionId,
    topology::{ReplyAddress, tool_invoke},
};
use rockbot_tool_rpc::{InvokeOptions, RemoteTool, ToolInvokeHandler};
use rockbot_tools::{
    Tool, ToolCall, ToolContext, ToolExecutor, ToolFailure, ToolHints, ToolRegistration,
    ToolRegistry, ToolResult, ToolSource,
};
use serde_json::{Value, json};
use tokio::runtime::Builder;

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
        hints: ToolHints::default(),
        timeout_ms: None,
    }
}

fn executor_of(tool: Arc<dyn Tool>) -> Arc<ToolExecutor> {
    let registry = Arc::new(ToolRegistry::new());
    registry.register(tool).expect("registered");
    Arc::new(ToolExecutor::new(registry))
}

fn new_call() -> ToolCall {
    let session = SessionId::new("session").expect("a valid id");
    let agent = AgentName::new("bench").expect("a valid name");
    let context = ToolContext::new("echo", session, agent);
    ToolCall { context, arguments: r#"{"text":"hello"}"#.into() }
}

fn main() {
    // The runtime of the rockbot command.
    run(Builder::new_multi_thread(), "multi-threaded runtime");
    run(Builder::new_current_thread(), "single-threaded runtime");
}

fn run(mut runtime: Builder, name: &'static str) {
    let runtime = runtime.enable_all().build().expect("a runtime");
    // As a task, like a turn of an agent: `block_on` polls the I/O driver whenever its own future has
    // waited.
    runtime.block_on(async { tokio::spawn(measure(name)).await.expect("no panic") });
}

async fn measure(runtime: &str) {
    let bus: Arc<dyn Bus> = Arc::new(MemoryBus::new());
    let instance = InstanceId::generate();
    let tool = Arc::new(Echo(registration()));
    let (executor, options) = (executor_of(tool.clone()), InvokeOptions::new(64));
    let handler = ToolInvokeHandler::new(executor, bus.clone(), "handler", &instance, options);
    let workers = handler.start(&tool_invoke(), &instance).await.expect("consuming");
    let address =
        ReplyAddress::new(AgentName::new("bench").expect("a valid name"), instance.clone());
    let requester = Arc::new(Requester::new(bus.clone(), address));
    let remote = executor_of(Arc::new(RemoteTool::new(registration(), requester, tool_invoke())));
    let local = executor_of(tool.clone());
    let mut times = [const { Vec::new() }; 3];
    for round in 0..ROUNDS + ROUNDS / 10 {
        let start = Instant::now();
        let call = new_call();
        let arguments = serde_json::from_str(&call.arguments).expect("JSON");
        tool.call(arguments, &call.context).await.expect("a result");
        let direct = start.elapsed();
        let start = Instant::now();
        local.execute(new_call()).await.expect("a result");
        let layered = start.elapsed();
        let start = Instant::now();
        remote.execute(new_call()).await.expect("a result");
        let crossed = start.elapsed();
        if round >= ROUNDS / 10 {
            for (times, time) in times.iter_mut().zip([direct, layered, crossed]) {
                times.push(time);
            }
        }
    }
    let [direct, layered, crossed] = times.map(Percentiles::from_times);
    println!("{runtime}, {ROUNDS} calls each:");
    println!("  the tool alone           {direct}");
    println!("  through the layers       {layered}");
    println!("  across the in-memory bus {crossed}");
    let beyond = crossed.p50.saturating_sub(direct.p50);
    println!("  beyond the tool, p50     {:.2} µs", beyond.as_secs_f64() * 1e6);
    workers.drain(Duration::from_secs(1)).await;
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

impl std::fmt::Display for Percentiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let micros = |time: Duration| time.as_secs_f64() * 1e6;
        write!(f, "p50 {:7.2} µs   p99 {:7.2} µs", micros(self.p50), micros(self.p99))
    }
}
