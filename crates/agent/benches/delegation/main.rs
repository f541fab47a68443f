//! Sub-agents of a scripted model, with conversations in SQLite: the time of each append to their logs, and the memory
//! of the process while 100 of them run at once.
//!
//! `cargo xtask bench delegation` runs it. It fails if the median of the appends exceeds 5 ms, or the process needs 256
//! MiB.

#![allow(clippy::print_stdout, clippy::expect_used, reason = "a benchmark prints and may panic")]

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures_util::{FutureExt, future::BoxFuture};
use rockbot_agent::{
    Agent, AgentDefinition, AgentLimits, AgentParts, ConversationOptions, Conversations,
    Delegation, DelegationOptions,
};
use rockbot_contracts::{AgentName, SessionId, UserMessage, user::TurnOutcome};
use rockbot_llm::{ChatError, ChatModel, ChatRequest, ChatStream, ScriptedModel, ScriptedTurn};
use rockbot_store::{
    Appended, Clock, Log, LogEntry, LogName, LogPosition, LogState, Prefix, StoreError, StoreUrl,
};
use rockbot_tools::{
    Tool, ToolContext, ToolFailure, ToolHints, ToolRegistration, ToolRegistry, ToolResult,
    ToolSource,
};
use serde_json::{Value, json};
use tokio::{
    sync::{Semaphore, watch},
    task::JoinSet,
};

/// The allocator of the binaries.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const CONVERSATIONS: usize = 34;
/// Sub-agents of each conversation, and of all together that are measured.
const EACH: usize = 3;
const AT_ONCE: usize = 100;
/// Steps of a sub-agent before its answer, and the text of each response.
const STEPS: usize = 8;
const TEXT_BYTES: usize = 500;
const MAX_APPEND: Duration = Duration::from_millis(5);
const MAX_MEMORY_KIB: u64 = 256 * 1024;

struct Noop(ToolRegistration);

impl Tool for Noop {
    fn registration(&self) -> &ToolRegistration {
        &self.0
    }

    fn call<'a>(
        &'a self,
        _: Value,
        _: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolResult, ToolFailure>> {
        Box::pin(std::future::ready(Ok(ToolResult::text("x".repeat(TEXT_BYTES)))))
    }
}

/// The scripted model. The last response of each sub-agent waits for a permit.
struct GatedModel {
    script: ScriptedModel,
    waiting: watch::Sender<usize>,
    gate: Semaphore,
    ended: AtomicUsize,
}

impl ChatModel for GatedModel {
    fn name(&self) -> &str {
        self.script.name()
    }

    fn stream<'a>(&'a self, request: ChatRequest) -> BoxFuture<'a, Result<ChatStream, ChatError>> {
        let results = request.messages.iter();
        let results =
            results.filter(|one| matches!(one, rockbot_llm::ChatMessage::Tool { .. })).count();
        let is_last = request.session.starts_with("subagent-") && results == STEPS;
        async move {
            if is_last {
                self.waiting.send_modify(|waiting| *waiting += 1);
                self.gate.acquire().await.expect("open").forget();
                self.ended.fetch_add(1, Ordering::SeqCst);
            }
            self.script.stream(request).await
        }
        .boxed()
    }
}

/// A log that measures its appends.
struct TimedLog {
    inner: Arc<dyn Log>,
    times: Mutex<Vec<Duration>>,
}

impl Log for TimedLog {
    fn append<'a>(
        &'a self,
        name: &'a LogName,
        at: LogPosition,
        entries: Vec<Bytes>,
        ttl: Option<Duration>,
    ) -> BoxFuture<'a, Result<Appended, StoreError>> {
        async move {
            let began = Instant::now();
            let appended = self.inner.append(name, at, entries, ttl).await;
            self.times.lock().expect("a list").push(began.elapsed());
            appended
        }
        .boxed()
    }

    fn read<'a>(
        &'a self,
        name: &'a LogName,
        from: u64,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<LogEntry>, StoreError>> {
        self.inner.read(name, from, limit)
    }

    fn state<'a>(
        &'a self,
        name: &'a LogName,
    ) -> BoxFuture<'a, Result<Option<LogState>, StoreError>> {
        self.inner.state(name)
    }

    fn logs<'a>(
        &'a self,
        prefix: &'a Prefix,
        after: Option<&'a LogName>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<LogState>, StoreError>> {
        self.inner.logs(prefix, after, limit)
    }

    fn truncate<'a>(
        &'a self,
        name: &'a LogName,
        before: u64,
    ) -> BoxFuture<'a, Result<u64, StoreError>> {
        self.inner.truncate(name, before)
    }

    fn delete<'a>(&'a self, name: &'a LogName) -> BoxFuture<'a, Result<bool, StoreError>> {
        self.inner.delete(name)
    }

    fn sweep(&self, limit: usize) -> BoxFuture<'_, Result<u64, StoreError>> {
        self.inner.sweep(limit)
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.inner.close()
    }
}

#[tokio::main]
async fn main() {
    let folder = tempfile::tempdir().expect("a folder");
    let url = StoreUrl::Sqlite(folder.path().join("conversations.db"));
    let stores = rockbot_store_sql::connect_stores(&url, Clock::System).await.expect("a store");
    let log = Arc::new(TimedLog { inner: stores.log.clone(), times: Mutex::default() });
    let model = Arc::new(GatedModel {
        script: ScriptedModel::new(script()),
        waiting: watch::Sender::default(),
        gate: Semaphore::new(0),
        ended: AtomicUsize::new(0),
    });
    let name = AgentName::new("bench").expect("a name");
    let options = ConversationOptions::default();
    let conversations = Conversations::new(log.clone(), stores.store.clone(), name, options);
    let agent = agent(conversations, model.clone());

    let idle = memory("VmRSS:");
    let started = Instant::now();
    let mut turns = JoinSet::new();
    for number in 0..CONVERSATIONS {
        let agent = agent.clone();
        turns.spawn(async move {
            let session = SessionId::new(format!("conversation-{number}")).expect("an id");
            let message = UserMessage::new(session, "go");
            let answer = agent.send(message, Arc::new(|_| ())).await;
            assert_eq!(answer.outcome, TurnOutcome::Completed, "{}", answer.text);
        });
    }
    turns.join_all().await;
    let mut waiting = model.waiting.subscribe();
    waiting.wait_for(|waiting| *waiting >= AT_ONCE).await.expect("the model stays");
    let took = started.elapsed();
    let (running, most) = (memory("VmRSS:"), memory("VmHWM:"));
    let mut times = std::mem::take(&mut *log.times.lock().expect("a list"));
    times.sort_unstable();
    let at = |share: f64| times[((times.len() as f64 * share) as usize).min(times.len() - 1)];
    let (median, p99) = (at(0.5), at(0.99));
    println!(
        "{AT_ONCE} sub-agents after {STEPS} steps each: {:.1} s, {} appends, p50 {:.2} ms, p99 {:.2} ms",
        took.as_secs_f64(),
        times.len(),
        median.as_secs_f64() * 1e3,
        p99.as_secs_f64() * 1e3
    );
    println!(
        "memory: {} MiB idle, {} MiB with {AT_ONCE} sub-agents, at most {} MiB",
        idle / 1024,
        running / 1024,
        most / 1024
    );
    assert!(median <= MAX_APPEND, "an append takes {median:?}");
    assert!(most < MAX_MEMORY_KIB, "{most} KiB");
    model.gate.add_permits(CONVERSATIONS * EACH);
    agent.shut_down(Duration::from_secs(30)).await;
    println!("{} sub-agents ended before the agent did", model.ended.load(Ordering::SeqCst));
    log.close().await;
}

/// Starts three sub-agents in each conversation. A sub-agent makes eight calls.
fn script() -> Vec<ScriptedTurn> {
    let call = || ScriptedTurn::text("x".repeat(TEXT_BYTES)).call("noop", json!({}));
    let mut script: Vec<_> = (0..STEPS).map(|_| call()).collect();
    script.push(ScriptedTurn::text("All done."));
    script[0].when = Some("You work as a sub-agent".to_owned());
    let spawn = (0..EACH).fold(ScriptedTurn::default(), |turn, _| {
        turn.call("spawn_subagent", json!({"description": "Do a part."}))
    });
    script.push(ScriptedTurn { when: Some("go".to_owned()), ..spawn });
    script.push(ScriptedTurn::text("Started."));
    script
}

fn agent(conversations: Conversations, model: Arc<dyn ChatModel>) -> Agent {
    let registry = ToolRegistry::new();
    let registration = ToolRegistration {
        name: "noop".to_owned(),
        label: None,
        description: "Does nothing.".to_owned(),
        tool_description: None,
        parameters: json!({"type": "object"}),
        source: ToolSource::Internal,
        hints: ToolHints::default(),
        timeout_ms: None,
    };
    registry.register(Arc::new(Noop(registration))).expect("registered");
    let options =
        DelegationOptions { max_tasks: CONVERSATIONS * EACH, ..DelegationOptions::default() };
    let delegation = Delegation::new(options);
    for tool in delegation.tools() {
        registry.register(tool).expect("registered");
    }
    let name = AgentName::new("bench").expect("a name");
    let definition = AgentDefinition::new(name, "Do what the user asks for.");
    let limits = AgentLimits { max_sessions: 1000, ..AgentLimits::default() };
    Agent::new(AgentParts {
        conversations,
        limits,
        delegation: Some(delegation),
        ..AgentParts::new(definition, model, registry.into())
    })
}

/// Returns a value of the memory of this process, in KiB.
fn memory(key: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find(|line| line.starts_with(key)).expect("a line");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("a number")
}
