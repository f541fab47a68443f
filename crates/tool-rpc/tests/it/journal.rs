//! Repeated deliveries of a call: to the same or another handler, at once or later, with other arguments.

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
    ToolError, ToolErrorCode, ToolInvokeRequest, ToolInvokeResponse, json::Limits,
    topology::tool_invoke,
};
use rockbot_store::{Clock, ManualClock, MemoryStore, Prefix, Store};
use rockbot_testkit::{
    InterceptedBus,
    fixture::{BusFixture, assert_never, key, next_delivery, within_timeout},
};
use rockbot_tool_rpc::{
    CallJournal, InvokeOptions, JournalOptions, ToolInvokeHandler, invoke::InvokeWorkers,
};
use rockbot_tools::{Tool, ToolHints, ToolResult};
use serde_json::Value;
use tokio::sync::{Notify, Semaphore};

use crate::fleet::{handler_at, registration, registry_of, tool};

/// Handlers on one bus and one store, and tools that count their runs and wait for a permit of the gate.
struct Fixture {
    bus: BusFixture,
    store: Arc<dyn Store>,
    clock: ManualClock,
    gate: Arc<Semaphore>,
    started: Arc<Notify>,
    runs: Arc<AtomicU32>,
    caller: RoutingKey,
    replies: Consumer,
}

struct RunningHandler {
    handler: Arc<ToolInvokeHandler>,
    workers: InvokeWorkers,
    journal: Arc<CallJournal>,
}

impl Fixture {
    async fn new() -> Self {
        let (bus, clock) = (BusFixture::memory(), ManualClock::new());
        let store = Arc::new(MemoryStore::new(Clock::from(&clock)));
        let caller = key("tool.result.agent.one");
        let queue = QueueSpec::reply(&caller, vec![(&caller).into()]);
        let replies = bus.consume(queue, 10).await;
        let (gate, started) = (Arc::new(Semaphore::new(1000)), Arc::default());
        Self { bus, store, clock, gate, started, runs: Arc::default(), caller, replies }
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
            tool(registration("noisy"), async |_, _| {
                // Six bytes per character as JSON.
                Ok(ToolResult::text("\u{1}".repeat(500_000)))
            }),
        ]
    }

    async fn handler(&self, key: &RoutingKey, shared: bool) -> RunningHandler {
        self.handler_on(&self.bus.remote, key, shared).await
    }

    async fn handler_on(
        &self,
        bus: &Arc<dyn Bus>,
        key: &RoutingKey,
        shared: bool,
    ) -> RunningHandler {
        let instance = InstanceId::generate();
        let options = JournalOptions { shared, ..JournalOptions::default() };
        let journal = CallJournal::start(self.store.clone(), &instance, options);
        let options = InvokeOptions::new(8).with_journal(journal.clone());
        let registry = registry_of(self.tools());
        let (handler, workers) = handler_at(key, bus, registry, &instance, options).await;
        RunningHandler { handler, workers, journal }
    }

    async fn send(&self, at: &RoutingKey, call: &Call) {
        self.send_within(at, call, Duration::from_secs(60)).await;
    }

    async fn send_within(&self, at: &RoutingKey, call: &Call, timeout: Duration) {
        let mut envelope = Envelope::from_payload(&call.request)
            .with_correlation_id(call.request.tool_call_id.as_str())
            .reply_to(self.caller.clone())
            .with_source(call.agent.as_str())
            .within(timeout);
        if call.maybe_redelivered {
            envelope = envelope.next_attempt();
        }
        let publication = Publication::mandatory(at.clone(), envelope);
        self.bus.local.publish(publication).await.expect("published");
    }

    async fn reply(&mut self) -> Envelope {
        let delivery = next_delivery(&mut self.replies).await;
        let envelope = delivery.envelope().clone();
        delivery.settle(Settlement::Ack).await.expect("settled");
        envelope
    }

    async fn result(&mut self) -> String {
        let reply = self.reply().await;
        assert_eq!(reply.message_type(), ToolInvokeResponse::TYPE);
        reply.decode::<ToolInvokeResponse>(Limits::default()).expect("a result").content
    }

    async fn error(&mut self) -> (ToolErrorCode, Executed) {
        let reply = self.reply().await;
        assert_eq!(reply.message_type(), ToolError::TYPE);
        let error: ToolError = reply.decode(Limits::default()).expect("an error");
        (error.code, error.executed)
    }

    fn runs(&self) -> u32 {
        self.runs.load(Ordering::SeqCst)
    }

    fn close_gate(&self) {
        self.gate.forget_permits(1000);
    }

    async fn entries(&self) -> usize {
        let calls = Prefix::new(["calls"]).expect("a prefix");
        self.store.list(&calls, None, 100).await.expect("a page").len()
    }
}

#[derive(Clone)]
struct Call {
    request: ToolInvokeRequest,
    agent: String,
    maybe_redelivered: bool,
}

fn call(tool: &str) -> Call {
    let request = ToolInvokeRequest {
        tool_call_id: ToolCallId::generate(),
        tool_name: tool.to_owned(),
        arguments: "{}".to_owned(),
        session_id: SessionId::new("session").expect("a valid id"),
    };
    Call { request, agent: "agent".to_owned(), maybe_redelivered: false }
}

fn elsewhere() -> RoutingKey {
    key("tool.invoke.elsewhere")
}

#[tokio::test]
async fn repeated_call_returns_recorded_reply() {
    let mut fixture = Fixture::new().await;
    let here = fixture.handler(&tool_invoke(), true).await;
    let call = call("write");
    fixture.send(&tool_invoke(), &call).await;
    assert_eq!(fixture.result().await, "done, run 1");
    fixture.send(&tool_invoke(), &call).await;
    assert_eq!(fixture.result().await, "done, run 1");
    let there = fixture.handler(&elsewhere(), true).await;
    fixture.send(&elsewhere(), &call).await;
    assert_eq!(fixture.result().await, "done, run 1");
    fixture.clock.advance(Duration::from_secs(3600));
    fixture.send(&elsewhere(), &call).await;
    assert_eq!(fixture.result().await, "done, run 1");
    assert_eq!(
        (fixture.runs(), here.handler.stats().replayed(), there.handler.stats().replayed()),
        (1, 1, 2)
    );
    // The entry expires after a day.
    fixture.clock.advance(Duration::from_secs(24 * 3600));
    assert_eq!(fixture.entries().await, 0);
}

#[tokio::test]
async fn concurrent_call_at_two_handlers_runs_once() {
    let mut fixture = Fixture::new().await;
    fixture.close_gate();
    let here = fixture.handler(&tool_invoke(), true).await;
    let there = fixture.handler(&elsewhere(), true).await;
    let call = call("write");
    fixture.send(&tool_invoke(), &call).await;
    fixture.send(&elsewhere(), &call).await;
    within_timeout("the tool", fixture.started.notified()).await;
    assert_never("a reply before the end", fixture.replies.next()).await;
    fixture.gate.add_permits(2);
    for _ in 0..2 {
        assert_eq!(fixture.result().await, "done, run 1");
    }
    assert_eq!(fixture.runs(), 1);
    assert!(here.workers.drain(Duration::from_secs(5)).await);
    assert!(there.workers.drain(Duration::from_secs(5)).await);
}

#[tokio::test]
async fn retry_during_reply_gets_a_second_reply() {
    let mut fixture = Fixture::new().await;
    let confirm = Arc::new(Semaphore::new(0));
    let (caller, confirmed) = (fixture.caller.clone(), confirm.clone());
    let slow = InterceptedBus::wrap(fixture.bus.remote.clone(), move |bus, publication| {
        let confirmed = confirmed.clone();
        let is_reply = publication.key == caller;
        async move {
            bus.publish(publication).await?;
            if is_reply {
                confirmed.acquire().await.expect("an open gate").forget();
            }
            Ok(())
        }
    });
    let _here = fixture.handler_on(&slow, &tool_invoke(), true).await;
    let call = call("write");
    fixture.send(&tool_invoke(), &call).await;
    assert_eq!(fixture.result().await, "done, run 1");
    // The caller may have missed that reply, and retries before it is confirmed.
    fixture.send(&tool_invoke(), &call).await;
    assert_never("a second reply before the confirm", fixture.replies.next()).await;
    confirm.add_permits(2);
    assert_eq!(fixture.result().await, "done, run 1");
    assert_eq!(fixture.runs(), 1);
}

#[tokio::test]
async fn call_running_elsewhere_is_not_reported_unexecuted() {
    let mut fixture = Fixture::new().await;
    fixture.close_gate();
    let _here = fixture.handler(&tool_invoke(), true).await;
    let _there = fixture.handler(&elsewhere(), true).await;
    let call = call("write");
    fixture.send(&tool_invoke(), &call).await;
    within_timeout("the tool", fixture.started.notified()).await;
    // Not marked as a retry, and with a short timeout.
    fixture.send_within(&elsewhere(), &call, Duration::from_millis(300)).await;
    assert_eq!(fixture.error().await, (ToolErrorCode::Timeout, Executed::Unknown));
    fixture.gate.add_permits(1);
    assert_eq!(fixture.result().await, "done, run 1");
}

#[tokio::test]
async fn call_of_dead_handler_reruns_only_if_idempotent() {
    for (name, expected) in [("write", None), ("set", Some("done, run 2"))] {
        let mut fixture = Fixture::new().await;
        fixture.close_gate();
        let here = fixture.handler(&tool_invoke(), true).await;
        let call = call(name);
        fixture.send(&tool_invoke(), &call).await;
        within_timeout("the tool", fixture.started.notified()).await;
        // Dropped without releasing its lease.
        drop(here);
        let _there = fixture.handler(&elsewhere(), true).await;
        let retry = Call { maybe_redelivered: true, ..call };
        fixture.send(&elsewhere(), &retry).await;
        assert_never("a reply before the lease expires", fixture.replies.next()).await;
        fixture.gate.add_permits(10);
        fixture.clock.advance(Duration::from_secs(11));
        match expected {
            Some(text) => assert_eq!(fixture.result().await, text),
            None => {
                let unknown = (ToolErrorCode::OutcomeUnknown, Executed::Unknown);
                assert_eq!(fixture.error().await, unknown);
                // A further retry has the same outcome.
                fixture.send(&elsewhere(), &retry).await;
                assert_eq!(fixture.error().await, unknown);
                assert_eq!(fixture.runs(), 1);
            }
        }
    }
}

#[tokio::test]
async fn stopped_handler_releases_its_calls() {
    let mut fixture = Fixture::new().await;
    fixture.close_gate();
    let here = fixture.handler(&tool_invoke(), true).await;
    let call = call("write");
    fixture.send(&tool_invoke(), &call).await;
    within_timeout("the tool", fixture.started.notified()).await;
    assert!(!here.workers.drain(Duration::ZERO).await, "the call is in progress");
    here.journal.stop().await;
    let _there = fixture.handler(&tool_invoke(), true).await;
    assert_eq!(fixture.error().await, (ToolErrorCode::OutcomeUnknown, Executed::Unknown));
}

#[tokio::test]
async fn id_reuse_by_another_call_is_rejected() {
    let mut fixture = Fixture::new().await;
    let _here = fixture.handler(&tool_invoke(), true).await;
    let call = call("write");
    fixture.send(&tool_invoke(), &call).await;
    assert_eq!(fixture.result().await, "done, run 1");
    let mut others = vec![call.clone(), call.clone(), call];
    others[0].request.arguments = r#"{"text":"other"}"#.to_owned();
    others[1].request.tool_name = "set".to_owned();
    others[2].agent = "mallory".to_owned();
    for other in others {
        fixture.send(&tool_invoke(), &other).await;
        assert_eq!(fixture.error().await, (ToolErrorCode::NotPermitted, Executed::No));
    }
    assert_eq!(fixture.runs(), 1);
}

#[tokio::test]
async fn read_only_call_is_not_recorded() {
    let mut fixture = Fixture::new().await;
    let _here = fixture.handler(&tool_invoke(), true).await;
    fixture.send(&tool_invoke(), &call("read")).await;
    assert_eq!(fixture.result().await, "done, run 1");
    assert_eq!(fixture.entries().await, 0);
    fixture.send(&tool_invoke(), &call("write")).await;
    assert_eq!(fixture.result().await, "done, run 2");
    assert_eq!(fixture.entries().await, 1);
}

#[tokio::test]
async fn unrecorded_retry_runs_only_with_shared_journal() {
    let mut fixture = Fixture::new().await;
    let retry = || Call { maybe_redelivered: true, ..call("write") };
    let _shared = fixture.handler(&tool_invoke(), true).await;
    fixture.send(&tool_invoke(), &retry()).await;
    assert_eq!(fixture.result().await, "done, run 1");
    let _unshared = fixture.handler(&elsewhere(), false).await;
    fixture.send(&elsewhere(), &retry()).await;
    assert_eq!(fixture.error().await, (ToolErrorCode::OutcomeUnknown, Executed::Unknown));
    assert_eq!(fixture.runs(), 1);
}

#[tokio::test]
async fn unavailable_journal_blocks_all_but_read_only_calls() {
    let mut fixture = Fixture::new().await;
    fixture.store.close().await;
    let _here = fixture.handler(&tool_invoke(), true).await;
    fixture.send(&tool_invoke(), &call("write")).await;
    assert_eq!(fixture.error().await, (ToolErrorCode::Unavailable, Executed::No));
    fixture.send(&tool_invoke(), &Call { maybe_redelivered: true, ..call("write") }).await;
    assert_eq!(fixture.error().await, (ToolErrorCode::Unavailable, Executed::Unknown));
    assert_eq!(fixture.runs(), 0);
    fixture.send(&tool_invoke(), &call("read")).await;
    assert_eq!(fixture.result().await, "done, run 1");
}

#[tokio::test]
async fn oversized_reply_is_recorded_as_finished() {
    let mut fixture = Fixture::new().await;
    let _here = fixture.handler(&tool_invoke(), true).await;
    let call = call("noisy");
    fixture.send(&tool_invoke(), &call).await;
    assert_eq!(fixture.result().await.len(), 500_000);
    fixture.send(&tool_invoke(), &call).await;
    assert_eq!(fixture.error().await, (ToolErrorCode::ExecutionFailed, Executed::Yes));
}

#[tokio::test]
async fn running_call_rejects_same_id_with_other_arguments() {
    let mut fixture = Fixture::new().await;
    fixture.close_gate();
    let _here = fixture.handler(&tool_invoke(), true).await;
    let call = call("write");
    fixture.send(&tool_invoke(), &call).await;
    within_timeout("the tool", fixture.started.notified()).await;
    let mut other = call.clone();
    other.request.arguments = r#"{"text":"other"}"#.to_owned();
    fixture.send(&tool_invoke(), &other).await;
    assert_eq!(fixture.error().await, (ToolErrorCode::NotPermitted, Executed::No));
    fixture.gate.add_permits(1);
    assert_eq!(fixture.result().await, "done, run 1");
}

#[tokio::test]
async fn calls_waiting_for_a_lease_hold_no_permits() {
    let mut fixture = Fixture::new().await;
    fixture.close_gate();
    let here = fixture.handler(&tool_invoke(), true).await;
    // As many as may run of one tool.
    let lost: Vec<_> = (0..6).map(|_| call("write")).collect();
    for call in &lost {
        fixture.send(&tool_invoke(), call).await;
        within_timeout("the tool", fixture.started.notified()).await;
    }
    drop(here);
    let _there = fixture.handler(&elsewhere(), true).await;
    for call in lost {
        fixture.send(&elsewhere(), &Call { maybe_redelivered: true, ..call }).await;
    }
    assert_never("a reply before the lease expires", fixture.replies.next()).await;
    fixture.gate.add_permits(1);
    fixture.send(&elsewhere(), &call("write")).await;
    assert_eq!(fixture.result().await, "done, run 7");
}
