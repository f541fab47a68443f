//! A handler with tools that behave well and badly, and an agent's end to call them with.

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

/// A tool made of a closure.
pub(crate) struct Scripted {
    registration: ToolRegistration,
    body: Box<Body>,
}

impl Tool for Scripted {
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
        description: format!("the {name} tool of a test"),
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
    Arc::new(Scripted { registration, body })
}

/// What the tools tell the test.
#[derive(Default)]
pub(crate) struct Witness {
    pub(crate) started: Notify,
    pub(crate) dropped: AtomicU32,
    pub(crate) runs: AtomicU32,
}

struct CountsDrop(Arc<Witness>);

impl Drop for CountsDrop {
    fn drop(&mut self) {
        self.0.dropped.fetch_add(1, Ordering::SeqCst);
    }
}

pub(crate) fn tools(witness: &Arc<Witness>) -> Vec<Arc<dyn Tool>> {
    let hanging = witness.clone();
    let counting = witness.clone();
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
        tool(registration("sad"), async |_, _| Ok(ToolResult::error("exit code 1"))),
        tool(registration("panic"), async |_, _| panic!("on purpose")),
        tool(registration("hang"), move |_, _| {
            let witness = hanging.clone();
            async move {
                let _counted = CountsDrop(witness.clone());
                witness.started.notify_one();
                std::future::pending().await
            }
        }),
        tool(registration("huge"), async |_, _| Ok(ToolResult::text("x".repeat(1_000_000_000)))),
        tool(registration("chatty"), async |_, context: ToolContext| {
            for number in 1..=3 {
                context.progress(format!("step {number}"));
            }
            context.partial(ToolResult::text("half"));
            Ok(ToolResult::text("whole").with_details(json!({"steps": 3})))
        }),
    ]
}

/// A handler and an agent's end.
pub(crate) struct Fleet {
    pub(crate) bed: BusFixture,
    pub(crate) handler: Arc<ToolInvokeHandler>,
    pub(crate) workers: InvokeWorkers,
    pub(crate) requester: Arc<Requester>,
    pub(crate) agent: ToolExecutor,
    pub(crate) witness: Arc<Witness>,
}

pub(crate) async fn handler_of(
    bus: &Arc<dyn Bus>,
    tools: Vec<Arc<dyn Tool>>,
    concurrency: u16,
) -> (Arc<ToolInvokeHandler>, InvokeWorkers, Arc<ToolRegistry>) {
    let options = InvokeOptions { backlog: 0, ..InvokeOptions::running(concurrency) };
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
    let workers = handler.start(key, instance).await.expect("consuming");
    (handler, workers)
}

impl Fleet {
    pub(crate) async fn start() -> Self {
        let bed = BusFixture::memory();
        let witness = Arc::new(Witness::default());
        let (handler, workers, registry) = handler_of(&bed.remote, tools(&witness), 16).await;
        let requester = Arc::new(Requester::new(bed.local.clone(), reply_address("agent", "one")));
        let remote = Arc::new(ToolRegistry::new());
        for definition in registry.list() {
            let tool = RemoteTool::new(definition, requester.clone(), tool_invoke());
            remote.register(Arc::new(tool)).expect("registered");
        }
        Self { bed, handler, workers, requester, agent: ToolExecutor::new(remote), witness }
    }

    pub(crate) fn context(&self, tool: &str) -> ToolContext {
        let session = SessionId::new("session").expect("an id");
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
        time: Duration,
    ) -> Result<ToolResult, ToolFailure> {
        let mut context = self.context(tool);
        context.deadline = tokio::time::Instant::now() + time;
        self.agent.execute(ToolCall { context, arguments: arguments.into() }).await
    }
}

/// An agent's end for one remote tool, whoever serves it.
pub(crate) fn agent_of(
    bed: &BusFixture,
    name: &'static str,
    hints: ToolHints,
) -> impl Fn(&'static str) -> BoxFuture<'static, Result<ToolResult, ToolFailure>> {
    let requester = Arc::new(Requester::new(bed.local.clone(), reply_address("agent", "one")));
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
