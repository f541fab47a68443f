//! Requests that fit the capabilities of the model: calls in text, images.

use rockbot_agent::{Agent, ModelBehavior, TurnAnswer};
use rockbot_contracts::{ContentBlock, UserMessage, user::TurnOutcome};
use rockbot_llm::{ChatMessage, Media, ScriptedTurn, ToolCallMode};
use serde_json::json;

use crate::{
    harness::{
        AgentFixture, Answer, Behavior, CannedModel, EventLog, ProbeTool, RecordingModel, message,
        send, text_events,
    },
    stored_harness::Storage,
};

/// The first bytes of a PNG file.
const PNG: &str = "iVBORw0KGgo=";

#[tokio::test]
async fn tool_call_in_text_runs_the_tool() {
    let call =
        "I'll count.\n<tool_call>\n{\"name\": \"count\", \"arguments\": {\"n\": 3}}\n</tool_call>";
    let answers = [call, "Three."].map(|text| Answer::Events(text_events(text)));
    let model = RecordingModel::new(CannedModel::new(answers));
    let probe = ProbeTool::new("count", Behavior::Echo);
    let mut fixture = AgentFixture::new().with(&probe);
    fixture.behavior =
        ModelBehavior { tool_calls: Some(ToolCallMode::Text), ..ModelBehavior::default() };
    let answer = send(&fixture.agent(&model), "go").await;

    assert_eq!((answer.outcome, answer.text.as_str()), (TurnOutcome::Completed, "Three."));
    assert_eq!(probe.calls(), 1);
    let request = model.last_request();
    assert!(request.tools.is_empty(), "{request:?}");
    let [
        ChatMessage::System(system),
        _,
        ChatMessage::Assistant { text, tool_calls },
        ChatMessage::User(result),
    ] = &request.messages[..]
    else {
        panic!("{request:?}")
    };
    assert!(system.contains("\"name\": \"count\""), "{system}");
    assert!(text.starts_with("I'll count.") && text.contains("<tool_call>"), "{text}");
    assert!(tool_calls.is_empty());
    assert!(result.contains("{\"n\":3}"), "{result}");
}

/// Returns the messages after the answer with the calls.
async fn messages_after_image(behavior: ModelBehavior, image: &'static str) -> Vec<ChatMessage> {
    let calls = ScriptedTurn::text("").call("chart", json!({})).call("chart", json!({}));
    let turns = [calls, ScriptedTurn::text("I see.")];
    let model = RecordingModel::script(turns);
    let mut fixture = AgentFixture::new().with(&ProbeTool::new("chart", Behavior::Image(image)));
    fixture.behavior = behavior;
    send(&fixture.agent(&model), "draw").await;
    model.last_request().messages.split_off(3)
}

fn contents(messages: &[ChatMessage]) -> Vec<&str> {
    messages
        .iter()
        .filter_map(|message| match message {
            ChatMessage::Tool { content, .. } => Some(content.as_str()),
            _ => None,
        })
        .collect()
}

#[tokio::test]
async fn image_of_a_result_follows_the_results() {
    let behavior = ModelBehavior { images: Some(true), ..ModelBehavior::default() };
    let messages = messages_after_image(behavior, PNG).await;
    let [_, _, ChatMessage::Media(media)] = &messages[..] else { panic!("{messages:?}") };
    assert_eq!(media.iter().map(Media::base64).collect::<Vec<_>>(), [PNG, PNG]);
    assert!(contents(&messages)[0].starts_with("a chart\n[image image/png"), "{messages:?}");
}

#[tokio::test]
async fn image_is_described_if_the_model_cannot_read_it() {
    let messages = messages_after_image(ModelBehavior::default(), PNG).await;
    let [first, second] = contents(&messages)[..] else { panic!("{messages:?}") };
    assert_eq!(messages.len(), 2);
    for content in [first, second] {
        assert!(content.ends_with("this model reads no images]"), "{content}");
    }
    let reads = ModelBehavior { images: Some(true), ..ModelBehavior::default() };
    let messages = messages_after_image(reads, "bm90IGFuIGltYWdl").await;
    assert_eq!(messages.len(), 2, "{messages:?}");
    assert!(contents(&messages)[0].contains("its format is unknown"), "{messages:?}");
}

#[tokio::test]
async fn image_is_left_out_if_the_window_has_no_room() {
    let behavior = ModelBehavior {
        images: Some(true),
        context_window: Some(2048),
        ..ModelBehavior::default()
    };
    let messages = messages_after_image(behavior, PNG).await;
    let contents = contents(&messages);
    assert_eq!((messages.len(), contents.len()), (2, 2), "{messages:?}");
    assert!(contents[0].ends_with("context window budget exceeded]"), "{contents:?}");
}

async fn send_image(agent: &Agent, text: &str, data: &str) -> TurnAnswer {
    let image = ContentBlock::Image { data: data.to_owned(), mime_type: "image/gif".to_owned() };
    let message = UserMessage { media: vec![image], ..message("s", text) };
    agent.send(message, EventLog::default().sink()).await
}

#[tokio::test]
async fn image_of_a_user_reaches_the_model_and_later_processes() {
    let storage = Storage::new();
    let reads = || {
        let images = Some(true);
        AgentFixture {
            behavior: ModelBehavior { images, ..ModelBehavior::default() },
            ..AgentFixture::new()
        }
    };
    let model =
        RecordingModel::script([ScriptedTurn::text("A chart."), ScriptedTurn::text("Yes.")]);
    let agent = storage.agent(reads(), &model);
    assert_eq!(send_image(&agent, "Describe it.", PNG).await.text, "A chart.");
    let check = |messages: &[ChatMessage]| {
        let [ChatMessage::User(text), ChatMessage::Media(media), ..] = &messages[1..] else {
            panic!("{messages:?}")
        };
        assert_eq!((text.as_str(), media[0].base64()), ("Describe it.", PNG));
    };
    check(&model.last_request().messages);
    drop(agent);
    let agent = storage.agent(reads(), &model);
    send(&agent, "Sure?").await;
    assert_eq!(model.request_count(), 2);
    check(&model.last_request().messages);
}

#[tokio::test]
async fn image_of_a_user_is_a_note_if_the_model_cannot_read_it() {
    let model = RecordingModel::script([ScriptedTurn::text("I see none.")]);
    let agent = AgentFixture::new().agent(&model);
    send_image(&agent, "Describe it.", PNG).await;
    let messages = model.last_request().messages;
    let Some(ChatMessage::User(text)) = messages.last() else { panic!("{messages:?}") };
    assert!(text.starts_with("Describe it.\n[left out: image/png"), "{text}");
    let answer = send_image(&agent, "And this?", "bm90IGFuIGltYWdl").await;
    assert!(answer.text.contains("Attachment 1 is not valid"), "{answer:?}");
    assert_eq!(model.request_count(), 1);
}
