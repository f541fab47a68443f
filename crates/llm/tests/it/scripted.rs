//! Scripts in whole conversations.

use std::path::Path;

use rockbot_llm::{
    AssembledAnswer, ChatError, ChatEvent, ChatMessage, ChatRequest, FinishReason, LlmConfig,
    ScriptedFailure, ScriptedModel, ScriptedTurn, ToolChoice, resolve,
};
use serde_json::json;

use crate::{answer, events, prompt};

/// Appends the answer to the conversation, and a result for each of its calls.
fn append(request: &mut ChatRequest, answer: AssembledAnswer, result: impl Fn(&str) -> String) {
    let calls = answer.tool_calls.clone();
    request.messages.push(answer.into_message());
    for call in calls {
        let content = result(&call.name);
        request.messages.push(ChatMessage::Tool { tool_call_id: call.id, content });
    }
}

#[tokio::test]
async fn demo_answer_contains_tool_results() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/demo.toml");
    let config = toml::from_str::<LlmConfig>(&format!(
        "provider = 'scripted'\nscript = '{}'",
        path.display()
    ));
    let model = resolve(&config.unwrap(), &|_| None).unwrap().model;

    let mut request = prompt("What is in this folder, and which files mention the bus?");
    let mut called = Vec::new();
    let last = loop {
        let answer = answer(&*model, request.clone()).await.unwrap();
        if answer.tool_calls.is_empty() {
            break answer;
        }
        called.extend(
            answer.tool_calls.iter().map(|call| (call.name.clone(), call.arguments.clone())),
        );
        append(&mut request, answer, |tool| format!("<result of {tool}>"));
    };
    let expected = [
        ("list_files", "{}"),
        ("search", r#"{"pattern":"bus"}"#),
        ("bash", r#"{"command":"wc -w *.md"}"#),
        ("read_file", r#"{"path":"notes.md"}"#),
    ];
    assert_eq!(called, expected.map(|(name, arguments)| (name.to_owned(), arguments.to_owned())));
    for (tool, _) in expected {
        assert!(last.text.contains(&format!("<result of {tool}>")), "{}", last.text);
    }
    assert_eq!(last.finish_reason, FinishReason::Stop);
}

#[tokio::test]
async fn last_user_message_selects_scene() {
    let model = ScriptedModel::new([
        ScriptedTurn::text("default"),
        ScriptedTurn::text("bus 1").when("the bus").call("look", json!({})),
        ScriptedTurn::text("bus 2"),
        ScriptedTurn::text("train").when("train"),
    ]);
    let mut request = prompt("Where is THE BUS?");
    for expected in ["bus 1", "bus 2"] {
        let answer = answer(&model, request.clone()).await.unwrap();
        assert_eq!(answer.text, expected);
        append(&mut request, answer, |_| "seen".to_owned());
    }
    for (message, expected) in [("A train!", "train"), ("Hello", "default"), ("the bus", "bus 1")] {
        request.messages.push(ChatMessage::User(message.to_owned()));
        let answer = answer(&model, request.clone()).await.unwrap();
        assert_eq!(answer.text, expected);
        append(&mut request, answer, |_| "seen".to_owned());
    }
}

#[tokio::test]
async fn script_errors_name_turn() {
    let model = ScriptedModel::new([
        ScriptedTurn::text("one").when("go"),
        ScriptedTurn::text("{{result.look}}"),
    ]);
    let mut request = prompt("go");
    let first = answer(&model, request.clone()).await.unwrap();
    append(&mut request, first.clone(), |_| String::new());
    let error = answer(&model, request.clone()).await.unwrap_err();
    assert!(matches!(error, ChatError::Script { turn: 2, .. }), "{error}");

    append(&mut request, first, |_| String::new());
    let error = answer(&model, request).await.unwrap_err();
    assert!(matches!(error, ChatError::Script { turn: 3, .. }), "{error}");

    let error = answer(&model, prompt("stop")).await.unwrap_err();
    assert!(matches!(error, ChatError::Script { turn: 1, .. }), "{error}");
    let error = answer(&ScriptedModel::new([]), prompt("go")).await.unwrap_err();
    assert!(matches!(error, ChatError::Script { turn: 1, .. }), "{error}");
}

#[tokio::test]
async fn call_ids_are_unique() {
    let turn = || ScriptedTurn::text("").call("a", json!({})).call("a", json!({}));
    let model = ScriptedModel::new([turn(), turn()]);
    let mut ids = Vec::new();
    for session in ["one", "two"] {
        let mut request = ChatRequest { session: session.to_owned(), ..prompt("go") };
        for _ in 0..2 {
            let answer = answer(&model, request.clone()).await.unwrap();
            ids.extend(answer.tool_calls.iter().map(|call| call.id.clone()));
            append(&mut request, answer, |_| String::new());
        }
    }
    let count = ids.len();
    ids.sort();
    ids.dedup();
    assert_eq!((ids.len(), count), (8, 8));
}

#[tokio::test]
async fn chunk_sets_piece_size() {
    let mut turn = ScriptedTurn::text("one two\n three").call("a", json!({"x": 1}));
    for (chunk, texts, arguments) in [(None, 4, 1), (Some(4), 4, 2)] {
        turn.chunk = chunk;
        let (events, _) = events(&ScriptedModel::new([turn.clone()]), prompt("go")).await;
        let count = |wanted: fn(&ChatEvent) -> bool| events.iter().filter(|e| wanted(e)).count();
        assert_eq!(count(|event| matches!(event, ChatEvent::Text(_))), texts);
        let pieces = count(|event| matches!(event, ChatEvent::ToolCallDelta { id: None, .. }));
        assert_eq!(pieces, arguments);
    }
}

#[tokio::test]
async fn calls_are_omitted_if_forbidden() {
    let model = ScriptedModel::new([ScriptedTurn::text("words").call("a", json!({}))]);
    let request = ChatRequest { tool_choice: ToolChoice::None, ..prompt("go") };
    let answer = answer(&model, request).await.unwrap();
    assert!(answer.tool_calls.is_empty());
    assert_eq!(answer.finish_reason, FinishReason::Stop);
}

#[tokio::test]
async fn scripted_failure_is_returned() {
    let fail = |failure| ScriptedModel::new([ScriptedTurn::failing(failure)]);
    let error = answer(&fail(ScriptedFailure::RateLimited), prompt("go")).await.unwrap_err();
    assert!(matches!(error, ChatError::RateLimited { retry_after: Some(_), .. }));
    let error = answer(&fail(ScriptedFailure::ContextOverflow), prompt("go")).await.unwrap_err();
    assert!(matches!(error, ChatError::ContextOverflow { .. }));

    let mut turn = ScriptedTurn::failing(ScriptedFailure::Interrupted);
    turn.text = "half".to_owned();
    let (events, error) = events(&ScriptedModel::new([turn]), prompt("go")).await;
    assert_eq!(events, [ChatEvent::Text("half".into())]);
    assert!(matches!(error, Some(ChatError::Interrupted { .. })));
}
