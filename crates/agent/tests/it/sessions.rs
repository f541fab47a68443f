//! Conversations beside each other, and their bounds.

use std::{sync::Arc, time::Duration};

use rockbot_contracts::user::TurnOutcome;
use rockbot_llm::{ChatMessage, ScriptedTurn};
use serde_json::json;
use tokio::sync::Semaphore;

use crate::stage::{
    Answer, Canned, Does, Ear, Probe, Stage, Witness, all_wait, message, say, says, start,
};

#[tokio::test(start_paused = true)]
async fn conversations_run_in_parallel_and_know_nothing_of_each_other() {
    let gate = Arc::new(Semaphore::new(0));
    let work = Probe::new("work", Does::Waits(gate.clone()));
    let model = Witness::script([
        ScriptedTurn::default().call("work", json!({})),
        ScriptedTurn::text("Done."),
    ]);
    let agent = Stage::new().with(&work).agent(&model);
    let turns: Vec<_> = (0..20)
        .map(|number| start(&agent, message(&format!("s{number}"), &format!("go {number}"))).0)
        .collect();
    for _ in 0..20 {
        work.is_called().await; // All at once: none of them may go on yet.
    }
    assert_eq!(agent.sessions(), 20);
    gate.add_permits(20);
    for turn in turns {
        assert_eq!(turn.await.unwrap().text, "Done.");
    }
    for request in model.requests.lock().unwrap().iter() {
        let said = format!("go {}", request.session.trim_start_matches('s'));
        let heard = |message: &ChatMessage| match message {
            ChatMessage::User(text) => Some(text.clone()),
            _ => None,
        };
        assert_eq!(request.messages.iter().filter_map(heard).collect::<Vec<_>>(), [said]);
    }
}

#[tokio::test]
async fn a_conversation_remembers_what_was_said() {
    let model = Witness::script([ScriptedTurn::text("Noted.")]);
    let agent = Stage::new().agent(&model);
    for text in ["one", "two", "three"] {
        say(&agent, text).await;
    }
    assert_eq!(model.last().messages.len(), 6);
}

#[tokio::test]
async fn the_oldest_exchanges_are_forgotten_first() {
    let model = Witness::script([ScriptedTurn::text("Noted.")]);
    let mut stage = Stage::new();
    stage.limits.history_messages = 4;
    let agent = stage.agent(&model);
    for text in ["one", "two", "three"] {
        say(&agent, text).await;
    }
    let messages = model.last().messages;
    assert_eq!(messages[1], ChatMessage::User("two".to_owned()));
    assert_eq!(messages.len(), 4);
}

#[tokio::test(start_paused = true)]
async fn there_is_room_for_so_many_conversations_and_idle_ones_make_room() {
    let model = Witness::script([ScriptedTurn::text("Hello.")]);
    let mut stage = Stage::new();
    stage.limits.max_sessions = 1;
    let agent = stage.agent(&model);
    let other = async || agent.message(message("other", "hi"), Ear::default().sink()).await;
    say(&agent, "hi").await;
    assert_eq!(other().await.outcome, TurnOutcome::Overloaded);
    tokio::time::sleep(Duration::from_secs(30 * 60 + 1)).await;
    assert_eq!(agent.sessions(), 0);
    assert_eq!(other().await.text, "Hello.");
}

#[tokio::test]
async fn unfit_messages_are_answered_without_the_model() {
    let model = Witness::script([ScriptedTurn::text("Hello.")]);
    let agent = Stage::new().agent(&model);
    assert_eq!(say(&agent, &"x".repeat(200_000)).await.outcome, TurnOutcome::Overloaded);
    assert!(say(&agent, " \n").await.text.contains("empty"));
    assert_eq!((model.asked(), agent.sessions()), (0, 0));
}

#[tokio::test]
async fn a_crash_in_one_turn_is_told_and_the_conversation_can_begin_again() {
    let model = Witness::of(Canned::new([Answer::Panics, Answer::Events(says("Hello."))]));
    let mut stage = Stage::new();
    stage.limits.max_sessions = 1;
    let agent = stage.agent(&model);
    let answer = say(&agent, "go").await;
    assert_eq!(answer.outcome, TurnOutcome::ModelFailed);
    assert!(answer.text.contains("lost"), "{}", answer.text);
    assert_eq!(say(&agent, "hello?").await.text, "Hello.");
}

#[tokio::test(start_paused = true)]
async fn shutting_down_lets_turns_end_and_cancels_the_rest() {
    let gate = Arc::new(Semaphore::new(0));
    let model = Witness::of(Canned::new([Answer::Gated(gate.clone(), "Done."), Answer::Never]));
    let agent = Stage::new().agent(&model);
    let (quick, _) = start(&agent, message("quick", "go"));
    all_wait().await;
    let (stuck, _) = start(&agent, message("stuck", "go"));
    all_wait().await;
    let closing = agent.clone();
    let closed = tokio::spawn(async move { closing.shut_down(Duration::from_secs(10)).await });
    all_wait().await;
    let refused = say(&agent, "me too").await;
    assert_eq!(refused.outcome, TurnOutcome::Overloaded);
    assert!(refused.text.contains("shutting down"), "{}", refused.text);
    gate.add_permits(1);
    assert_eq!(quick.await.unwrap().text, "Done.");
    assert!(!closed.await.unwrap(), "one turn did not end by itself");
    let stuck = stuck.await.unwrap();
    assert_eq!(stuck.outcome, TurnOutcome::Cancelled);
    assert!(stuck.text.contains("shutting down"), "{}", stuck.text);
}

#[tokio::test(start_paused = true)]
async fn an_idle_agent_shuts_down_at_once() {
    let model = Witness::script([ScriptedTurn::text("Hello.")]);
    let agent = Stage::new().agent(&model);
    say(&agent, "hi").await;
    assert!(agent.shut_down(Duration::from_secs(10)).await);
    assert_eq!(agent.sessions(), 0);
}
