//! Layers of a call, across the bus.

use std::{
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use rockbot_bus::Requester;
use rockbot_contracts::{
    Executed, InstanceId, SessionId, ToolErrorCode, ToolHints, topology::tool_invoke,
};
use rockbot_testkit::fixture::{BusFixture, reply_address, wait_until, within_timeout};
use rockbot_tool_rpc::{HandlerSection, RemoteTool, ToolInvokeHandler, invoke::InvokeWorkers};
use rockbot_tools::{
    CallAccount, CallSection, Redactor, Tool, ToolCall, ToolContext, ToolExecutor, ToolFailure,
    ToolRegistration, ToolRegistry, ToolResult, ToolSource,
};
use serde_json::{Value, json};
use tokio::{sync::Semaphore, task::JoinSet};

use crate::fleet::{registration, registry_of, tool};

const SECRET: &str = "hunter2hunter2";

/// A handler with configured layers, and tools that count their runs.
struct Fixture {
    bus: BusFixture,
    registry: Arc<ToolRegistry>,
    handler: Arc<ToolInvokeHandler>,
    account: Arc<CallAccount>,
    runs: Arc<AtomicU32>,
    gate: Arc<Semaphore>,
    _workers: InvokeWorkers,
}

/// Returns the registration of a read-only tool of a server.
fn definition(name: &str) -> ToolRegistration {
    ToolRegistration {
        hints: ToolHints::READ_ONLY,
        source: ToolSource::Mcp("github".to_owned()),
        ..registration(name)
    }
}

/// Outcome of a gated run.
type Outcome = fn() -> Result<ToolResult, ToolFailure>;

impl Fixture {
    async fn new(section: Value) -> Self {
        let section: HandlerSection = serde_json::from_value(section).expect("a section");
        assert_eq!(section.validate(), [""; 0]);
        let bus = BusFixture::memory();
        let (runs, gate) = (Arc::new(AtomicU32::new(0)), Arc::new(Semaphore::new(0)));
        let gated_tool =
            |name: &str, outcome: Outcome| gated_tool(definition(name), &runs, &gate, outcome);
        let tools = vec![
            gated_tool("read", || Ok(ToolResult::text("contents"))),
            gated_tool("list", || Ok(ToolResult::text("all of them"))),
            gated_tool("gone", || {
                let message = "no handler".to_owned();
                Err(ToolFailure::Unavailable { message, executed: Executed::No })
            }),
            gated_tool("leak", || Err(ToolFailure::failed(format!("401 for {SECRET}")))),
            gated_tool("drip", || Ok(ToolResult::error(format!("401 for {SECRET}")))),
        ];
        let registry = registry_of(tools);
        let layers = section.layers(None, Redactor::with_secrets([SECRET.to_owned()]));
        let account = layers.account.clone().expect("an account");
        let executor = Arc::new(ToolExecutor::with_layers(registry.clone(), layers));
        let instance = InstanceId::generate();
        let (remote, options) = (bus.remote.clone(), section.options());
        let handler = ToolInvokeHandler::new(executor, remote, "handler", &instance, options);
        let workers = handler.start(&tool_invoke(), &instance).await.expect("started");
        Self { bus, registry, handler, account, runs, gate, _workers: workers }
    }

    /// Returns an agent that can call all tools of the handler.
    fn agent(&self, name: &str) -> Agent {
        let requester =
            Arc::new(Requester::new(self.bus.local.clone(), reply_address(name, "one")));
        let context = ToolContext::new(
            "",
            SessionId::new("session").expect("a valid id"),
            requester.address().agent().clone(),
        );
        let remote = |definition| -> Arc<dyn Tool> {
            Arc::new(RemoteTool::new(definition, requester.clone(), tool_invoke()))
        };
        let tools = registry_of(self.registry.list().into_iter().map(remote).collect());
        Agent { executor: Arc::new(ToolExecutor::new(tools)), context }
    }

    fn runs(&self) -> u32 {
        self.runs.load(Ordering::SeqCst)
    }
}

fn gated_tool(
    definition: ToolRegistration,
    runs: &Arc<AtomicU32>,
    gate: &Arc<Semaphore>,
    outcome: Outcome,
) -> Arc<dyn Tool> {
    let (runs, gate) = (runs.clone(), gate.clone());
    tool(definition, move |_, _| {
        let (runs, gate) = (runs.clone(), gate.clone());
        async move {
            runs.fetch_add(1, Ordering::SeqCst);
            gate.acquire().await.expect("an open gate").forget();
            outcome()
        }
    })
}

#[derive(Clone)]
struct Agent {
    executor: Arc<ToolExecutor>,
    context: ToolContext,
}

type Calls = JoinSet<Result<ToolResult, ToolFailure>>;

impl Agent {
    async fn call(&self, tool: &'static str) -> Result<ToolResult, ToolFailure> {
        let context =
            ToolContext::new(tool, self.context.session_id.clone(), self.context.agent.clone());
        let arguments = r#"{"text":"equal"}"#.into();
        let call = self.executor.execute(ToolCall { context, arguments });
        within_timeout("a result", Box::pin(call)).await
    }

    fn calls(&self, tool: &'static str, count: u32) -> Calls {
        let call = || {
            let agent = self.clone();
            async move { agent.call(tool).await }
        };
        (0..count).map(|_| call()).collect()
    }
}

async fn expect_results(calls: Calls, text: &str) {
    for result in calls.join_all().await {
        assert_eq!(result.expect("a result").to_text(), text);
    }
}

fn expect_failure(result: Result<ToolResult, ToolFailure>) -> (ToolErrorCode, Executed, String) {
    let failure = result.expect_err("a failure");
    (failure.code(), failure.executed(), failure.to_string())
}

#[tokio::test]
async fn concurrent_equal_calls_run_once_per_agent() {
    let cached = json!({"concurrency": 300, "servers": {"GitHub": {"cache": "1h"}}});
    let fixture = Fixture::new(cached).await;
    let (one, two) = (fixture.agent("one"), fixture.agent("two"));
    let calls = [one.calls("read", 100), two.calls("read", 100)];
    wait_until("200 calls in progress", || fixture.handler.load().running == 200).await;
    fixture.gate.add_permits(200);
    for calls in calls {
        expect_results(calls, "contents").await;
    }
    assert_eq!(fixture.runs(), 2, "one run per agent");
    expect_results(one.calls("read", 10), "contents").await;
    assert_eq!(fixture.runs(), 2, "cached results");
    assert_eq!(fixture.account.by_tool()["read"].ok, 210, "calls in the account");
}

#[tokio::test]
async fn changed_definition_misses_the_cache() {
    let fixture = Fixture::new(json!({"tools": {"read": {"cache": "1h"}}})).await;
    fixture.gate.add_permits(10);
    let agent = fixture.agent("one");
    expect_results(agent.calls("read", 1), "contents").await;
    expect_results(agent.calls("read", 1), "contents").await;
    assert_eq!(fixture.runs(), 1);
    assert!(fixture.registry.unregister("read"));
    let changed =
        ToolRegistration { description: "Reads something else.".to_owned(), ..definition("read") };
    let changed = gated_tool(changed, &fixture.runs, &fixture.gate, || Ok(ToolResult::text("new")));
    fixture.registry.register(changed).expect("registered");
    expect_results(agent.calls("read", 1), "new").await;
    assert_eq!(fixture.runs(), 2);
}

#[tokio::test]
async fn tools_of_a_server_share_its_queue() {
    let section = json!({
        "queues": {"slow": {"concurrency": 1, "waiting": 1}},
        "servers": {"github": {"queue": "slow"}},
    });
    let fixture = Fixture::new(section).await;
    let agent = fixture.agent("one");
    let running = agent.calls("read", 1);
    wait_until("a running call", || fixture.runs() == 1).await;
    let waiting = agent.calls("list", 1);
    wait_until("a waiting call", || fixture.handler.load().waiting == 1).await;
    let (code, executed, _) = expect_failure(agent.call("list").await);
    assert_eq!((code, executed), (ToolErrorCode::Overloaded, Executed::No));
    assert_eq!(fixture.runs(), 1, "one runs at a time");
    fixture.gate.add_permits(2);
    expect_results(running, "contents").await;
    expect_results(waiting, "all of them").await;
}

#[tokio::test]
async fn rate_limit_applies_per_agent() {
    let section = json!({"tools": {"read": {"rate": {"calls": 2, "per": "1h"}}}});
    let fixture = Fixture::new(section).await;
    fixture.gate.add_permits(10);
    let (one, two) = (fixture.agent("one"), fixture.agent("two"));
    expect_results(one.calls("read", 2), "contents").await;
    let (code, executed, message) = expect_failure(one.call("read").await);
    assert_eq!((code, executed), (ToolErrorCode::Overloaded, Executed::No));
    assert!(message.contains("call again in 1800 s") || message.contains("in 1799 s"), "{message}");
    expect_results(two.calls("read", 1), "contents").await;
    expect_results(one.calls("list", 1), "all of them").await;
    assert_eq!(fixture.runs(), 4);
}

#[tokio::test]
async fn open_breaker_blocks_all_tools_of_server() {
    let section = json!({"servers": {"github": {"breaker": {"failures": 3, "open": "1h"}}}});
    let fixture = Fixture::new(section).await;
    fixture.gate.add_permits(10);
    let agent = fixture.agent("one");
    for _ in 0..3 {
        agent.call("gone").await.expect_err("no handler");
    }
    let (code, executed, message) = expect_failure(agent.call("read").await);
    assert_eq!((code, executed), (ToolErrorCode::Unavailable, Executed::No));
    assert!(message.contains("github failed too often; call again in"), "{message}");
    assert_eq!(fixture.runs(), 3, "no run after the breaker opened");
}

#[tokio::test]
async fn errors_contain_no_secret_of_the_handler() {
    let fixture = Fixture::new(json!({})).await;
    fixture.gate.add_permits(10);
    let agent = fixture.agent("one");
    let (code, _, message) = expect_failure(agent.call("leak").await);
    assert_eq!((code, &*message), (ToolErrorCode::ExecutionFailed, "401 for [secret]"));
    let result = agent.call("drip").await.expect("a result");
    assert_eq!((result.is_error, &*result.to_text()), (true, "401 for [secret]"));
}

#[test]
fn call_section_is_parsed_with_defaults() {
    let section: CallSection = serde_json::from_value(json!({
        "cache": "5m", "cache_for": "session", "timeout": "30s", "idle_timeout": "10s",
        "rate": {"calls": 60, "per": "1m"}, "breaker": {"open": "1m"}, "fleet": {"concurrency": 2},
    }))
    .expect("a section");
    assert_eq!(section.rate.map(|rate| rate.calls), NonZeroU32::new(60));
    assert_eq!(section.breaker.map(|breaker| breaker.failures), Some(5));
    assert_eq!(section.fleet.map(|fleet| fleet.wait), "30s".parse().ok());
    for bad in [json!({"cache": "5 minutes"}), json!({"rate": {"calls": 0, "per": "1m"}})] {
        assert!(serde_json::from_value::<CallSection>(bad).is_err());
    }
}
