//! Tests of the models through their port: the client against a local server, and scripts.

#![allow(clippy::unwrap_used, reason = "a failed step fails its test")]

mod failures;
mod media;
mod requests;
mod scripted;
mod server;
mod streaming;
mod text_calls;

use futures_util::StreamExt;
use rockbot_llm::{
    AssembledAnswer, Assembler, ChatError, ChatEvent, ChatMessage, ChatModel, ChatRequest,
};

/// Returns a request with one user message.
fn prompt(text: &str) -> ChatRequest {
    ChatRequest { messages: vec![ChatMessage::User(text.to_owned())], ..ChatRequest::default() }
}

/// Collects all events up to the end or the first error.
async fn events(
    model: &dyn ChatModel,
    request: ChatRequest,
) -> (Vec<ChatEvent>, Option<ChatError>) {
    let mut stream = match model.stream(request).await {
        Ok(stream) => stream,
        Err(error) => return (Vec::new(), Some(error)),
    };
    let mut events = Vec::new();
    while let Some(event) = stream.next().await {
        match event {
            Ok(event) => events.push(event),
            Err(error) => {
                assert!(stream.next().await.is_none(), "nothing follows an error");
                return (events, Some(error));
            }
        }
    }
    assert!(matches!(events.last(), Some(ChatEvent::Finished(_))), "{events:?}");
    (events, None)
}

/// Returns the assembled answer.
async fn answer(model: &dyn ChatModel, request: ChatRequest) -> Result<AssembledAnswer, ChatError> {
    let (events, error) = events(model, request).await;
    let mut assembler = Assembler::new();
    for event in events {
        assembler.push(event)?;
    }
    error.map_or_else(|| assembler.finish(), Err)
}
