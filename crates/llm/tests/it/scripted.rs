//! Scripts, played to the end of a conversation.

use std::path::Path;

use rockbot_llm::{
    AssembledAnswer, ChatError, ChatEvent, ChatMessage, ChatRequest, FinishReason, LlmConfig,
    ScriptedFailure, ScriptedModel, ScriptedTurn, ToolChoice, resolve,
};
use serde_json::json;

use crate::{answer, events, say};

/// Adds the answer to the conversation, and a result for each of its calls.
fn go_on(request: &mut ChatRequest, answer: AssembledAnswer, result: impl Fn(&str) -> String) {
    let calls = answer.tool_calls.clone();
    request.messages.push(answer.into_message());
    for call in calls {
        let content = result(&call.name);
        request.messages.push(ChatMessage::Tool { tool_call_id: call.id, content });
    }
}

#[tokio::test]
async fn the_demo_answers_with_what_its_tools_found() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/demo.toml");
    let config = toml::from_str::<LlmConfig>(&format!(
        "provider = 'scripted'\nscript = '{}'",
        path.display()
    ));
    let model = resolve(&config.unwrap(), &|_| None).unwrap().model;

    let mut request = say("What is in this folder, and which files mention the bus?");
    let mut called = Vec::new();
    let last = loop {
        let answer = answer(&*model, request.clone()).await.unwrap();
        if answer.tool_calls.is_empty() {
            break answer;
        }
        called.extend(
            answer.tool_calls.iter().map(|call| (call.name.clone(), call.arguments.clone())),
        );
        go_on(&mut request, answer, |tool| format!("<what {tool} found>"));
    };
    let expected = [
        ("list_files", "{}"),
        ("search", r#"{"pattern":"bus"}"#),
        ("bash", r#"{"command":"wc -w *.md"}"#),
        ("read_file", r#"{"path":"notes.md"}"#),
    ];
    assert_eq!(called, expected.map(|(name, arguments)| (name.to_owned(), arguments.to_owned())));
    for (tool, _) in expected {
        assert!(last.text.contains(&format!("<what {tool} found>")), "{}", last.text);
    }
    assert_eq!(last.finish_reason, FinishReason::Stop);
}

#[tokio::test]
async fn the_last_user_message_chooses_the_scene_and_starts_it() {
    let model = ScriptedModel::new([
        ScriptedTurn::text("default"),
        ScriptedTurn::text("bus 1").when("the bus").call("look", json!({})),
        ScriptedTurn::text("bus 2"),
        ScriptedTurn::text("train").when("train"),
    ]);
    let mut request = say("Where is THE BUS?");
    for expected in ["bus 1", "bus 2"] {
        let answer = answer(&model, request.clone()).await.unwrap();
        assert_eq!(answer.text, expected);
        go_on(&mut request, answer, |_| "seen".to_owned());
    }
    for (message, expected) in [("A train!", "train"), ("Hello", "default"), ("the bus", "bus 1")] {
        request.messages.push(ChatMessage::User(message.to_owned()));
        let answer = answer(&model, request.clone()).await.unwrap();
        assert_eq!(answer.text, expected);
        go_on(&mut request, answer, |_| "seen".to_owned());
    }
}

#[tokio::test]
async fn the_end_of_a_script_and_missing_results_name_the_turn() {
    let model = ScriptedModel::new([
        ScriptedTurn::text("one").when("go"),
        ScriptedTurn::text("{{result.look}}"),
    ]);
    let mut request = say("go");
    let first = answer(&model, request.clone()).await.unwrap();
    go_on(&mut request, first.clone(), |_| String::new());
    let error = answer(&model, request.clone()).await.unwrap_err();
    assert!(matches!(error, ChatError::Script { turn: 2, .. }), "{error}");

    go_on(&mut request, first, |_| String::new());
    let error = answer(&model, request).await.unwrap_err();
    assert!(matches!(error, ChatError::Script { turn: 3, .. }), "{error}");

    let error = answer(&model, say("stop")).await.unwrap_err();
    assert!(matches!(error, ChatError::Script { turn: 1, .. }), "{error}");
    let error = answer(&ScriptedModel::new([]), say("go")).await.unwrap_err();
    assert!(matches!(error, ChatError::Script { turn: 1, .. }), "{error}");
}

#[tokio::test]
async fn ids_of_calls_differ_between_turns_and_conversations() {
    let turn = || ScriptedTurn::text("").call("a", json!({})).call("a", json!({}));
    let model = ScriptedModel::new([turn(), turn()]);
    let mut ids = Vec::new();
    for session in ["one", "two"] {
        let mut request = ChatRequest { session: session.to_owned(), ..say("go") };
        for _ in 0..2 {
            let answer = answer(&model, request.clone()).await.unwrap();
            ids.extend(answer.tool_calls.iter().map(|call| call.id.clone()));
            go_on(&mut request, answer, |_| String::new());
        }
    }
    let count = ids.len();
    ids.sort();
    ids.dedup();
    assert_eq!((ids.len(), count), (8, 8));
}

#[tokio::test]
async fn pieces_are_words_or_as_many_characters_as_asked() {
    let mut turn = ScriptedTurn::text("one two\n three").call("a", json!({"x": 1}));
    for (chunk, texts, arguments) in [(None, 4, 1), (Some(4), 4, 2)] {
        turn.chunk = chunk;
        let (events, _) = events(&ScriptedModel::new([turn.clone()]), say("go")).await;
        let count = |wanted: fn(&ChatEvent) -> bool| events.iter().filter(|e| wanted(e)).count();
        assert_eq!(count(|event| matches!(event, ChatEvent::Text(_))), texts);
        let pieces = count(|event| matches!(event, ChatEvent::ToolCallDelta { id: None, .. }));
        assert_eq!(pieces, arguments);
    }
}

#[tokio::test]
async fn no_call_is_made_where_none_is_allowed() {
    let model = ScriptedModel::new([ScriptedTurn::text("words").call("a", json!({}))]);
    let request = ChatRequest { tool_choice: ToolChoice::None, ..say("go") };
    let answer = answer(&model, request).await.unwrap();
    assert!(answer.tool_calls.is_empty());
    assert_eq!(answer.finish_reason, FinishReason::Stop);
}

#[tokio::test]
async fn a_turn_fails_as_the_script_says() {
    let fail = |failure| ScriptedModel::new([ScriptedTurn::failing(failure)]);
    let error = answer(&fail(ScriptedFailure::RateLimited), say("go")).await.unwrap_err();
    assert!(matches!(error, ChatError::RateLimited { retry_after: Some(_), .. }));
    let error = answer(&fail(ScriptedFailure::ContextOverflow), say("go")).await.unwrap_err();
    assert!(matches!(error, ChatError::ContextOverflow { .. }));

    let mut turn = ScriptedTurn::failing(ScriptedFailure::Interrupted);
    turn.text = "half".to_owned();
    let (events, error) = events(&ScriptedModel::new([turn]), say("go")).await;
    assert_eq!(events, [ChatEvent::Text("half".into())]);
    assert!(matches!(error, Some(ChatError::Interrupted { .. })));
}
