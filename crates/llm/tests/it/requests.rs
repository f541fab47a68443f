//! Request bodies.

use rockbot_llm::{ChatMessage, ChatRequest, ToolCallRequest, ToolChoice, ToolDefinition};
use serde_json::json;

use crate::{
    answer, prompt,
    server::{CannedResponse, Server},
};

fn conversation() -> ChatRequest {
    let call = |id: &str, name: &str, arguments: &str| ToolCallRequest {
        id: id.to_owned(),
        name: name.to_owned(),
        arguments: arguments.to_owned(),
    };
    let result = |id: &str, content: &str| ChatMessage::Tool {
        tool_call_id: id.to_owned(),
        content: content.to_owned(),
    };
    ChatRequest {
        model: None,
        messages: vec![
            ChatMessage::System("Be brief.".into()),
            ChatMessage::User("Find the bus.".into()),
            ChatMessage::Assistant {
                text: String::new(),
                tool_calls: vec![
                    call("c1", "search", r#"{"q":"bus"}"#),
                    call("c2", "now", "{oops"),
                ],
            },
            result("c1", "bus.md"),
            result("c2", "(tool failed: invalid arguments)"),
            ChatMessage::Assistant { text: "In bus.md.".into(), tool_calls: vec![] },
            ChatMessage::User("Thanks.".into()),
        ],
        tools: vec![ToolDefinition {
            name: "search".into(),
            description: "Searches.".into(),
            parameters: json!({"type": "object", "properties": {"q": {"type": "string"}}}),
        }],
        tool_choice: ToolChoice::Required,
        max_tokens: Some(500),
        temperature: Some(0.2),
        session: "never sent".into(),
    }
}

#[tokio::test]
async fn conversation_with_tools_is_serialized() {
    let server = Server::start([CannedResponse::events(&[])]).await;
    answer(&server.model(), conversation()).await.unwrap();

    let request = &server.requests()[0];
    assert_eq!(request.path, "/v1/chat/completions");
    assert_eq!(request.headers["authorization"], "Bearer sk-test");
    assert_eq!(request.headers["content-type"], "application/json");
    let call = |id: &str, name: &str, arguments: &str| {
        let function = json!({"name": name, "arguments": arguments});
        json!({"id": id, "type": "function", "function": function})
    };
    assert_eq!(
        request.body,
        json!({
            "model": "test-model",
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "Find the bus."},
                {"role": "assistant", "content": null, "tool_calls": [
                    call("c1", "search", r#"{"q":"bus"}"#),
                    call("c2", "now", r#"{"invalid_json":"{oops"}"#),
                ]},
                {"role": "tool", "tool_call_id": "c1", "content": "bus.md"},
                {"role": "tool", "tool_call_id": "c2", "content": "(tool failed: invalid arguments)"},
                {"role": "assistant", "content": "In bus.md."},
                {"role": "user", "content": "Thanks."},
            ],
            "tools": [{"type": "function", "function": {
                "name": "search",
                "description": "Searches.",
                "parameters": {"type": "object", "properties": {"q": {"type": "string"}}},
            }}],
            "tool_choice": "required",
            "parallel_tool_calls": true,
            "max_tokens": 500,
            "temperature": 0.2,
            "stream": true,
            "stream_options": {"include_usage": true},
        })
    );
}

#[tokio::test]
async fn request_without_tools_omits_tool_fields() {
    let server = Server::start([CannedResponse::events(&[])]).await;
    let model = server.model_with(|settings| {
        settings.api_key = None;
        settings.max_tokens = Some(9);
    });
    let request = ChatRequest { model: Some("other".into()), ..prompt("Hello.") };
    answer(&model, request).await.unwrap();

    let request = &server.requests()[0];
    assert!(!request.headers.contains_key("authorization"));
    assert_eq!(
        request.body,
        json!({
            "model": "other",
            "messages": [{"role": "user", "content": "Hello."}],
            "max_tokens": 9,
            "stream": true,
            "stream_options": {"include_usage": true},
        })
    );
}
