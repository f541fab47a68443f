//! The side of the comparison that is RockBot.

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
    AgentName, InstanceId, SessionId, ToolRegistration,
    topology::{ReplyAddress, tool_invoke},
};
use rockbot_tools::{
    RemoteTool, Tool, ToolCall, ToolContext, ToolExecutor, ToolFailure, ToolHints,
    AdmissionLimits, InvokeOptions, QueueLimits, ToolInvokeHandler, ToolRegistry, ToolResult,
    ToolSource,
};
use serde_json::{Value, json};
use tokio::{sync::Notify, task::JoinSet};

use crate::child::ready_until_orphaned;

/// Says its argument, after a pause.
struct Echo {
    registration: ToolRegistration,
    pause: Duration,
    ran: AtomicUsize,
    enough: usize,
    done: Notify,
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
            if self.ran.fetch_add(1, Ordering::Relaxed) + 1 == self.enough {
                self.done.notify_one();
            }
            let text = arguments.get("text").and_then(Value::as_str).unwrap_or_default();
            Ok(ToolResult::text(text))
        })
    }
}

fn registration() -> ToolRegistration {
    ToolRegistration {
        name: "echo".to_owned(),
        label: None,
        description: "Says its argument.".to_owned(),
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
    let config = RabbitConfig::new(url, name).in_namespace(namespace);
    let bus = RabbitBus::start(&config).expect("a usable URL");
    bus.connected(Duration::from_secs(10)).await.expect("a broker");
    Arc::new(bus)
}

/// Serves the tool until the parent is gone, or until it ran `enough` times.
async fn serve_until(namespace: &str, concurrency: u16, pause: Duration, enough: usize) {
    let bus = connect(namespace, "handler").await;
    let registry = Arc::new(ToolRegistry::new());
    let done = Notify::new();
    let tool = Arc::new(Echo { registration: registration(), pause, ran: 0.into(), enough, done });
    registry.register(tool.clone()).expect("registered");
    let instance = InstanceId::generate();
    let executor = Arc::new(ToolExecutor::new(registry));
    let options = only_one_tool(concurrency);
    let handler = ToolInvokeHandler::new(executor, bus.clone(), "handler", &instance, options);
    let workers = handler.start(&tool_invoke(), &instance).await.expect("consuming");
    tokio::select! {
        () = ready_until_orphaned(), if enough == usize::MAX => {}
        () = tool.done.notified() => {}
    }
    workers.drain(Duration::from_secs(5)).await;
    bus.close().await;
}

pub async fn serve(namespace: &str, concurrency: u16, pause: Duration) {
    serve_until(namespace, concurrency, pause, usize::MAX).await;
}

/// Serves exactly so many calls: two lengths of this, under an instruction counter, give the cost
/// of one.
pub async fn serve_counted(namespace: &str, calls: usize) {
    serve_until(namespace, 64, Duration::ZERO, calls).await;
}

/// What an agent calls tools with.
#[derive(Clone)]
pub struct Agent {
    executor: Arc<ToolExecutor>,
    session: SessionId,
    name: AgentName,
}

impl Agent {
    pub async fn connect(namespace: &str) -> Self {
        let bus = connect(namespace, "agent").await;
        let name = AgentName::new("bench").expect("a name");
        let address = ReplyAddress::new(name.clone(), InstanceId::generate());
        let requester = Arc::new(Requester::new(bus, address));
        let remote = RemoteTool::new(registration(), requester, tool_invoke());
        let registry = Arc::new(ToolRegistry::new());
        registry.register(Arc::new(remote)).expect("registered");
        let executor = Arc::new(ToolExecutor::new(registry));
        Self { executor, session: SessionId::generate(), name }
    }

    /// One call, checked.
    pub fn call(&self) -> impl Future<Output = ()> + Send + 'static {
        let Self { executor, session, name } = self.clone();
        async move {
            let context = ToolContext::new("echo", session, name);
            let arguments = r#"{"text":"hello"}"#.into();
            let result = executor.execute(ToolCall { context, arguments }).await;
            assert_eq!(result.expect("an answer").to_text(), "hello");
        }
    }
}

pub async fn call_many(namespace: &str, calls: usize, in_flight: usize) {
    let agent = Agent::connect(namespace).await;
    let mut open = JoinSet::new();
    for _ in 0..calls {
        if open.len() == in_flight {
            open.join_next().await.expect("one is open").expect("no panic");
        }
        open.spawn(agent.call());
    }
    while let Some(ended) = open.join_next().await {
        ended.expect("no panic");
    }
}

pub struct Held(JoinSet<()>);

impl Held {
    pub async fn finish(mut self) {
        while let Some(ended) = self.0.join_next().await {
            ended.expect("no panic");
        }
    }
}

/// Opens so many calls of a slow tool, and returns when they have all had time to arrive.
pub async fn hold(agent: &Agent, calls: usize) -> Held {
    let mut open = JoinSet::new();
    for number in 0..calls {
        open.spawn(agent.call());
        // Not all at once: what is measured is calls that wait, not a burst of publishes.
        if number % 32 == 31 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    Held(open)
}

/// The whole handler for the one tool there is, as the other side has it.
fn only_one_tool(concurrency: u16) -> InvokeOptions {
    let running = usize::from(concurrency);
    let each = QueueLimits { running, waiting: usize::MAX };
    let admission = AdmissionLimits { running, queues: Vec::new(), each };
    InvokeOptions { admission, backlog: 0, journal: None }
}
