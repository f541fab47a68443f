//! Quarantine: harmless requests of lost handlers are answered, and only one that crashes handlers is
//! dead-lettered.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures_util::future::BoxFuture;
use rockbot_bus::{Bus, Consumer, Publication, PublishError, Settlement};
use rockbot_contracts::{
    Envelope, Executed, InstanceId, QueueSpec, SessionId, ToolCallId, ToolError, ToolErrorCode,
    ToolHints, ToolInvokeRequest, ToolInvokeResponse, TraceContext,
    json::Limits,
    topology::{quarantine_of, tool_invoke},
};
use rockbot_store::{Clock, Entry, Key, ManualClock, MemoryStore, Store, StoreError};
use rockbot_testkit::{
    InterceptedBus, InterceptedStore, StoreInterceptor,
    fixture::{
        BusFixture, assert_never, exclusive_queue, next_delivery, reply_address, wait_until,
        within_timeout,
    },
};
use rockbot_tool_rpc::{
    CallJournal, InvokeOptions, JournalOptions, ToolInvokeHandler, invoke::InvokeWorkers,
};
use rockbot_tools::{Tool, ToolContext, ToolResult};
use serde_json::Value;
use tokio::sync::{Notify, Semaphore};

use crate::{
    fleet::{handler_at, registration, registry_of, tool},
    lossy_bus::LossyBus,
};

/// A bus with a sequence of handlers, their journal, and a caller.
struct Fixture {
    bus: BusFixture,
    store: Arc<dyn Store>,
    clock: ManualClock,
    /// Set when the handlers declare that they share their journal.
    shared: bool,
    replies: Consumer,
    control: Arc<ToolControl>,
}

/// Events and gate of the tools.
#[derive(Default)]
struct ToolControl {
    /// Number of runs of each call.
    runs: Mutex<BTreeMap<String, u32>>,
    /// `kill` started.
    killed: Notify,
    /// `wait` started.
    waiting: Notify,
    /// Permits for `wait` to end.
    gate: Option<Arc<Semaphore>>,
}

type RunningHandler = (Arc<ToolInvokeHandler>, InvokeWorkers);

impl Fixture {
    async fn new() -> Self {
        let (bus, clock) = (BusFixture::memory(), ManualClock::new());
        // An earlier handler declared the work queue, but no quarantine queue.
        drop(bus.consume(QueueSpec::work(&tool_invoke()), 1).await);
        let store = Arc::new(MemoryStore::new(Clock::from(&clock)));
        let replies = bus.consume(reply_address("assistant", "one").queue(), 500).await;
        let gate = Some(Arc::new(Semaphore::new(0)));
        let control = Arc::new(ToolControl { gate, ..ToolControl::default() });
        Self { bus, store, clock, shared: true, replies, control }
    }

    /// Returns a fixture for requests that are lost in processes that do not record them.
    async fn unshared() -> Self {
        Self { shared: false, ..Self::new().await }
    }

    fn tools(&self) -> Vec<Arc<dyn Tool>> {
        let named = |name: &str, hints| {
            let mut definition = registration(name);
            definition.hints = hints;
            let (name, control) = (name.to_owned(), self.control.clone());
            tool(definition, move |_: Value, context: ToolContext| {
                let (name, control) = (name.clone(), control.clone());
                async move {
                    let id = context.tool_call_id.to_string();
                    *control.runs.lock().expect("no panic").entry(id).or_default() += 1;
                    match name.as_str() {
                        "kill" => {
                            control.killed.notify_one();
                            std::future::pending::<()>().await;
                        }
                        "wait" => {
                            control.waiting.notify_one();
                            let gate = control.gate.as_ref().expect("a gate");
                            gate.acquire().await.expect("an open gate").forget();
                        }
                        _ => {}
                    }
                    Ok(ToolResult::text("done"))
                }
            })
        };
        vec![
            named("kill", ToolHints::READ_ONLY),
            named("wait", ToolHints::READ_ONLY),
            named("read", ToolHints::READ_ONLY),
            named("write", ToolHints::default()),
            named("set", ToolHints { idempotent: true, ..ToolHints::default() }),
        ]
    }

    async fn handler(&self) -> RunningHandler {
        self.handler_on(&self.bus.remote).await
    }

    /// Starts a handler with the store of the earlier ones.
    async fn handler_on(&self, bus: &Arc<dyn Bus>) -> RunningHandler {
        let instance = InstanceId::generate();
        let options = JournalOptions { shared: self.shared, ..JournalOptions::default() };
        let journal = CallJournal::start(self.store.clone(), &instance, options);
        // One of the calls is for a tool of an MCP server.
        let resolver = Arc::new(|_: &str, tool: &str| Some(tool.to_owned()));
        let options = InvokeOptions::new(8).with_journal(journal).with_tool_resolver(resolver);
        handler_at(&tool_invoke(), bus, registry_of(self.tools()), &instance, options).await
    }

    async fn call(&self, tool: &str, id: &str) {
        self.send(request(tool, id)).await;
    }

    async fn send(&self, request: Envelope) {
        let publication = Publication::mandatory(tool_invoke(), request);
        self.bus.local.publish(publication).await.expect("published");
    }

    async fn requests(&self) -> Consumer {
        self.bus.consume(QueueSpec::work(&tool_invoke()), 100).await
    }

    /// Publishes a call to the quarantine queue, as a handler does after lost handlers.
    async fn quarantine(&self, tool: &str, id: &str) {
        drop(self.bus.consume(QueueSpec::quarantine(&tool_invoke()), 1).await);
        let publication = Publication::mandatory(quarantine_of(&tool_invoke()), request(tool, id));
        self.bus.local.publish(publication).await.expect("published");
    }

    /// Waits until there is a dead letter.
    async fn dead_lettered(&self) {
        let mut ticks = tokio::time::interval(Duration::from_millis(5));
        while self.queued().await[2] == 0 {
            ticks.tick().await;
        }
    }

    /// Consumes `count` requests and loses the consumer, twice.
    async fn lose_twice(&self, count: usize) {
        for _ in 0..2 {
            let mut handler = self.requests().await;
            let mut deliveries = Vec::new();
            for _ in 0..count {
                deliveries.push(next_delivery(&mut handler).await);
            }
            drop(handler);
        }
    }

    async fn reply(&mut self) -> Envelope {
        let delivery = next_delivery(&mut self.replies).await;
        let envelope = delivery.envelope().clone();
        delivery.settle(Settlement::Ack).await.expect("settled");
        envelope
    }

    /// Asserts that the next reply is the result of the call `id`.
    async fn expect_result(&mut self, id: &str) {
        let reply = self.reply().await;
        assert_eq!(reply.correlation_id.as_deref(), Some(id));
        reply.decode::<ToolInvokeResponse>(Limits::default()).expect("a result");
    }

    fn runs(&self, id: &str) -> u32 {
        self.control.runs.lock().expect("no panic").get(id).copied().unwrap_or_default()
    }

    /// Returns the numbers of requests in the work, quarantine and dead-letter queues.
    async fn queued(&self) -> [u32; 3] {
        let (work, quarantine) =
            (QueueSpec::work(&tool_invoke()), QueueSpec::quarantine(&tool_invoke()));
        let names = [work.name.clone(), quarantine.name, work.dead_letters().name];
        let report = self.bus.local.inspect(&names).await.expect("a report");
        let ready = report.queues.iter().map(|queue| queue.depth().map_or(0, |depth| depth.ready));
        ready.collect::<Vec<_>>().try_into().expect("three queues")
    }

    fn release(&self, count: usize) {
        self.control.gate.as_ref().expect("a gate").add_permits(count);
    }
}

fn request(tool: &str, id: &str) -> Envelope {
    let request = ToolInvokeRequest {
        tool_call_id: ToolCallId::new(id).expect("a valid id"),
        tool_name: tool.to_owned(),
        arguments: "{}".to_owned(),
        session_id: SessionId::new("session").expect("a valid id"),
    };
    Envelope::from_payload(&request)
        .with_correlation_id(id)
        .reply_to(reply_address("assistant", "one").tool_result())
        .with_source("assistant")
        .within(Duration::from_secs(60))
}

#[tokio::test]
async fn quarantined_request_keeps_its_headers() {
    let mut fixture = Fixture::unshared().await;
    let quarantine = quarantine_of(&tool_invoke());
    let mut monitor =
        fixture.bus.consume(exclusive_queue("monitor", quarantine.as_str()), 10).await;
    let mut sent = request("read", "call");
    (sent.attempt, sent.mcp_server) = (2, Some("files".into()));
    sent.trace = TraceContext { parent: Some("00-1-2-01".into()), state: Some("a=b".into()) };
    fixture.send(sent.clone()).await;
    fixture.lose_twice(1).await;
    let (handler, _workers) = fixture.handler().await;
    fixture.expect_result("call").await;

    let moved = next_delivery(&mut monitor).await.envelope().clone();
    let (timeout, left) =
        (sent.budget.expect("a budget").timeout, moved.budget.expect("a budget").timeout);
    assert!(left <= timeout && !left.is_zero(), "{left:?}");
    assert_ne!(moved.message_id, sent.message_id);
    let (message_id, budget) = (sent.message_id.clone(), sent.budget);
    assert_eq!(Envelope { message_id, budget, ..moved }, sent);
    assert_eq!(
        (handler.stats().quarantined(), handler.stats().ok(), fixture.runs("call")),
        (1, 1, 1)
    );
    wait_until("no running call", || handler.in_progress() == 0).await;
    assert_eq!(fixture.queued().await, [0, 0, 0]);
}

#[tokio::test]
async fn call_lost_once_is_not_quarantined() {
    let mut fixture = Fixture::new().await;
    fixture.call("write", "call").await;
    let mut lost = fixture.requests().await;
    drop(next_delivery(&mut lost).await);
    drop(lost);
    let (handler, _workers) = fixture.handler().await;
    fixture.expect_result("call").await;
    assert_eq!((handler.stats().quarantined(), fixture.runs("call")), (0, 1));
}

#[tokio::test]
async fn deliveries_of_living_handlers_are_not_counted() {
    let mut fixture = Fixture::new().await;
    let mut lost = Vec::new();
    fixture.call("wait", "call").await;
    // As when a broker closes the connections of its clients one after the other.
    for _ in 0..3 {
        let (bus, connection) = LossyBus::wrap(fixture.bus.remote.clone());
        let (handler, workers) = fixture.handler_on(&bus).await;
        within_timeout("the call", fixture.control.waiting.notified()).await;
        lost.push((handler, workers));
        connection.lose();
    }
    let (handler, _workers) = fixture.handler().await;
    within_timeout("the call", fixture.control.waiting.notified()).await;
    assert_eq!(handler.stats().quarantined(), 0);
    assert!(lost.iter().all(|(handler, _)| handler.stats().quarantined() == 0));
    fixture.release(4);
    fixture.expect_result("call").await;
}

#[tokio::test]
async fn quarantined_call_survives_disconnects_of_living_handlers() {
    let mut fixture = Fixture::new().await;
    let mut lost = Vec::new();
    fixture.quarantine("wait", "call").await;
    // As when the broker crashes, which costs a request one delivery for each handler.
    for _ in 0..3 {
        let (bus, connection) = LossyBus::wrap(fixture.bus.remote.clone());
        lost.push(fixture.handler_on(&bus).await);
        within_timeout("the call", fixture.control.waiting.notified()).await;
        connection.lose();
    }
    let _handler = fixture.handler().await;
    within_timeout("the call", fixture.control.waiting.notified()).await;
    fixture.release(4);
    fixture.expect_result("call").await;
    assert_eq!(fixture.queued().await, [0, 0, 0]);
}

#[tokio::test]
async fn only_crashing_request_is_dead_lettered() {
    const HARMLESS: usize = 60;
    let mut fixture = Fixture::new().await;
    fixture.call("kill", "poison").await;
    let ids: Vec<_> = (0..HARMLESS).map(|number| format!("call-{number}")).collect();
    for (number, id) in ids.iter().enumerate() {
        fixture.call(if number % 2 == 0 { "read" } else { "write" }, id).await;
    }
    let mut instances = 0;
    let (handler, _workers) = loop {
        let handler = fixture.handler().await;
        let is_killed = within_timeout("the crashing call, or its end", async {
            tokio::select! {
                () = fixture.control.killed.notified() => true,
                () = fixture.dead_lettered() => false,
            }
        });
        if !is_killed.await {
            break handler;
        }
        instances += 1;
        let instance = Arc::downgrade(&handler.0);
        drop(handler);
        wait_until("the end of the handler", || instance.strong_count() == 0).await;
        // Its lease expires.
        fixture.clock.advance(Duration::from_secs(11));
    };
    assert_eq!((instances, fixture.runs("poison")), (2 + 3, 2 + 3));

    let mut answered = BTreeMap::new();
    while answered.len() < HARMLESS {
        let reply = fixture.reply().await;
        let id = reply.correlation_id.clone().expect("a valid id").to_string();
        if let Ok(error) = reply.decode::<ToolError>(Limits::default()) {
            assert_eq!(
                (&error.code, fixture.runs(&id)),
                (&ToolErrorCode::OutcomeUnknown, 1),
                "{id}"
            );
        }
        *answered.entry(id).or_insert(0) += 1;
    }
    for (number, id) in ids.iter().enumerate() {
        assert!(answered.contains_key(id), "{id} has no reply");
        assert!(number % 2 == 0 || fixture.runs(id) == 1, "{id} ran {} times", fixture.runs(id));
    }
    wait_until("no running call", || handler.in_progress() == 0).await;
    assert_eq!(fixture.queued().await, [0, 0, 1]);
    let letters = QueueSpec::quarantine(&tool_invoke()).dead_letters();
    assert_eq!(letters, QueueSpec::work(&tool_invoke()).dead_letters());
    let mut letters = fixture.bus.consume(letters, 1).await;
    let letter = next_delivery(&mut letters).await;
    assert_eq!(letter.envelope().correlation_id.as_deref(), Some("poison"));
    assert_eq!(letter.envelope().dead_letter_reason.as_deref(), Some("delivered too often"));
}

#[tokio::test]
async fn quarantined_calls_run_one_at_a_time() {
    let mut fixture = Fixture::unshared().await;
    fixture.call("wait", "first").await;
    fixture.call("read", "second").await;
    fixture.lose_twice(2).await;
    let (handler, workers) = fixture.handler().await;
    within_timeout("the first quarantined call", fixture.control.waiting.notified()).await;
    fixture.call("read", "fresh").await;
    fixture.expect_result("fresh").await;
    assert_eq!((fixture.queued().await, fixture.runs("second")), ([0, 1, 0], 0));
    assert_eq!((handler.in_progress(), handler.load().running), (1, 1));
    let drained = tokio::spawn(workers.drain(Duration::from_secs(10)));
    fixture.release(1);
    fixture.expect_result("first").await;
    assert!(within_timeout("the drain ends", drained).await.expect("no panic"));
    // The next handler processes the rest.
    let _next = fixture.handler().await;
    fixture.expect_result("second").await;
}

#[tokio::test]
async fn redelivery_of_running_call_is_not_quarantined() {
    let mut fixture = Fixture::unshared().await;
    // Another consumer holds the third delivery.
    fixture.call("wait", "call").await;
    fixture.lose_twice(1).await;
    let mut held = fixture.bus.consume(QueueSpec::work(&tool_invoke()), 1).await;
    let third = next_delivery(&mut held).await;
    let (handler, _workers) = fixture.handler().await;
    fixture.call("wait", "call").await;
    within_timeout("the tool", fixture.control.waiting.notified()).await;
    drop(held);
    drop(third);
    assert_never("a reply before the end", fixture.replies.next()).await;
    assert_eq!((handler.stats().quarantined(), fixture.queued().await), (0, [0, 0, 0]));
    fixture.release(1);
    fixture.expect_result("call").await;
    assert_eq!((handler.stats().quarantined(), fixture.runs("call")), (0, 1));
}

/// Returns a bus on which publishing to the quarantine queue needs a permit, or fails without permits.
fn restricted_bus(fixture: &Fixture, permits: Option<Arc<Semaphore>>) -> Arc<dyn Bus> {
    InterceptedBus::wrap(fixture.bus.remote.clone(), move |bus, publication| {
        let permits = permits.clone();
        async move {
            let key = publication.key.clone();
            if key == quarantine_of(&tool_invoke()) {
                let Some(permits) = permits else { return Err(PublishError::Refused { key }) };
                permits.acquire().await.expect("an open semaphore").forget();
            }
            bus.publish(publication).await
        }
    })
}

#[tokio::test]
async fn no_call_starts_during_transfers() {
    let mut fixture = Fixture::unshared().await;
    fixture.call("read", "crashed-1").await;
    fixture.call("read", "crashed-2").await;
    fixture.lose_twice(2).await;
    let permits = Arc::new(Semaphore::new(0));
    let _handler = fixture.handler_on(&restricted_bus(&fixture, Some(permits.clone()))).await;
    fixture.call("read", "fresh").await;
    assert_never("a reply", fixture.replies.next()).await;
    permits.add_permits(1);
    assert_never("a reply before the last transfer", fixture.replies.next()).await;
    permits.add_permits(1);
    let mut answered = Vec::new();
    for _ in 0..3 {
        answered.push(fixture.reply().await.correlation_id.expect("a valid id"));
    }
    answered.sort_unstable();
    let answered: Vec<_> = answered.iter().map(|id| &**id).collect();
    assert_eq!(answered, ["crashed-1", "crashed-2", "fresh"]);
}

#[tokio::test]
async fn call_runs_in_place_if_transfer_fails() {
    let mut fixture = Fixture::unshared().await;
    fixture.call("read", "crashed-1").await;
    fixture.lose_twice(1).await;
    let (handler, _workers) = fixture.handler_on(&restricted_bus(&fixture, None)).await;
    fixture.expect_result("crashed-1").await;
    wait_until("the settlement", || handler.in_progress() == 0).await;
    assert_eq!((handler.stats().quarantined(), fixture.queued().await), (0, [0, 0, 0]));
}

/// A store that cannot read which handlers held a request.
struct HoldersUnavailable;

impl StoreInterceptor for HoldersUnavailable {
    fn get<'a>(
        &'a self,
        store: &'a dyn Store,
        key: &'a Key,
    ) -> BoxFuture<'a, Result<Option<Entry>, StoreError>> {
        if key.as_str().starts_with("deliveries/") {
            let error = StoreError::Unavailable { reason: "on purpose".to_owned() };
            return Box::pin(std::future::ready(Err(error)));
        }
        store.get(key)
    }
}

#[tokio::test]
async fn only_a_call_that_needs_no_journal_is_moved_without_it() {
    for (tool, moved) in [("write", 0), ("read", 1)] {
        let mut fixture = Fixture::new().await;
        fixture.store = InterceptedStore::wrap(fixture.store.clone(), HoldersUnavailable);
        fixture.call(tool, "call").await;
        fixture.lose_twice(1).await;
        let (handler, _workers) = fixture.handler().await;
        fixture.expect_result("call").await;
        assert_eq!(handler.stats().quarantined(), moved, "{tool}");
    }
}

#[tokio::test]
async fn call_that_may_crash_handlers_again_does_not_run_without_the_journal() {
    let mut fixture = Fixture::new().await;
    fixture.store = InterceptedStore::wrap(fixture.store.clone(), HoldersUnavailable);
    fixture.call("set", "call").await;
    fixture.lose_twice(1).await;
    let (handler, _workers) = fixture.handler().await;
    let error: ToolError = fixture.reply().await.decode(Limits::default()).expect("an error");
    let outcome = (error.code, error.executed);
    assert_eq!(outcome, (ToolErrorCode::Unavailable, Executed::Unknown));
    assert_eq!((handler.stats().quarantined(), fixture.runs("call")), (0, 0));
}

#[tokio::test]
async fn copy_of_ended_call_is_not_moved() {
    let mut fixture = Fixture::unshared().await;
    let handler = fixture.handler().await;
    fixture.call("write", "call").await;
    fixture.expect_result("call").await;
    let instance = Arc::downgrade(&handler.0);
    drop(handler);
    wait_until("the end of the handler", || instance.strong_count() == 0).await;
    fixture.call("write", "call").await;
    fixture.lose_twice(1).await;
    let (handler, _workers) = fixture.handler().await;
    fixture.expect_result("call").await;
    assert_eq!((handler.stats().quarantined(), fixture.runs("call")), (0, 1));
}
