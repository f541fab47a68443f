//! Fixture: a handler with well-behaved and failing tools, and an agent that calls them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use futures_util::future::BoxFuture;
use rockbot_bus::{Bus, Requester};
use rockbot_contracts::{InstanceId, RoutingKey, SessionId, topology::tool_invoke};
use rockbot_testkit::fixture::{BusFixture, reply_address};
use rockbot_tool_rpc::{InvokeOptions, RemoteTool, ToolInvokeHandler, invoke::InvokeWorkers};
use rockbot_tools::{
    Tool, ToolCall, ToolContext, ToolExecutor, ToolFailure, ToolHints, ToolRegistration,
    ToolRegistry, ToolResult, ToolSource,
};
use serde_json::{Value, json};
use tokio::sync::Notify;

type Body =
    dyn Fn(Value, ToolContext) -> BoxFuture<'static, Result<ToolResult, ToolFailure>> + Send + Sync;

/// A tool that runs a closure.
pub(crate) struct ClosureTool {
    registration: ToolRegistration,
    body: Box<Body>,
}

impl Tool for ClosureTool {
    fn registration(&self) -> &ToolRegistration {
        &self.registration
    }

    fn call<'a>(
        &'a self,
        arguments: Value,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolResult, ToolFailure>> {
        (self.body)(arguments, context.clone())
    }
}

pub(crate) fn registration(name: &str) -> ToolRegistration {
    ToolRegistration {
        name: name.to_owned(),
        label: None,
        description: format!("test tool {name}"),
        tool_description: None,
        parameters: json!({"type": "object", "properties": {"text": {"type": "string"}},
            "additionalProperties": false}),
        source: ToolSource::Internal,
        hints: ToolHints::default(),
        timeout_ms: None,
    }
}

pub(crate) fn tool<F>(
    registration: ToolRegistration,
    body: impl Fn(Value, ToolContext) -> F + Send + Sync + 'static,
) -> Arc<dyn Tool>
where
    F: Future<Output = Result<ToolResult, ToolFailure>> + Send + 'static,
{
    let body = Box::new(move |arguments, context| {
        let future: BoxFuture<'static, _> = Box::pin(body(arguments, context));
        future
    });
    Arc::new(ClosureTool { registration, body })
}

/// Events of the tools.
#[derive(Default)]
pub(crate) struct ToolEvents {
    pub(crate) started: Notify,
    /// The caller has received all progress of `progress`.
    pub(crate) progress_received: Notify,
    pub(crate) dropped: AtomicU32,
    pub(crate) runs: AtomicU32,
}

struct CountOnDrop(Arc<ToolEvents>);

impl Drop for CountOnDrop {
    fn drop(&mut self) {
        self.0.dropped.fetch_add(1, Ordering::SeqCst);
    }
}

pub(crate) fn tools(events: &Arc<ToolEvents>) -> Vec<Arc<dyn Tool>> {
    let hanging = events.clone();
    let counting = events.clone();
    let reporting = events.clone();
    vec![
        tool(registration("echo"), async |arguments: Value, _| {
            Ok(ToolResult::text(arguments["text"].as_str().unwrap_or_default()))
        }),
        tool(registration("count"), move |_, _| {
            let runs = counting.runs.fetch_add(1, Ordering::SeqCst) + 1;
            async move { Ok(ToolResult::text(runs.to_string())) }
        }),
        tool(registration("fail"), async |_, _| {
            Err(ToolFailure::failed_with_source(
                "the disk is full",
                "/dev/sda1 on host db-7 is full",
            ))
        }),
        tool(registration("tool_error"), async |_, _| Ok(ToolResult::error("exit code 1"))),
        tool(registration("panic"), async |_, _| panic!("on purpose")),
        tool(registration("hang"), move |_, _| {
            let events = hanging.clone();
            async move {
                let _counted = CountOnDrop(events.clone());
                events.started.notify_one();
                std::future::pending().await
            }
        }),
        tool(registration("huge"), async |_, _| Ok(ToolResult::text("x".repeat(1_000_000_000)))),
        tool(registration("progress"), move |_, context: ToolContext| {
            let events = reporting.clone();
            async move {
                for number in 1..=3 {
                    context.progress(format!("step {number}"));
                }
                context.partial(ToolResult::text("half"));
                // Progress that arrives after the reply is dropped.
                events.progress_received.notified().await;
                Ok(ToolResult::text("whole").with_details(json!({"steps": 3})))
            }
        }),
    ]
}

/// A handler and an agent on one bus.
pub(crate) struct Fleet {
    pub(crate) bus: BusFixture,
    pub(crate) handler: Arc<ToolInvokeHandler>,
    pub(crate) workers: InvokeWorkers,
    pub(crate) requester: Arc<Requester>,
    pub(crate) agent: ToolExecutor,
    pub(crate) events: Arc<ToolEvents>,
}

pub(crate) async fn handler_of(
    bus: &Arc<dyn Bus>,
    tools: Vec<Arc<dyn Tool>>,
    concurrency: u16,
) -> (Arc<ToolInvokeHandler>, InvokeWorkers, Arc<ToolRegistry>) {
    let options = InvokeOptions { backlog: 0, ..InvokeOptions::new(concurrency) };
    let registry = registry_of(tools);
    let (handler, workers) =
        handler_at(&tool_invoke(), bus, registry.clone(), &InstanceId::generate(), options).await;
    (handler, workers, registry)
}

pub(crate) fn registry_of(tools: Vec<Arc<dyn Tool>>) -> Arc<ToolRegistry> {
    let registry = Arc::new(ToolRegistry::new());
    for tool in tools {
        registry.register(tool).expect("registered");
    }
    registry
}

pub(crate) async fn handler_at(
    key: &RoutingKey,
    bus: &Arc<dyn Bus>,
    registry: Arc<ToolRegistry>,
    instance: &InstanceId,
    options: InvokeOptions,
) -> (Arc<ToolInvokeHandler>, InvokeWorkers) {
    let executor = Arc::new(ToolExecutor::new(registry));
    let handler = ToolInvokeHandler::new(executor, bus.clone(), "handler", instance, options);
    let workers = handler.start(key, instance).await.expect("started");
    (handler, workers)
}

impl Fleet {
    pub(crate) async fn start() -> Self {
        let bus = BusFixture::memory();
        let events = Arc::new(ToolEvents::default());
        let (handler, workers, registry) = handler_of(&bus.remote, tools(&events), 16).await;
        let requester = Arc::new(Requester::new(bus.local.clone(), reply_address("agent", "one")));
        let remote = Arc::new(ToolRegistry::new());
        for definition in registry.list() {
            let tool = RemoteTool::new(definition, requester.clone(), tool_invoke());
            remote.register(Arc::new(tool)).expect("registered");
        }
        Self { bus, handler, workers, requester, agent: ToolExecutor::new(remote), events }
    }

    pub(crate) fn context(&self, tool: &str) -> ToolContext {
        let session = SessionId::new("session").expect("a valid id");
        ToolContext::new(tool, session, self.requester.address().agent().clone())
    }

    pub(crate) async fn call(
        &self,
        tool: &str,
        arguments: &str,
    ) -> Result<ToolResult, ToolFailure> {
        self.call_within(tool, arguments, Duration::from_secs(20)).await
    }

    pub(crate) async fn call_within(
        &self,
        tool: &str,
        arguments: &str,
        timeout: Duration,
    ) -> Result<ToolResult, ToolFailure> {
        let mut context = self.context(tool);
        context.deadline = tokio::time::Instant::now() + timeout;
        self.agent.execute(ToolCall { context, arguments: arguments.into() }).await
    }
}

/// Returns a function that calls one remote tool as an agent.
pub(crate) fn agent_of(
    bus: &BusFixture,
    name: &'static str,
    hints: ToolHints,
) -> impl Fn(&'static str) -> BoxFuture<'static, Result<ToolResult, ToolFailure>> {
    let requester = Arc::new(Requester::new(bus.local.clone(), reply_address("agent", "one")));
    let agent = requester.address().agent().clone();
    let registry = Arc::new(ToolRegistry::new());
    let definition = ToolRegistration { hints, ..registration(name) };
    let tool = RemoteTool::new(definition, requester, tool_invoke());
    registry.register(Arc::new(tool)).expect("registered");
    let executor = Arc::new(ToolExecutor::new(registry));
    move |arguments| {
        let (executor, agent) = (executor.clone(), agent.clone());
        Box::pin(async move {
            let context = ToolContext::new(name, SessionId::generate(), agent);
            executor.execute(ToolCall { context, arguments: arguments.into() }).await
        })
    }
}
