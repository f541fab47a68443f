//! Messages on their way to a conversation.

use rockbot_contracts::{TraceContext, user::TurnOutcome};
use tokio::sync::oneshot;

use crate::{
    event::{ProgressSink, TurnAnswer},
    origin::TurnOrigin,
};

/// A message of a person, and who waits for its answer.
pub(crate) struct Said {
    pub(crate) text: String,
    pub(crate) origin: TurnOrigin,
    pub(crate) progress: ProgressSink,
    /// The sender's place in its trace, which the turn continues.
    pub(crate) requester: TraceContext,
    pub(crate) answer: oneshot::Sender<TurnAnswer>,
}

impl Said {
    /// Nobody may wait any more, which is their right.
    pub(crate) fn answer(self, answer: TurnAnswer) {
        let _ = self.answer.send(answer);
    }
}

/// What arrives at a conversation.
pub(crate) enum Inbound {
    /// Something is said.
    Say(Said),
    /// The running turn is to end.
    Cancel(Said),
}

/// Why a message was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The agent takes no more messages.
    Closed,
    /// There are too many conversations.
    Full,
    /// Too many messages wait in the conversation.
    Busy,
    /// There is nothing to cancel.
    NothingRuns,
    /// It was cancelled after it was sent and before it came.
    Cancelled,
}

impl From<Refusal> for TurnAnswer {
    fn from(refusal: Refusal) -> Self {
        let (outcome, text) = match refusal {
            Refusal::Closed => {
                (TurnOutcome::Overloaded, "The agent is shutting down; ask again soon.")
            }
            Refusal::Full => (
                TurnOutcome::Overloaded,
                "The agent has no room for another conversation; ask again later.",
            ),
            Refusal::Busy => (
                TurnOutcome::Overloaded,
                "Too many messages wait in this conversation; wait for its answer.",
            ),
            Refusal::NothingRuns => (TurnOutcome::Cancelled, "No turn was running."),
            Refusal::Cancelled => {
                (TurnOutcome::Cancelled, "Cancelled before it was begun; nothing was done.")
            }
        };
        Self::new(outcome, text)
    }
}
