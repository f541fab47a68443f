//! What handlers were lost with runs alone: the innocent are answered, and only what kills is given
//! up.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use rockbot_bus::{Bus, Consumer, Publication, PublishError, Settlement};
use rockbot_contracts::{
    Envelope, InstanceId, QueueSpec, SessionId, ToolCallId, ToolError, ToolErrorCode, ToolHints,
    ToolInvokeRequest, ToolInvokeResponse, TraceContext,
    json::Limits,
    topology::{quarantine_of, tool_invoke},
};
use rockbot_store::{Clock, ManualClock, MemoryStore, Store};
use rockbot_testkit::{
    InterceptedBus,
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

use crate::fleet::{handler_at, registration, registry_of, tool};

/// A bus where one handler after the other comes and goes, their journal, and one who asks.
struct Stage {
    bed: BusFixture,
    store: Arc<dyn Store>,
    clock: ManualClock,
    answers: Consumer,
    witness: Arc<Witness>,
}

/// What the tools do.
#[derive(Default)]
struct Witness {
    /// How often each call ran.
    runs: Mutex<BTreeMap<String, u32>>,
    /// `kill` runs.
    killed: Notify,
    /// `wait` runs, and may end.
    waits: Notify,
    gate: Option<Arc<Semaphore>>,
}

type Running = (Arc<ToolInvokeHandler>, InvokeWorkers);

impl Stage {
    async fn set() -> Self {
        let (bed, clock) = (BusFixture::memory(), ManualClock::new());
        // A handler was here before, one that knew nothing of suspects.
        drop(bed.consume(QueueSpec::work(&tool_invoke()), 1).await);
        let store = Arc::new(MemoryStore::new(Clock::from(&clock)));
        let answers = bed.consume(reply_address("assistant", "one").queue(), 500).await;
        let gate = Some(Arc::new(Semaphore::new(0)));
        let witness = Arc::new(Witness { gate, ..Witness::default() });
        Self { bed, store, clock, answers, witness }
    }

    fn tools(&self) -> Vec<Arc<dyn Tool>> {
        let named = |name: &str, hints| {
            let mut definition = registration(name);
            definition.hints = hints;
            let (name, witness) = (name.to_owned(), self.witness.clone());
            tool(definition, move |_: Value, context: ToolContext| {
                let (name, witness) = (name.clone(), witness.clone());
                async move {
                    let id = context.tool_call_id.to_string();
                    *witness.runs.lock().expect("no panic").entry(id).or_default() += 1;
                    match name.as_str() {
                        "kill" => {
                            witness.killed.notify_one();
                            std::future::pending::<()>().await;
                        }
                        "wait" => {
                            witness.waits.notify_one();
                            let gate = witness.gate.as_ref().expect("a gate");
                            gate.acquire().await.expect("the gate stays").forget();
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
        ]
    }

    async fn handler(&self) -> Running {
        self.handler_on(&self.bed.remote).await
    }

    /// A handler that finds what the ones before it wrote down.
    async fn handler_on(&self, bus: &Arc<dyn Bus>) -> Running {
        let instance = InstanceId::generate();
        let options = JournalOptions { shared: true, ..JournalOptions::default() };
        let journal = CallJournal::start(self.store.clone(), &instance, options);
        // One of the calls is for a tool of an MCP server.
        let addressing = Arc::new(|_: &str, tool: &str| Some(tool.to_owned()));
        let options = InvokeOptions::new(8).with_journal(journal).with_tool_resolver(addressing);
        handler_at(&tool_invoke(), bus, registry_of(self.tools()), &instance, options).await
    }

    async fn ask(&self, tool: &str, id: &str) {
        self.send(request(tool, id)).await;
    }

    async fn send(&self, request: Envelope) {
        let publication = Publication::mandatory(tool_invoke(), request);
        self.bed.local.publish(publication).await.expect("taken");
    }

    async fn requests(&self) -> Consumer {
        self.bed.consume(QueueSpec::work(&tool_invoke()), 100).await
    }

    /// Two handlers take `count` requests and are lost with them.
    async fn lost_twice(&self, count: usize) {
        for _ in 0..2 {
            let mut handler = self.requests().await;
            let mut hands = Vec::new();
            for _ in 0..count {
                hands.push(next_delivery(&mut handler).await);
            }
            drop(handler);
        }
    }

    async fn answer(&mut self) -> Envelope {
        let delivery = next_delivery(&mut self.answers).await;
        let envelope = delivery.envelope().clone();
        delivery.settle(Settlement::Ack).await.expect("acked");
        envelope
    }

    /// The next answer must be the result of this call.
    async fn answers(&mut self, id: &str) {
        let answer = self.answer().await;
        assert_eq!(answer.correlation_id.as_deref(), Some(id));
        answer.decode::<ToolInvokeResponse>(Limits::default()).expect("a result");
    }

    fn runs(&self, id: &str) -> u32 {
        self.witness.runs.lock().expect("no panic").get(id).copied().unwrap_or_default()
    }

    /// How many requests, suspects and dead letters wait.
    async fn left(&self) -> [u32; 3] {
        let (work, suspects) =
            (QueueSpec::work(&tool_invoke()), QueueSpec::quarantine(&tool_invoke()));
        let names = [work.name.clone(), suspects.name, work.dead_letters().name];
        let report = self.bed.local.inspect(&names).await.expect("a report");
        let left = report.queues.iter().map(|queue| queue.depth().map_or(0, |depth| depth.ready));
        left.collect::<Vec<_>>().try_into().expect("three")
    }

    fn lets_go(&self, count: usize) {
        self.witness.gate.as_ref().expect("a gate").add_permits(count);
    }
}

fn request(tool: &str, id: &str) -> Envelope {
    let request = ToolInvokeRequest {
        tool_call_id: ToolCallId::new(id).expect("an id"),
        tool_name: tool.to_owned(),
        arguments: "{}".to_owned(),
        session_id: SessionId::new("session").expect("an id"),
    };
    Envelope::from_payload(&request)
        .with_correlation_id(id)
        .reply_to(reply_address("assistant", "one").tool_result())
        .with_source("assistant")
        .within(Duration::from_secs(60))
}

#[tokio::test]
async fn what_two_handlers_were_lost_with_moves_with_all_that_its_answer_needs() {
    let mut stage = Stage::set().await;
    let suspects = quarantine_of(&tool_invoke());
    let mut monitor = stage.bed.consume(exclusive_queue("monitor", suspects.as_str()), 10).await;
    let mut asked = request("write", "call");
    (asked.attempt, asked.mcp_server) = (2, Some("files".into()));
    asked.trace = TraceContext { parent: Some("00-1-2-01".into()), state: Some("a=b".into()) };
    stage.send(asked.clone()).await;
    stage.lost_twice(1).await;
    let (handler, _workers) = stage.handler().await;
    stage.answers("call").await;

    let moved = next_delivery(&mut monitor).await.envelope().clone();
    let (length, left) = (asked.budget.expect("one").timeout, moved.budget.expect("one").timeout);
    assert!(left <= length && !left.is_zero(), "{left:?}");
    assert_ne!(moved.message_id, asked.message_id);
    let (message_id, budget) = (asked.message_id.clone(), asked.budget);
    assert_eq!(Envelope { message_id, budget, ..moved }, asked);
    assert_eq!(
        (handler.stats().quarantined(), handler.stats().ok(), stage.runs("call")),
        (1, 1, 1)
    );
    wait_until("nothing is left", || handler.running() == 0).await;
    assert_eq!(stage.left().await, [0, 0, 0]);
}

#[tokio::test]
async fn a_call_lost_once_stays_where_it_is() {
    let mut stage = Stage::set().await;
    stage.ask("write", "call").await;
    let mut lost = stage.requests().await;
    drop(next_delivery(&mut lost).await);
    drop(lost);
    let (handler, _workers) = stage.handler().await;
    stage.answers("call").await;
    assert_eq!((handler.stats().quarantined(), stage.runs("call")), (0, 1));
}

#[tokio::test]
async fn a_call_that_kills_each_handler_is_given_up_alone_and_the_innocent_are_answered() {
    const INNOCENT: usize = 60;
    let mut stage = Stage::set().await;
    stage.ask("kill", "poison").await;
    let ids: Vec<_> = (0..INNOCENT).map(|number| format!("call-{number}")).collect();
    for (number, id) in ids.iter().enumerate() {
        stage.ask(if number % 2 == 0 { "read" } else { "write" }, id).await;
    }
    let mut lives = 0;
    while stage.left().await[2] == 0 {
        let handler = stage.handler().await;
        within_timeout("the poison", stage.witness.killed.notified()).await;
        lives += 1;
        let life = Arc::downgrade(&handler.0);
        drop(handler);
        wait_until("its end", || life.strong_count() == 0).await;
        // And the end of its lease.
        stage.clock.advance(Duration::from_secs(11));
    }
    assert_eq!((lives, stage.runs("poison")), (2 + 3, 2 + 3));

    let (handler, _workers) = stage.handler().await;
    let mut answered = BTreeMap::new();
    while answered.len() < INNOCENT {
        let answer = stage.answer().await;
        let id = answer.correlation_id.clone().expect("an id").to_string();
        if let Ok(error) = answer.decode::<ToolError>(Limits::default()) {
            assert_eq!((&error.code, stage.runs(&id)), (&ToolErrorCode::OutcomeUnknown, 1), "{id}");
        }
        *answered.entry(id).or_insert(0) += 1;
    }
    for (number, id) in ids.iter().enumerate() {
        assert!(answered.contains_key(id), "{id} has no answer");
        assert!(number % 2 == 0 || stage.runs(id) == 1, "{id} ran {} times", stage.runs(id));
    }
    wait_until("nothing is left", || handler.running() == 0).await;
    assert_eq!(stage.left().await, [0, 0, 1]);
    let letters = QueueSpec::quarantine(&tool_invoke()).dead_letters();
    assert_eq!(letters, QueueSpec::work(&tool_invoke()).dead_letters());
    let mut letters = stage.bed.consume(letters, 1).await;
    let letter = next_delivery(&mut letters).await;
    assert_eq!(letter.envelope().correlation_id.as_deref(), Some("poison"));
    assert_eq!(letter.envelope().dead_letter_reason.as_deref(), Some("delivered too often"));
}

#[tokio::test]
async fn suspects_run_one_at_a_time_beside_the_others_and_are_finished_when_it_stops() {
    let mut stage = Stage::set().await;
    stage.ask("wait", "first").await;
    stage.ask("read", "second").await;
    stage.lost_twice(2).await;
    let (handler, workers) = stage.handler().await;
    within_timeout("the first suspect", stage.witness.waits.notified()).await;
    stage.ask("read", "fresh").await;
    stage.answers("fresh").await;
    assert_eq!((stage.left().await, stage.runs("second")), ([0, 1, 0], 0));
    assert_eq!((handler.running(), handler.load().running), (1, 1));
    let drained = tokio::spawn(workers.drain(Duration::from_secs(10)));
    stage.lets_go(1);
    stage.answers("first").await;
    assert!(within_timeout("the end", drained).await.expect("no panic"));
    // Who comes next takes the rest.
    let _next = stage.handler().await;
    stage.answers("second").await;
}

#[tokio::test]
async fn a_call_that_runs_here_is_not_moved_when_it_comes_again() {
    let mut stage = Stage::set().await;
    // One delivery is held by somebody else, the second time already.
    stage.ask("wait", "call").await;
    stage.lost_twice(1).await;
    let mut held = stage.bed.consume(QueueSpec::work(&tool_invoke()), 1).await;
    let third = next_delivery(&mut held).await;
    let (handler, _workers) = stage.handler().await;
    stage.ask("wait", "call").await;
    within_timeout("a run", stage.witness.waits.notified()).await;
    drop(held);
    drop(third);
    assert_never("an answer before the end", stage.answers.next()).await;
    assert_eq!((handler.stats().quarantined(), stage.left().await), (0, [0, 0, 0]));
    stage.lets_go(1);
    stage.answers("call").await;
    assert_eq!((handler.stats().quarantined(), stage.runs("call")), (0, 1));
}

/// The stage's bus, where messages to the suspects wait for room, or are refused.
fn narrow(stage: &Stage, room: Option<Arc<Semaphore>>) -> Arc<dyn Bus> {
    InterceptedBus::wrap(stage.bed.remote.clone(), move |bus, publication| {
        let room = room.clone();
        async move {
            let key = publication.key.clone();
            if key == quarantine_of(&tool_invoke()) {
                let Some(room) = room else { return Err(PublishError::Refused { key }) };
                room.acquire().await.expect("the room stays").forget();
            }
            bus.publish(publication).await
        }
    })
}

#[tokio::test]
async fn nothing_starts_while_suspects_are_being_moved() {
    let mut stage = Stage::set().await;
    stage.ask("read", "suspect").await;
    stage.ask("write", "other-suspect").await;
    stage.lost_twice(2).await;
    let room = Arc::new(Semaphore::new(0));
    let _handler = stage.handler_on(&narrow(&stage, Some(room.clone()))).await;
    stage.ask("read", "fresh").await;
    assert_never("an answer", stage.answers.next()).await;
    room.add_permits(1);
    assert_never("an answer before the last is moved", stage.answers.next()).await;
    room.add_permits(1);
    let mut answered = Vec::new();
    for _ in 0..3 {
        answered.push(stage.answer().await.correlation_id.expect("an id"));
    }
    answered.sort_unstable();
    let answered: Vec<_> = answered.iter().map(|id| &**id).collect();
    assert_eq!(answered, ["fresh", "other-suspect", "suspect"]);
}

#[tokio::test]
async fn a_suspect_that_can_not_be_moved_runs_where_it_is() {
    let mut stage = Stage::set().await;
    stage.ask("write", "suspect").await;
    stage.lost_twice(1).await;
    let (handler, _workers) = stage.handler_on(&narrow(&stage, None)).await;
    stage.answers("suspect").await;
    wait_until("the settlement", || handler.running() == 0).await;
    assert_eq!((handler.stats().quarantined(), stage.left().await), (0, [0, 0, 0]));
}
