//! Agents on logs that outlive them, and logs that stop a process at a chosen entry.

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::{
    FutureExt, TryFutureExt,
    future::{BoxFuture, pending},
};
use rockbot_agent::{
    Agent, ConversationOptions, Conversations, ProgressSink, RecordedMessage, TurnAnswer,
    TurnOrigin,
};
use rockbot_contracts::{AgentName, MessageId, SessionId, ToolCallId, ToolHints, ToolSource};
use rockbot_store::{
    Appended, Clock, Log, LogEntry, LogName, LogPosition, LogState, Prefix, StoreError, Stores,
};
use rockbot_tools::{
    EntryPoint, Tool, ToolContext, ToolFailure, ToolRegistration, ToolRegistry, ToolResult,
};
use serde_json::{Value, json};
use tokio::{sync::Semaphore, time::Instant};

use crate::harness::{AgentFixture, EventLog, RecordingModel, message};

/// Storage that several agents use, one after the other or at once.
pub(crate) struct Storage {
    pub(crate) stores: Stores,
    pub(crate) options: ConversationOptions,
}

impl Storage {
    pub(crate) fn new() -> Self {
        Self { stores: Stores::memory(Clock::System), options: ConversationOptions::default() }
    }

    pub(crate) fn conversations(&self) -> Conversations {
        self.conversations_on(self.stores.log.clone())
    }

    /// Returns the conversations of a process whose log is `log`.
    pub(crate) fn conversations_on(&self, log: Arc<dyn Log>) -> Conversations {
        let agent = AgentName::new("tester").unwrap();
        let instance = rockbot_contracts::InstanceId::generate();
        let options = ConversationOptions { instance, ..self.options.clone() };
        Conversations::new(log, self.stores.store.clone(), agent, options)
    }

    pub(crate) fn agent(&self, fixture: AgentFixture, model: &Arc<RecordingModel>) -> Agent {
        let conversations = Some(self.conversations());
        AgentFixture { conversations, ..fixture }.agent(model)
    }

    /// Returns the kinds of the recorded entries; `acts` for a takeover whose process acts.
    pub(crate) async fn kinds(&self) -> Vec<String> {
        let entries = self.stores.log.read(&log_name(), 1, 1000).await.unwrap();
        let kind = |entry: &LogEntry| {
            let value: Value = serde_json::from_slice(&entry.value).unwrap();
            let kind = if value["acts"] == true { "acts" } else { value["kind"].as_str().unwrap() };
            kind.to_owned()
        };
        entries.iter().map(kind).collect()
    }

    /// Returns whether each call ran, as recorded in its result.
    pub(crate) async fn executed(&self) -> Vec<String> {
        let entries = self.stores.log.read(&log_name(), 1, 1000).await.unwrap();
        let executed = |entry: &LogEntry| {
            let value: Value = serde_json::from_slice(&entry.value).unwrap();
            value["executed"].as_str().map(ToOwned::to_owned)
        };
        entries.iter().filter_map(executed).collect()
    }

    /// Returns the number of the last entry.
    pub(crate) async fn len(&self) -> u64 {
        self.stores.log.state(&log_name()).await.unwrap().map_or(0, |state| state.next - 1)
    }

    /// Appends an entry that no program of this version writes.
    pub(crate) async fn append_raw(&self, at: u64, value: &str) {
        let entries = vec![value.as_bytes().to_vec().into()];
        let appended = self.stores.log.append(&log_name(), at.into(), entries, None).await.unwrap();
        assert!(matches!(appended, Appended::Done { .. }));
    }

    /// Appends a turn that has used up its time limit, with a step of these calls.
    pub(crate) async fn append_late_step(&self, calls: &[(&str, Value)]) {
        let call = |(index, (name, arguments)): (usize, &(&str, Value))| {
            let (call, arguments) = (format!("call-{index}"), arguments.to_string());
            json!({"call": call, "id": call, "name": name, "arguments": arguments})
        };
        let calls: Vec<_> = calls.iter().enumerate().map(call).collect();
        let message = json!({"v": 1, "at": 1_000_000, "kind": "message", "id": "m", "text": "go",
            "entry": "user_turn", "deadline": 1_060_000});
        let model = json!({"v": 1, "at": 1_060_000, "kind": "model", "calls": calls, "cost": {}});
        self.append_raw(1, &message.to_string()).await;
        self.append_raw(2, &model.to_string()).await;
    }
}

pub(crate) fn session() -> SessionId {
    SessionId::new("s").unwrap()
}

pub(crate) fn log_name() -> LogName {
    LogName::new(["conversation", "tester", "s"]).unwrap()
}

/// Sends a message of the bus and waits for the answer.
pub(crate) async fn send_as(agent: &Agent, id: &MessageId, text: &str) -> TurnAnswer {
    send_to(agent, id, text, EventLog::default().sink()).await
}

pub(crate) async fn send_to(
    agent: &Agent,
    id: &MessageId,
    text: &str,
    progress: ProgressSink,
) -> TurnAnswer {
    agent.run_turn(origin(id), message("s", text), progress).await
}

pub(crate) fn origin(id: &MessageId) -> TurnOrigin {
    let reply_to = rockbot_contracts::RoutingKey::new("user.response.proxy").unwrap();
    TurnOrigin::new(EntryPoint::UserTurn).with_message(id.clone()).with_reply_to(reply_to)
}

/// Resumes the conversation `s`.
pub(crate) async fn resume(
    agent: &Agent,
    events: &EventLog,
) -> Option<(RecordedMessage, TurnAnswer)> {
    let sink = events.sink();
    agent.resume(&session(), move |_| sink).await
}

/// Outcome of appends after the first entries.
pub(crate) enum Fault {
    /// They never return, as in a process that is killed.
    Crash,
    /// The store is unavailable until then.
    Outage(Instant),
    /// They are made, but not confirmed, and the next read fails.
    Unconfirmed,
    /// Another process always appends first.
    Conflict,
    /// Appends are made, and nothing can be read until then.
    ReadOutage(Instant),
    /// Appends are made, but not confirmed, and nothing can be read until then.
    UnconfirmedOutage(Instant),
    /// Appends are made, and this entry of the conversation `s` cannot be read.
    Gap(u64),
}

/// A log with a fault after its first entries.
pub(crate) struct CrashingLog {
    inner: Arc<dyn Log>,
    fault: Fault,
    /// Entries that are still recorded.
    left: AtomicU64,
    fails_read: AtomicBool,
    is_away: AtomicBool,
    /// Has a permit for each append that does not return.
    pub(crate) stopped: Semaphore,
}

impl CrashingLog {
    pub(crate) fn new(storage: &Storage, entries: u64) -> Arc<Self> {
        Self::with_fault(storage, entries, Fault::Crash)
    }

    pub(crate) fn with_fault(storage: &Storage, entries: u64, fault: Fault) -> Arc<Self> {
        let (inner, left) = (storage.stores.log.clone(), AtomicU64::new(entries));
        let (fails_read, is_away) = (AtomicBool::new(false), AtomicBool::new(false));
        Arc::new(Self { inner, fault, left, fails_read, is_away, stopped: Semaphore::new(0) })
    }

    pub(crate) async fn wait_for_crash(&self) {
        self.stopped.acquire().await.unwrap().forget();
    }
}

impl Log for CrashingLog {
    fn append<'a>(
        &'a self,
        name: &'a LogName,
        at: LogPosition,
        mut entries: Vec<bytes::Bytes>,
        ttl: Option<Duration>,
    ) -> BoxFuture<'a, Result<Appended, StoreError>> {
        async move {
            let count = entries.len() as u64;
            let left = self.left.load(Ordering::SeqCst);
            self.left.store(left.saturating_sub(count), Ordering::SeqCst);
            if count <= left {
                return self.inner.append(name, at, entries, ttl).await;
            }
            let reason = "a test".to_owned();
            match self.fault {
                Fault::Crash => {}
                Fault::Conflict => {
                    let next = LogPosition { number: at.number + 1, ..at };
                    return Ok(Appended::Conflict { next });
                }
                Fault::Outage(end) if Instant::now() < end => {
                    return Err(StoreError::Unavailable { reason });
                }
                Fault::UnconfirmedOutage(end) if Instant::now() < end => {
                    self.is_away.store(true, Ordering::SeqCst);
                    self.inner.append(name, at, entries, ttl).await?;
                    return Err(StoreError::Unconfirmed { reason });
                }
                Fault::Outage(_)
                | Fault::ReadOutage(_)
                | Fault::UnconfirmedOutage(_)
                | Fault::Gap(_) => {
                    return self.inner.append(name, at, entries, ttl).await;
                }
                Fault::Unconfirmed => {
                    return match self.inner.append(name, at, entries, ttl).await? {
                        Appended::Done { .. } => {
                            self.fails_read.store(true, Ordering::SeqCst);
                            Err(StoreError::Unconfirmed { reason })
                        }
                        conflict @ Appended::Conflict { .. } => Ok(conflict),
                    };
                }
            }
            entries.truncate(usize::try_from(left).unwrap());
            if !entries.is_empty() {
                self.inner.append(name, at, entries, ttl).await?;
            }
            self.stopped.add_permits(1);
            pending().await
        }
        .boxed()
    }

    fn read<'a>(
        &'a self,
        name: &'a LogName,
        from: u64,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<LogEntry>, StoreError>> {
        let is_away = match self.fault {
            Fault::ReadOutage(end) => Instant::now() < end,
            // Once something was appended.
            Fault::UnconfirmedOutage(end) => {
                self.is_away.load(Ordering::SeqCst) && Instant::now() < end
            }
            Fault::Crash
            | Fault::Conflict
            | Fault::Outage(_)
            | Fault::Unconfirmed
            | Fault::Gap(_) => false,
        };
        if self.fails_read.swap(false, Ordering::SeqCst) || is_away {
            let reason = "a test".to_owned();
            return std::future::ready(Err(StoreError::Unavailable { reason })).boxed();
        }
        let page = self.inner.read(name, from, limit);
        match self.fault {
            Fault::Gap(missing) if *name == log_name() => page
                .map_ok(move |mut page| {
                    page.retain(|entry| entry.number != missing);
                    page
                })
                .boxed(),
            _ => page,
        }
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

/// A tool that writes. As a handler with a journal, it runs each call once, also for several callers.
pub(crate) struct JournaledTool {
    registration: ToolRegistration,
    is_remote: bool,
    journal: Mutex<HashSet<ToolCallId>>,
    pub(crate) attempts: Mutex<Vec<u32>>,
    runs: AtomicUsize,
}

impl JournaledTool {
    pub(crate) fn remote(name: &str) -> Arc<Self> {
        Self::build(name, true, ToolHints::default())
    }

    /// Creates a tool of the agent itself, without a journal.
    pub(crate) fn local(name: &str, hints: ToolHints) -> Arc<Self> {
        Self::build(name, false, hints)
    }

    fn build(name: &str, is_remote: bool, hints: ToolHints) -> Arc<Self> {
        let registration = ToolRegistration {
            name: name.to_owned(),
            label: None,
            description: "writes".to_owned(),
            tool_description: None,
            parameters: json!({"type": "object"}),
            source: ToolSource::Internal,
            hints,
            timeout_ms: None,
        };
        let (journal, attempts) = (Mutex::default(), Mutex::default());
        Arc::new(Self { registration, is_remote, journal, attempts, runs: AtomicUsize::new(0) })
    }

    pub(crate) fn runs(&self) -> usize {
        self.runs.load(Ordering::SeqCst)
    }

    pub(crate) fn register(self: &Arc<Self>, registry: &ToolRegistry) {
        registry.register(Arc::new(Handle(self.clone()))).unwrap();
    }
}

struct Handle(Arc<JournaledTool>);

impl Tool for Handle {
    fn registration(&self) -> &ToolRegistration {
        &self.0.registration
    }

    fn call<'a>(
        &'a self,
        _: Value,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolResult, ToolFailure>> {
        let tool = &self.0;
        tool.attempts.lock().unwrap().push(context.attempt);
        let is_new = tool.journal.lock().unwrap().insert(context.tool_call_id.clone());
        if is_new || !tool.is_remote {
            tool.runs.fetch_add(1, Ordering::SeqCst);
        }
        async move { Ok(ToolResult::text(format!("{} is written", tool.registration.name))) }
            .boxed()
    }

    fn deduplicates_calls(&self) -> bool {
        self.0.is_remote
    }
}
