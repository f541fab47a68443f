//! Messages on their way to a conversation.

use rockbot_contracts::{TraceContext, user::TurnOutcome};
use tokio::sync::oneshot;

use crate::{
    event::{ProgressSink, TurnAnswer},
    origin::TurnOrigin,
};

/// A user message with the channels for its progress and its answer.
pub(crate) struct PendingMessage {
    pub(crate) text: String,
    pub(crate) origin: TurnOrigin,
    pub(crate) progress: ProgressSink,
    /// Trace context of the sender, which the turn continues.
    pub(crate) requester: TraceContext,
    pub(crate) answer: oneshot::Sender<TurnAnswer>,
}

impl PendingMessage {
    /// Sends the answer. A receiver that was dropped is ignored.
    pub(crate) fn answer(self, answer: TurnAnswer) {
        let _ = self.answer.send(answer);
    }
}

/// An input of a conversation.
pub(crate) enum Inbound {
    /// A user message.
    Message(PendingMessage),
    /// A request to cancel the running turn.
    Cancel(PendingMessage),
}

/// Why a message was rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rejection {
    /// The agent is shutting down.
    Closed,
    /// The limit of conversations is reached.
    Full,
    /// The queue of the conversation is full.
    Busy,
    /// A cancel found no running turn.
    NoRunningTurn,
    /// A later cancel arrived before the message.
    Cancelled,
}

impl From<Rejection> for TurnAnswer {
    fn from(rejection: Rejection) -> Self {
        let (outcome, text) = match rejection {
            Rejection::Closed => {
                (TurnOutcome::Overloaded, "The agent is shutting down. Try again soon.")
            }
            Rejection::Full => (
                TurnOutcome::Overloaded,
                "The agent has reached its limit of conversations. Try again later.",
            ),
            Rejection::Busy => (
                TurnOutcome::Overloaded,
                "Too many messages are queued in this conversation. Wait for its answer.",
            ),
            Rejection::NoRunningTurn => (TurnOutcome::Cancelled, "No turn was running."),
            Rejection::Cancelled => {
                (TurnOutcome::Cancelled, "Cancelled before the turn started. Nothing was done.")
            }
        };
        Self::new(outcome, text)
    }
}
