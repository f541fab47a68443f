//! The turn of a request: admitted, recorded, sent, and followed.

use std::sync::Arc;

use axum::http::HeaderMap;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use metrics::counter;
use rockbot_agent::ReplyError;
use rockbot_contracts::{
    AgentName, MessageId, SessionId, TurnUsage, UserMessage, user::TurnOutcome,
};

use super::{
    OpenAi,
    approvals::ApprovalWatch,
    conversation::{Conversations, Place, message_text},
    error::ApiError,
    models,
    output::{Output, Piece},
    repetition::{BegunRequest, Repetition},
    request::ChatRequest,
    scope::Scope,
};
use crate::{
    guard::{AuditAction, OpenRecord, sent_outcome},
    identity::Identity,
    open_counts::OpenPermit,
    turns::{Follower, WhenAbandoned},
};

/// Largest text of lines about the course of a turn, in bytes.
pub(super) const MAX_REASONING_BYTES: usize = 64 * 1024;

/// A request that may run a turn of an agent.
pub(super) struct AdmittedRequest<'a> {
    openai: &'a OpenAi,
    identity: &'a Identity,
    pub(super) agent: AgentName,
    pub(super) scope: Scope,
    repetition: Repetition,
    /// Digest of the body.
    digest: String,
    open: OpenPermit,
}

impl<'a> AdmittedRequest<'a> {
    /// Admits a request to the agent that is its model.
    ///
    /// # Errors
    /// When the identity may not use the agent or has too many open requests, or the key of the request is invalid.
    pub(super) async fn admit(
        openai: &'a OpenAi,
        identity: &'a Identity,
        headers: &HeaderMap,
        body: &Bytes,
        request: &ChatRequest,
    ) -> Result<Self, ApiError> {
        let agent = models::find(&openai.parts, identity, &request.model)?.clone();
        let scope = Scope::new(identity, &agent, headers, request.user.as_deref());
        let repetition = Repetition::read(headers, &scope, body)?;
        let Some(open) = openai.open.open(&identity.subject) else {
            let error = ApiError::too_many_completions();
            return Err(openai.requests.refused(&repetition, error).await);
        };
        let digest = scope.id("body", [body.as_ref()]);
        Ok(Self { openai, identity, agent, scope, repetition, digest, open })
    }

    /// Returns the error of a request that is not recorded, with the effect of earlier requests of the same identity.
    pub(super) async fn before_record(&self, error: ApiError) -> ApiError {
        self.openai.requests.refused(&self.repetition, error).await
    }

    /// Records the request, so that a repeated one sends the same message.
    ///
    /// # Errors
    /// When its key was used for another body, or a key cannot be recorded.
    pub(super) async fn record(
        self,
        request: ChatRequest,
        place: Place,
    ) -> Result<RecordedRequest<'a>, ApiError> {
        let new = self.repetition.new_sending(&self.scope, &place);
        let begun = self.openai.requests.begin(&self.repetition, &self.digest, new).await?;
        Ok(RecordedRequest { admitted: self, request, begun })
    }
}

/// A request whose message is to be sent.
pub(super) struct RecordedRequest<'a> {
    pub(super) admitted: AdmittedRequest<'a>,
    request: ChatRequest,
    begun: BegunRequest,
}

impl RecordedRequest<'_> {
    /// Returns the id of the message.
    pub(super) fn message(&self) -> &MessageId {
        &self.begun.sending.message
    }

    /// Returns the conversation.
    pub(super) fn session(&self) -> &SessionId {
        &self.begun.sending.session
    }

    /// Returns whether an earlier request of the same identity may have sent the message.
    pub(super) fn may_be_sent(&self) -> bool {
        !self.begun.is_first()
    }

    /// Returns the error of a request whose message is not sent, with the effect of all requests of the same identity.
    pub(super) async fn failed(&self, error: ApiError) -> ApiError {
        if !error.is_unsent() {
            return error;
        }
        let AdmittedRequest { openai, repetition, digest, .. } = &self.admitted;
        openai.requests.failed(repetition, &self.begun, digest, error).await
    }

    /// Sends the message, and follows its turn. With `is_found_by_messages`, later requests find the conversation by its
    /// messages.
    ///
    /// # Errors
    /// When the message is not sent.
    ///
    /// # Cancellation
    /// Dropping the future, or the turn, abandons the turn.
    pub(super) async fn send(self, is_found_by_messages: bool) -> Result<FollowedTurn, ApiError> {
        let follower = self.follow();
        let AdmittedRequest { openai, identity, agent, .. } = &self.admitted;
        let record = OpenRecord::new(identity, AuditAction::Message, self.message().as_str());
        let sent = follower.sent().await;
        record.end(sent_outcome(&sent, "sent"));
        if let Err(error) = sent {
            return Err(self.failed(error.into()).await);
        }
        let repeated = if self.begun.is_repeated() { "true" } else { "false" };
        counter!("rockbot_gateway_turns_total", "face" => "openai", "repeated" => repeated)
            .increment(1);
        let approvals = openai.approvals.watch(identity, agent);
        let conversations = openai.conversations.clone();
        let may_be_sent = self.may_be_sent();
        let Self { admitted: AdmittedRequest { scope, open, .. }, request, begun } = self;
        Ok(FollowedTurn {
            follower,
            _open: open,
            approvals,
            may_be_sent,
            output: Output::new(request.stop.clone()),
            memory: Memory {
                conversations: is_found_by_messages.then_some(conversations),
                scope,
                request,
                session: begun.sending.session,
            },
        })
    }

    /// Follows the turn of the message.
    fn follow(&self) -> Follower {
        let AdmittedRequest { openai, agent, repetition, .. } = &self.admitted;
        let sending = &self.begun.sending;
        let text = message_text(&self.request, sending.with_earlier);
        let mut message = UserMessage::new(sending.session.clone(), text);
        message.media.clone_from(&self.request.media);
        let (requests, linger) = (openai.requests.clone(), repetition.linger());
        let repetition = Arc::new(repetition.clone());
        let cancels = Arc::new(move || {
            let (requests, repetition) = (requests.clone(), repetition.clone());
            let may_cancel = async move { requests.may_cancel(&repetition).await };
            Box::pin(may_cancel) as BoxFuture<'static, bool>
        });
        openai.turns.follow(agent, message, &sending.message, WhenAbandoned { linger, cancels })
    }
}

/// The request and its conversation, by which the next request finds it.
struct Memory {
    /// `None` if the conversation is not found by its messages.
    conversations: Option<Conversations>,
    scope: Scope,
    request: ChatRequest,
    session: SessionId,
}

/// A turn that a request follows. Dropping it abandons the turn.
pub(super) struct FollowedTurn {
    follower: Follower,
    _open: OpenPermit,
    approvals: ApprovalWatch,
    /// Set if an earlier request of the same identity may have sent the message.
    may_be_sent: bool,
    output: Output,
    memory: Memory,
}

/// A turn that was answered.
pub(super) struct WholeTurn {
    pub(super) text: String,
    pub(super) outcome: TurnOutcome,
    pub(super) usage: Option<TurnUsage>,
    /// The lines about the course of the turn; those beyond [`MAX_REASONING_BYTES`] are left out.
    pub(super) lines: String,
}

impl FollowedTurn {
    /// Returns the request.
    pub(super) fn request(&self) -> &ChatRequest {
        &self.memory.request
    }

    /// Returns the next pieces.
    ///
    /// # Cancellation
    /// Cancel-safe: nothing is lost.
    pub(super) async fn next(&mut self) -> Vec<Piece> {
        let Some(followed) = self.follower.next().await else {
            // The final reply of a turn is an answer, which ends the response before.
            return vec![Piece::Failed(ReplyError::Closed.into())];
        };
        self.approvals.observe(&followed);
        let mut pieces = self.output.pieces(followed);
        for piece in &mut pieces {
            if let Piece::Failed(error) = piece
                && self.may_be_sent
                && error.is_unsent()
            {
                // The agent took no copy, but it may run the turn of an earlier one.
                *error = error.clone().maybe_executed();
            }
        }
        pieces
    }

    /// Waits for the answer.
    ///
    /// # Errors
    /// When the turn fails, or its answer will not arrive.
    pub(super) async fn whole(&mut self) -> Result<WholeTurn, ApiError> {
        let mut lines = String::new();
        loop {
            for piece in self.next().await {
                match piece {
                    Piece::Content(_) => {}
                    Piece::Reasoning(line) | Piece::Approval { line, .. } => {
                        if lines.len() + line.len() <= MAX_REASONING_BYTES {
                            lines.push_str(&line);
                        }
                    }
                    Piece::Failed(error) => return Err(error),
                    Piece::Answered { text, outcome, usage } => {
                        return Ok(WholeTurn { text, outcome, usage, lines });
                    }
                }
            }
        }
    }

    /// Returns all text that was passed on, if it is not too long.
    pub(super) fn shown(&self) -> Option<&str> {
        self.output.shown()
    }

    /// Records that the conversation has this answer, as the client has it.
    pub(super) async fn remember(&self, answer: &str) {
        let Memory { conversations, scope, request, session } = &self.memory;
        if let Some(conversations) = conversations {
            conversations.remember(scope, request, answer, session).await;
        }
    }
}
