//! Answers as servers stream them.

use std::time::Duration;

use rockbot_llm::{ChatEvent, FinishReason, ToolCallRequest, Usage};
use serde_json::{Value, json};

use crate::{
    answer, events, say,
    server::{Reply, Server, sse},
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
async fn parallel_calls_are_put_together_wherever_the_network_cuts_the_stream() {
    for size in [1, 2, 3, 7, 64, 100_000] {
        let server = Server::start([Reply::events(&parallel_calls()).in_chunks_of(size)]).await;
        let answer = answer(&server.model(), say("Hello.")).await.unwrap();
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
async fn the_end_is_the_last_event_although_the_usage_follows_the_reason() {
    let server = Server::start([Reply::events(&parallel_calls())]).await;
    let (events, error) = events(&server.model(), say("Hello.")).await;
    assert!(error.is_none());
    let [.., usage, end] = events.as_slice() else { panic!("{events:?}") };
    assert!(matches!(usage, ChatEvent::Usage(_)));
    assert_eq!(*end, ChatEvent::Finished(FinishReason::ToolCalls));
}

#[tokio::test]
async fn whole_calls_without_index_and_id_stay_apart() {
    let whole = |a: u32| json!({"id": "", "function": {"name": "add", "arguments": {"a": a}}});
    let both = delta(&json!({"tool_calls": [whole(1), whole(2)]}));
    let server = Server::start([Reply::events(&[both, finish("stop")])]).await;
    let answer = answer(&server.model(), say("Hello.")).await.unwrap();
    let arguments: Vec<_> = answer.tool_calls.iter().map(|call| call.arguments.as_str()).collect();
    assert_eq!(arguments, [r#"{"a":1}"#, r#"{"a":2}"#]);
    assert_ne!(answer.tool_calls[0].id, answer.tool_calls[1].id);
    assert_eq!(answer.finish_reason, FinishReason::ToolCalls);
}

#[tokio::test]
async fn keep_alives_between_events_are_no_events() {
    let body = format!(
        ": OPENROUTER PROCESSING\n\n: OPENROUTER PROCESSING\n\n{}: ping\n\n{}data: [DONE]\n\n",
        sse(&[text("Hi")]),
        sse(&[finish("stop")])
    );
    let server = Server::start([Reply::stream(&body)]).await;
    let (events, error) = events(&server.model(), say("Hello.")).await;
    assert!(error.is_none());
    assert_eq!(events, [ChatEvent::Text("Hi".into()), ChatEvent::Finished(FinishReason::Stop)]);
}

#[tokio::test]
async fn a_stream_is_complete_with_a_reason_or_with_its_mark() {
    let without_mark = Reply::stream(&sse(&[text("Hi"), finish("length")]));
    let broken_after_reason = Reply::stream(&sse(&[text("Hi"), finish("length")])).then_break();
    let without_reason = Reply::events(&[text("Hi")]);
    for (reply, reason) in [
        (without_mark, FinishReason::Length),
        (broken_after_reason, FinishReason::Length),
        (without_reason, FinishReason::Stop),
    ] {
        let server = Server::start([reply]).await;
        let answer = answer(&server.model(), say("Hello.")).await.unwrap();
        assert_eq!((answer.text.as_str(), answer.finish_reason), ("Hi", reason));
    }
}

#[tokio::test]
async fn a_server_that_never_closes_a_finished_stream_is_not_waited_for() {
    let reply = Reply::stream(&sse(&[text("Hi"), finish("stop")])).then_hang();
    let server = Server::start([reply]).await;
    let model = server.model_with(|settings| settings.idle_timeout = Duration::from_millis(200));
    assert_eq!(answer(&model, say("Hello.")).await.unwrap().text, "Hi");
}

#[tokio::test]
async fn text_arrives_before_the_answer_is_complete() {
    use futures_util::StreamExt;
    use rockbot_llm::ChatModel;

    let reply = Reply::stream(&sse(&[text("first")])).then_hang();
    let server = Server::start([reply]).await;
    let mut stream = server.model().stream(say("Hello.")).await.unwrap();
    let event = stream.next().await.unwrap().unwrap();
    assert_eq!(event, ChatEvent::Text("first".into()));
}
