//! Chat completions: one message to an agent, and its turn as a response or a stream.

use std::collections::VecDeque;

use axum::{
    Json,
    http::HeaderMap,
    response::{IntoResponse, Response},
};
use bytes::Bytes;

use super::{
    OpenAi,
    chunk::{Completion, DONE, failure},
    error::ApiError,
    output::{Piece, stopped},
    request::ChatRequest,
    turn::{AdmittedRequest, FollowedTurn, WholeTurn},
};
use crate::{
    event_stream::{self, EventSource, ReadyEvents},
    identity::Identity,
};

/// Sends the last message of a request to its agent, and returns the completion.
///
/// # Errors
/// When the request is invalid, the message is not sent, or, unless a stream is requested, the turn fails.
///
/// # Cancellation
/// Dropping the future, or the body of a stream, abandons the turn.
pub(super) async fn complete(
    openai: &OpenAi,
    identity: &Identity,
    headers: &HeaderMap,
    body: &Bytes,
) -> Result<Response, ApiError> {
    let request = ChatRequest::parse(body)?;
    let admitted = AdmittedRequest::admit(openai, identity, headers, body, &request).await?;
    let place = openai.conversations.find(&admitted.scope, &request).await;
    let recorded = admitted.record(request, place).await?;
    let completion = Completion::new(recorded.message(), recorded.admitted.agent.clone());
    let turn = CompletionTurn { turn: recorded.send(true).await?, completion };
    if turn.turn.request().stream { Ok(turn.into_stream()) } else { turn.into_whole().await }
}

/// A turn whose answer is a completion.
struct CompletionTurn {
    turn: FollowedTurn,
    completion: Completion,
}

impl CompletionTurn {
    /// Waits for the answer.
    async fn into_whole(mut self) -> Result<Response, ApiError> {
        let WholeTurn { text, usage, lines, .. } = self.turn.whole().await?;
        let content = stopped(&text, self.turn.request().stop.clone());
        self.turn.remember(&content).await;
        let whole = self.completion.whole(&content, &lines, usage.as_ref());
        Ok(Json(whole).into_response())
    }

    /// Returns the chunks as they come.
    fn into_stream(self) -> Response {
        let queue = VecDeque::from([self.completion.start()]);
        event_stream::stream_response(self, ReadyEvents { queue, is_last: false })
    }

    /// Adds the chunks of a piece.
    async fn add(&self, piece: Piece, ready: &mut ReadyEvents) {
        let completion = &self.completion;
        let chunk = match piece {
            Piece::Content(text) => completion.content(&text),
            Piece::Reasoning(line) => completion.reasoning(&line),
            Piece::Approval { line, details } => completion.approval(&line, &details),
            Piece::Failed(error) => {
                ready.is_last = true;
                failure(&error)
            }
            Piece::Answered { usage, .. } => {
                ready.is_last = true;
                // Before the end of the stream, so that the next request finds the conversation.
                if let Some(shown) = self.turn.shown() {
                    self.turn.remember(shown).await;
                }
                ready.queue.push_back(completion.finish());
                if self.turn.request().include_usage {
                    ready.queue.push_back(completion.usage(usage.as_ref()));
                }
                Bytes::from_static(DONE)
            }
        };
        ready.queue.push_back(chunk);
    }
}

impl EventSource for CompletionTurn {
    type Update = Vec<Piece>;

    async fn next(&mut self) -> Vec<Piece> {
        self.turn.next().await
    }

    async fn events(&mut self, pieces: Vec<Piece>) -> ReadyEvents {
        let mut ready = ReadyEvents::default();
        for piece in pieces {
            self.add(piece, &mut ready).await;
        }
        ready
    }
}
