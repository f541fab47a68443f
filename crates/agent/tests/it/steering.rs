//! Messages to a conversation whose turn is running.

use std::sync::Arc;

use rockbot_agent::ExecutionStrategy;
use rockbot_agent::{TurnAnswer, TurnEvent};
use rockbot_contracts::user::TurnOutcome;
use rockbot_llm::{ChatMessage, FinishReason};
use tokio::sync::Semaphore;

use crate::stage::{
    Answer, Canned, Does, Ear, Probe, Stage, Witness, all_wait, calls, cancel, message, says, start,
};

const SKIPPED: &str = "(tool skipped: the user said something new)";

/// Four calls of a tool that waits; something is said during the first. What came of them, and how
/// often the tool ran.
async fn check(strategy: ExecutionStrategy, expected: [&str; 4], ran: usize) {
    let gate = Arc::new(Semaphore::new(0));
    let work = Probe::new("work", Does::Waits(gate.clone()));
    let four = [("a", "work", ""), ("b", "work", ""), ("c", "work", ""), ("d", "work", "")];
    let model = Witness::of(Canned::new([
        Answer::Events(calls(&four, FinishReason::ToolCalls)),
        Answer::Events(says("Both done.")),
    ]));
    let mut stage = Stage::new().with(&work);
    stage.definition.strategy = strategy;
    let agent = stage.agent(&model);
    let (first, _) = start(&agent, message("s", "go"));
    work.is_called().await;
    let (second, ear) = start(&agent, message("s", "rather this"));
    all_wait().await;
    gate.add_permits(4);
    let answer: TurnAnswer = first.await.unwrap();
    assert_eq!((answer.text.as_str(), answer.outcome), ("Both done.", TurnOutcome::Completed));
    assert_eq!(second.await.unwrap(), answer);
    assert_eq!(ear.events(), [TurnEvent::Steered]);
    assert_eq!(model.results(), expected, "{strategy:?}");
    assert_eq!(model.last().messages.last(), Some(&ChatMessage::User("rather this".to_owned())));
    assert_eq!(work.calls(), ran);
}

#[tokio::test(start_paused = true)]
async fn what_is_said_meanwhile_is_heard_between_calls_and_the_rest_is_skipped() {
    let done = "work is done";
    check(ExecutionStrategy::Sequential, [done, SKIPPED, SKIPPED, SKIPPED], 1).await;
    check(ExecutionStrategy::Batched(2), [done, done, SKIPPED, SKIPPED], 2).await;
    check(ExecutionStrategy::Parallel, [done; 4], 4).await;
}

#[tokio::test(start_paused = true)]
async fn what_comes_too_late_for_a_turn_begins_the_next() {
    let gate = Arc::new(Semaphore::new(0));
    let model = Witness::of(Canned::new([
        Answer::Gated(gate.clone(), "First."),
        Answer::Events(says("Second.")),
    ]));
    let agent = Stage::new().agent(&model);
    let (first, _) = start(&agent, message("s", "one"));
    all_wait().await;
    let (second, ear) = start(&agent, message("s", "two"));
    all_wait().await;
    gate.add_permits(1);
    assert_eq!(first.await.unwrap().text, "First.");
    assert_eq!(second.await.unwrap().text, "Second.");
    assert!(!ear.events().contains(&TurnEvent::Steered));
    assert_eq!(model.last().messages.len(), 4, "one conversation");
}

#[tokio::test(start_paused = true)]
async fn a_cancel_ends_what_waits_behind_the_turn_as_well() {
    let model = Witness::of(Canned::new([Answer::Never, Answer::Events(says("Hello."))]));
    let agent = Stage::new().agent(&model);
    let (first, _) = start(&agent, message("s", "one"));
    all_wait().await;
    let (second, _) = start(&agent, message("s", "two"));
    all_wait().await;
    let stopped = agent.message(cancel("s"), Ear::default().sink()).await;
    assert_eq!(stopped.outcome, TurnOutcome::Cancelled);
    assert_eq!(first.await.unwrap().outcome, TurnOutcome::Cancelled);
    assert_eq!(second.await.unwrap().outcome, TurnOutcome::Cancelled);
    assert_eq!(model.asked(), 1);
    let (third, _) = start(&agent, message("s", "three"));
    assert_eq!(third.await.unwrap().text, "Hello.");
}

#[tokio::test(start_paused = true)]
async fn a_conversation_takes_only_so_many_messages() {
    let model = Witness::of(Canned::new([Answer::Never]));
    let mut stage = Stage::new();
    stage.limits.session_inbox = 2;
    let agent = stage.agent(&model);
    let (_first, _) = start(&agent, message("s", "one"));
    all_wait().await;
    let _waiting: Vec<_> =
        (0..2).map(|_| start(&agent, message("s", "more"))).map(|(turn, _)| turn).collect();
    all_wait().await;
    let refused = agent.message(message("s", "too much"), Ear::default().sink()).await;
    assert_eq!(refused.outcome, TurnOutcome::Overloaded);
    assert!(refused.text.contains("Too many messages"), "{}", refused.text);
}
