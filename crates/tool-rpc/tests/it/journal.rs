//! A call that comes again: here, elsewhere, at once, later, with other arguments.

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

/// Handlers on one bus and one store, and a tool that counts its runs and waits at a gate.
struct Stage {
    bed: BusFixture,
    store: Arc<dyn Store>,
    clock: ManualClock,
    gate: Arc<Semaphore>,
    begun: Arc<Notify>,
    runs: Arc<AtomicU32>,
    asker: RoutingKey,
    answers: Consumer,
}

struct Running {
    handler: Arc<ToolInvokeHandler>,
    workers: InvokeWorkers,
    journal: Arc<CallJournal>,
}

impl Stage {
    async fn set() -> Self {
        let (bed, clock) = (BusFixture::memory(), ManualClock::new());
        let store = Arc::new(MemoryStore::new(Clock::from(&clock)));
        let asker = key("tool.result.agent.one");
        let queue = QueueSpec::reply(&asker, vec![(&asker).into()]);
        let answers = bed.consume(queue, 10).await;
        let (gate, begun) = (Arc::new(Semaphore::new(1000)), Arc::default());
        Self { bed, store, clock, gate, begun, runs: Arc::default(), asker, answers }
    }

    fn tools(&self) -> Vec<Arc<dyn Tool>> {
        let named = |name: &str, hints| {
            let (gate, begun, runs) = (self.gate.clone(), self.begun.clone(), self.runs.clone());
            let mut definition = registration(name);
            definition.hints = hints;
            tool(definition, move |arguments: Value, _| {
                let (gate, begun, runs) = (gate.clone(), begun.clone(), runs.clone());
                async move {
                    let run = runs.fetch_add(1, Ordering::SeqCst) + 1;
                    begun.notify_one();
                    gate.acquire().await.expect("the gate stays").forget();
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
                // Six bytes each as JSON.
                Ok(ToolResult::text("\u{1}".repeat(500_000)))
            }),
        ]
    }

    async fn handler(&self, key: &RoutingKey, shared: bool) -> Running {
        self.handler_on(&self.bed.remote, key, shared).await
    }

    async fn handler_on(&self, bus: &Arc<dyn Bus>, key: &RoutingKey, shared: bool) -> Running {
        let instance = InstanceId::generate();
        let options = JournalOptions { shared, ..JournalOptions::default() };
        let journal = CallJournal::start(self.store.clone(), &instance, options);
        let options = InvokeOptions::new(8).with_journal(journal.clone());
        let registry = registry_of(self.tools());
        let (handler, workers) = handler_at(key, bus, registry, &instance, options).await;
        Running { handler, workers, journal }
    }

    async fn ask(&self, at: &RoutingKey, call: &Call) {
        self.ask_within(at, call, Duration::from_secs(60)).await;
    }

    async fn ask_within(&self, at: &RoutingKey, call: &Call, time: Duration) {
        let mut envelope = Envelope::from_payload(&call.request)
            .with_correlation_id(call.request.tool_call_id.as_str())
            .reply_to(self.asker.clone())
            .with_source(call.agent.as_str())
            .within(time);
        if call.again {
            envelope = envelope.next_attempt();
        }
        let publication = Publication::mandatory(at.clone(), envelope);
        self.bed.local.publish(publication).await.expect("taken");
    }

    async fn answer(&mut self) -> Envelope {
        let delivery = next_delivery(&mut self.answers).await;
        let envelope = delivery.envelope().clone();
        delivery.settle(Settlement::Ack).await.expect("acked");
        envelope
    }

    async fn result(&mut self) -> String {
        let answer = self.answer().await;
        assert_eq!(answer.message_type(), ToolInvokeResponse::TYPE);
        answer.decode::<ToolInvokeResponse>(Limits::default()).expect("an answer").content
    }

    async fn error(&mut self) -> (ToolErrorCode, Executed) {
        let answer = self.answer().await;
        assert_eq!(answer.message_type(), ToolError::TYPE);
        let error: ToolError = answer.decode(Limits::default()).expect("an error");
        (error.code, error.executed)
    }

    fn runs(&self) -> u32 {
        self.runs.load(Ordering::SeqCst)
    }

    fn shut_gate(&self) {
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
    again: bool,
}

fn call(tool: &str) -> Call {
    let request = ToolInvokeRequest {
        tool_call_id: ToolCallId::generate(),
        tool_name: tool.to_owned(),
        arguments: "{}".to_owned(),
        session_id: SessionId::new("session").expect("an id"),
    };
    Call { request, agent: "agent".to_owned(), again: false }
}

fn elsewhere() -> RoutingKey {
    key("tool.invoke.elsewhere")
}

#[tokio::test]
async fn a_call_that_ended_is_answered_the_same_here_elsewhere_and_an_hour_later() {
    let mut stage = Stage::set().await;
    let here = stage.handler(&tool_invoke(), true).await;
    let call = call("write");
    stage.ask(&tool_invoke(), &call).await;
    assert_eq!(stage.result().await, "done, run 1");
    stage.ask(&tool_invoke(), &call).await;
    assert_eq!(stage.result().await, "done, run 1");
    let there = stage.handler(&elsewhere(), true).await;
    stage.ask(&elsewhere(), &call).await;
    assert_eq!(stage.result().await, "done, run 1");
    stage.clock.advance(Duration::from_secs(3600));
    stage.ask(&elsewhere(), &call).await;
    assert_eq!(stage.result().await, "done, run 1");
    assert_eq!(
        (stage.runs(), here.handler.stats().replayed(), there.handler.stats().replayed()),
        (1, 1, 2)
    );
    // After a day it is forgotten.
    stage.clock.advance(Duration::from_secs(24 * 3600));
    assert_eq!(stage.entries().await, 0);
}

#[tokio::test]
async fn the_same_call_at_once_at_two_handlers_runs_once_and_both_answer() {
    let mut stage = Stage::set().await;
    stage.shut_gate();
    let here = stage.handler(&tool_invoke(), true).await;
    let there = stage.handler(&elsewhere(), true).await;
    let call = call("write");
    stage.ask(&tool_invoke(), &call).await;
    stage.ask(&elsewhere(), &call).await;
    within_timeout("a run", stage.begun.notified()).await;
    assert_never("an answer before the end", stage.answers.next()).await;
    stage.gate.add_permits(2);
    for _ in 0..2 {
        assert_eq!(stage.result().await, "done, run 1");
    }
    assert_eq!(stage.runs(), 1);
    assert!(here.workers.drain(Duration::from_secs(5)).await);
    assert!(there.workers.drain(Duration::from_secs(5)).await);
}

#[tokio::test]
async fn a_call_asked_again_while_its_answer_goes_out_is_answered_again() {
    let mut stage = Stage::set().await;
    let confirm = Arc::new(Semaphore::new(0));
    let (asker, late) = (stage.asker.clone(), confirm.clone());
    let slow = InterceptedBus::wrap(stage.bed.remote.clone(), move |bus, publication| {
        let late = late.clone();
        let is_answer = publication.key == asker;
        async move {
            bus.publish(publication).await?;
            if is_answer {
                late.acquire().await.expect("it stays").forget();
            }
            Ok(())
        }
    });
    let _here = stage.handler_on(&slow, &tool_invoke(), true).await;
    let call = call("write");
    stage.ask(&tool_invoke(), &call).await;
    assert_eq!(stage.result().await, "done, run 1");
    // Whoever asked may have been gone when that came, and asks again before it is confirmed.
    stage.ask(&tool_invoke(), &call).await;
    assert_never("another answer before it is", stage.answers.next()).await;
    confirm.add_permits(2);
    assert_eq!(stage.result().await, "done, run 1");
    assert_eq!(stage.runs(), 1);
}

#[tokio::test]
async fn of_a_call_that_runs_elsewhere_nobody_says_that_it_did_not_run() {
    let mut stage = Stage::set().await;
    stage.shut_gate();
    let _here = stage.handler(&tool_invoke(), true).await;
    let _there = stage.handler(&elsewhere(), true).await;
    let call = call("write");
    stage.ask(&tool_invoke(), &call).await;
    within_timeout("a run", stage.begun.notified()).await;
    // Not marked as coming again, and with little time.
    stage.ask_within(&elsewhere(), &call, Duration::from_millis(300)).await;
    assert_eq!(stage.error().await, (ToolErrorCode::Timeout, Executed::Unknown));
    stage.gate.add_permits(1);
    assert_eq!(stage.result().await, "done, run 1");
}

#[tokio::test]
async fn a_call_whose_handler_died_runs_again_only_where_that_does_no_harm() {
    for (name, expected) in [("write", None), ("set", Some("done, run 2"))] {
        let mut stage = Stage::set().await;
        stage.shut_gate();
        let here = stage.handler(&tool_invoke(), true).await;
        let call = call(name);
        stage.ask(&tool_invoke(), &call).await;
        within_timeout("a run", stage.begun.notified()).await;
        // It dies without a word: its lease is still there.
        drop(here);
        let _there = stage.handler(&elsewhere(), true).await;
        let again = Call { again: true, ..call };
        stage.ask(&elsewhere(), &again).await;
        assert_never("an answer while it may live", stage.answers.next()).await;
        stage.gate.add_permits(10);
        stage.clock.advance(Duration::from_secs(11));
        match expected {
            Some(text) => assert_eq!(stage.result().await, text),
            None => {
                let unknown = (ToolErrorCode::OutcomeUnknown, Executed::Unknown);
                assert_eq!(stage.error().await, unknown);
                // And it stays at that.
                stage.ask(&elsewhere(), &again).await;
                assert_eq!(stage.error().await, unknown);
                assert_eq!(stage.runs(), 1);
            }
        }
    }
}

#[tokio::test]
async fn a_handler_that_stopped_in_order_is_not_waited_for() {
    let mut stage = Stage::set().await;
    stage.shut_gate();
    let here = stage.handler(&tool_invoke(), true).await;
    let call = call("write");
    stage.ask(&tool_invoke(), &call).await;
    within_timeout("a run", stage.begun.notified()).await;
    assert!(!here.workers.drain(Duration::ZERO).await, "the call was under way");
    here.journal.stop().await;
    let _there = stage.handler(&tool_invoke(), true).await;
    assert_eq!(stage.error().await, (ToolErrorCode::OutcomeUnknown, Executed::Unknown));
}

#[tokio::test]
async fn an_id_with_other_arguments_or_of_another_agent_is_refused() {
    let mut stage = Stage::set().await;
    let _here = stage.handler(&tool_invoke(), true).await;
    let call = call("write");
    stage.ask(&tool_invoke(), &call).await;
    assert_eq!(stage.result().await, "done, run 1");
    let mut others = vec![call.clone(), call.clone(), call];
    others[0].request.arguments = r#"{"text":"other"}"#.to_owned();
    others[1].request.tool_name = "set".to_owned();
    others[2].agent = "mallory".to_owned();
    for other in others {
        stage.ask(&tool_invoke(), &other).await;
        assert_eq!(stage.error().await, (ToolErrorCode::NotPermitted, Executed::No));
    }
    assert_eq!(stage.runs(), 1);
}

#[tokio::test]
async fn a_tool_that_only_reads_is_not_written_down() {
    let mut stage = Stage::set().await;
    let _here = stage.handler(&tool_invoke(), true).await;
    stage.ask(&tool_invoke(), &call("read")).await;
    assert_eq!(stage.result().await, "done, run 1");
    assert_eq!(stage.entries().await, 0);
    stage.ask(&tool_invoke(), &call("write")).await;
    assert_eq!(stage.result().await, "done, run 2");
    assert_eq!(stage.entries().await, 1);
}

#[tokio::test]
async fn a_call_that_came_before_and_is_in_no_journal_has_not_run_only_if_the_journal_is_shared() {
    let mut stage = Stage::set().await;
    let again = || Call { again: true, ..call("write") };
    let _shared = stage.handler(&tool_invoke(), true).await;
    stage.ask(&tool_invoke(), &again()).await;
    assert_eq!(stage.result().await, "done, run 1");
    let _alone = stage.handler(&elsewhere(), false).await;
    stage.ask(&elsewhere(), &again()).await;
    assert_eq!(stage.error().await, (ToolErrorCode::OutcomeUnknown, Executed::Unknown));
    assert_eq!(stage.runs(), 1);
}

#[tokio::test]
async fn without_its_journal_a_handler_begins_nothing_that_changes_something() {
    let mut stage = Stage::set().await;
    stage.store.close().await;
    let _here = stage.handler(&tool_invoke(), true).await;
    stage.ask(&tool_invoke(), &call("write")).await;
    assert_eq!(stage.error().await, (ToolErrorCode::Unavailable, Executed::No));
    stage.ask(&tool_invoke(), &Call { again: true, ..call("write") }).await;
    assert_eq!(stage.error().await, (ToolErrorCode::Unavailable, Executed::Unknown));
    assert_eq!(stage.runs(), 0);
    stage.ask(&tool_invoke(), &call("read")).await;
    assert_eq!(stage.result().await, "done, run 1");
}

#[tokio::test]
async fn of_an_answer_too_large_to_keep_it_is_kept_that_it_ran() {
    let mut stage = Stage::set().await;
    let _here = stage.handler(&tool_invoke(), true).await;
    let call = call("noisy");
    stage.ask(&tool_invoke(), &call).await;
    assert_eq!(stage.result().await.len(), 500_000);
    stage.ask(&tool_invoke(), &call).await;
    assert_eq!(stage.error().await, (ToolErrorCode::ExecutionFailed, Executed::Yes));
}

#[tokio::test]
async fn an_id_with_other_arguments_is_refused_while_the_call_runs() {
    let mut stage = Stage::set().await;
    stage.shut_gate();
    let _here = stage.handler(&tool_invoke(), true).await;
    let call = call("write");
    stage.ask(&tool_invoke(), &call).await;
    within_timeout("a run", stage.begun.notified()).await;
    let mut other = call.clone();
    other.request.arguments = r#"{"text":"other"}"#.to_owned();
    stage.ask(&tool_invoke(), &other).await;
    assert_eq!(stage.error().await, (ToolErrorCode::NotPermitted, Executed::No));
    stage.gate.add_permits(1);
    assert_eq!(stage.result().await, "done, run 1");
}

#[tokio::test]
async fn calls_that_wait_for_a_dead_handlers_lease_take_no_room_from_others() {
    let mut stage = Stage::set().await;
    stage.shut_gate();
    let here = stage.handler(&tool_invoke(), true).await;
    // As many as run of one tool.
    let lost: Vec<_> = (0..6).map(|_| call("write")).collect();
    for call in &lost {
        stage.ask(&tool_invoke(), call).await;
        within_timeout("a run", stage.begun.notified()).await;
    }
    drop(here);
    let _there = stage.handler(&elsewhere(), true).await;
    for call in lost {
        stage.ask(&elsewhere(), &Call { again: true, ..call }).await;
    }
    assert_never("an answer while it may live", stage.answers.next()).await;
    stage.gate.add_permits(1);
    stage.ask(&elsewhere(), &call("write")).await;
    assert_eq!(stage.result().await, "done, run 7");
}
