//! Fixture: handlers that share a bus and a store, and a caller.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use rockbot_bus::{Bus, Consumer, Publication, Settlement};
use rockbot_contracts::{
    Envelope, Executed, InstanceId, Message, QueueSpec, RoutingKey, SessionId, ToolCallId,
    ToolCancel, ToolError, ToolErrorCode, ToolInvokeRequest, ToolInvokeResponse, json::Limits,
    topology::tool_cancel,
};
use rockbot_store::{Clock, ManualClock, MemoryStore, Prefix, Store};
use rockbot_testkit::fixture::{BusFixture, key, next_delivery};
use rockbot_tool_rpc::{
    CallJournal, InvokeOptions, JournalOptions, ToolInvokeHandler, invoke::InvokeWorkers,
};
use rockbot_tools::{Tool, ToolFailure, ToolHints, ToolResult};
use serde_json::Value;
use tokio::sync::{Notify, Semaphore};

use crate::fleet::{handler_at, registration, registry_of, tool};

/// Handlers on one bus and one store, and tools that count their runs and wait for a permit of the gate.
pub(crate) struct Fixture {
    pub(crate) bus: BusFixture,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: ManualClock,
    /// Retention of the journals.
    pub(crate) retention: Duration,
    pub(crate) gate: Arc<Semaphore>,
    pub(crate) started: Arc<Notify>,
    pub(crate) runs: Arc<AtomicU32>,
    pub(crate) caller: RoutingKey,
    pub(crate) replies: Consumer,
}

pub(crate) struct RunningHandler {
    pub(crate) handler: Arc<ToolInvokeHandler>,
    pub(crate) workers: InvokeWorkers,
    pub(crate) journal: Arc<CallJournal>,
}

impl Fixture {
    pub(crate) async fn new() -> Self {
        let (bus, clock) = (BusFixture::memory(), ManualClock::new());
        let store = Arc::new(MemoryStore::new(Clock::from(&clock)));
        let caller = key("tool.result.agent.one");
        let queue = QueueSpec::reply(&caller, vec![(&caller).into()]);
        let replies = bus.consume(queue, 10).await;
        let (gate, started) = (Arc::new(Semaphore::new(1000)), Arc::default());
        let retention = JournalOptions::default().retention;
        Self { bus, store, clock, retention, gate, started, runs: Arc::default(), caller, replies }
    }

    fn tools(&self) -> Vec<Arc<dyn Tool>> {
        let named = |name: &str, hints| {
            let (gate, started, runs) =
                (self.gate.clone(), self.started.clone(), self.runs.clone());
            let mut definition = registration(name);
            definition.hints = hints;
            tool(definition, move |arguments: Value, _| {
                let (gate, started, runs) = (gate.clone(), started.clone(), runs.clone());
                async move {
                    let run = runs.fetch_add(1, Ordering::SeqCst) + 1;
                    started.notify_one();
                    gate.acquire().await.expect("an open gate").forget();
                    let text = arguments["text"].as_str().unwrap_or("done");
                    Ok(ToolResult::text(format!("{text}, run {run}")))
                }
            })
        };
        let idempotent = ToolHints { idempotent: true, ..ToolHints::default() };
        vec![
            named("write", ToolHints::default()),
            named("set", idempotent),
            named("read", ToolHints::READ_ONLY),
            {
                let (gate, started) = (self.gate.clone(), self.started.clone());
                tool(registration("refuse"), move |_: Value, _| {
                    let (gate, started) = (gate.clone(), started.clone());
                    async move {
                        started.notify_one();
                        gate.acquire().await.expect("an open gate").forget();
                        Err(ToolFailure::NotPermitted { reason: "on purpose".to_owned() })
                    }
                })
            },
            tool(registration("noisy"), async |_, _| {
                // Six bytes per character as JSON.
                Ok(ToolResult::text("\u{1}".repeat(500_000)))
            }),
        ]
    }

    pub(crate) async fn handler(&self, key: &RoutingKey, shared: bool) -> RunningHandler {
        self.handler_on(&self.bus.remote, key, shared).await
    }

    pub(crate) async fn handler_on(
        &self,
        bus: &Arc<dyn Bus>,
        key: &RoutingKey,
        shared: bool,
    ) -> RunningHandler {
        let instance = InstanceId::generate();
        let options = JournalOptions { shared, retention: self.retention };
        let journal = CallJournal::start(self.store.clone(), &instance, options);
        let options = InvokeOptions::new(10).with_backlog(128).with_journal(journal.clone());
        let registry = registry_of(self.tools());
        let (handler, workers) = handler_at(key, bus, registry, &instance, options).await;
        RunningHandler { handler, workers, journal }
    }

    pub(crate) async fn send(&self, at: &RoutingKey, call: &Call) {
        self.send_within(at, call, Duration::from_secs(60)).await;
    }

    pub(crate) async fn send_within(&self, at: &RoutingKey, call: &Call, timeout: Duration) {
        let mut envelope = Envelope::from_payload(&call.request)
            .with_correlation_id(call.request.tool_call_id.as_str())
            .reply_to(self.caller.clone())
            .with_source(call.agent.as_str())
            .within(timeout);
        envelope.has_client_key = call.has_client_key;
        envelope.timestamp -= call.age.as_secs();
        if call.maybe_redelivered {
            envelope = envelope.next_attempt();
        }
        let publication = Publication::mandatory(at.clone(), envelope);
        self.bus.local.publish(publication).await.expect("published");
    }

    pub(crate) async fn cancel(&self, call: &Call) {
        let id = call.request.tool_call_id.clone();
        let cancel = ToolCancel { tool_call_id: id, reason: "on purpose".to_owned() };
        let envelope = Envelope::from_payload(&cancel).within(Duration::from_secs(60));
        let publication = Publication::announcement(tool_cancel(), envelope);
        self.bus.local.publish(publication).await.expect("published");
    }

    pub(crate) async fn reply(&mut self) -> Envelope {
        let delivery = next_delivery(&mut self.replies).await;
        let envelope = delivery.envelope().clone();
        delivery.settle(Settlement::Ack).await.expect("settled");
        envelope
    }

    pub(crate) async fn result(&mut self) -> String {
        let reply = self.reply().await;
        assert_eq!(reply.message_type(), ToolInvokeResponse::TYPE);
        reply.decode::<ToolInvokeResponse>(Limits::default()).expect("a result").content
    }

    pub(crate) async fn error(&mut self) -> (ToolErrorCode, Executed) {
        let reply = self.reply().await;
        assert_eq!(reply.message_type(), ToolError::TYPE);
        let error: ToolError = reply.decode(Limits::default()).expect("an error");
        (error.code, error.executed)
    }

    pub(crate) fn runs(&self) -> u32 {
        self.runs.load(Ordering::SeqCst)
    }

    pub(crate) fn close_gate(&self) {
        self.gate.forget_permits(1000);
    }

    pub(crate) async fn entries(&self) -> usize {
        let calls = Prefix::new(["calls"]).expect("a prefix");
        self.store.list(&calls, None, 100).await.expect("a page").len()
    }
}

#[derive(Clone)]
pub(crate) struct Call {
    pub(crate) request: ToolInvokeRequest,
    pub(crate) agent: String,
    pub(crate) maybe_redelivered: bool,
    pub(crate) has_client_key: bool,
    /// Time since it was first sent.
    pub(crate) age: Duration,
}

pub(crate) fn call(tool: &str) -> Call {
    let request = ToolInvokeRequest {
        tool_call_id: ToolCallId::generate(),
        tool_name: tool.to_owned(),
        arguments: "{}".to_owned(),
        session_id: SessionId::new("session").expect("a valid id"),
    };
    Call {
        request,
        agent: "agent".to_owned(),
        maybe_redelivered: false,
        has_client_key: false,
        age: Duration::ZERO,
    }
}

pub(crate) fn elsewhere() -> RoutingKey {
    key("tool.invoke.elsewhere")
}
