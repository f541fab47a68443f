//! Streamed answers.

use std::time::Duration;

use rockbot_llm::{ChatEvent, FinishReason, ToolCallRequest, Usage};
use serde_json::{Value, json};

use crate::{
    answer, events, prompt,
    server::{CannedResponse, Server, sse},
};

fn delta(delta: &Value) -> Value {
    json!({"choices": [{"index": 0, "delta": delta, "finish_reason": null}]})
}

fn text(text: &str) -> Value {
    delta(&json!({"content": text}))
}

fn finish(reason: &str) -> Value {
    json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
}

fn call(piece: &Value) -> Value {
    delta(&json!({"tool_calls": [piece]}))
}

fn parallel_calls() -> Vec<Value> {
    vec![
        delta(&json!({"role": "assistant", "content": null})),
        text("Grüße, "),
        text("I look 🔎."),
        call(
            &json!({"index": 0, "id": "c1", "type": "function", "function": {"name": "list_files", "arguments": ""}}),
        ),
        call(
            &json!({"index": 1, "id": "c2", "type": "function", "function": {"name": "search", "arguments": "{\"pat"}}),
        ),
        call(&json!({"index": 0, "function": {"arguments": "{}"}})),
        call(&json!({"index": 1, "function": {"arguments": "tern\": \"büs\"}"}})),
        finish("tool_calls"),
        json!({"choices": [], "usage": {"prompt_tokens": 12, "completion_tokens": 34}}),
    ]
}

#[tokio::test]
async fn parallel_calls_are_assembled_from_any_chunks() {
    for size in [1, 2, 3, 7, 64, 100_000] {
        let server =
            Server::start([CannedResponse::events(&parallel_calls()).with_chunk_size(size)]).await;
        let answer = answer(&server.model(), prompt("Hello.")).await.unwrap();
        assert_eq!(answer.text, "Grüße, I look 🔎.");
        let expected = |id: &str, name: &str, arguments: &str| ToolCallRequest {
            id: id.to_owned(),
            name: name.to_owned(),
            arguments: arguments.to_owned(),
        };
        let calls =
            [expected("c1", "list_files", "{}"), expected("c2", "search", r#"{"pattern": "büs"}"#)];
        assert_eq!(answer.tool_calls, calls);
        assert_eq!(answer.finish_reason, FinishReason::ToolCalls);
        assert_eq!(
            answer.usage,
            Some(Usage { prompt_tokens: 12, completion_tokens: 34, cost_micros: None })
        );
    }
}

#[tokio::test]
async fn finish_event_follows_usage() {
    let server = Server::start([CannedResponse::events(&parallel_calls())]).await;
    let (events, error) = events(&server.model(), prompt("Hello.")).await;
    assert!(error.is_none());
    let [.., usage, end] = events.as_slice() else { panic!("{events:?}") };
    assert!(matches!(usage, ChatEvent::Usage(_)));
    assert_eq!(*end, ChatEvent::Finished(FinishReason::ToolCalls));
}

#[tokio::test]
async fn complete_calls_without_index_stay_separate() {
    let whole = |a: u32| json!({"id": "", "function": {"name": "add", "arguments": {"a": a}}});
    let both = delta(&json!({"tool_calls": [whole(1), whole(2)]}));
    let server = Server::start([CannedResponse::events(&[both, finish("stop")])]).await;
    let answer = answer(&server.model(), prompt("Hello.")).await.unwrap();
    let arguments: Vec<_> = answer.tool_calls.iter().map(|call| call.arguments.as_str()).collect();
    assert_eq!(arguments, [r#"{"a":1}"#, r#"{"a":2}"#]);
    assert_ne!(answer.tool_calls[0].id, answer.tool_calls[1].id);
    assert_eq!(answer.finish_reason, FinishReason::ToolCalls);
}

#[tokio::test]
async fn keep_alives_yield_no_events() {
    let body = format!(
        ": OPENROUTER PROCESSING\n\n: OPENROUTER PROCESSING\n\n{}: ping\n\n{}data: [DONE]\n\n",
        sse(&[text("Hi")]),
        sse(&[finish("stop")])
    );
    let server = Server::start([CannedResponse::stream(&body)]).await;
    let (events, error) = events(&server.model(), prompt("Hello.")).await;
    assert!(error.is_none());
    assert_eq!(events, [ChatEvent::Text("Hi".into()), ChatEvent::Finished(FinishReason::Stop)]);
}

#[tokio::test]
async fn stream_is_complete_with_reason_or_done() {
    let without_done = CannedResponse::stream(&sse(&[text("Hi"), finish("length")]));
    let broken_after_reason =
        CannedResponse::stream(&sse(&[text("Hi"), finish("length")])).with_abort();
    let without_reason = CannedResponse::events(&[text("Hi")]);
    for (response, reason) in [
        (without_done, FinishReason::Length),
        (broken_after_reason, FinishReason::Length),
        (without_reason, FinishReason::Stop),
    ] {
        let server = Server::start([response]).await;
        let answer = answer(&server.model(), prompt("Hello.")).await.unwrap();
        assert_eq!((answer.text.as_str(), answer.finish_reason), ("Hi", reason));
    }
}

#[tokio::test]
async fn unclosed_stream_does_not_delay_answer() {
    let response = CannedResponse::stream(&sse(&[text("Hi"), finish("stop")])).with_hang();
    let server = Server::start([response]).await;
    let model = server.model_with(|settings| settings.idle_timeout = Duration::from_millis(200));
    assert_eq!(answer(&model, prompt("Hello.")).await.unwrap().text, "Hi");
}

#[tokio::test]
async fn text_is_streamed_before_completion() {
    use futures_util::StreamExt;
    use rockbot_llm::ChatModel;

    let response = CannedResponse::stream(&sse(&[text("first")])).with_hang();
    let server = Server::start([response]).await;
    let mut stream = server.model().stream(prompt("Hello.")).await.unwrap();
    let event = stream.next().await.unwrap().unwrap();
    assert_eq!(event, ChatEvent::Text("first".into()));
}
