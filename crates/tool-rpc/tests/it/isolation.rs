//! Isolation of tools and agents that share a handler.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use rockbot_bus::{Bus, Publication, Requester};
use rockbot_contracts::{
    AgentName, Executed, InstanceId, SessionId, ToolErrorCode, ToolHints, ToolRegistration,
    topology::tool_invoke,
};
use rockbot_testkit::{
    InterceptedBus,
    fixture::{BusFixture, reply_address, wait_until, within_timeout},
};
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

/// A handler of `echo`, which returns at once, and `wait`, which waits for a permit of the gate.
struct Fixture {
    bus: BusFixture,
    gate: Arc<Semaphore>,
    started: Arc<AtomicU32>,
    changed: Arc<Notify>,
    _handler: (Arc<ToolInvokeHandler>, InvokeWorkers),
}

type Calls = JoinSet<Result<ToolResult, ToolFailure>>;

impl Fixture {
    async fn new(options: InvokeOptions) -> Self {
        Self::on(BusFixture::memory(), options).await
    }

    async fn on(bus: BusFixture, options: InvokeOptions) -> Self {
        let (gate, started, changed) =
            (Arc::new(Semaphore::new(0)), Arc::default(), Arc::default());
        let tools = tools(&gate, &started, &changed);
        let instance = InstanceId::generate();
        let handler =
            handler_at(&tool_invoke(), &bus.remote, registry_of(tools), &instance, options).await;
        Self { bus, gate, started, changed, _handler: handler }
    }

    fn agent(&self, name: &str) -> Agent {
        let requester =
            Arc::new(Requester::new(self.bus.local.clone(), reply_address(name, "one")));
        let name = requester.address().agent().clone();
        let remote = |name| -> Arc<dyn Tool> {
            Arc::new(RemoteTool::new(registration(name), requester.clone(), tool_invoke()))
        };
        let tools = registry_of(vec![remote("echo"), remote("wait")]);
        Agent { name, executor: Arc::new(ToolExecutor::new(tools)) }
    }

    async fn wait_started(&self, count: u32) {
        within_timeout("started calls", async {
            while self.started.load(Ordering::SeqCst) < count {
                self.changed.notified().await;
            }
        })
        .await;
    }
}

fn tools(
    gate: &Arc<Semaphore>,
    started: &Arc<AtomicU32>,
    changed: &Arc<Notify>,
) -> Vec<Arc<dyn Tool>> {
    let (gate, started, changed) = (gate.clone(), started.clone(), changed.clone());
    // A retry may run without a journal.
    let hints = ToolHints::READ_ONLY;
    let waiting = ToolRegistration { hints, ..registration("wait") };
    vec![
        tool(registration("echo"), async |_: Value, _| Ok(ToolResult::text("here"))),
        tool(waiting, move |_, _| {
            let (gate, started, changed) = (gate.clone(), started.clone(), changed.clone());
            async move {
                started.fetch_add(1, Ordering::SeqCst);
                changed.notify_one();
                gate.acquire().await.expect("an open gate").forget();
                Ok(ToolResult::text("done"))
            }
        }),
    ]
}

/// Caller of one agent.
struct Agent {
    name: AgentName,
    executor: Arc<ToolExecutor>,
}

fn calls(agent: &Agent, tool: &'static str, count: u32) -> Calls {
    let call = || {
        let session = SessionId::new("session").expect("a valid id");
        let mut context = ToolContext::new(tool, session, agent.name.clone());
        context.deadline += Duration::from_secs(600);
        let executor = agent.executor.clone();
        async move { executor.execute(ToolCall { context, arguments: "{}".into() }).await }
    };
    (0..count).map(|_| call()).collect()
}

async fn expect_results(mut calls: Calls) {
    within_timeout("results", async {
        while let Some(result) = calls.join_next().await {
            result.expect("no panic").expect("a result");
        }
    })
    .await;
}

#[tokio::test]
async fn hung_tool_does_not_block_others() {
    let fixture = Fixture::new(InvokeOptions::new(8)).await;
    let agent = fixture.agent("agent");
    // More than the running and waiting calls of one tool.
    let mut hung = calls(&agent, "wait", 200);
    fixture.wait_started(6).await;
    expect_results(calls(&agent, "echo", 200)).await;
    assert_eq!(fixture.started.load(Ordering::SeqCst), 6, "three quarters of the concurrency");
    fixture.gate.add_permits(200);
    let mut rejected = 0;
    while let Some(result) = within_timeout("a result", hung.join_next()).await {
        if let Err(failure) = result.expect("no panic") {
            let outcome = (failure.code(), failure.executed());
            assert_eq!(outcome, (ToolErrorCode::Overloaded, Executed::No));
            rejected += 1;
        }
    }
    assert_eq!(fixture.started.load(Ordering::SeqCst), 200 - rejected);
    assert_eq!(rejected, 200 - 6 - 64, "half of the backlog may wait for one tool");
}

#[tokio::test]
async fn flood_of_one_agent_does_not_delay_another() {
    let fixture = Fixture::new(InvokeOptions::new(64)).await;
    let (loud, quiet) = (fixture.agent("loud"), fixture.agent("quiet"));
    let mut flood = calls(&loud, "wait", 10_000);
    fixture.wait_started(48).await;
    let quiet = calls(&quiet, "wait", 20);
    // One call ends at a time; agents are served round-robin.
    let before = fixture.started.load(Ordering::SeqCst);
    let done = tokio::spawn(expect_results(quiet));
    let mut released = 0;
    within_timeout("the results of the quiet agent", async {
        while !done.is_finished() {
            fixture.gate.add_permits(1);
            released += 1;
            let expected = before + released;
            wait_until("the next call", || fixture.started.load(Ordering::SeqCst) >= expected)
                .await;
        }
    })
    .await;
    done.await.expect("no panic");
    assert!(released < 150, "{released} of 10,000 calls ran first");
    flood.abort_all();
}

#[tokio::test]
async fn queue_full_rejects_with_overloaded() {
    let mut options = InvokeOptions::new(8);
    let slow = QueueLimits { running: 1, waiting: 1, wait: None };
    options.admission =
        AdmissionLimits { queues: vec![(vec!["wait".to_owned()], slow)], ..options.admission };
    let fixture = Fixture::new(options).await;
    let agent = fixture.agent("agent");
    let mut hung = calls(&agent, "wait", 3);
    let rejected =
        within_timeout("a rejection", hung.join_next()).await.expect("a call").expect("no panic");
    let failure = rejected.expect_err("a full queue");
    assert_eq!((failure.code(), failure.executed()), (ToolErrorCode::Overloaded, Executed::No));
    assert!(failure.is_retryable());
    fixture.gate.add_permits(2);
    expect_results(hung).await;
    assert_eq!(fixture.started.load(Ordering::SeqCst), 2);
}

/// A sender that marks all its requests as retries gets no more capacity than others.
#[tokio::test]
async fn attempt_of_the_sender_lifts_no_limit() {
    let mut options = InvokeOptions::new(8);
    let slow = QueueLimits { running: 1, waiting: 1, wait: None };
    options.admission =
        AdmissionLimits { queues: vec![(vec!["wait".to_owned()], slow)], ..options.admission };
    let BusFixture { local, remote } = BusFixture::memory();
    let local = InterceptedBus::wrap(local, |bus: Arc<dyn Bus>, mut publication: Publication| {
        publication.envelope.attempt = 2;
        async move { bus.publish(publication).await }
    });
    let fixture = Fixture::on(BusFixture { local, remote }, options).await;
    let mut hung = calls(&fixture.agent("agent"), "wait", 3);
    let rejected =
        within_timeout("a rejection", hung.join_next()).await.expect("a call").expect("no panic");
    let failure = rejected.expect_err("a full queue");
    assert!(failure.model_text().contains("too many calls"), "{}", failure.model_text());
    fixture.gate.add_permits(2);
    expect_results(hung).await;
    assert_eq!(fixture.started.load(Ordering::SeqCst), 2);
}
