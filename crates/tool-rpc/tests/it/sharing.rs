//! Tools and agents share a handler, and keep out of each other's way.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use rockbot_bus::Requester;
use rockbot_contracts::{
    AgentName, Executed, InstanceId, SessionId, ToolErrorCode, topology::tool_invoke,
};
use rockbot_testkit::fixture::{BusFixture, reply_address, wait_until, within_timeout};
use rockbot_tool_rpc::{
    AdmissionLimits, InvokeOptions, QueueLimits, RemoteTool, ToolInvokeHandler,
    invoke::InvokeWorkers,
};
use rockbot_tools::{Tool, ToolCall, ToolContext, ToolExecutor, ToolFailure, ToolResult};
use serde_json::Value;
use tokio::{
    sync::{Notify, Semaphore},
    task::JoinSet,
};

use crate::fleet::{handler_at, registration, registry_of, tool};

/// A handler of `echo`, which answers at once, and `wait`, which waits at a gate.
struct Stage {
    bed: BusFixture,
    gate: Arc<Semaphore>,
    begun: Arc<AtomicU32>,
    changed: Arc<Notify>,
    _handler: (Arc<ToolInvokeHandler>, InvokeWorkers),
}

type Called = JoinSet<Result<ToolResult, ToolFailure>>;

impl Stage {
    async fn set(options: InvokeOptions) -> Self {
        let bed = BusFixture::memory();
        let (gate, begun, changed) = (Arc::new(Semaphore::new(0)), Arc::default(), Arc::default());
        let tools = tools(&gate, &begun, &changed);
        let instance = InstanceId::generate();
        let handler =
            handler_at(&tool_invoke(), &bed.remote, registry_of(tools), &instance, options).await;
        Self { bed, gate, begun, changed, _handler: handler }
    }

    fn agent(&self, name: &str) -> Agent {
        let requester =
            Arc::new(Requester::new(self.bed.local.clone(), reply_address(name, "one")));
        let name = requester.address().agent().clone();
        let remote = |name| -> Arc<dyn Tool> {
            Arc::new(RemoteTool::new(registration(name), requester.clone(), tool_invoke()))
        };
        let tools = registry_of(vec![remote("echo"), remote("wait")]);
        Agent { name, executor: Arc::new(ToolExecutor::new(tools)) }
    }

    async fn begun(&self, count: u32) {
        within_timeout("calls that run", async {
            while self.begun.load(Ordering::SeqCst) < count {
                self.changed.notified().await;
            }
        })
        .await;
    }
}

fn tools(
    gate: &Arc<Semaphore>,
    begun: &Arc<AtomicU32>,
    changed: &Arc<Notify>,
) -> Vec<Arc<dyn Tool>> {
    let (gate, begun, changed) = (gate.clone(), begun.clone(), changed.clone());
    vec![
        tool(registration("echo"), async |_: Value, _| Ok(ToolResult::text("here"))),
        tool(registration("wait"), move |_, _| {
            let (gate, begun, changed) = (gate.clone(), begun.clone(), changed.clone());
            async move {
                begun.fetch_add(1, Ordering::SeqCst);
                changed.notify_one();
                gate.acquire().await.expect("the gate stays").forget();
                Ok(ToolResult::text("done"))
            }
        }),
    ]
}

/// An agent's end.
struct Agent {
    name: AgentName,
    executor: Arc<ToolExecutor>,
}

fn calls(agent: &Agent, tool: &'static str, count: u32) -> Called {
    let call = || {
        let session = SessionId::new("session").expect("an id");
        let mut context = ToolContext::new(tool, session, agent.name.clone());
        context.deadline += Duration::from_secs(600);
        let executor = agent.executor.clone();
        async move { executor.execute(ToolCall { context, arguments: "{}".into() }).await }
    };
    (0..count).map(|_| call()).collect()
}

async fn all_ended(mut calls: Called) {
    within_timeout("answers", async {
        while let Some(ended) = calls.join_next().await {
            ended.expect("no panic").expect("a result");
        }
    })
    .await;
}

#[tokio::test]
async fn a_tool_that_hangs_does_not_stop_the_others() {
    let stage = Stage::set(InvokeOptions::new(8)).await;
    let agent = stage.agent("agent");
    // More than run of one tool and wait in the handler.
    let mut hanging = calls(&agent, "wait", 200);
    stage.begun(6).await;
    all_ended(calls(&agent, "echo", 200)).await;
    assert_eq!(stage.begun.load(Ordering::SeqCst), 6, "three quarters of the handler");
    stage.gate.add_permits(200);
    let mut refused = 0;
    while let Some(ended) = within_timeout("an answer", hanging.join_next()).await {
        if let Err(failure) = ended.expect("no panic") {
            let told = (failure.code(), failure.executed());
            assert_eq!(told, (ToolErrorCode::Overloaded, Executed::No));
            refused += 1;
        }
    }
    assert_eq!(stage.begun.load(Ordering::SeqCst), 200 - refused);
    assert_eq!(refused, 200 - 6 - 64, "half of what the handler holds may wait for one tool");
}

#[tokio::test]
async fn ten_thousand_calls_of_one_agent_do_not_keep_another_waiting() {
    let stage = Stage::set(InvokeOptions::new(64)).await;
    let (loud, quiet) = (stage.agent("loud"), stage.agent("quiet"));
    let mut flood = calls(&loud, "wait", 10_000);
    stage.begun(48).await;
    let quiet = calls(&quiet, "wait", 20);
    // Room comes up a call at a time; agents take turns.
    let before = stage.begun.load(Ordering::SeqCst);
    let done = tokio::spawn(all_ended(quiet));
    let mut released = 0;
    within_timeout("the quiet agent's answers", async {
        while !done.is_finished() {
            stage.gate.add_permits(1);
            released += 1;
            let expected = before + released;
            wait_until("the next call", || stage.begun.load(Ordering::SeqCst) >= expected).await;
        }
    })
    .await;
    done.await.expect("answered");
    assert!(released < 150, "{released} calls went first, of 10,000");
    flood.abort_all();
}

#[tokio::test]
async fn a_queue_of_tools_that_is_full_refuses_and_did_not_run_the_call() {
    let mut options = InvokeOptions::new(8);
    let slow = QueueLimits { running: 1, waiting: 1, wait: None };
    options.admission =
        AdmissionLimits { queues: vec![(vec!["wait".to_owned()], slow)], ..options.admission };
    let stage = Stage::set(options).await;
    let agent = stage.agent("agent");
    let mut hanging = calls(&agent, "wait", 3);
    let refused =
        within_timeout("a refusal", hanging.join_next()).await.expect("one").expect("no panic");
    let failure = refused.expect_err("there is no room");
    assert_eq!((failure.code(), failure.executed()), (ToolErrorCode::Overloaded, Executed::No));
    assert!(failure.is_retryable());
    stage.gate.add_permits(2);
    all_ended(hanging).await;
    assert_eq!(stage.begun.load(Ordering::SeqCst), 2);
}
