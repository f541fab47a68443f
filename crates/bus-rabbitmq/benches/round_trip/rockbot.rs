//! RockBot's side of the comparison.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::future::BoxFuture;
use rockbot_bus::{Bus, Requester};
use rockbot_bus_rabbitmq::{RabbitBus, RabbitConfig};
use rockbot_contracts::{
    AgentName, HandlerPool, InstanceId, RoutingKey, SessionId, ToolRegistration,
    topology::{ReplyAddress, tool_invoke},
};
use rockbot_tool_rpc::{
    AdmissionLimits, InvokeOptions, QueueLimits, RemoteTool, ToolInvokeHandler,
};
use rockbot_tools::{
    Tool, ToolCall, ToolContext, ToolExecutor, ToolFailure, ToolHints, ToolRegistry, ToolResult,
    ToolSource,
};
use serde_json::{Value, json};
use tokio::{sync::Notify, task::JoinSet};

use crate::{
    child::ready_until_orphaned,
    guarantees::{self, Relaxed},
    isolation, telemetry,
};

/// Returns its argument after a pause.
struct Echo {
    registration: ToolRegistration,
    pause: Duration,
    ran: AtomicUsize,
    limit: usize,
    done: Notify,
}

impl Echo {
    fn new(name: &str, pause: Duration, limit: usize) -> Self {
        let (registration, done) = (registration(name), Notify::new());
        Self { registration, pause, ran: 0.into(), limit, done }
    }
}

impl Tool for Echo {
    fn registration(&self) -> &ToolRegistration {
        &self.registration
    }

    fn call<'a>(
        &'a self,
        arguments: Value,
        _: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolResult, ToolFailure>> {
        Box::pin(async move {
            if !self.pause.is_zero() {
                tokio::time::sleep(self.pause).await;
            }
            if self.ran.fetch_add(1, Ordering::Relaxed) + 1 == self.limit {
                self.done.notify_one();
            }
            let text = arguments.get("text").and_then(Value::as_str).unwrap_or_default();
            Ok(ToolResult::text(text))
        })
    }
}

fn registration(name: &str) -> ToolRegistration {
    ToolRegistration {
        name: name.to_owned(),
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

async fn connect(namespace: &str, name: &str) -> Arc<dyn Bus> {
    let url = std::env::var("ROCKBOT_TEST_AMQP_URL").expect("run `cargo xtask bench`");
    let config = RabbitConfig::new(url, name).with_namespace(namespace);
    let bus = RabbitBus::start(&config).expect("a usable URL");
    bus.connected(Duration::from_secs(10)).await.expect("a broker");
    telemetry::observed(Arc::new(bus))
}

/// Serves the tool until the parent exits, or until it has run `limit` times.
async fn serve_until(namespace: &str, concurrency: u16, pause: Duration, limit: usize) {
    let bus = connect(namespace, "handler").await;
    let options = single_tool_options(concurrency);
    serve_on(bus, options, &InstanceId::generate(), pause, limit).await;
}

/// Serves the tool with the guarantees up to `step` until the parent exits.
pub async fn serve_relaxed(namespace: &str, step: &str) {
    let bus = Relaxed::wrap(connect(namespace, "handler").await, step);
    let instance = InstanceId::generate();
    let journal = guarantees::journal(step, namespace, &instance).await;
    let options = InvokeOptions { journal, ..single_tool_options(256) };
    serve_on(bus, options, &instance, Duration::ZERO, usize::MAX).await;
}

/// Serves the tool and one that hangs, with the default settings of a handler.
pub async fn serve_shared(namespace: &str) {
    serve_with_hanging_tool(namespace, &HandlerPool::Unnamed, isolation::CONCURRENCY).await;
}

/// Serves the tool and one that hangs in a pool.
pub async fn serve_with_hanging_tool(namespace: &str, pool: &HandlerPool, concurrency: u16) {
    let bus = connect(namespace, "handler").await;
    let registry = Arc::new(ToolRegistry::new());
    for (name, pause) in [("echo", Duration::ZERO), ("hang", Duration::from_secs(3600))] {
        let tool = Echo::new(name, pause, usize::MAX);
        registry.register(Arc::new(tool)).expect("registered");
    }
    let (executor, instance) = (Arc::new(ToolExecutor::new(registry)), InstanceId::generate());
    let options = InvokeOptions::new(concurrency);
    let handler = ToolInvokeHandler::new(executor, bus.clone(), "handler", &instance, options);
    let workers = handler.start(&pool.invoke_key(), &instance).await.expect("consuming");
    ready_until_orphaned().await;
    workers.drain(Duration::from_secs(5)).await;
    bus.close().await;
}

async fn serve_on(
    bus: Arc<dyn Bus>,
    options: InvokeOptions,
    instance: &InstanceId,
    pause: Duration,
    limit: usize,
) {
    let registry = Arc::new(ToolRegistry::new());
    let tool = Arc::new(Echo::new("echo", pause, limit));
    registry.register(tool.clone()).expect("registered");
    let executor = Arc::new(ToolExecutor::new(registry));
    let handler = ToolInvokeHandler::new(executor, bus.clone(), "handler", instance, options);
    let workers = handler.start(&tool_invoke(), instance).await.expect("consuming");
    tokio::select! {
        () = ready_until_orphaned(), if limit == usize::MAX => {}
        () = tool.done.notified() => {}
    }
    workers.drain(Duration::from_secs(5)).await;
    bus.close().await;
}

pub async fn serve(namespace: &str, concurrency: u16, pause: Duration) {
    serve_until(namespace, concurrency, pause, usize::MAX).await;
}

/// Serves exactly `calls` calls. Two runs with different numbers under an instruction counter give the
/// cost of one call.
pub async fn serve_counted(namespace: &str, calls: usize) {
    serve_until(namespace, 256, Duration::ZERO, calls).await;
}

/// The calling side of an agent.
#[derive(Clone)]
pub struct Agent {
    executor: Arc<ToolExecutor>,
    session: SessionId,
    name: AgentName,
}

impl Agent {
    pub async fn connect(namespace: &str) -> Self {
        Self::on(connect(namespace, "agent").await, &tool_invoke())
    }

    /// Connects as a caller of the tools of a pool.
    pub async fn of_pool(namespace: &str, pool: &HandlerPool) -> Self {
        Self::on(connect(namespace, "agent").await, &pool.invoke_key())
    }

    /// Connects with the guarantees up to `step`.
    pub async fn relaxed(namespace: &str, step: &str) -> Self {
        Self::on(Relaxed::wrap(connect(namespace, "agent").await, step), &tool_invoke())
    }

    fn on(bus: Arc<dyn Bus>, key: &RoutingKey) -> Self {
        let name = AgentName::new("bench").expect("a name");
        let address = ReplyAddress::new(name.clone(), InstanceId::generate());
        // More than the number of calls in the memory measurement.
        let requester = Arc::new(Requester::new(bus, address).with_max_in_flight(10_000));
        let registry = Arc::new(ToolRegistry::new());
        for tool in ["echo", "hang"] {
            let remote = RemoteTool::new(registration(tool), requester.clone(), key.clone());
            registry.register(Arc::new(remote)).expect("registered");
        }
        let executor = Arc::new(ToolExecutor::new(registry));
        Self { executor, session: SessionId::generate(), name }
    }

    /// Makes a call and checks its result.
    pub fn call(&self) -> impl Future<Output = ()> + Send + 'static {
        self.call_tool("echo")
    }

    fn call_tool(&self, tool: &'static str) -> impl Future<Output = ()> + Send + 'static {
        let Self { executor, session, name } = self.clone();
        async move {
            let context = ToolContext::new(tool, session, name);
            let arguments = r#"{"text":"hello"}"#.into();
            let result = executor.execute(ToolCall { context, arguments }).await;
            assert_eq!(result.expect("a result").to_text(), "hello");
        }
    }
}

/// Calls in flight.
pub struct Held(JoinSet<()>);

impl Held {
    /// Cancels the calls and gives the handler time to process the cancels.
    pub async fn cancel(mut self) {
        self.0.shutdown().await;
        tokio::time::sleep(Duration::from_millis(500)).await;
    }

    pub async fn finish(mut self) {
        while let Some(finished) = self.0.join_next().await {
            finished.expect("no panic");
        }
    }
}

/// Starts `calls` calls of a tool that hangs.
pub async fn hang(agent: &Agent, calls: usize) -> Held {
    let mut open = JoinSet::new();
    for _ in 0..calls {
        open.spawn(agent.call_tool("hang"));
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    Held(open)
}

/// Starts `calls` calls of a slow tool, and waits until the handler has received them.
pub async fn hold(agent: &Agent, calls: usize) -> Held {
    let mut open = JoinSet::new();
    for number in 0..calls {
        open.spawn(agent.call());
        // Gradually: waiting calls are measured, not a burst of publishes.
        if number % 32 == 31 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    Held(open)
}

/// Gives all capacity of the handler to one tool, as on the raw side.
fn single_tool_options(concurrency: u16) -> InvokeOptions {
    let running = usize::from(concurrency);
    let per_tool = QueueLimits { running, waiting: usize::MAX, wait: None };
    let admission = AdmissionLimits { running, queues: Vec::new(), per_tool };
    InvokeOptions { admission, backlog: 0, ..InvokeOptions::new(concurrency) }
}
