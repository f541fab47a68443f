//! Messages on their way to a conversation.

use rockbot_contracts::{MessageId, RoutingKey, SessionId, TraceContext, user::TurnOutcome};
use tokio::sync::oneshot;

use crate::{
    event::{ProgressSink, TurnAnswer, TurnEnd},
    origin::TurnOrigin,
};

/// A user message with the channels for its progress and its answer.
pub(crate) struct PendingMessage {
    /// Id of the bus message, or a generated one.
    pub(crate) id: MessageId,
    pub(crate) text: String,
    /// Its images and recordings, in base64.
    pub(crate) media: Vec<String>,
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
    /// A request to resume the open turn.
    Resume(ResumeRequest),
    /// Another process runs the conversation.
    Lost,
}

impl Inbound {
    /// Ends the request with this answer.
    pub(crate) fn answer(self, answer: TurnAnswer) {
        match self {
            Self::Message(message) | Self::Cancel(message) => message.answer(answer),
            Self::Resume(request) => request.decline(),
            Self::Lost => {}
        }
    }
}

/// A message as it was recorded, for the process that continues its turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedMessage {
    /// Its id; a generated one if it came from within the process.
    pub id: MessageId,
    /// Address of the replies; `None` for a message from within the process.
    pub reply_to: Option<RoutingKey>,
    /// The conversation.
    pub session: SessionId,
    /// Number of the process that runs the turn, from 1.
    pub attempt: u32,
    /// Digest of its text.
    pub text_digest: [u8; 16],
}

/// Returns the sink for the progress of a resumed turn.
pub(crate) type MakeProgressSink = Box<dyn FnOnce(&RecordedMessage) -> ProgressSink + Send>;

/// A request to resume the open turn of a conversation.
pub(crate) struct ResumeRequest {
    pub(crate) progress: MakeProgressSink,
    pub(crate) done: oneshot::Sender<Option<(RecordedMessage, TurnAnswer)>>,
}

impl ResumeRequest {
    /// Ends the request: there is nothing to resume.
    pub(crate) fn decline(self) {
        let _ = self.done.send(None);
    }
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
    /// An earlier message with the same id has another text.
    OtherText,
    /// Another user started the conversation.
    OtherUser,
}

impl Rejection {
    /// Returns `true` if the agent may accept the message later.
    pub(crate) fn is_temporary(self) -> bool {
        matches!(self, Self::Closed | Self::Full | Self::Busy)
    }

    /// Returns the answer to a message that is sent again, because it is recorded or its sender tries again.
    /// It is not published: the message is processed later, and keeps its marker.
    pub(crate) fn deferred(self) -> TurnAnswer {
        TurnAnswer::from(self).with_end(TurnEnd::Deferred)
    }
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
            Rejection::OtherText => (
                TurnOutcome::ModelFailed,
                "An earlier message with this id has another text. Nothing was done. Send it with a \
                 new id.",
            ),
            Rejection::OtherUser => (
                TurnOutcome::ModelFailed,
                "The conversation belongs to another user. Nothing was done. Start a new one.",
            ),
        };
        let ended = match rejection {
            // The recorded message with this id is not answered by this.
            Rejection::OtherText | Rejection::OtherUser => TurnEnd::Unrecorded,
            _ => TurnEnd::Answered,
        };
        Self { is_rejection: true, ..Self::new(outcome, text).with_end(ended) }
    }
}
