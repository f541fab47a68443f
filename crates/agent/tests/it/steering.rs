//! Messages to a conversation whose turn is running.

use std::sync::Arc;

use rockbot_agent::ExecutionStrategy;
use rockbot_agent::{TurnAnswer, TurnEvent};
use rockbot_contracts::user::TurnOutcome;
use rockbot_llm::{ChatMessage, FinishReason};
use tokio::sync::Semaphore;

use crate::harness::{
    AgentFixture, Answer, Behavior, CannedModel, EventLog, ProbeTool, RecordingModel, calls,
    cancel, message, settle, spawn_send, text_events,
};

const SKIPPED: &str = "(tool skipped: the user sent a new message)";

/// Runs four calls of a gated tool and sends a message during the first. Checks the results and the number
/// of calls.
async fn check(strategy: ExecutionStrategy, expected: [&str; 4], ran: usize) {
    let gate = Arc::new(Semaphore::new(0));
    let work = ProbeTool::new("work", Behavior::Gated(gate.clone()));
    let four = [("a", "work", ""), ("b", "work", ""), ("c", "work", ""), ("d", "work", "")];
    let model = RecordingModel::new(CannedModel::new([
        Answer::Events(calls(&four, FinishReason::ToolCalls)),
        Answer::Events(text_events("Both done.")),
    ]));
    let mut fixture = AgentFixture::new().with(&work);
    fixture.definition.strategy = strategy;
    let agent = fixture.agent(&model);
    let (first, _) = spawn_send(&agent, message("s", "go"));
    work.wait_for_call().await;
    let (second, events) = spawn_send(&agent, message("s", "rather this"));
    settle().await;
    gate.add_permits(4);
    let answer: TurnAnswer = first.await.unwrap();
    assert_eq!((answer.text.as_str(), answer.outcome), ("Both done.", TurnOutcome::Completed));
    assert_eq!(second.await.unwrap(), answer);
    assert_eq!(events.events(), [TurnEvent::Steered]);
    assert_eq!(model.tool_results(), expected, "{strategy:?}");
    assert_eq!(
        model.last_request().messages.last(),
        Some(&ChatMessage::User("rather this".to_owned()))
    );
    assert_eq!(work.calls(), ran);
}

#[tokio::test(start_paused = true)]
async fn message_steers_turn_and_skips_pending_calls() {
    let done = "work is done";
    check(ExecutionStrategy::Sequential, [done, SKIPPED, SKIPPED, SKIPPED], 1).await;
    check(ExecutionStrategy::Batched(2), [done, done, SKIPPED, SKIPPED], 2).await;
    check(ExecutionStrategy::Parallel, [done; 4], 4).await;
}

#[tokio::test(start_paused = true)]
async fn late_message_starts_the_next_turn() {
    let gate = Arc::new(Semaphore::new(0));
    let model = RecordingModel::new(CannedModel::new([
        Answer::Gated(gate.clone(), "First."),
        Answer::Events(text_events("Second.")),
    ]));
    let agent = AgentFixture::new().agent(&model);
    let (first, _) = spawn_send(&agent, message("s", "one"));
    settle().await;
    let (second, events) = spawn_send(&agent, message("s", "two"));
    settle().await;
    gate.add_permits(1);
    assert_eq!(first.await.unwrap().text, "First.");
    assert_eq!(second.await.unwrap().text, "Second.");
    assert!(!events.events().contains(&TurnEvent::Steered));
    assert_eq!(model.last_request().messages.len(), 4, "one conversation");
}

#[tokio::test(start_paused = true)]
async fn cancel_ends_queued_messages() {
    let model = RecordingModel::new(CannedModel::new([
        Answer::Never,
        Answer::Events(text_events("Hello.")),
    ]));
    let agent = AgentFixture::new().agent(&model);
    let (first, _) = spawn_send(&agent, message("s", "one"));
    settle().await;
    let (second, _) = spawn_send(&agent, message("s", "two"));
    settle().await;
    let stopped = agent.send(cancel("s"), EventLog::default().sink()).await;
    assert_eq!(stopped.outcome, TurnOutcome::Cancelled);
    assert_eq!(first.await.unwrap().outcome, TurnOutcome::Cancelled);
    assert_eq!(second.await.unwrap().outcome, TurnOutcome::Cancelled);
    assert_eq!(model.request_count(), 1);
    let (third, _) = spawn_send(&agent, message("s", "three"));
    assert_eq!(third.await.unwrap().text, "Hello.");
}

#[tokio::test(start_paused = true)]
async fn full_queue_rejects_with_overloaded() {
    let model = RecordingModel::new(CannedModel::new([Answer::Never]));
    let mut fixture = AgentFixture::new();
    fixture.limits.session_inbox = 2;
    let agent = fixture.agent(&model);
    let (_first, _) = spawn_send(&agent, message("s", "one"));
    settle().await;
    let _waiting: Vec<_> =
        (0..2).map(|_| spawn_send(&agent, message("s", "more"))).map(|(turn, _)| turn).collect();
    settle().await;
    let refused = agent.send(message("s", "too much"), EventLog::default().sink()).await;
    assert_eq!(refused.outcome, TurnOutcome::Overloaded);
    assert!(refused.text.contains("Too many messages"), "{}", refused.text);
}
