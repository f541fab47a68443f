//! The events of an answer with calls in its text.

use std::collections::VecDeque;

use futures_util::{StreamExt, stream};

use super::{
    scanner::{CallScanner, Piece},
    tool_set::ToolSet,
};
use crate::{
    chat::{ChatEvent, ChatStream, FinishReason},
    error::ChatError,
};

/// Finds calls of `tools` in the text of an answer. Without `may_call`, calls are dropped.
///
/// Each call is one event with a generated id. Its arguments are as the model wrote them, or a JSON object
/// if the format has no JSON.
pub(crate) fn read_calls(answer: ChatStream, tools: ToolSet, may_call: bool) -> ChatStream {
    let reader = CallReader {
        answer: Some(answer),
        scanner: CallScanner::new(tools, may_call),
        events: VecDeque::new(),
    };
    stream::unfold(
        reader,
        |mut reader| async move { reader.next().await.map(|event| (event, reader)) },
    )
    .boxed()
}

struct CallReader {
    /// `None` after the end.
    answer: Option<ChatStream>,
    scanner: CallScanner,
    events: VecDeque<ChatEvent>,
}

impl CallReader {
    async fn next(&mut self) -> Option<Result<ChatEvent, ChatError>> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(Ok(event));
            }
            let event = self.answer.as_mut()?.next().await;
            let read = match event {
                Some(Ok(event)) => self.read(event),
                Some(Err(error)) => Err(error),
                None => {
                    self.answer = None;
                    continue;
                }
            };
            if let Err(error) = read {
                self.answer = None;
                return Some(Err(error));
            }
        }
    }

    fn read(&mut self, event: ChatEvent) -> Result<(), ChatError> {
        match event {
            ChatEvent::Text(text) => {
                let pieces = self.scanner.push(&text)?;
                self.add(pieces);
            }
            ChatEvent::Finished(reason) => {
                let pieces = self.scanner.finish(reason == FinishReason::Length)?;
                self.add(pieces);
                let has_calls = self.scanner.has_calls() && reason == FinishReason::Stop;
                let reason = if has_calls { FinishReason::ToolCalls } else { reason };
                self.events.push_back(ChatEvent::Finished(reason));
            }
            // Some servers find calls in texts themselves.
            other @ (ChatEvent::ToolCallDelta { .. } | ChatEvent::Usage(_)) => {
                self.events.push_back(other);
            }
        }
        Ok(())
    }

    fn add(&mut self, pieces: Vec<Piece>) {
        let event = |piece| match piece {
            Piece::Text(text) => ChatEvent::Text(text),
            Piece::Call(call) => ChatEvent::ToolCallDelta {
                index: None,
                id: Some(format!("call_{:032x}", rand::random::<u128>())),
                name: Some(call.name),
                arguments: call.arguments,
            },
        };
        self.events.extend(pieces.into_iter().map(event));
    }
}
