//! Images and audio in requests.

use std::sync::Arc;

use rockbot_llm::{
    AdaptedModel, ChatMessage, ChatRequest, Media, ModelCapabilities, ToolCallRequest,
};
use serde_json::{Value, json};

use crate::{
    answer,
    server::{CannedResponse, Server},
};

/// The first bytes of a PNG file and of an MP3 file.
const PNG: &str = "iVBORw0KGgo=";
const MP3: &str = "SUQzBAAA";

fn media(data: &str) -> Media {
    Media::from_base64(data).unwrap()
}

fn result(id: &str) -> ChatMessage {
    ChatMessage::Tool { tool_call_id: id.to_owned(), content: format!("result {id}") }
}

fn conversation() -> ChatRequest {
    let call = |id: &str| ToolCallRequest {
        id: id.to_owned(),
        name: "read".to_owned(),
        arguments: "{}".to_owned(),
    };
    let messages = vec![
        ChatMessage::User("Compare.".to_owned()),
        ChatMessage::Media(vec![media(PNG)]),
        ChatMessage::Assistant { text: String::new(), tool_calls: vec![call("1"), call("2")] },
        result("1"),
        ChatMessage::Media(vec![media(PNG)]),
        result("2"),
        ChatMessage::Media(vec![media(MP3)]),
    ];
    ChatRequest { messages, ..ChatRequest::default() }
}

async fn sent_messages(model_name: &str) -> Value {
    let server = Server::start([CannedResponse::events(&[])]).await;
    let capabilities = ModelCapabilities::for_model(model_name);
    let model = AdaptedModel::new(Arc::new(server.model()), model_name, capabilities);
    answer(&model, conversation()).await.unwrap();
    server.requests()[0].body["messages"].clone()
}

fn image() -> Value {
    json!({"type": "image_url", "image_url": {"url": format!("data:image/png;base64,{PNG}")}})
}

#[tokio::test]
async fn readable_media_is_sent_as_content_parts() {
    let messages = sent_messages("gemini-2.5-flash").await;
    assert_eq!(messages[0]["content"], json!([{"type": "text", "text": "Compare."}, image()]));
    assert_eq!(messages[2], json!({"role": "tool", "tool_call_id": "1", "content": "result 1"}));
    assert_eq!(messages[3], json!({"role": "tool", "tool_call_id": "2", "content": "result 2"}));
    assert_eq!(
        messages[4],
        json!({"role": "user", "content": [
            {"type": "text", "text": "From the tool results above:"},
            image(),
            {"type": "input_audio", "input_audio": {"data": MP3, "format": "mp3"}},
        ]})
    );
    assert_eq!(messages.as_array().unwrap().len(), 5);
}

#[tokio::test]
async fn unreadable_media_is_sent_as_a_note() {
    let messages = sent_messages("gpt-4o").await;
    assert_eq!(messages[0]["content"][1], image());
    let audio = messages[3]["content"].as_str().unwrap();
    assert_eq!(audio, "result 2\n[left out: audio/mpeg of 6 bytes; this model reads no audio]");
    assert_eq!(messages[4]["content"].as_array().unwrap().len(), 2);

    let messages = sent_messages("qwen3").await;
    assert_eq!(messages.as_array().unwrap().len(), 4);
    assert!(!messages.to_string().contains(PNG));
    let first = messages[0]["content"].as_str().unwrap();
    assert!(first.starts_with("Compare.\n[left out: image/png"), "{first}");
}

#[tokio::test]
async fn media_joins_results_in_texts() {
    let messages = sent_messages("llava").await;
    let last = &messages[2];
    assert_eq!((messages.as_array().unwrap().len(), &last["role"]), (3, &json!("user")));
    let text = last["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("result 1") && text.contains("reads no audio"), "{text}");
    assert_eq!(last["content"][1], image());
}

#[tokio::test]
async fn rejected_media_is_left_out() {
    let rejected = || CannedResponse::status(400, "unsupported image");
    let responses = [rejected(), CannedResponse::events(&[]), CannedResponse::events(&[])];
    let server = Server::start(responses.into_iter().chain([rejected(), rejected()])).await;
    let capabilities = ModelCapabilities::for_model("gpt-4o");
    let model = AdaptedModel::new(Arc::new(server.model()), "gpt-4o", capabilities);
    answer(&model, conversation()).await.unwrap();
    // The same images are not tried again.
    answer(&model, conversation()).await.unwrap();
    let with_images: Vec<_> =
        server.requests().iter().map(|request| request.body.to_string().contains(PNG)).collect();
    assert_eq!(with_images, [true, false, false]);
    let note = server.requests()[1].body["messages"][0]["content"].as_str().unwrap().to_owned();
    assert!(note.contains("[left out: image/png of 8 bytes; the model server rejected"), "{note}");

    // A request that is rejected for another reason.
    let mut other = conversation();
    other.messages.push(ChatMessage::Media(vec![media(PNG)]));
    let error = answer(&model, other).await.unwrap_err();
    assert!(error.to_string().contains("unsupported image"), "{error}");
    assert_eq!(server.requests().len(), 5);
}
