//! What every call passes through, with both ends of the bus.

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

/// A handler whose layers are configured, with tools that count their runs.
struct Stage {
    bed: BusFixture,
    registry: Arc<ToolRegistry>,
    handler: Arc<ToolInvokeHandler>,
    account: Arc<CallAccount>,
    runs: Arc<AtomicU32>,
    gate: Arc<Semaphore>,
    _workers: InvokeWorkers,
}

/// A tool that only reads and belongs to a server.
fn definition(name: &str) -> ToolRegistration {
    ToolRegistration {
        hints: ToolHints::READ_ONLY,
        source: ToolSource::Mcp("github".to_owned()),
        ..registration(name)
    }
}

/// What a run at the gate ends with.
type Ends = fn() -> Result<ToolResult, ToolFailure>;

impl Stage {
    async fn set(section: Value) -> Self {
        let section: HandlerSection = serde_json::from_value(section).expect("a section");
        assert_eq!(section.problems(), [""; 0]);
        let bed = BusFixture::memory();
        let (runs, gate) = (Arc::new(AtomicU32::new(0)), Arc::new(Semaphore::new(0)));
        let at_the_gate =
            |name: &str, ends: Ends| at_the_gate(definition(name), &runs, &gate, ends);
        let tools = vec![
            at_the_gate("read", || Ok(ToolResult::text("what it says"))),
            at_the_gate("list", || Ok(ToolResult::text("all of them"))),
            at_the_gate("gone", || {
                let message = "nobody is there".to_owned();
                Err(ToolFailure::Unavailable { message, executed: Executed::No })
            }),
            at_the_gate("leak", || Err(ToolFailure::failed(format!("401 for {SECRET}")))),
            at_the_gate("drip", || Ok(ToolResult::error(format!("401 for {SECRET}")))),
        ];
        let registry = registry_of(tools);
        let layers = section.layers(None, Redactor::with_secrets([SECRET.to_owned()]));
        let account = layers.account.clone().expect("an account");
        let executor = Arc::new(ToolExecutor::with_layers(registry.clone(), layers));
        let instance = InstanceId::generate();
        let (bus, options) = (bed.remote.clone(), section.options());
        let handler = ToolInvokeHandler::new(executor, bus, "handler", &instance, options);
        let workers = handler.start(&tool_invoke(), &instance).await.expect("consuming");
        Self { bed, registry, handler, account, runs, gate, _workers: workers }
    }

    /// An agent's end, which calls whatever there is.
    fn agent(&self, name: &str) -> Agent {
        let requester =
            Arc::new(Requester::new(self.bed.local.clone(), reply_address(name, "one")));
        let context = ToolContext::new(
            "",
            SessionId::new("session").expect("an id"),
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

fn at_the_gate(
    definition: ToolRegistration,
    runs: &Arc<AtomicU32>,
    gate: &Arc<Semaphore>,
    ends: Ends,
) -> Arc<dyn Tool> {
    let (runs, gate) = (runs.clone(), gate.clone());
    tool(definition, move |_, _| {
        let (runs, gate) = (runs.clone(), gate.clone());
        async move {
            runs.fetch_add(1, Ordering::SeqCst);
            gate.acquire().await.expect("the gate stays").forget();
            ends()
        }
    })
}

#[derive(Clone)]
struct Agent {
    executor: Arc<ToolExecutor>,
    context: ToolContext,
}

type Called = JoinSet<Result<ToolResult, ToolFailure>>;

impl Agent {
    async fn call(&self, tool: &'static str) -> Result<ToolResult, ToolFailure> {
        let fresh =
            ToolContext::new(tool, self.context.session_id.clone(), self.context.agent.clone());
        let arguments = r#"{"text":"equal"}"#.into();
        let call = self.executor.execute(ToolCall { context: fresh, arguments });
        within_timeout("an answer", Box::pin(call)).await
    }

    fn calls(&self, tool: &'static str, count: u32) -> Called {
        let call = || {
            let agent = self.clone();
            async move { agent.call(tool).await }
        };
        (0..count).map(|_| call()).collect()
    }
}

async fn all_say(calls: Called, text: &str) {
    for ended in calls.join_all().await {
        assert_eq!(ended.expect("a result").to_text(), text);
    }
}

fn refused(ended: Result<ToolResult, ToolFailure>) -> (ToolErrorCode, Executed, String) {
    let failure = ended.expect_err("refused");
    (failure.code(), failure.executed(), failure.to_string())
}

#[tokio::test]
async fn a_hundred_equal_calls_at_once_run_once_and_those_of_two_agents_twice() {
    let cached = json!({"concurrency": 300, "servers": {"GitHub": {"cache": "1h"}}});
    let stage = Stage::set(cached).await;
    let (one, two) = (stage.agent("one"), stage.agent("two"));
    let calls = [one.calls("read", 100), two.calls("read", 100)];
    wait_until("all of them wait", || stage.handler.load().running == 200).await;
    stage.gate.add_permits(200);
    for calls in calls {
        all_say(calls, "what it says").await;
    }
    assert_eq!(stage.runs(), 2, "once for each agent");
    all_say(one.calls("read", 10), "what it says").await;
    assert_eq!(stage.runs(), 2, "and the results are kept");
    assert_eq!(stage.account.by_tool()["read"].ok, 210, "all of them are accounted for");
}

#[tokio::test]
async fn a_changed_definition_is_a_miss() {
    let stage = Stage::set(json!({"tools": {"read": {"cache": "1h"}}})).await;
    stage.gate.add_permits(10);
    let agent = stage.agent("one");
    all_say(agent.calls("read", 1), "what it says").await;
    all_say(agent.calls("read", 1), "what it says").await;
    assert_eq!(stage.runs(), 1);
    assert!(stage.registry.unregister("read"));
    let changed = ToolRegistration {
        description: "It reads something else.".to_owned(),
        ..definition("read")
    };
    let changed = at_the_gate(changed, &stage.runs, &stage.gate, || Ok(ToolResult::text("new")));
    stage.registry.register(changed).expect("registered");
    all_say(agent.calls("read", 1), "new").await;
    assert_eq!(stage.runs(), 2);
}

#[tokio::test]
async fn tools_of_a_server_share_its_queue() {
    let section = json!({
        "queues": {"slow": {"concurrency": 1, "waiting": 1}},
        "servers": {"github": {"queue": "slow"}},
    });
    let stage = Stage::set(section).await;
    let agent = stage.agent("one");
    let running = agent.calls("read", 1);
    wait_until("it runs", || stage.runs() == 1).await;
    let waiting = agent.calls("list", 1);
    wait_until("it waits", || stage.handler.load().waiting == 1).await;
    let (code, executed, _) = refused(agent.call("list").await);
    assert_eq!((code, executed), (ToolErrorCode::Overloaded, Executed::No));
    assert_eq!(stage.runs(), 1, "one runs at a time");
    stage.gate.add_permits(2);
    all_say(running, "what it says").await;
    all_say(waiting, "all of them").await;
}

#[tokio::test]
async fn an_agent_that_calls_too_often_is_refused_and_another_is_not() {
    let section = json!({"tools": {"read": {"rate": {"calls": 2, "per": "1h"}}}});
    let stage = Stage::set(section).await;
    stage.gate.add_permits(10);
    let (one, two) = (stage.agent("one"), stage.agent("two"));
    all_say(one.calls("read", 2), "what it says").await;
    let (code, executed, words) = refused(one.call("read").await);
    assert_eq!((code, executed), (ToolErrorCode::Overloaded, Executed::No));
    assert!(words.contains("call again in 1800 s") || words.contains("in 1799 s"), "{words}");
    all_say(two.calls("read", 1), "what it says").await;
    all_say(one.calls("list", 1), "all of them").await;
    assert_eq!(stage.runs(), 4);
}

#[tokio::test]
async fn a_server_that_is_out_of_reach_is_left_alone_with_all_its_tools() {
    let section = json!({"servers": {"github": {"breaker": {"failures": 3, "open": "1h"}}}});
    let stage = Stage::set(section).await;
    stage.gate.add_permits(10);
    let agent = stage.agent("one");
    for _ in 0..3 {
        agent.call("gone").await.expect_err("nobody is there");
    }
    let (code, executed, words) = refused(agent.call("read").await);
    assert_eq!((code, executed), (ToolErrorCode::Unavailable, Executed::No));
    assert!(words.contains("github failed too often; call again in"), "{words}");
    assert_eq!(stage.runs(), 3, "no other call was let through");
}

#[tokio::test]
async fn no_secret_of_the_handler_crosses_the_bus_in_an_error() {
    let stage = Stage::set(json!({})).await;
    stage.gate.add_permits(10);
    let agent = stage.agent("one");
    let (code, _, words) = refused(agent.call("leak").await);
    assert_eq!((code, &*words), (ToolErrorCode::ExecutionFailed, "401 for [secret]"));
    let told = agent.call("drip").await.expect("a result");
    assert_eq!((told.is_error, &*told.to_text()), (true, "401 for [secret]"));
}

#[test]
fn what_an_operator_writes_is_what_holds() {
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
