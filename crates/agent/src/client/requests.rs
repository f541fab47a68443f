//! Requests about conversations that wait for their responses.

use std::{collections::HashMap, time::Duration};

use parking_lot::Mutex;
use rockbot_contracts::{
    AgentName, ConversationResponse, DecodeError, Envelope, Message, MessageId, ScheduleResponse,
    conversation::ConversationErrorCode, identity::may_reply_as, json::Limits,
};
use tokio::sync::oneshot;
use tracing::{debug, warn};

use super::send_error::SendError;

/// Maximum number of requests that wait for their response.
const MAX_REQUESTS: usize = 256;

/// Why a request about conversations or scheduled tasks failed.
#[derive(Debug, thiserror::Error)]
pub enum ConversationRequestError {
    /// The agent refused the request or could not process it.
    #[error("{message}")]
    Refused {
        /// Kind of failure.
        code: ConversationErrorCode,
        /// Description of the agent.
        message: String,
    },
    /// The request was not sent.
    #[error(transparent)]
    Send(#[from] SendError),
    /// No response arrived in time.
    #[error(
        "no response from the agent for {} s; it may still process the request; try again",
        after.as_secs_f32()
    )]
    Silent {
        /// The time limit.
        after: Duration,
    },
    /// The agent sent a response of another kind.
    #[error("unexpected response from the agent; use the same version of RockBot on both sides")]
    UnexpectedResponse,
    /// The client or its bus was closed.
    #[error("connection to the agent closed before the response arrived")]
    Closed,
}

/// The requests of a client that wait for their response.
#[derive(Default)]
pub(super) struct PendingRequests(Mutex<HashMap<MessageId, PendingRequest>>);

struct PendingRequest {
    /// The receiver of the request, which alone may respond.
    agent: AgentName,
    response: oneshot::Sender<Response>,
}

/// A response of an agent.
pub(super) enum Response {
    Conversation(Box<ConversationResponse>),
    Schedule(ScheduleResponse),
}

impl Response {
    fn decode(envelope: &Envelope) -> Result<Self, DecodeError> {
        if envelope.message_type() == ScheduleResponse::TYPE {
            return envelope.decode(Limits::default()).map(Self::Schedule);
        }
        envelope.decode(Limits::default()).map(|response| Self::Conversation(Box::new(response)))
    }
}

impl PendingRequests {
    /// Registers a request and returns the receiver of its response.
    pub(super) fn insert(
        &self,
        agent: &AgentName,
        id: &MessageId,
    ) -> Result<oneshot::Receiver<Response>, SendError> {
        let (response, receiver) = oneshot::channel();
        let mut requests = self.0.lock();
        requests.retain(|_, request| !request.response.is_closed());
        if requests.len() >= MAX_REQUESTS {
            return Err(SendError::TooManyPending);
        }
        requests.insert(id.clone(), PendingRequest { agent: agent.clone(), response });
        Ok(receiver)
    }

    /// Passes a response on to the sender of its request.
    pub(super) fn dispatch(&self, envelope: &Envelope) {
        let id = envelope.correlation_id.as_deref().and_then(|id| MessageId::new(id).ok());
        let mut requests = self.0.lock();
        let Some((id, request)) = id.as_ref().and_then(|id| Some((id, requests.get(id)?))) else {
            debug!("response to an unknown request dropped");
            return;
        };
        if !may_reply_as(envelope.user_id.as_deref(), &request.agent) {
            let user = envelope.user_id.as_deref();
            warn!(agent = %request.agent, user, "response dropped: not of its agent's user");
            return;
        }
        match Response::decode(envelope) {
            Ok(response) => {
                if let Some(request) = requests.remove(id) {
                    // A request whose sender gave up.
                    let _ = request.response.send(response);
                }
            }
            Err(error) => warn!(%error, "invalid response"),
        }
    }

    /// Ends all requests.
    pub(super) fn clear(&self) {
        self.0.lock().clear();
    }
}
