//! Chat completions: one message to an agent, and its turn as a response or a stream.

use std::collections::VecDeque;

use axum::{
    Json,
    http::HeaderMap,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures_util::stream;
use tokio::time::timeout;

use super::{
    OpenAi,
    chunk::{Completion, DONE, failure},
    error::ApiError,
    output::{Piece, stopped},
    request::ChatRequest,
    turn::{AdmittedRequest, FollowedTurn},
};
use crate::{
    event_stream::{self, KEEP_ALIVE, KEEP_ALIVE_INTERVAL},
    identity::Identity,
};

/// Largest text of lines about the course of a turn in a response that is no stream, in bytes.
const MAX_REASONING_BYTES: usize = 64 * 1024;

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
    let target = (request.model.as_str(), request.user.as_deref());
    let admitted = AdmittedRequest::admit(openai, identity, headers, body, target).await?;
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
        let mut reasoning = String::new();
        loop {
            for piece in self.turn.next().await {
                match piece {
                    Piece::Content(_) => {}
                    Piece::Reasoning(line) | Piece::Approval { line, .. } => {
                        if reasoning.len() + line.len() <= MAX_REASONING_BYTES {
                            reasoning.push_str(&line);
                        }
                    }
                    Piece::Failed(error) => return Err(error),
                    Piece::Answered { text, usage, .. } => {
                        let content = stopped(&text, self.turn.request().stop.clone());
                        self.turn.remember(&content).await;
                        let whole = self.completion.whole(&content, &reasoning, usage.as_ref());
                        return Ok(Json(whole).into_response());
                    }
                }
            }
        }
    }

    /// Returns the chunks as they come.
    fn into_stream(self) -> Response {
        let start = VecDeque::from([self.completion.start()]);
        let Self { turn, completion } = self;
        let state = Streaming { turn, completion, ready: start, is_done: false };
        event_stream::response(stream::unfold(state, async |mut state| {
            let chunk = state.next().await?;
            Some((chunk, state))
        }))
    }
}

/// A stream of chunks.
struct Streaming {
    turn: FollowedTurn,
    completion: Completion,
    ready: VecDeque<Bytes>,
    is_done: bool,
}

impl Streaming {
    /// Returns the next chunk, or a comment after a while without one.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(chunk) = self.ready.pop_front() {
                return Some(chunk);
            }
            if self.is_done {
                return None;
            }
            match timeout(KEEP_ALIVE_INTERVAL, self.turn.next()).await {
                Ok(pieces) => {
                    for piece in pieces {
                        self.add(piece).await;
                    }
                }
                Err(_) => return Some(Bytes::from_static(KEEP_ALIVE)),
            }
        }
    }

    async fn add(&mut self, piece: Piece) {
        let completion = &self.completion;
        let chunk = match piece {
            Piece::Content(text) => completion.content(&text),
            Piece::Reasoning(line) => completion.reasoning(&line),
            Piece::Approval { line, details } => completion.approval(&line, &details),
            Piece::Failed(error) => {
                self.is_done = true;
                failure(&error)
            }
            Piece::Answered { usage, .. } => {
                self.is_done = true;
                // Before the end of the stream, so that the next request finds the conversation.
                if let Some(shown) = self.turn.shown() {
                    self.turn.remember(shown).await;
                }
                self.ready.push_back(completion.finish());
                if self.turn.request().include_usage {
                    self.ready.push_back(completion.usage(usage.as_ref()));
                }
                Bytes::from_static(DONE)
            }
        };
        self.ready.push_back(chunk);
    }
}
