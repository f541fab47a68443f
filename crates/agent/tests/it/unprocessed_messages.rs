//! Messages that a process cannot process: their recorded turns stay open.

use std::{sync::Arc, time::Duration};

use rockbot_agent::{Agent, TurnEnd, TurnOrigin};
use rockbot_contracts::{MessageId, user::TurnOutcome};
use rockbot_llm::ScriptedTurn;
use rockbot_tools::EntryPoint;
use tokio::{sync::Semaphore, time::Instant};

use crate::{
    harness::{
        AgentFixture, Answer, CannedModel, EventLog, RecordingModel, message, settle, spawn_send,
    },
    stored_harness::{CrashingLog, Fault, Storage, resume, send_as, session},
};

fn hello() -> Arc<RecordingModel> {
    RecordingModel::script([ScriptedTurn::text("Hello.")])
}

/// Leaves a recorded message without an answer.
async fn crash_after_message(storage: &Storage, id: &MessageId) {
    let log = CrashingLog::new(storage, 1);
    let conversations = Some(storage.conversations_on(log.clone()));
    let agent = AgentFixture { conversations, ..AgentFixture::new() }.agent(&hello());
    let running = tokio::spawn({
        let (agent, id) = (agent.clone(), id.clone());
        async move { drop(send_as(&agent, &id, "go").await) }
    });
    log.wait_for_crash().await;
    running.abort();
}

fn agent_with_read_outage(storage: &Storage, outage: Duration) -> Agent {
    let fault = Fault::ReadOutage(Instant::now() + outage);
    let log = CrashingLog::with_fault(storage, u64::MAX, fault);
    let conversations = Some(storage.conversations_on(log));
    AgentFixture { conversations, ..AgentFixture::new() }.agent(&hello())
}

async fn is_marked(storage: &Storage) -> bool {
    storage.conversations().unfinished().await.unwrap().contains(&session())
}

#[tokio::test(start_paused = true)]
async fn short_outage_of_reads_only_delays_a_recorded_turn() {
    let (storage, id) = (Storage::new(), MessageId::generate());
    crash_after_message(&storage, &id).await;
    let agent = agent_with_read_outage(&storage, Duration::from_secs(30));
    assert_eq!(send_as(&agent, &id, "go").await.text, "Hello.");
}

#[tokio::test(start_paused = true)]
async fn recorded_turn_stays_open_if_it_cannot_be_read() {
    let (storage, id) = (Storage::new(), MessageId::generate());
    crash_after_message(&storage, &id).await;
    let agent = agent_with_read_outage(&storage, Duration::from_secs(3600));
    let answer = send_as(&agent, &id, "go").await;
    assert_eq!((answer.ended, answer.outcome), (TurnEnd::Undecided, TurnOutcome::Overloaded));
    assert!(!answer.text.contains("Nothing was done"), "{}", answer.text);
    assert!(is_marked(&storage).await);
    let agent = storage.agent(AgentFixture::new(), &hello());
    let (recorded, answer) = resume(&agent, &EventLog::default()).await.unwrap();
    assert_eq!((recorded.id, answer.text.as_str()), (id, "Hello."));
}

#[tokio::test(start_paused = true)]
async fn message_with_the_id_of_another_does_not_end_its_turn() {
    let (storage, id) = (Storage::new(), MessageId::generate());
    crash_after_message(&storage, &id).await;
    let agent = storage.agent(AgentFixture::new(), &hello());
    let answer = send_as(&agent, &id, "something else").await;
    assert_eq!((answer.ended, answer.outcome), (TurnEnd::Unrecorded, TurnOutcome::ModelFailed));
}

#[tokio::test(start_paused = true)]
async fn idle_stored_conversation_makes_room_for_another() {
    let (storage, model) = (Storage::new(), hello());
    let mut fixture = AgentFixture::new();
    fixture.limits.max_sessions = 2;
    let agent = storage.agent(fixture, &model);
    for number in 0..5 {
        let message = message(&format!("s{number}"), "hi");
        let answer = agent.send(message, EventLog::default().sink()).await;
        assert_eq!(answer.text, "Hello.");
        settle().await;
    }
    assert_eq!(agent.sessions(), 2);
    agent.send(message("s0", "and now?"), EventLog::default().sink()).await;
    assert_eq!(model.last_request().messages.len(), 4, "it continues from its log");
}

#[tokio::test(start_paused = true)]
async fn recorded_message_is_deferred_while_all_conversations_are_busy() {
    let (storage, id, gate) = (Storage::new(), MessageId::generate(), Arc::new(Semaphore::new(0)));
    crash_after_message(&storage, &id).await;
    let model = RecordingModel::new(CannedModel::new([
        Answer::Gated(gate.clone(), "Done."),
        Answer::Gated(gate.clone(), "Hello."),
    ]));
    let mut fixture = AgentFixture::new();
    fixture.limits.max_sessions = 1;
    let agent = storage.agent(fixture, &model);
    let (running, _) = spawn_send(&agent, message("other", "work"));
    settle().await;
    let answer = send_as(&agent, &id, "go").await;
    assert_eq!((answer.ended, answer.outcome), (TurnEnd::Deferred, TurnOutcome::Overloaded));
    assert!(!answer.ended.is_answer());
    let new = send_as(&agent, &MessageId::generate(), "go").await;
    assert_eq!((new.ended, new.outcome), (TurnEnd::Answered, TurnOutcome::Overloaded));
    assert!(is_marked(&storage).await);
    gate.add_permits(2);
    assert_eq!(running.await.unwrap().text, "Done.");
    settle().await;
    assert_eq!(send_as(&agent, &id, "go").await.text, "Hello.");
}

#[tokio::test(start_paused = true)]
async fn fire_is_deferred_while_all_conversations_are_busy_and_leaves_none_idle() {
    let (storage, gate) = (Storage::new(), Arc::new(Semaphore::new(0)));
    let answers = [Answer::Gated(gate.clone(), "Done."), Answer::Gated(gate.clone(), "Checked.")];
    let model = RecordingModel::new(CannedModel::new(answers));
    let mut fixture = AgentFixture::new();
    fixture.limits.max_sessions = 1;
    let agent = storage.agent(fixture, &model);
    let (running, _) = spawn_send(&agent, message("other", "work"));
    settle().await;
    let fire = || {
        let origin = TurnOrigin::new(EntryPoint::ScheduledTask).with_message(MessageId::generate());
        agent.run_turn(origin, message("s", "check"), EventLog::default().sink())
    };
    assert_eq!(fire().await.ended, TurnEnd::Deferred);
    gate.add_permits(2);
    assert_eq!(running.await.unwrap().text, "Done.");
    settle().await;
    let answer = fire().await;
    assert_eq!((answer.ended, answer.text.as_str()), (TurnEnd::Answered, "Checked."));
    settle().await;
    assert_eq!(agent.sessions(), 0);
}
