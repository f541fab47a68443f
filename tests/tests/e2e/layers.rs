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

/// Says how often it ran, once it was let through a gate.
struct Count {
    registration: ToolRegistration,
    runs: Arc<AtomicU32>,
    gate: Arc<Semaphore>,
}

impl Tool for Count {
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
            self.gate.acquire().await.expect("the gate stays").forget();
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

/// A handler on the broker, and what its tool does.
struct Stage {
    fleet: Fleet,
    registry: Arc<ToolRegistry>,
    handler: Arc<ToolInvokeHandler>,
    runs: Arc<AtomicU32>,
    gate: Arc<Semaphore>,
    workers: InvokeWorkers,
}

impl Stage {
    async fn set(policy: Value) -> Self {
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
        let stage = Self { fleet, registry, handler, runs, gate, workers };
        stage.serve("Counts.");
        stage
    }

    /// Serves the tool with this description, in place of the one before.
    fn serve(&self, description: &str) {
        self.registry.unregister("count");
        let (runs, gate) = (self.runs.clone(), self.gate.clone());
        let tool = Count { registration: registration(description), runs, gate };
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
    let stage = Stage::set(json!({"cache": "1h"})).await;
    let (one, two) = (stage.agent("one").await, stage.agent("two").await);
    let calls = [one.calls(100), two.calls(100)];
    wait_until("all of them wait", || stage.handler.load().running == 200).await;
    stage.gate.add_permits(10);
    for calls in calls {
        let ended = within_timeout("answers", calls.join_all()).await;
        let said: Vec<_> =
            ended.into_iter().map(|one| one.expect("a result").to_text().into_owned()).collect();
        assert!(said.iter().all(|one| *one == said[0]), "{said:?}");
    }
    assert_eq!(stage.runs.load(Ordering::SeqCst), 2, "once for each agent");
    stage.serve("Counts otherwise.");
    let changed = within_timeout("an answer", Box::pin(one.call())).await.expect("a result");
    assert_eq!(changed.to_text(), "3");
    assert!(stage.workers.drain(Duration::from_secs(5)).await);
}

#[tokio::test]
async fn rate_limit_is_per_agent() {
    let stage = Stage::set(json!({"rate": {"calls": 1, "per": "1h"}})).await;
    stage.gate.add_permits(10);
    let (one, two) = (stage.agent("one").await, stage.agent("two").await);
    within_timeout("an answer", Box::pin(one.clone().call())).await.expect("the first");
    let refused =
        within_timeout("an answer", Box::pin(one.call())).await.expect_err("one too many");
    assert_eq!((refused.code(), refused.executed()), (ToolErrorCode::Overloaded, Executed::No));
    assert!(refused.is_retryable() && refused.to_string().contains("call again in"), "{refused}");
    within_timeout("an answer", Box::pin(two.call())).await.expect("another agent");
    assert!(stage.workers.drain(Duration::from_secs(5)).await);
}
