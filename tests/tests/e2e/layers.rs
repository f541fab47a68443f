//! Layers of a handler over RabbitMQ: cache and rate limit.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use futures_util::future::BoxFuture;
use rockbot_bus::{Bus, Requester};
use rockbot_contracts::{
    AgentName, Executed, InstanceId, SessionId, ToolErrorCode, ToolHints, ToolRegistration,
    ToolSource,
    topology::{ReplyAddress, tool_invoke},
};
use rockbot_testkit::fixture::{wait_until, within_timeout};
use rockbot_tool_rpc::{HandlerSection, RemoteTool, ToolInvokeHandler, invoke::InvokeWorkers};
use rockbot_tools::{
    Redactor, Tool, ToolCall, ToolContext, ToolExecutor, ToolFailure, ToolRegistry, ToolResult,
};
use serde_json::{Value, json};
use tokio::{sync::Semaphore, task::JoinSet};

use crate::fleet::Fleet;

/// A tool that waits for a permit and returns the number of its runs.
struct CountingTool {
    registration: ToolRegistration,
    runs: Arc<AtomicU32>,
    gate: Arc<Semaphore>,
}

impl Tool for CountingTool {
    fn registration(&self) -> &ToolRegistration {
        &self.registration
    }

    fn call<'a>(
        &'a self,
        _: Value,
        _: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolResult, ToolFailure>> {
        Box::pin(async {
            let run = self.runs.fetch_add(1, Ordering::SeqCst) + 1;
            self.gate.acquire().await.expect("open").forget();
            Ok(ToolResult::text(run.to_string()))
        })
    }
}

fn registration(description: &str) -> ToolRegistration {
    ToolRegistration {
        name: "count".to_owned(),
        label: None,
        description: description.to_owned(),
        tool_description: None,
        parameters: json!({"type": "object"}),
        source: ToolSource::Internal,
        hints: ToolHints::READ_ONLY,
        timeout_ms: None,
    }
}

/// A handler on the broker with a counting tool.
struct Harness {
    fleet: Fleet,
    registry: Arc<ToolRegistry>,
    handler: Arc<ToolInvokeHandler>,
    runs: Arc<AtomicU32>,
    gate: Arc<Semaphore>,
    workers: InvokeWorkers,
}

impl Harness {
    async fn start(policy: Value) -> Self {
        let fleet = Fleet::new();
        let bus = fleet.bus(|_| {}).await;
        let section = json!({"concurrency": 300, "tools": {"count": policy}});
        let section: HandlerSection = serde_json::from_value(section).expect("a section");
        let (registry, instance) = (Arc::new(ToolRegistry::new()), InstanceId::generate());
        let layers = section.layers(None, Redactor::from_patterns());
        let executor = Arc::new(ToolExecutor::with_layers(registry.clone(), layers));
        let options = section.options();
        let handler = ToolInvokeHandler::new(executor, bus, "handler", &instance, options);
        let workers = handler.start(&tool_invoke(), &instance).await.expect("consuming");
        let (runs, gate) = (Arc::default(), Arc::new(Semaphore::new(0)));
        let harness = Self { fleet, registry, handler, runs, gate, workers };
        harness.serve("Counts.");
        harness
    }

    /// Replaces the tool by one with another description.
    fn serve(&self, description: &str) {
        self.registry.unregister("count");
        let (runs, gate) = (self.runs.clone(), self.gate.clone());
        let tool = CountingTool { registration: registration(description), runs, gate };
        self.registry.register(Arc::new(tool)).expect("registered");
    }

    async fn agent(&self, name: &str) -> Agent {
        let bus: Arc<dyn Bus> = self.fleet.bus(|_| {}).await;
        let name = AgentName::new(name).expect("a name");
        let address = ReplyAddress::new(name.clone(), InstanceId::generate());
        let requester = Arc::new(Requester::new(bus, address));
        let registry = Arc::new(ToolRegistry::new());
        let tool = RemoteTool::new(registration("Counts."), requester, tool_invoke());
        registry.register(Arc::new(tool)).expect("registered");
        Agent { name, executor: Arc::new(ToolExecutor::new(registry)) }
    }
}

#[derive(Clone)]
struct Agent {
    name: AgentName,
    executor: Arc<ToolExecutor>,
}

impl Agent {
    async fn call(self) -> Result<ToolResult, ToolFailure> {
        let context = ToolContext::new("count", SessionId::generate(), self.name);
        self.executor.execute(ToolCall { context, arguments: "{}".into() }).await
    }

    fn calls(&self, count: u32) -> JoinSet<Result<ToolResult, ToolFailure>> {
        (0..count).map(|_| self.clone().call()).collect()
    }
}

#[tokio::test]
async fn cache_is_per_agent_and_definition() {
    let harness = Harness::start(json!({"cache": "1h"})).await;
    let (one, two) = (harness.agent("one").await, harness.agent("two").await);
    let calls = [one.calls(100), two.calls(100)];
    wait_until("200 running calls", || harness.handler.load().running == 200).await;
    harness.gate.add_permits(10);
    for calls in calls {
        let results = within_timeout("results", calls.join_all()).await;
        let texts: Vec<_> =
            results.into_iter().map(|one| one.expect("a result").to_text().into_owned()).collect();
        assert!(texts.iter().all(|one| *one == texts[0]), "{texts:?}");
    }
    assert_eq!(harness.runs.load(Ordering::SeqCst), 2, "once for each agent");
    harness.serve("Counts otherwise.");
    let changed = within_timeout("a result", Box::pin(one.call())).await.expect("a result");
    assert_eq!(changed.to_text(), "3");
    assert!(harness.workers.drain(Duration::from_secs(5)).await);
}

#[tokio::test]
async fn rate_limit_is_per_agent() {
    let harness = Harness::start(json!({"rate": {"calls": 1, "per": "1h"}})).await;
    harness.gate.add_permits(10);
    let (one, two) = (harness.agent("one").await, harness.agent("two").await);
    within_timeout("a result", Box::pin(one.clone().call())).await.expect("the first call");
    let failure =
        within_timeout("a failure", Box::pin(one.call())).await.expect_err("over the limit");
    assert_eq!((failure.code(), failure.executed()), (ToolErrorCode::Overloaded, Executed::No));
    assert!(failure.is_retryable() && failure.to_string().contains("call again in"), "{failure}");
    within_timeout("a result", Box::pin(two.call())).await.expect("another agent");
    assert!(harness.workers.drain(Duration::from_secs(5)).await);
}
