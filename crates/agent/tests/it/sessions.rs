//! Concurrent conversations and their limits.

use std::{sync::Arc, time::Duration};

use rockbot_contracts::user::TurnOutcome;
use rockbot_llm::{ChatMessage, ScriptedTurn};
use serde_json::json;
use tokio::sync::Semaphore;

use crate::harness::{
    AgentFixture, Answer, Behavior, CannedModel, EventLog, ProbeTool, RecordingModel, message,
    send, settle, spawn_send, text_events,
};

#[tokio::test(start_paused = true)]
async fn conversations_are_parallel_and_isolated() {
    let gate = Arc::new(Semaphore::new(0));
    let work = ProbeTool::new("work", Behavior::Gated(gate.clone()));
    let model = RecordingModel::script([
        ScriptedTurn::default().call("work", json!({})),
        ScriptedTurn::text("Done."),
    ]);
    let agent = AgentFixture::new().with(&work).agent(&model);
    let turns: Vec<_> = (0..20)
        .map(|number| spawn_send(&agent, message(&format!("s{number}"), &format!("go {number}"))).0)
        .collect();
    for _ in 0..20 {
        work.wait_for_call().await; // All are running: the gate is closed.
    }
    assert_eq!(agent.sessions(), 20);
    gate.add_permits(20);
    for turn in turns {
        assert_eq!(turn.await.unwrap().text, "Done.");
    }
    for request in model.requests.lock().unwrap().iter() {
        let sent = format!("go {}", request.session.trim_start_matches('s'));
        let user_text = |message: &ChatMessage| match message {
            ChatMessage::User(text) => Some(text.clone()),
            _ => None,
        };
        assert_eq!(request.messages.iter().filter_map(user_text).collect::<Vec<_>>(), [sent]);
    }
}

#[tokio::test]
async fn conversation_keeps_its_history() {
    let model = RecordingModel::script([ScriptedTurn::text("Noted.")]);
    let agent = AgentFixture::new().agent(&model);
    for text in ["one", "two", "three"] {
        send(&agent, text).await;
    }
    assert_eq!(model.last_request().messages.len(), 6);
}

#[tokio::test]
async fn oldest_exchanges_are_dropped_first() {
    let model = RecordingModel::script([ScriptedTurn::text("Noted.")]);
    let mut fixture = AgentFixture::new();
    fixture.limits.history_messages = 4;
    let agent = fixture.agent(&model);
    for text in ["one", "two", "three"] {
        send(&agent, text).await;
    }
    let messages = model.last_request().messages;
    assert_eq!(messages[1], ChatMessage::User("two".to_owned()));
    assert_eq!(messages.len(), 4);
}

#[tokio::test(start_paused = true)]
async fn conversation_limit_is_freed_by_idle_ones() {
    let model = RecordingModel::script([ScriptedTurn::text("Hello.")]);
    let mut fixture = AgentFixture::new();
    fixture.limits.max_sessions = 1;
    let agent = fixture.agent(&model);
    let other = async || agent.send(message("other", "hi"), EventLog::default().sink()).await;
    send(&agent, "hi").await;
    assert_eq!(other().await.outcome, TurnOutcome::Overloaded);
    tokio::time::sleep(Duration::from_secs(30 * 60 + 1)).await;
    assert_eq!(agent.sessions(), 0);
    assert_eq!(other().await.text, "Hello.");
}

#[tokio::test]
async fn invalid_messages_are_answered_without_the_model() {
    let model = RecordingModel::script([ScriptedTurn::text("Hello.")]);
    let agent = AgentFixture::new().agent(&model);
    assert_eq!(send(&agent, &"x".repeat(200_000)).await.outcome, TurnOutcome::Overloaded);
    assert!(send(&agent, " \n").await.text.contains("empty"));
    assert_eq!((model.request_count(), agent.sessions()), (0, 0));
}

#[tokio::test]
async fn panic_is_reported_and_conversation_restarts() {
    let model = RecordingModel::new(CannedModel::new([
        Answer::Panics,
        Answer::Events(text_events("Hello.")),
    ]));
    let mut fixture = AgentFixture::new();
    fixture.limits.max_sessions = 1;
    let agent = fixture.agent(&model);
    let answer = send(&agent, "go").await;
    assert_eq!(answer.outcome, TurnOutcome::ModelFailed);
    assert!(answer.text.contains("lost"), "{}", answer.text);
    assert_eq!(send(&agent, "hello?").await.text, "Hello.");
}

#[tokio::test(start_paused = true)]
async fn shutdown_waits_for_turns_then_cancels() {
    let gate = Arc::new(Semaphore::new(0));
    let model = RecordingModel::new(CannedModel::new([
        Answer::Gated(gate.clone(), "Done."),
        Answer::Never,
    ]));
    let agent = AgentFixture::new().agent(&model);
    let (quick, _) = spawn_send(&agent, message("quick", "go"));
    settle().await;
    let (stuck, _) = spawn_send(&agent, message("stuck", "go"));
    settle().await;
    let closing = agent.clone();
    let closed = tokio::spawn(async move { closing.shut_down(Duration::from_secs(10)).await });
    settle().await;
    let refused = send(&agent, "me too").await;
    assert_eq!(refused.outcome, TurnOutcome::Overloaded);
    assert!(refused.text.contains("shutting down"), "{}", refused.text);
    gate.add_permits(1);
    assert_eq!(quick.await.unwrap().text, "Done.");
    assert!(!closed.await.unwrap(), "one turn was cancelled");
    let stuck = stuck.await.unwrap();
    assert_eq!(stuck.outcome, TurnOutcome::Cancelled);
    assert!(stuck.text.contains("shutting down"), "{}", stuck.text);
}

#[tokio::test(start_paused = true)]
async fn idle_agent_shuts_down_immediately() {
    let model = RecordingModel::script([ScriptedTurn::text("Hello.")]);
    let agent = AgentFixture::new().agent(&model);
    send(&agent, "hi").await;
    assert!(agent.shut_down(Duration::from_secs(10)).await);
    assert_eq!(agent.sessions(), 0);
}
