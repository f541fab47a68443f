//! Chat completions: one message to an agent, and its turn as a response or a stream.

use std::{collections::VecDeque, sync::Arc};

use axum::{
    Json,
    http::HeaderMap,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures_util::stream;
use metrics::counter;
use rockbot_agent::ReplyError;
use rockbot_contracts::{AgentName, SessionId, UserMessage};
use tokio::time::timeout;

use super::{
    OpenAi,
    approvals::ApprovalWatch,
    chunk::{Completion, DONE, failure},
    conversation::{Conversations, text_with_earlier},
    error::ApiError,
    models,
    output::{Output, Piece, stopped},
    repetition::{Repetition, Sending},
    request::ChatRequest,
    scope::Scope,
};
use crate::{
    event_stream::{self, KEEP_ALIVE, KEEP_ALIVE_INTERVAL},
    guard::{AuditAction, OpenRecord, sent_outcome},
    identity::Identity,
    open_counts::OpenPermit,
    turns::{Follower, WhenAbandoned},
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
    let agent = models::find(&openai.parts, identity, &request.model)?.clone();
    let open = openai.open.open(&identity.subject).ok_or_else(ApiError::too_many_completions)?;
    let scope = Scope::new(identity, &agent, headers, request.user.as_deref());
    let repetition = Repetition::read(headers, &scope, body)?;
    let place = openai.conversations.find(&scope, &request).await;
    let new = repetition.new_sending(&scope, &place, request.earlier.is_empty());
    let digest = scope.id("body", [body.as_ref()]);
    let sending = openai.requests.begin(&repetition, &digest, new.clone()).await?;
    let is_repeated = sending != new;
    let record = OpenRecord::new(identity, AuditAction::Message, sending.message.as_str());
    let follower = follow(openai, &agent, &request, &sending, repetition);
    let sent = follower.sent().await;
    record.end(sent_outcome(&sent, "sent"));
    sent?;
    let repeated = if is_repeated { "true" } else { "false" };
    counter!("rockbot_gateway_turns_total", "face" => "openai", "repeated" => repeated)
        .increment(1);
    let memory = Memory {
        conversations: openai.conversations.clone(),
        scope,
        request,
        session: sending.session.clone(),
    };
    let turn = FollowedTurn {
        follower,
        _open: open,
        approvals: openai.approvals.watch(identity, &agent),
        output: Output::new(memory.request.stop.clone()),
        completion: Completion::new(&sending.message, agent),
        memory,
    };
    if turn.memory.request.stream { Ok(turn.into_stream()) } else { turn.into_whole().await }
}

/// Follows the turn of a message.
fn follow(
    openai: &OpenAi,
    agent: &AgentName,
    request: &ChatRequest,
    sending: &Sending,
    repetition: Repetition,
) -> Follower {
    let text = if sending.with_earlier { text_with_earlier(request) } else { request.text.clone() };
    let mut message = UserMessage::new(sending.session.clone(), text);
    message.media.clone_from(&request.media);
    let (requests, linger) = (openai.requests.clone(), repetition.linger());
    let repetition = Arc::new(repetition);
    let cancels = Arc::new(move || {
        let (requests, repetition) = (requests.clone(), repetition.clone());
        let may_cancel = async move { requests.may_cancel(&repetition).await };
        Box::pin(may_cancel) as futures_util::future::BoxFuture<'static, bool>
    });
    openai.turns.follow(agent, message, &sending.message, WhenAbandoned { linger, cancels })
}

/// The request and its conversation, by which the next request finds it.
struct Memory {
    conversations: Conversations,
    scope: Scope,
    request: ChatRequest,
    session: SessionId,
}

impl Memory {
    async fn remember(&self, answer: Option<&str>) {
        if let Some(answer) = answer {
            let Self { conversations, scope, request, session } = self;
            conversations.remember(scope, request, answer, session).await;
        }
    }
}

/// A turn that a request follows.
struct FollowedTurn {
    follower: Follower,
    _open: OpenPermit,
    approvals: ApprovalWatch,
    output: Output,
    completion: Completion,
    memory: Memory,
}

impl FollowedTurn {
    /// Returns the next pieces.
    async fn next(&mut self) -> Vec<Piece> {
        let Some(followed) = self.follower.next().await else {
            // The final reply of a turn is an answer, which ends the response before.
            return vec![Piece::Failed(ReplyError::Closed.into())];
        };
        self.approvals.observe(&followed);
        self.output.pieces(followed)
    }

    /// Waits for the answer.
    async fn into_whole(mut self) -> Result<Response, ApiError> {
        let mut reasoning = String::new();
        loop {
            for piece in self.next().await {
                match piece {
                    Piece::Content(_) => {}
                    Piece::Reasoning(line) | Piece::Approval { line, .. } => {
                        if reasoning.len() + line.len() <= MAX_REASONING_BYTES {
                            reasoning.push_str(&line);
                        }
                    }
                    Piece::Failed(error) => return Err(error),
                    Piece::Answered { text, usage } => {
                        let content = stopped(&text, self.memory.request.stop.clone());
                        self.memory.remember(Some(&content)).await;
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
        let state = Streaming { turn: self, ready: start, is_done: false };
        event_stream::response(stream::unfold(state, async |mut state| {
            let chunk = state.next().await?;
            Some((chunk, state))
        }))
    }
}

/// A stream of chunks.
struct Streaming {
    turn: FollowedTurn,
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
        let completion = &self.turn.completion;
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
                self.turn.memory.remember(self.turn.output.shown()).await;
                self.ready.push_back(completion.finish());
                if self.turn.memory.request.include_usage {
                    self.ready.push_back(completion.usage(usage.as_ref()));
                }
                Bytes::from_static(DONE)
            }
        };
        self.ready.push_back(chunk);
    }
}
