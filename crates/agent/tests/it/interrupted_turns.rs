//! Turns whose process is lost, continued by another process from the log.

use std::{sync::Arc, time::Duration};

use rockbot_agent::{Agent, ExecutionStrategy, TurnAnswer, TurnEnd, TurnEvent};
use rockbot_contracts::{MessageId, ToolHints, user::TurnOutcome};
use rockbot_llm::ScriptedTurn;
use serde_json::json;
use tokio::{task::JoinHandle, time::Instant};

use crate::{
    harness::{
        AgentFixture, Answer, Behavior, CannedModel, EventLog, ProbeTool, RecordingModel, cancel,
        settle,
    },
    stored_harness::{
        CrashingLog, Fault, JournaledTool, Storage, origin, resume, send_as, send_to, session,
    },
};

/// A model that calls `first` and `second`, then `third`, then answers.
fn three_calls() -> Arc<RecordingModel> {
    RecordingModel::script([
        ScriptedTurn::text("Both.").call("first", json!({})).call("second", json!({})),
        ScriptedTurn::default().call("third", json!({})),
        ScriptedTurn::text("All written."),
    ])
}

struct Tools([Arc<JournaledTool>; 3]);

impl Tools {
    fn remote() -> Self {
        Self(["first", "second", "third"].map(JournaledTool::remote))
    }

    fn fixture(&self, strategy: ExecutionStrategy) -> AgentFixture {
        let mut fixture = AgentFixture::new();
        fixture.definition.strategy = strategy;
        for tool in &self.0 {
            tool.register(&fixture.registry);
        }
        fixture
    }

    fn runs(&self) -> [usize; 3] {
        [0, 1, 2].map(|index| self.0[index].runs())
    }
}

/// Runs a message in a process that is killed after the entry of this number.
async fn crash_after(storage: &Storage, fixture: AgentFixture, entries: u64, id: &MessageId) {
    let log = CrashingLog::new(storage, entries);
    let conversations = Some(storage.conversations_on(log.clone()));
    let agent = AgentFixture { conversations, ..fixture }.agent(&three_calls());
    let running = spawn(&agent, id, "go");
    log.wait_for_crash().await;
    running.abort();
    drop(agent);
}

fn spawn(agent: &Agent, id: &MessageId, text: &'static str) -> JoinHandle<()> {
    let (agent, id) = (agent.clone(), id.clone());
    tokio::spawn(async move {
        send_as(&agent, &id, text).await;
    })
}

#[tokio::test(start_paused = true)]
async fn turn_continues_after_a_crash_at_every_entry() {
    let whole = ["message", "model", "result", "result", "model", "result", "answer"];
    for strategy in [ExecutionStrategy::Sequential, ExecutionStrategy::Parallel] {
        for entries in 1..whole.len() as u64 {
            let (storage, tools, id) = (Storage::new(), Tools::remote(), MessageId::generate());
            crash_after(&storage, tools.fixture(strategy), entries, &id).await;
            let kinds = storage.kinds().await;
            assert_eq!(kinds, whole[..kinds.len()], "{strategy:?}");
            assert_eq!(kinds.len() as u64, entries);

            let model = three_calls();
            let agent = storage.agent(tools.fixture(strategy), &model);
            assert_eq!(agent.conversations().unfinished().await.unwrap(), [session()]);
            let events = EventLog::default();
            let (recorded, answer) = resume(&agent, &events).await.expect("an open turn");
            assert_eq!((recorded.id, recorded.attempt), (id.clone(), 2));
            assert_eq!(recorded.reply_to, origin(&id).reply_to);
            assert_eq!(answer.text, "All written.", "after {entries} entries");
            assert_eq!(answer.ended, TurnEnd::Answered);
            assert_eq!(tools.runs(), [1, 1, 1], "{strategy:?} after {entries} entries");
            let first = events.events().into_iter().next();
            assert!(matches!(first, Some(TurnEvent::Resumed { attempt: 2, .. })), "{first:?}");
            let usage = answer.usage.unwrap();
            assert_eq!(usage.turn.tool_calls, 3, "after {entries} entries");

            // Its answer is published, and the message is not resumed again.
            assert_eq!(send_as(&agent, &id, "go").await.text, "All written.");
            agent.conversations().unmark(&session(), &id).await.unwrap();
            assert!(agent.conversations().unfinished().await.unwrap().is_empty());
            assert!(resume(&agent, &EventLog::default()).await.is_none());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn repeated_call_has_a_higher_attempt() {
    let (storage, tools, id) = (Storage::new(), Tools::remote(), MessageId::generate());
    crash_after(&storage, tools.fixture(ExecutionStrategy::Sequential), 2, &id).await;
    let agent = storage.agent(tools.fixture(ExecutionStrategy::Sequential), &three_calls());
    resume(&agent, &EventLog::default()).await.unwrap();
    let attempts = |index: usize| tools.0[index].attempts.lock().unwrap().clone();
    assert_eq!((attempts(0), attempts(1), attempts(2)), (vec![1, 2], vec![2], vec![1]));
}

#[tokio::test(start_paused = true)]
async fn redelivered_message_continues_its_turn() {
    let (storage, tools, id) = (Storage::new(), Tools::remote(), MessageId::generate());
    crash_after(&storage, tools.fixture(ExecutionStrategy::Parallel), 4, &id).await;
    let agent = storage.agent(tools.fixture(ExecutionStrategy::Parallel), &three_calls());
    let events = EventLog::default();
    let answer = send_to(&agent, &id, "go", events.sink()).await;
    assert_eq!((answer.text.as_str(), tools.runs()), ("All written.", [1, 1, 1]));
    assert!(matches!(events.events()[0], TurnEvent::Resumed { attempt: 2, .. }));
}

#[tokio::test(start_paused = true)]
async fn later_message_continues_the_open_turn_first() {
    let (storage, tools, id) = (Storage::new(), Tools::remote(), MessageId::generate());
    crash_after(&storage, tools.fixture(ExecutionStrategy::Parallel), 4, &id).await;
    let model = three_calls();
    let agent = storage.agent(tools.fixture(ExecutionStrategy::Parallel), &model);
    let answer = send_as(&agent, &MessageId::generate(), "and then?").await;
    assert_eq!(answer.outcome, TurnOutcome::Completed);
    assert_eq!(storage.kinds().await[4..7], ["takeover", "acts", "steer"]);
    // The first message gets the same answer.
    assert_eq!(send_as(&agent, &id, "go").await, answer);
}

#[tokio::test(start_paused = true)]
async fn call_of_tool_that_is_missing_now_may_have_run() {
    let (storage, tools, id) = (Storage::new(), Tools::remote(), MessageId::generate());
    crash_after(&storage, tools.fixture(ExecutionStrategy::Sequential), 2, &id).await;
    let model = three_calls();
    let agent = storage.agent(AgentFixture::new(), &model);
    resume(&agent, &EventLog::default()).await.expect("an open turn");
    let results = model.tool_results();
    // The last call was requested by this process alone: it did not run.
    for (result, expected) in results.iter().zip(["unknown", "unknown", "tool not found"]) {
        assert!(result.contains(expected), "{results:?}");
    }
    assert_eq!(results.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn resumed_turn_waits_shortly_for_the_tools_that_it_called() {
    for (announced_after, expected) in [(2, true), (4, false)] {
        let (storage, tools, id) = (Storage::new(), Tools::remote(), MessageId::generate());
        crash_after(&storage, tools.fixture(ExecutionStrategy::Parallel), 4, &id).await;
        let fixture = AgentFixture::new();
        let registry = fixture.registry.clone();
        // Their handler was lost with the process, and starts again.
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(announced_after)).await;
            tools.0.iter().for_each(|tool| tool.register(&registry));
        });
        let model = three_calls();
        let agent = storage.agent(fixture, &model);
        resume(&agent, &EventLog::default()).await.unwrap();
        let requests = model.requests.lock().unwrap();
        assert_eq!(!requests[0].tools.is_empty(), expected, "after {announced_after} s");
    }
}

#[tokio::test(start_paused = true)]
async fn local_tool_runs_again_only_if_harmless() {
    for (hints, runs, expected) in [
        (ToolHints::default(), 1, "outcome unknown"),
        (ToolHints { idempotent: true, ..ToolHints::default() }, 2, "first is written"),
        (ToolHints::READ_ONLY, 2, "first is written"),
    ] {
        let (storage, id) = (Storage::new(), MessageId::generate());
        let tool = JournaledTool::local("first", hints);
        let script = || {
            RecordingModel::script([
                ScriptedTurn::default().call("first", json!({})),
                ScriptedTurn::text("Done."),
            ])
        };
        let fixture = || {
            let fixture = AgentFixture::new();
            tool.register(&fixture.registry);
            fixture
        };
        let log = CrashingLog::new(&storage, 2);
        let conversations = Some(storage.conversations_on(log.clone()));
        let agent = AgentFixture { conversations, ..fixture() }.agent(&script());
        let running = spawn(&agent, &id, "go");
        log.wait_for_crash().await;
        running.abort();
        drop(agent);
        let model = script();
        let agent = storage.agent(fixture(), &model);
        let (_, answer) = resume(&agent, &EventLog::default()).await.unwrap();
        assert_eq!((answer.text.as_str(), tool.runs()), ("Done.", runs));
        let result = model.tool_results().remove(0);
        assert!(result.contains(expected), "{result}");
    }
}

#[tokio::test(start_paused = true)]
async fn third_process_lost_on_a_step_fails_the_turn() {
    let (storage, tools, id) = (Storage::new(), Tools::remote(), MessageId::generate());
    crash_after(&storage, tools.fixture(ExecutionStrategy::Parallel), 2, &id).await;
    for _ in 0..2 {
        // Records its takeover and that it acts, and no result.
        let log = CrashingLog::new(&storage, 2);
        let conversations = Some(storage.conversations_on(log.clone()));
        let fixture = tools.fixture(ExecutionStrategy::Parallel);
        let agent = AgentFixture { conversations, ..fixture }.agent(&three_calls());
        let running = tokio::spawn({
            let agent = agent.clone();
            async move { resume(&agent, &EventLog::default()).await.map(drop) }
        });
        log.wait_for_crash().await;
        running.abort();
        drop(agent);
    }
    let model = three_calls();
    let agent = storage.agent(tools.fixture(ExecutionStrategy::Parallel), &model);
    let (recorded, answer) = resume(&agent, &EventLog::default()).await.unwrap();
    assert_eq!((recorded.attempt, answer.outcome), (4, TurnOutcome::ModelFailed));
    assert!(answer.text.contains("3 processes"), "{}", answer.text);
    assert_eq!((model.request_count(), tools.runs()[2]), (0, 0));
    let takeovers = ["takeover", "acts", "takeover", "acts", "takeover"];
    let recorded = ["message", "model"].into_iter().chain(takeovers).chain(["result", "result"]);
    assert_eq!(storage.kinds().await, recorded.chain(["answer"]).collect::<Vec<_>>());
    let items = agent.conversations().history(&session(), 1, 100).await.unwrap();
    let text = serde_json::to_string(&items).unwrap();
    assert_eq!(text.matches("\"executed\":\"unknown\"").count(), 2, "{text}");
    // The conversation goes on, with a result for every call.
    let answer = send_as(&agent, &MessageId::generate(), "again").await;
    assert_eq!(answer.text, "All written.");
}

#[tokio::test(start_paused = true)]
async fn processes_lost_before_they_act_do_not_fail_the_turn() {
    let (storage, tools, id) = (Storage::new(), Tools::remote(), MessageId::generate());
    crash_after(&storage, tools.fixture(ExecutionStrategy::Parallel), 2, &id).await;
    for lost in 1..=4 {
        // Without the tools, it waits for them.
        let agent = storage.agent(AgentFixture::new(), &three_calls());
        let running =
            tokio::spawn(async move { resume(&agent, &EventLog::default()).await.map(drop) });
        settle().await;
        running.abort();
        assert_eq!(storage.kinds().await[2..], vec!["takeover"; lost]);
    }
    let model = three_calls();
    let agent = storage.agent(tools.fixture(ExecutionStrategy::Parallel), &model);
    let (recorded, answer) = resume(&agent, &EventLog::default()).await.unwrap();
    assert_eq!((recorded.attempt, answer.text.as_str()), (6, "All written."));
    assert_eq!(tools.runs(), [1, 1, 1]);
}

#[tokio::test(start_paused = true)]
async fn recorded_cancel_ends_the_resumed_turn() {
    let (storage, tools, id) = (Storage::new(), Tools::remote(), MessageId::generate());
    crash_after(&storage, tools.fixture(ExecutionStrategy::Parallel), 2, &id).await;
    let model = three_calls();
    let agent = storage.agent(tools.fixture(ExecutionStrategy::Parallel), &model);
    let cancelled = MessageId::generate();
    let answer = agent.run_turn(origin(&cancelled), cancel("s"), EventLog::default().sink()).await;
    assert_eq!(answer.outcome, TurnOutcome::Cancelled);
    assert_eq!(model.request_count(), 0);
    assert_eq!(send_as(&agent, &id, "go").await, answer);
    // No call is reported as not executed: the first process made them.
    let items = agent.conversations().history(&session(), 1, 100).await.unwrap();
    let text = serde_json::to_string(&items).unwrap();
    assert!(!text.contains("\"executed\":\"no\""), "{text}");
    assert!(text.contains("\"executed\":\"unknown\""), "{text}");
}

#[tokio::test(start_paused = true)]
async fn answer_that_was_not_published_is_returned_by_resume() {
    let (storage, tools, id) = (Storage::new(), Tools::remote(), MessageId::generate());
    let agent = storage.agent(tools.fixture(ExecutionStrategy::Parallel), &three_calls());
    send_as(&agent, &id, "go").await;
    drop(agent);
    let model = three_calls();
    let agent = storage.agent(tools.fixture(ExecutionStrategy::Parallel), &model);
    let (recorded, answer) = resume(&agent, &EventLog::default()).await.unwrap();
    assert_eq!((recorded.id, answer.text.as_str()), (id, "All written."));
    assert_eq!(model.request_count(), 0);
}

/// Runs a message on a log with a fault after two entries.
async fn run_with_fault(storage: &Storage, tools: &Tools, fault: Fault) -> TurnAnswer {
    let log = CrashingLog::with_fault(storage, 2, fault);
    let conversations = Some(storage.conversations_on(log));
    let fixture = tools.fixture(ExecutionStrategy::Sequential);
    let agent = AgentFixture { conversations, ..fixture }.agent(&three_calls());
    send_as(&agent, &MessageId::generate(), "go").await
}

#[tokio::test(start_paused = true)]
async fn short_outage_of_the_store_only_delays_the_turn() {
    let (storage, tools) = (Storage::new(), Tools::remote());
    let end = Instant::now() + Duration::from_secs(30);
    let answer = run_with_fault(&storage, &tools, Fault::Outage(end)).await;
    assert_eq!((answer.text.as_str(), tools.runs()), ("All written.", [1, 1, 1]));
    assert!(Instant::now() >= end);
}

#[tokio::test(start_paused = true)]
async fn long_outage_of_the_store_suspends_the_turn_after_its_step() {
    let (storage, tools, started) = (Storage::new(), Tools::remote(), Instant::now());
    let end = started + Duration::from_secs(3600);
    let answer = run_with_fault(&storage, &tools, Fault::Outage(end)).await;
    assert_eq!(answer.ended, TurnEnd::Suspended);
    assert!(answer.text.contains("could not be recorded"), "{}", answer.text);
    assert!((55..=60).contains(&started.elapsed().as_secs()), "{:?}", started.elapsed());
    assert_eq!(tools.runs(), [1, 0, 0], "no call starts unrecorded");
    assert_eq!(storage.kinds().await, ["message", "model"]);
    let agent = storage.agent(tools.fixture(ExecutionStrategy::Sequential), &three_calls());
    let (_, answer) = resume(&agent, &EventLog::default()).await.unwrap();
    assert_eq!((answer.text.as_str(), tools.runs()), ("All written.", [1, 1, 1]));
}

#[tokio::test(start_paused = true)]
async fn unconfirmed_append_is_recorded_once() {
    let (storage, tools) = (Storage::new(), Tools::remote());
    let answer = run_with_fault(&storage, &tools, Fault::Unconfirmed).await;
    assert_eq!((answer.text.as_str(), tools.runs()), ("All written.", [1, 1, 1]));
    assert_eq!(storage.len().await, 7);
}

#[tokio::test(start_paused = true)]
async fn cancelled_message_does_not_run_in_another_process() {
    let storage = Storage::new();
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let tool = ProbeTool::new("wait", Behavior::Gated(gate));
    let model = RecordingModel::script([ScriptedTurn::default().call("wait", json!({}))]);
    let agent = storage.agent(AgentFixture::new().with(&tool), &model);
    let [first, second, cancelled, later] = std::array::from_fn(|_| MessageId::generate());
    let running = [spawn(&agent, &first, "go"), spawn(&agent, &second, "and then?")];
    settle().await;
    let events = EventLog::default();
    let answer = agent.run_turn(origin(&cancelled), cancel("s"), events.sink()).await;
    assert_eq!(answer.outcome, TurnOutcome::Cancelled);
    for turn in running {
        turn.await.unwrap();
    }
    drop(agent);
    // The process is lost before it published the answer of the second message.
    let model = three_calls();
    let agent = storage.agent(Tools::remote().fixture(ExecutionStrategy::Parallel), &model);
    let answer = send_as(&agent, &second, "and then?").await;
    assert_eq!((answer.outcome, model.request_count()), (TurnOutcome::Cancelled, 0));
    assert_eq!(send_as(&agent, &later, "again").await.text, "All written.");
}

/// Resumes a turn whose model does not answer, and returns the time until it ends.
async fn time_until_its_limit(storage: &Storage) -> Duration {
    let model = RecordingModel::new(CannedModel::new([Answer::Never]));
    let agent = storage.agent(AgentFixture::new(), &model);
    let started = Instant::now();
    let (_, answer) = resume(&agent, &EventLog::default()).await.unwrap();
    assert!(answer.text.contains("time limit"), "{answer:?}");
    started.elapsed()
}

#[tokio::test(start_paused = true)]
async fn resumed_turn_keeps_its_recorded_time_limit() {
    let (storage, id) = (Storage::new(), MessageId::generate());
    let mut fixture = AgentFixture::new();
    fixture.limits.turn_timeout = Duration::from_secs(30);
    crash_after(&storage, fixture, 1, &id).await;
    let time = time_until_its_limit(&storage).await;
    // The system clock, which is not paused, measures the time until the message is recorded.
    assert!((1..=30).contains(&time.as_secs()), "{time:?}");
}

#[tokio::test(start_paused = true)]
async fn calls_of_resumed_turn_without_time_left_may_have_run() {
    let storage = Storage::new();
    storage.append_late_step(&[("first", json!({})), ("second", json!({}))]).await;
    let mut fixture = AgentFixture::new();
    fixture.definition.strategy = ExecutionStrategy::Sequential;
    let tools = ["first", "second"].map(|name| JournaledTool::local(name, ToolHints::default()));
    tools.iter().for_each(|tool| tool.register(&fixture.registry));
    let model = three_calls();
    let agent = storage.agent(fixture, &model);
    let (_, answer) = resume(&agent, &EventLog::default()).await.unwrap();
    assert!(answer.text.contains("time limit"), "{answer:?}");
    assert_eq!((tools.map(|tool| tool.runs()), model.request_count()), ([0, 0], 0));
    // The second one is not started by this process.
    assert_eq!(storage.executed().await, ["unknown", "unknown"]);
}

#[tokio::test(start_paused = true)]
async fn processes_of_a_turn_share_its_time_limit() {
    let storage = Storage::new();
    let entries = [
        (0, r#""kind":"message","id":"m","text":"go","entry":"user_turn","deadline":1060000"#),
        (20, r#""kind":"put_down","instance":"one""#),
        // The time without a process does not count.
        (3600, r#""kind":"takeover","instance":"two","attempt":2"#),
        (3600, r#""kind":"feedback","id":"f","rating":"positive""#),
        (3625, r#""kind":"put_down","instance":"two""#),
    ];
    for (index, (second, fields)) in entries.into_iter().enumerate() {
        let at = 1_000_000 + second * 1000;
        storage.append_raw(index as u64 + 1, &format!(r#"{{"v":1,"at":{at},{fields}}}"#)).await;
    }
    let time = time_until_its_limit(&storage).await;
    assert_eq!(time.as_secs(), 15, "{time:?}");
}
