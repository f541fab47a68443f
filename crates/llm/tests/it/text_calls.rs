//! Tool calls in the text of answers, through a server that knows nothing about them.
//!
//! The outputs have the forms that the chat templates and model cards of their families document.

use std::sync::Arc;

use futures_util::{FutureExt, StreamExt};
use rockbot_llm::{
    AdaptedModel, AssembledAnswer, ChatError, ChatEvent, ChatMessage, ChatModel, ChatRequest,
    FinishReason, ModelCapabilities, ToolCallMode, ToolCallRequest, ToolChoice, ToolDefinition,
};
use serde_json::{Value, json};

use crate::{
    answer, events,
    server::{CannedResponse, Server},
};

fn tools() -> Vec<ToolDefinition> {
    let tool = |name: &str, properties: Value| ToolDefinition {
        name: name.to_owned(),
        description: format!("Tool {name}."),
        parameters: json!({"type": "object", "properties": properties}),
    };
    vec![
        tool("get_weather", json!({"city": {"type": "string"}, "days": {"type": "integer"}})),
        tool("search", json!({"query": {"type": "string"}})),
        tool("now", json!({})),
    ]
}

fn request() -> ChatRequest {
    let user = ChatMessage::User("How is the weather in Bern?".to_owned());
    ChatRequest { messages: vec![user], tools: tools(), ..ChatRequest::default() }
}

fn adapted(server: &Server, name: &str) -> AdaptedModel {
    let capabilities =
        ModelCapabilities { tool_calls: ToolCallMode::Text, ..ModelCapabilities::for_model(name) };
    AdaptedModel::new(Arc::new(server.model()), name, capabilities)
}

/// Returns the response of a server that streams `output` in deltas of `size` characters.
fn response(output: &str, size: usize) -> CannedResponse {
    let chars: Vec<char> = output.chars().collect();
    let delta = |piece: &[char]| {
        let content: String = piece.iter().collect();
        json!({"choices": [{"index": 0, "delta": {"content": content}}]})
    };
    let mut chunks: Vec<Value> = chars.chunks(size).map(delta).collect();
    chunks.push(json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}));
    chunks.push(json!({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 7}}));
    CannedResponse::events(&chunks)
}

async fn read(output: &str, size: usize) -> Result<AssembledAnswer, ChatError> {
    let server = Server::start([response(output, size)]).await;
    answer(&adapted(&server, "gemma3"), request()).await
}

/// Checks text and calls of an output, for several sizes of its pieces.
async fn check(output: &str, text: &str, calls: &[(&str, Value)]) {
    for size in [1, 2, 5, 17, 100_000] {
        let answer = read(output, size).await.unwrap();
        let found: Vec<_> = answer
            .tool_calls
            .iter()
            .map(|call| {
                assert!(call.id.starts_with("call_"), "{call:?}");
                (call.name.as_str(), serde_json::from_str(&call.arguments).unwrap())
            })
            .collect();
        assert_eq!(found, calls, "pieces of {size}: {output}");
        assert_eq!(answer.text, text, "pieces of {size}: {output}");
        let reason = if calls.is_empty() { FinishReason::Stop } else { FinishReason::ToolCalls };
        assert_eq!((answer.finish_reason, answer.usage.is_some()), (reason, true));
    }
}

fn bern() -> Value {
    json!({"city": "Bern", "days": 2})
}

#[tokio::test]
async fn unreadable_call_after_another_is_reported() {
    let first = "<tool_call>\n{\"name\": \"now\"}\n</tool_call>\n";
    let unreadable = [
        "<tool_call>\n{get_weather(Bern)}\n</tool_call>",
        "<tool_call>\n{get_weather",
        "<invoke name=>\n<parameter name=\"city\">Bern</parameter>\n</invoke>",
        "<tool_call>[1, 2]</tool_call>",
    ];
    for second in unreadable {
        let answer = read(&format!("{first}{second}"), 5).await.unwrap();
        let names: Vec<_> = answer.tool_calls.iter().map(|call| call.name.as_str()).collect();
        assert_eq!(names, ["now", "unreadable_tool_call"], "{second}");
        let arguments: Value = serde_json::from_str(&answer.tool_calls[1].arguments).unwrap();
        let error = arguments["error"].as_str().unwrap();
        assert!(error.contains("did not run"), "{second}: {arguments}");
    }
    let broken = r#"{"name": "search", "arguments": {"query": Bern}}"#;
    let answer = read(&format!("{first}{broken}"), 5).await.unwrap();
    assert_eq!(answer.tool_calls[1].name, "search");
    assert_eq!(answer.tool_calls[1].arguments, r#"{"query": Bern}"#);
    let unknown = r#"{"name": "find", "arguments": {"query": "Bern"}}"#;
    check(
        &format!("{first}{unknown}"),
        "",
        &[("now", json!({})), ("find", json!({"query": "Bern"}))],
    )
    .await;
    for text in ["That <tool_call> is all.", "{\"answer\": 42}", "{\"name\": \"Ada\"}"] {
        check(&format!("{first}{text}"), "", &[("now", json!({}))]).await;
    }
}

#[tokio::test]
async fn hermes_calls_are_found() {
    let one = r#"<tool_call>
{"name": "get_weather", "arguments": {"city": "Bern", "days": 2}}
</tool_call>"#;
    check(one, "", &[("get_weather", bern())]).await;
    let output = format!("I'll check.\n\n{one}\n<tool_call>\n{{\"name\": \"now\"}}\n</tool_call>");
    check(&output, "I'll check.", &[("get_weather", bern()), ("now", json!({}))]).await;
    let unclosed = one.trim_end_matches("\n</tool_call>");
    check(unclosed, "", &[("get_weather", bern())]).await;
    let invented = format!("{one}\n<tool_response>\n20 °C\n</tool_response>\nIt is warm.\n{one}");
    check(&invented, "", &[("get_weather", bern())]).await;
}

#[tokio::test]
async fn qwen_coder_and_glm_calls_are_found() {
    let output = "Looking.\n<tool_call>\n<function=get_weather>\n<parameter=city>\nBern\n</parameter>\n\
                  <parameter=days>\n2\n</parameter>\n</function>\n</tool_call>";
    check(output, "Looking.", &[("get_weather", bern())]).await;
    let output = "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Bern</arg_value>\n\
                  <arg_key>days</arg_key>\n<arg_value>2</arg_value>\n</tool_call>";
    check(output, "", &[("get_weather", bern())]).await;
}

#[tokio::test]
async fn llama_calls_are_found() {
    let call = r#"{"name": "get_weather", "parameters": {"city": "Bern", "days": 2}}"#;
    check(call, "", &[("get_weather", bern())]).await;
    let output = format!("<|python_tag|>{call}<|eom_id|>");
    check(&output, "", &[("get_weather", bern())]).await;
    let output = format!("{call}; {call}");
    check(&output, "", &[("get_weather", bern()), ("get_weather", bern())]).await;
    let typed = r#"{"type": "function", "name": "search", "parameters": {"query": "Bern"}}"#;
    check(
        &format!("Two calls:\n{call}\n{typed}"),
        "Two calls:",
        &[("get_weather", bern()), ("search", json!({"query": "Bern"}))],
    )
    .await;
    let output = r#"<function=search>{"query": "a <b> c"}</function>"#;
    check(output, "", &[("search", json!({"query": "a <b> c"}))]).await;
}

#[tokio::test]
async fn mistral_calls_are_found() {
    let output = r#"[TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Bern", "days": 2}, "id": "VvvODy9mT"}, {"name": "now", "arguments": {}}]</s>"#;
    check(output, "", &[("get_weather", bern()), ("now", json!({}))]).await;
    let output = r#"One moment.[TOOL_CALLS]get_weather{"city": "Bern", "days": 2}[TOOL_CALLS]search[CALL_ID]a1b2c3d4e[ARGS]{"query": "{[TOOL"}"#;
    let calls = [("get_weather", bern()), ("search", json!({"query": "{[TOOL"}))];
    check(output, "One moment.", &calls).await;
}

#[tokio::test]
async fn deepseek_calls_are_found() {
    let output = "Let me see.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n\
        ```json\n{\"city\": \"Bern\", \"days\": 2}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function\
        <｜tool▁sep｜>now\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>";
    check(output, "Let me see.", &[("get_weather", bern()), ("now", json!({}))]).await;
    let output = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>\
        {\"city\": \"Bern\", \"days\": 2}<｜tool▁call▁end｜><｜tool▁calls▁end｜>";
    check(output, "", &[("get_weather", bern())]).await;
}

/// The template of DeepSeek-R1 begins the reasoning itself.
#[tokio::test]
async fn calls_before_end_of_reasoning_are_dropped() {
    let now = r#"<tool_call>{"name": "now"}</tool_call>"#;
    let weather = r#"<tool_call>
{"name": "get_weather", "arguments": {"city": "Bern", "days": 2}}
</tool_call>"#;
    let call = [("get_weather", bern())];
    let output = format!("Shall I {now}? No.\n</think>\n\n{weather}");
    check(&output, "Shall I</think>", &call).await;
    let invented =
        format!("I write {now}\n<tool_response>noon</tool_response>\n</think>\n{weather}");
    check(&invented, "I write</think>", &call).await;
    let mentioned = format!("A <tool_call> is needed.\n</think>\n\n{weather}");
    check(&mentioned, "A <tool_call> is needed.\n</think>", &call).await;
    let json = "{\"name\": \"now\", \"arguments\": {}}\n</think>\n\nIt is noon.";
    check(json, "</think>\n\nIt is noon.", &[]).await;
    check("Easy.\n</think>\n\nIt is noon.", "Easy.\n</think>\n\nIt is noon.", &[]).await;
    let later = format!("{weather}\nI <think>think</think>.");
    check(&later, "", &call).await;
}

#[tokio::test]
async fn fenced_and_invoked_calls_are_found() {
    let output = "Like this:\n```json\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Bern\", \
                  \"days\": 2}}\n```\nDone.";
    check(output, "Like this:", &[("get_weather", bern())]).await;
    let output = "```tool_call\n[{\"name\": \"now\", \"arguments\": {}}]";
    check(output, "", &[("now", json!({}))]).await;
    let output = "<function_calls>\n<invoke name=\"get_weather\">\n<parameter name=\"city\">Bern\
                  </parameter>\n<parameter name=\"days\">2</parameter>\n</invoke>\n</function_calls>";
    check(output, "", &[("get_weather", bern())]).await;
    let output = "<invoke name=\"search\"><parameter name=\"query\">2026</parameter></invoke>";
    check(output, "", &[("search", json!({"query": "2026"}))]).await;
}

#[tokio::test]
async fn reasoning_is_not_searched_for_calls() {
    let reasoning =
        "<think>\nI could write <tool_call>{\"name\": \"now\"}</tool_call> here.\n</think>";
    let output = format!("{reasoning}\n\n<tool_call>{{\"name\": \"search\"}}</tool_call>");
    check(&output, reasoning, &[("search", json!({}))]).await;
}

#[tokio::test]
async fn other_text_is_unchanged() {
    for output in [
        "Plain text. \n",
        "{\"name\": \"Ada\", \"arguments\": {\"age\": 36}}\n",
        "{\"name\": \"now\"}",
        "```json\n{\"name\": \"Ada\"}\n```\nThat is JSON.",
        "```json\n{\"city\": \"Bern\"}\n```",
        "```rust\nlet a = [1, 2];\n```\n",
        "a < b, `code`, [link](x) and <b>bold</b>\n[x] done\n- {a}",
        "<tool_call>I cannot do that.</tool_call> Sorry.",
        "Write <tool_call> to call, or [TOOL_CALLS] or <function=.",
        "Inline {\"name\": \"now\", \"arguments\": {}} is no call.",
        "<think>unfinished </thi",
        "<",
        "```",
    ] {
        check(output, output, &[]).await;
    }
}

#[tokio::test]
async fn marks_in_copied_text_begin_no_call() {
    let copied = "see </tool_call><function=search><parameter=query>x</parameter></function>";
    let call = json!({"name": "get_weather", "arguments": {"city": copied}});
    let output = format!("<tool_call>\n{call}\n</tool_call>");
    check(&output, "", &[("get_weather", json!({"city": copied}))]).await;

    let call =
        json!([{"name": "get_weather", "arguments": {"city": "<s>Bern</s> and [TOOL_CALLS]"}}]);
    let answer = read(&format!("[TOOL_CALLS] {call}</s>"), 7).await.unwrap();
    assert_eq!(answer.tool_calls.len(), 1, "{answer:?}");
}

#[tokio::test]
async fn repeated_argument_is_invalid() {
    let output = "<function=search>\n<parameter=query>a</parameter>\n<parameter=query>b</parameter>\n</function>";
    let answer = read(output, 9).await.unwrap();
    let [call] = &answer.tool_calls[..] else { panic!("{answer:?}") };
    assert!(call.arguments.contains("query is given twice"), "{call:?}");
    assert!(!serde_json::from_str::<Value>(&call.arguments).unwrap().is_object());
}

#[tokio::test]
async fn invalid_arguments_are_kept_for_the_tool() {
    let output = "<tool_call>\n{\"name\": \"search\", \"arguments\": {\"query\": \"two\nlines\"}}\n</tool_call>";
    let answer = read(output, 3).await.unwrap();
    let [call] = &answer.tool_calls[..] else { panic!("{answer:?}") };
    assert_eq!(
        (call.name.as_str(), call.arguments.as_str()),
        ("search", "{\"query\": \"two\nlines\"}")
    );
}

#[tokio::test]
async fn text_before_a_call_is_streamed_at_once() {
    let first = json!({"choices": [{"index": 0, "delta": {"content": "Looking up. <"}}]});
    let body = format!("data: {first}\n\n");
    let server = Server::start([CannedResponse::stream(&body).with_hang()]).await;
    let mut stream = adapted(&server, "gemma3").stream(request()).await.unwrap();
    let event = stream.next().await.unwrap().unwrap();
    assert_eq!(event, ChatEvent::Text("Looking up.".to_owned()));
    assert!(stream.next().now_or_never().is_none(), "the rest may begin a call");
}

#[tokio::test]
async fn text_of_a_call_is_never_streamed() {
    let output = "Wait.\n<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>\n";
    let server = Server::start([response(output, 1)]).await;
    let (events, error) = events(&adapted(&server, "gemma3"), request()).await;
    assert!(error.is_none());
    let texts = events.iter().filter_map(|event| match event {
        ChatEvent::Text(text) => Some(text.as_str()),
        _ => None,
    });
    assert_eq!(texts.collect::<String>(), "Wait.");
}

#[tokio::test]
async fn oversized_blocks_end_the_answer() {
    let large =
        format!("<tool_call>{{\"name\": \"search\", \"arguments\": \"{}", "x".repeat(3 << 20));
    let error = read(&large, 500_000).await.unwrap_err();
    assert!(matches!(error, ChatError::TooLarge { .. }), "{error}");
    let many = "<tool_call>{\"name\": \"now\"}</tool_call>".repeat(129);
    let error = read(&many, 4000).await.unwrap_err();
    assert!(matches!(error, ChatError::TooLarge { limit: 128, .. }), "{error}");
    let json = format!("{{\"name\": \"{}", "x".repeat(300 * 1024));
    assert_eq!(read(&json, 50_000).await.unwrap().text, json);
    let nested = format!("{{\"name\": {}", "[".repeat(100_000));
    assert_eq!(read(&nested, 50_000).await.unwrap().text, nested);
}

#[tokio::test]
async fn calls_are_dropped_when_none_are_allowed() {
    let output = "Before. <tool_call>{\"name\": \"now\"}</tool_call> After.";
    let server = Server::start([response(output, 4)]).await;
    let request = ChatRequest { tool_choice: ToolChoice::None, ..request() };
    let answer = answer(&adapted(&server, "gemma3"), request).await.unwrap();
    assert_eq!((answer.text.as_str(), answer.tool_calls.len()), ("Before.  After.", 0));
    assert_eq!(answer.finish_reason, FinishReason::Stop);
}

#[tokio::test]
async fn answer_to_request_without_tools_is_unchanged() {
    let output = "Write <tool_call>{\"name\": \"now\"}</tool_call>.";
    let server = Server::start([response(output, 4)]).await;
    let request = ChatRequest { tools: Vec::new(), ..request() };
    let answer = answer(&adapted(&server, "gemma3"), request).await.unwrap();
    assert_eq!((answer.text.as_str(), answer.tool_calls.len()), (output, 0));
}

#[tokio::test]
async fn request_describes_tools_in_its_texts() {
    let server = Server::start([response("It is warm.", 5)]).await;
    let mut request = request();
    request.messages.push(ChatMessage::Assistant {
        text: String::new(),
        tool_calls: vec![ToolCallRequest {
            id: "1".to_owned(),
            name: "get_weather".to_owned(),
            arguments: bern().to_string(),
        }],
    });
    let content = "20 °C".to_owned();
    request.messages.push(ChatMessage::Tool { tool_call_id: "1".to_owned(), content });
    answer(&adapted(&server, "gemma3"), request).await.unwrap();

    let body = &server.requests()[0].body;
    for field in ["tools", "tool_choice", "parallel_tool_calls"] {
        assert!(body.get(field).is_none(), "{field}");
    }
    let roles: Vec<_> = body["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["role"].as_str().unwrap())
        .collect();
    assert_eq!(roles, ["system", "user", "assistant", "user"]);
    let text = |index: usize| body["messages"][index]["content"].as_str().unwrap();
    for part in ["\"name\": \"get_weather\"", "Tool search.", "<tool_call>", "\"days\":"] {
        assert!(text(0).contains(part), "{part}: {}", text(0));
    }
    assert!(text(2).starts_with("<tool_call>") && text(2).contains("Bern"), "{}", text(2));
    assert!(text(3).contains("<tool_response") && text(3).contains("20 °C"), "{}", text(3));
}

#[tokio::test]
async fn native_calls_are_unchanged() {
    let server = Server::start([response("<tool_call>{\"name\": \"now\"}</tool_call>", 5)]).await;
    let capabilities = ModelCapabilities::for_model("gpt-4o");
    let model = AdaptedModel::new(Arc::new(server.model()), "gpt-4o", capabilities);
    let answer = answer(&model, request()).await.unwrap();
    assert!(answer.tool_calls.is_empty() && answer.text.starts_with("<tool_call>"));
    assert_eq!(server.requests()[0].body["tools"].as_array().unwrap().len(), 3);
}
