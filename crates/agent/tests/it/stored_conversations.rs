//! Reading, listing, bounding and deleting stored conversations.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use rockbot_agent::{
    Agent, AgentParts, ConversationError, ConversationOptions, EntryProblem, TurnEnd,
};
use rockbot_contracts::{
    MessageId, SessionId,
    conversation::{ConversationState, HistoryBody},
    user::TurnOutcome,
};
use rockbot_llm::{ChatModel, ScriptedTurn};
use rockbot_store::{Clock, LogName, Prefix, Stores};
use rockbot_tools::{LayerOptions, Outputs, OutputsSection};
use serde_json::json;

use crate::{
    harness::{AgentFixture, Behavior, EventLog, ProbeTool, RecordingModel, message},
    stored_harness::{CrashingLog, Fault, Storage, log_name, origin, send_as, session},
};

fn noting() -> std::sync::Arc<RecordingModel> {
    RecordingModel::script([ScriptedTurn::text("Noted.")])
}

#[tokio::test]
async fn too_large_model_answer_ends_the_turn_with_a_recorded_failure() {
    let storage = Storage::new();
    let work = ProbeTool::new("work", Behavior::Echo);
    // Escaped, the arguments exceed the size of an entry.
    let large = json!({"text": "\"".repeat(400_000)});
    let model = RecordingModel::script([
        ScriptedTurn::default().call("work", large),
        ScriptedTurn::text("Never asked for."),
    ]);
    let agent = storage.agent(AgentFixture::new().with(&work), &model);
    let id = MessageId::generate();
    let answer = send_as(&agent, &id, "go").await;
    assert_eq!((answer.outcome, answer.ended), (TurnOutcome::ModelFailed, TurnEnd::Answered));
    assert!(answer.text.contains("none of the calls was made"), "{}", answer.text);
    assert_eq!(
        (storage.kinds().await, work.calls()),
        (vec!["message".to_owned(), "answer".into()], 0)
    );
    let again = storage.agent(AgentFixture::new().with(&work), &model);
    assert_eq!(send_as(&again, &id, "go").await.text, answer.text);
    assert_eq!(model.request_count(), 1);
}

#[tokio::test]
async fn conversations_are_listed_and_read() {
    let storage = Storage::new();
    let echo = ProbeTool::new("echo", Behavior::Echo);
    let model = RecordingModel::script([
        ScriptedTurn::text("Looking.").call("echo", json!({"n": 1})),
        ScriptedTurn::text("Found."),
    ]);
    let agent = storage.agent(AgentFixture::new().with(&echo), &model);
    for name in ["s", "t/ü"] {
        let text = "Please find   the\nfirst number that is not listed in the table of all numbers";
        agent
            .run_turn(
                origin(&MessageId::generate()),
                message(name, text),
                EventLog::default().sink(),
            )
            .await;
    }
    let conversations = storage.conversations();
    let listed = conversations.list(None, 10).await.unwrap();
    let ids: Vec<_> = listed.iter().map(|one| one.session_id.as_str()).collect();
    assert_eq!(ids, ["s", "t/ü"]);
    assert_eq!(conversations.list(Some(&session()), 10).await.unwrap().len(), 1);
    let summary = &listed[0];
    assert_eq!(summary.title, "Please find the first number that is not listed in the table…");
    assert_eq!((summary.state, summary.turns), (ConversationState::Idle, 1));
    assert_eq!((summary.usage.model_calls, summary.usage.tool_calls), (2, 1));
    assert!(summary.created_ms > 0 && summary.open_message.is_none());
    let other = SessionId::new("t/ü").unwrap();
    assert_eq!(conversations.last_active().await.unwrap(), Some(other));

    let items = conversations.history(&session(), 1, 100).await.unwrap();
    assert!(
        matches!(&items[0].body, HistoryBody::Message { text, .. } if text.starts_with("Please"))
    );
    assert!(
        matches!(&items[1].body, HistoryBody::Model { calls, .. } if calls[0].tool_name == "echo")
    );
    let HistoryBody::Result { tool_name, text, .. } = &items[2].body else { panic!("{items:?}") };
    assert_eq!((tool_name.as_deref(), text.as_str()), (Some("echo"), "{\"n\":1}"));
    assert!(matches!(&items[3].body, HistoryBody::Answer { text, .. } if text == "Found."));
    let third = conversations.history(&session(), 3, 1).await.unwrap();
    assert_eq!((third.len(), third[0].number), (1, 3));
    assert!(conversations.history(&session(), 5, 10).await.unwrap().is_empty());

    assert!(agent.delete_conversation(&session()).await.unwrap());
    assert!(!agent.delete_conversation(&session()).await.unwrap());
    assert_eq!(conversations.summary(&session()).await.unwrap(), None);
    let missing = conversations.history(&session(), 1, 10).await;
    assert!(matches!(missing, Err(ConversationError::NotFound { .. })), "{missing:?}");
    assert_eq!(conversations.unfinished().await.unwrap().len(), 1);
    // The process that had it in memory starts it again.
    assert_eq!(send_as(&agent, &MessageId::generate(), "new").await.text, "Found.");
    assert_eq!(conversations.summary(&session()).await.unwrap().unwrap().title, "new");
}

/// Appends `entry` to a conversation with one turn, and returns the answer to the next message.
async fn answer_after(entry: &str, expected: &EntryProblem) -> String {
    let storage = Storage::new();
    send_as(&storage.agent(AgentFixture::new(), &noting()), &MessageId::generate(), "hi").await;
    storage.append_raw(3, entry).await;
    let model = noting();
    let agent = storage.agent(AgentFixture::new(), &model);
    let answer = send_as(&agent, &MessageId::generate(), "again").await;
    assert_eq!((answer.outcome, model.request_count()), (TurnOutcome::ModelFailed, 0));
    assert_eq!(storage.len().await, 3, "nothing is written");
    match agent.conversations().message(&session(), &MessageId::generate()).await {
        Err(ConversationError::Unreadable { number: 3, problem, .. }) => {
            assert_eq!(problem, *expected);
        }
        other => panic!("{other:?}"),
    }
    // The readable part can be exported, and other conversations are not affected.
    let items = agent.conversations().history(&session(), 1, 10).await.unwrap();
    assert_eq!((items.len(), &items[2].body), (3, &HistoryBody::Other));
    let summary = agent.conversations().summary(&session()).await.unwrap().unwrap();
    assert_eq!(summary.state, ConversationState::Unreadable);
    let other = agent.send(message("other", "hi"), EventLog::default().sink()).await;
    assert_eq!(other.text, "Noted.");
    answer.text
}

#[tokio::test]
async fn unreadable_entries_are_distinct_errors() {
    let newer = r#"{"v":7,"at":1,"kind":"plan","text":"x"}"#;
    let text = answer_after(newer, &EntryProblem::Newer { version: 7 }).await;
    assert!(text.contains("conversation s") && text.contains("update the program"), "{text}");
    let known_kind = r#"{"v":2,"at":1,"kind":"put_down","instance":"a"}"#;
    answer_after(known_kind, &EntryProblem::Newer { version: 2 }).await;
    for damaged in ["", "{\"v\":1", r#"{"v":1,"at":1,"kind":"plan"}"#, "null"] {
        let text = answer_after(damaged, &EntryProblem::Damaged).await;
        assert!(text.contains("entry 3") && text.contains("damaged"), "{text}");
    }
}

#[tokio::test]
async fn missing_beginning_is_an_error() {
    let storage = Storage::new();
    let agent = storage.agent(AgentFixture::new(), &noting());
    send_as(&agent, &MessageId::generate(), "hi").await;
    storage.stores.log.truncate(&log_name(), 2).await.unwrap();
    drop(agent);
    let agent = storage.agent(AgentFixture::new(), &noting());
    let answer = send_as(&agent, &MessageId::generate(), "again").await;
    assert!(answer.text.contains("is missing"), "{}", answer.text);
}

#[tokio::test]
async fn gap_in_the_middle_is_an_error_of_its_conversation_only() {
    let storage = Storage::new();
    let first = storage.agent(AgentFixture::new(), &noting());
    for text in ["one", "two"] {
        send_as(&first, &MessageId::generate(), text).await;
    }
    drop(first);
    let log = CrashingLog::with_fault(&storage, u64::MAX, Fault::Gap(3));
    let conversations = storage.conversations_on(log);
    let model = noting();
    let fixture = AgentFixture { conversations: Some(conversations), ..AgentFixture::new() };
    let agent = fixture.agent(&model);
    let answer = send_as(&agent, &MessageId::generate(), "again").await;
    assert!(answer.text.contains("entry 3 is missing"), "{}", answer.text);
    assert_eq!((storage.len().await, model.request_count()), (4, 0), "nothing is written");
    match agent.conversations().message(&session(), &MessageId::generate()).await {
        Err(ConversationError::Unreadable { number: 3, problem, .. }) => {
            assert_eq!(problem, EntryProblem::Missing);
        }
        other => panic!("{other:?}"),
    }
    let other = agent.send(message("other", "hi"), EventLog::default().sink()).await;
    assert_eq!(other.text, "Noted.");
}

#[tokio::test]
async fn long_conversation_is_cut_by_a_checkpoint() {
    let options = ConversationOptions { max_entries: 12, ..ConversationOptions::default() };
    let storage = Storage { options, ..Storage::new() };
    let model = noting();
    let fixture = || {
        let mut fixture = AgentFixture::new();
        fixture.limits.history_messages = 4;
        fixture
    };
    let agent = storage.agent(fixture(), &model);
    for index in 0..50 {
        send_as(&agent, &MessageId::generate(), &format!("message {index}")).await;
    }
    drop(agent);
    let state = storage.stores.log.state(&log_name()).await.unwrap().unwrap();
    assert!(state.entries <= 14 && state.first > 50, "{state:?}");
    let agent = storage.agent(fixture(), &model);
    let answer = send_as(&agent, &MessageId::generate(), "last").await;
    let texts: Vec<_> = model.last_request().messages.into_iter().skip(1).collect();
    let user = |text: &str| rockbot_llm::ChatMessage::User(text.to_owned());
    assert_eq!((texts.len(), &texts[0], &texts[2]), (3, &user("message 49"), &user("last")));
    assert_eq!(answer.usage.unwrap().session.model_calls, 51);
    let summary = agent.conversations().summary(&session()).await.unwrap().unwrap();
    assert_eq!((summary.turns, summary.title.as_str()), (51, "message 0"));
}

#[tokio::test]
async fn starter_of_a_conversation_outlives_its_first_entries() {
    let options = ConversationOptions { max_entries: 6, ..ConversationOptions::default() };
    let storage = Storage { options, ..Storage::new() };
    let model = noting();
    let mut fixture = AgentFixture::new();
    fixture.limits.history_messages = 2;
    let agent = storage.agent(fixture, &model);
    let send = async |agent: &rockbot_agent::Agent, sender: Option<&str>| {
        let origin = origin(&MessageId::generate());
        let origin = match sender {
            Some(sender) => origin.with_sender(sender.into()),
            None => origin,
        };
        agent.run_turn(origin, message("s", "hi"), EventLog::default().sink()).await
    };
    send(&agent, Some("alice")).await;
    for _ in 0..5 {
        // A process without a broker does not know its user.
        send(&agent, None).await;
    }
    drop(agent);
    let state = storage.stores.log.state(&log_name()).await.unwrap().unwrap();
    assert!(state.first > 1, "{state:?}");
    let agent = storage.agent(AgentFixture::new(), &model);
    let refused = send(&agent, Some("bob")).await;
    assert!(refused.text.contains("belongs to another user"), "{}", refused.text);
    assert_eq!(send(&agent, Some("alice")).await.text, "Noted.");
}

#[tokio::test]
async fn result_too_large_for_an_entry_is_truncated() {
    let storage = Storage::new();
    let large = ProbeTool::new("large", Behavior::LongText(2 * 1024 * 1024));
    let model = RecordingModel::script([
        ScriptedTurn::default().call("large", json!({})),
        ScriptedTurn::text("Read."),
    ]);
    let mut fixture = AgentFixture::new().with(&large);
    fixture.limits.history_bytes = 8 * 1024 * 1024;
    let behavior = rockbot_agent::ModelBehavior {
        tool_result_chunking_threshold: 4 * 1024 * 1024,
        ..rockbot_agent::ModelBehavior::default()
    };
    fixture.behavior = behavior;
    let agent = storage.agent(fixture, &model);
    assert_eq!(send_as(&agent, &MessageId::generate(), "go").await.text, "Read.");
    let result = model.tool_results().remove(0);
    assert!(result.len() < 1024 * 1024 && result.ends_with("too large to be recorded)"));
}

#[tokio::test(start_paused = true)]
async fn conversation_in_memory_ends_when_it_is_idle() {
    let model = noting();
    let agent = AgentFixture::new().agent(&model);
    crate::harness::send(&agent, "hi").await;
    assert_eq!(agent.conversations().list(None, 10).await.unwrap().len(), 1);
    tokio::time::sleep(Duration::from_secs(30 * 60 + 1)).await;
    assert!(agent.conversations().list(None, 10).await.unwrap().is_empty());
    assert!(agent.conversations().unfinished().await.unwrap().is_empty());
}

#[tokio::test]
async fn long_session_id_is_refused() {
    let storage = Storage::new();
    let agent = storage.agent(AgentFixture::new(), &noting());
    let answer = agent.send(message(&"ü".repeat(120), "hi"), EventLog::default().sink()).await;
    assert!(answer.text.contains("session id is too long"), "{}", answer.text);
}

#[tokio::test]
async fn conversation_of_5000_entries_opens() {
    let storage = Storage::new();
    let agent = storage.agent(AgentFixture::new(), &noting());
    send_as(&agent, &MessageId::generate(), &"word ".repeat(80)).await;
    drop(agent);
    let pair = storage.stores.log.read(&log_name(), 1, 2).await.unwrap();
    let name = LogName::new(["conversation", "tester", "s"]).unwrap();
    let values = || pair.iter().map(|entry| entry.value.clone());
    for batch in 0..25 {
        let entries: Vec<_> = std::iter::repeat_with(values).take(100).flatten().collect();
        storage.stores.log.append(&name, (3 + batch * 200).into(), entries, None).await.unwrap();
    }
    let (model, started) = (noting(), Instant::now());
    let agent = storage.agent(AgentFixture::new(), &model);
    let answer = send_as(&agent, &MessageId::generate(), "more").await;
    println!("opened 5,002 entries and answered in {:?}", started.elapsed());
    assert_eq!(answer.text, "Noted.");
}

#[tokio::test]
async fn large_outputs_are_deleted_with_their_conversation() {
    let storage = Storage::new();
    let store = Stores::memory(Clock::System).store;
    let section = OutputsSection { handle_mode: true, ..OutputsSection::default() };
    let outputs = Outputs::new(store.clone(), section);
    let large = ProbeTool::new("large", Behavior::LongText(100_000));
    let AgentFixture { definition, registry, .. } = AgentFixture::new().with(&large);
    let model = RecordingModel::script([
        ScriptedTurn::default().call("large", json!({})),
        ScriptedTurn::text("Done."),
        ScriptedTurn::default().call("large", json!({})),
        ScriptedTurn::text("Done."),
    ]);
    let shared_model: Arc<dyn ChatModel> = model;
    let agent = Agent::new(AgentParts {
        conversations: storage.conversations(),
        layers: LayerOptions { outputs: Some(outputs), ..LayerOptions::default() },
        ..AgentParts::new(definition, shared_model, registry)
    });
    let stored = async || {
        let [records, pieces] =
            ["outputs", "output-pieces"].map(|kind| Prefix::new([kind]).unwrap());
        let records = store.list(&records, None, 100).await.unwrap().len();
        (records, store.list(&pieces, None, 100).await.unwrap().len())
    };
    agent.send(message("s", "go"), EventLog::default().sink()).await;
    let one = stored().await;
    assert!(one.0 == 1 && one.1 > 0, "{one:?}");
    agent.send(message("other", "go"), EventLog::default().sink()).await;
    assert_eq!(stored().await, (2, 2 * one.1));
    assert!(agent.delete_conversation(&session()).await.unwrap());
    assert_eq!(stored().await, one, "those of the other conversation are kept");
}
