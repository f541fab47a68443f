//! Additional context in model requests.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use rockbot_agent::{ContextPart, ContextRequest, ContextSource, ModelBehavior};
use rockbot_llm::{ChatMessage, ScriptedTurn};
use serde_json::json;

use crate::harness::{AgentFixture, Behavior, ProbeTool, RecordingModel, send};

/// Repeats the user message, so that it differs in each turn.
struct EchoSource(ContextPart);

impl ContextSource for EchoSource {
    fn part(&self) -> ContextPart {
        self.0
    }

    fn text<'a>(&'a self, request: ContextRequest<'a>) -> BoxFuture<'a, Option<String>> {
        Box::pin(async move { Some(format!("{:?} of {}", self.0, request.message)) })
    }
}

fn echo_sources(parts: impl IntoIterator<Item = ContextPart>) -> Vec<Arc<dyn ContextSource>> {
    parts.into_iter().map(|part| Arc::new(EchoSource(part)) as Arc<dyn ContextSource>).collect()
}

fn text(message: &ChatMessage) -> &str {
    match message {
        ChatMessage::System(text) | ChatMessage::User(text) => text,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn system_parts_are_ordered_in_prompt() {
    let model = RecordingModel::script([ScriptedTurn::text("Hello.")]);
    let mut fixture = AgentFixture::new();
    fixture.context = echo_sources([ContextPart::Rules, ContextPart::Clock]);
    fixture.behavior =
        ModelBehavior { prompt: Some("One call at a time.".into()), ..ModelBehavior::default() };
    send(&fixture.agent(&model), "hi").await;
    let request = model.last_request();
    assert_eq!(
        text(&request.messages[0]),
        "Be brief.\n\nClock of hi\n\nRules of hi\n\nOne call at a time."
    );
    assert_eq!(text(&request.messages[1]), "hi");
}

#[tokio::test]
async fn memories_persist_and_hints_last_one_turn() {
    let echo = ProbeTool::new("echo", Behavior::Echo);
    let model = RecordingModel::script([
        ScriptedTurn::default().when("one").call("echo", json!({})),
        ScriptedTurn::text("First."),
        ScriptedTurn::text("Second.").when("two"),
    ]);
    let mut fixture = AgentFixture::new().with(&echo);
    fixture.context = echo_sources([ContextPart::WorkingMemory, ContextPart::Memories]);
    let agent = fixture.agent(&model);
    send(&agent, "one").await;
    let with_both = "one\n\n<context>\nMemories of one\n</context>\n\n<context>\nWorkingMemory of \
                     one\n</context>";
    assert_eq!(text(&model.last_request().messages[1]), with_both, "also after a tool call");

    assert_eq!(send(&agent, "two").await.text, "Second.");
    let users: Vec<_> = model.last_request().messages;
    let users: Vec<_> =
        users.iter().filter(|one| matches!(one, ChatMessage::User(_))).map(text).collect();
    assert_eq!(users[0], "one\n\n<context>\nMemories of one\n</context>");
    assert!(users[1].starts_with("two\n\n<context>\nMemories of two\n"), "{users:?}");
    assert!(users[1].ends_with("WorkingMemory of two\n</context>"), "{users:?}");
}
