//! Client for agents: sends user messages, receives replies, and reads stored conversations.

mod follow_ups;
mod pending;
mod replies;
mod requests;
mod scheduled_results;
mod send_error;

use std::{fmt, sync::Arc, time::Duration};

use rockbot_bus::{Bus, ConsumeError, Consumer, Publication, PublishError, Subscription};
use rockbot_contracts::{
    AgentName, AgentReply, ApprovalAnswer, ContentTrust, ConversationRequest, ConversationResponse,
    Envelope, InputAnswer, InstanceId, Message, MessageId, QueueSpec, RoutingKey, ScheduleRequest,
    ScheduleResponse, SessionId, UserFeedback, UserMessage,
    identity::may_reply_as,
    json::Limits,
    topology::{user_approval, user_conversation, user_input, user_message, user_response},
};
use tokio::{task::JoinHandle, time::timeout};
use tracing::{debug, warn};

use self::{
    follow_ups::FollowUpQueue,
    pending::PendingReplies,
    requests::{PendingRequests, Response},
};
pub use self::{
    follow_ups::FollowUps,
    replies::{Replies, ReplyError},
    requests::ConversationRequestError,
    scheduled_results::ScheduledResults,
    send_error::SendError,
};
use crate::conversation::digest;

/// Prefetch of replies. They are settled on receipt.
const PREFETCH: u16 = 256;
/// Default time limit between two replies.
const DEFAULT_IDLE_TIMEOUT: Duration = Duration::from_secs(120);
/// Maximum time limit between two replies.
const MAX_IDLE_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);
/// Time limit for a message until an agent receives it. No turn is run for an expired message,
/// because its sender may be gone.
const MESSAGE_TTL: Duration = Duration::from_secs(120);
/// Attempts to publish a message that the broker does not confirm. The agent recognizes a duplicate by
/// its message id.
const PUBLISH_ATTEMPTS: usize = 3;
/// Time limit for the response to a request about conversations.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Sends messages to agents and receives their replies on its own queue. Dropping it ends all replies.
pub struct AgentClient {
    bus: Arc<dyn Bus>,
    reply_to: RoutingKey,
    pending: Arc<PendingReplies>,
    requests: Arc<PendingRequests>,
    follow_ups: Arc<FollowUpQueue>,
    listener: JoinHandle<()>,
    idle_timeout: Duration,
}

impl AgentClient {
    /// Consumes `user.response.<instance>`. Each process needs its own id.
    ///
    /// # Errors
    /// Fails if the queue cannot be consumed.
    pub async fn connect(bus: Arc<dyn Bus>, instance: &InstanceId) -> Result<Self, ConsumeError> {
        let reply_to = user_response(instance);
        let queue = QueueSpec::reply(&reply_to, vec![(&reply_to).into()]);
        let consumer = bus.consume(Subscription::on_receipt(queue, PREFETCH)).await?;
        let pending = Arc::new(PendingReplies::default());
        let requests = Arc::new(PendingRequests::default());
        let follow_ups = Arc::new(FollowUpQueue::default());
        let dispatcher = Dispatcher {
            pending: pending.clone(),
            requests: requests.clone(),
            follow_ups: follow_ups.clone(),
        };
        let listener = tokio::spawn(dispatcher.run(consumer));
        let idle_timeout = DEFAULT_IDLE_TIMEOUT;
        Ok(Self { bus, reply_to, pending, requests, follow_ups, listener, idle_timeout })
    }

    /// Returns the receiver of replies that belong to no waiting message: progress and results of work that
    /// agents delegated, in all conversations of this client. Returns `None` after the first call. Up to
    /// 256 replies wait for it; further ones are dropped.
    #[must_use]
    pub fn follow_ups(&self) -> Option<FollowUps> {
        self.follow_ups.take()
    }

    /// Sets the time limit between two replies, up to 24 hours. Default 120 s. Only the time in which
    /// the caller waits for a reply counts. It also limits the time, up to 120 s, until an agent receives a
    /// message. A message received after that is answered with [`TurnOutcome::Expired`]; no turn is run.
    ///
    /// [`TurnOutcome::Expired`]: rockbot_contracts::user::TurnOutcome::Expired
    #[must_use]
    pub fn with_idle_timeout(mut self, idle_timeout: Duration) -> Self {
        self.idle_timeout = idle_timeout.min(MAX_IDLE_TIMEOUT);
        self
    }

    /// Sends a message to an agent and returns its replies. An unconfirmed publish is repeated under the
    /// same message id. The agent processes the messages of a client to one conversation in the order of
    /// sending, also if the client does not wait for the replies in between, unless their [`Replies`] are
    /// dropped.
    ///
    /// # Errors
    /// See [`SendError`]. After [`PublishError::Unconfirmed`] the agent may have received the message.
    pub async fn send(
        &self,
        agent: &AgentName,
        message: &UserMessage,
    ) -> Result<Replies, SendError> {
        let mut message = message.clone();
        if message.after.is_none() && !message.cancel {
            message.after = self.pending.last_in(agent, &message.session_id);
        }
        self.send_as(agent, &message, MessageId::generate(), 1).await
    }

    /// Sends a message under an id that the caller chose, like [`send`](Self::send). The agent runs one turn for
    /// all messages of the same id and text in a conversation, whichever processes sent them, and replies to
    /// each sender: with the progress of the turn from then on, and with its answer. Within this client, a
    /// message replaces the reader of an earlier one with the same id and text.
    ///
    /// # Errors
    /// See [`SendError`]. While a message of this client awaits its final reply, one with its id and another text
    /// is not sent. After [`PublishError::Unconfirmed`] the agent may have received the message.
    pub async fn send_with_id(
        &self,
        agent: &AgentName,
        message: &UserMessage,
        message_id: MessageId,
    ) -> Result<Replies, SendError> {
        let mut message = message.clone();
        if message.after.is_none() && !message.cancel {
            let last = self.pending.last_in(agent, &message.session_id);
            // A resent message must not wait for itself.
            message.after = last.filter(|last| *last != message_id);
        }
        // An id that the caller chose may have been sent before, by this process or another.
        self.send_as(agent, &message, message_id, 2).await
    }

    /// Receives the replies to a message that was sent before, also by another process: progress of its
    /// turn from now on, and its answer. The answer of an answered message is repeated; no turn is run twice.
    ///
    /// # Errors
    /// [`ConversationRequestError::Refused`] with `NotFound` if the agent did not record the message.
    pub async fn adopt(
        &self,
        agent: &AgentName,
        session_id: &SessionId,
        message_id: &MessageId,
    ) -> Result<Replies, ConversationRequestError> {
        let (message, _) = self.recorded_message(agent, session_id, message_id).await?;
        Ok(self.send_as(agent, &message, message_id.clone(), 2).await?)
    }

    /// Returns a message that was sent before, and whether the agent has recorded its answer. Sent again with its
    /// id, the message is recognized by its id and text: the agent runs no second turn, and replies to this client too.
    ///
    /// # Errors
    /// [`ConversationRequestError::Refused`] with `NotFound` if the agent did not record the message.
    pub async fn recorded_message(
        &self,
        agent: &AgentName,
        session_id: &SessionId,
        message_id: &MessageId,
    ) -> Result<(UserMessage, bool), ConversationRequestError> {
        let request = ConversationRequest::Message {
            session_id: session_id.clone(),
            message_id: message_id.clone(),
        };
        match self.request(agent, &request).await? {
            ConversationResponse::Message { text, is_answered } => {
                Ok((UserMessage::new(session_id.clone(), text), is_answered))
            }
            _ => Err(ConversationRequestError::UnexpectedResponse),
        }
    }

    /// Sends a message. `attempt` is above 1 if it was sent before.
    async fn send_as(
        &self,
        agent: &AgentName,
        message: &UserMessage,
        message_id: MessageId,
        attempt: u32,
    ) -> Result<Replies, SendError> {
        let envelope = Envelope {
            message_id: message_id.clone(),
            attempt,
            ..self.envelope(message, self.idle_timeout.min(MESSAGE_TTL))
        };
        // Registered before the publish: the first reply may arrive before the confirm.
        let session = (!message.cancel).then(|| message.session_id.clone());
        let text = digest(&message.text);
        let queue = self.pending.insert(agent, session, &message_id, text)?;
        let replies = Replies::new(message_id, self.pending.clone(), queue, self.idle_timeout);
        self.publish(agent, Publication::mandatory(user_message(agent), envelope)).await?;
        Ok(replies)
    }

    /// Answers a request for input, [`ReplyBody::InputAsked`](rockbot_contracts::ReplyBody).
    ///
    /// # Errors
    /// See [`SendError`]. [`SendError::AgentUnavailable`] if no process runs that could have made the request. The
    /// replies of the turn show whether the answer was accepted.
    pub async fn answer_input(
        &self,
        agent: &AgentName,
        answer: &InputAnswer,
    ) -> Result<(), SendError> {
        self.publish_answer(agent, user_input(agent), answer).await
    }

    /// Answers an approval request, [`ReplyBody::ApprovalAsked`](rockbot_contracts::ReplyBody).
    ///
    /// # Errors
    /// See [`SendError`]. Without a process of the agent, the broker keeps the answer for the next one. The replies of
    /// the turn show whether it was accepted.
    pub async fn answer_approval(
        &self,
        agent: &AgentName,
        answer: &ApprovalAnswer,
    ) -> Result<(), SendError> {
        self.publish_answer(agent, user_approval(agent), answer).await
    }

    /// Publishes the answer of a user to a request of a turn.
    async fn publish_answer<M: Message>(
        &self,
        agent: &AgentName,
        key: RoutingKey,
        answer: &M,
    ) -> Result<(), SendError> {
        let envelope =
            Envelope::from_payload(answer).with_source("user").with_trust(ContentTrust::UserInput);
        self.publish(agent, Publication::mandatory(key, envelope)).await
    }

    /// Sends a request about the conversations of an agent, and waits up to 30 s for the response.
    ///
    /// # Errors
    /// See [`ConversationRequestError`]. A [`ConversationResponse::Failed`] is returned as
    /// [`ConversationRequestError::Refused`].
    ///
    /// # Cancellation
    /// Dropping the future stops waiting; the agent may still process the request.
    pub async fn request(
        &self,
        agent: &AgentName,
        request: &ConversationRequest,
    ) -> Result<ConversationResponse, ConversationRequestError> {
        self.conversation_exchange(agent, request).await
    }

    /// Sends a request about the scheduled tasks of an agent, and waits up to 30 s for the response.
    ///
    /// # Errors
    /// See [`ConversationRequestError`]. A [`ScheduleResponse::Failed`] is returned as
    /// [`ConversationRequestError::Refused`].
    ///
    /// # Cancellation
    /// Dropping the future stops waiting; the agent may still process the request.
    pub async fn request_schedule(
        &self,
        agent: &AgentName,
        request: &ScheduleRequest,
    ) -> Result<ScheduleResponse, ConversationRequestError> {
        match self.exchange(agent, request).await? {
            Response::Schedule(ScheduleResponse::Failed { code, message }) => {
                Err(ConversationRequestError::Refused { code, message })
            }
            Response::Schedule(response) => Ok(response),
            Response::Conversation(response) => match *response {
                ConversationResponse::Failed { code, message } => {
                    Err(ConversationRequestError::Refused { code, message })
                }
                _ => Err(ConversationRequestError::UnexpectedResponse),
            },
        }
    }

    /// Receives the results of an agent's scheduled tasks as they are announced. Each listener needs its own
    /// `instance`.
    ///
    /// # Errors
    /// Fails if the queue cannot be consumed, also for a broker user without that right.
    pub async fn scheduled_results(
        &self,
        agent: &AgentName,
        instance: &InstanceId,
    ) -> Result<ScheduledResults, ConsumeError> {
        let subscription = ScheduledResults::subscription(agent, instance);
        let consumer = self.bus.consume(subscription).await?;
        Ok(ScheduledResults::new(agent.clone(), consumer))
    }

    /// Records a user's feedback on an answer.
    ///
    /// # Errors
    /// See [`ConversationRequestError`].
    pub async fn send_feedback(
        &self,
        agent: &AgentName,
        feedback: &UserFeedback,
    ) -> Result<(), ConversationRequestError> {
        match self.conversation_exchange(agent, feedback).await? {
            ConversationResponse::FeedbackRecorded {} => Ok(()),
            _ => Err(ConversationRequestError::UnexpectedResponse),
        }
    }

    async fn conversation_exchange<M: Message>(
        &self,
        agent: &AgentName,
        request: &M,
    ) -> Result<ConversationResponse, ConversationRequestError> {
        match self.exchange(agent, request).await? {
            Response::Conversation(response) => match *response {
                ConversationResponse::Failed { code, message } => {
                    Err(ConversationRequestError::Refused { code, message })
                }
                response => Ok(response),
            },
            Response::Schedule(_) => Err(ConversationRequestError::UnexpectedResponse),
        }
    }

    async fn exchange<M: Message>(
        &self,
        agent: &AgentName,
        request: &M,
    ) -> Result<Response, ConversationRequestError> {
        let envelope = self.envelope(request, REQUEST_TIMEOUT);
        let response = self.requests.insert(agent, &envelope.message_id)?;
        let key = user_conversation(agent);
        self.publish(agent, Publication::mandatory(key, envelope)).await?;
        let response = timeout(REQUEST_TIMEOUT, response).await;
        let response =
            response.map_err(|_| ConversationRequestError::Silent { after: REQUEST_TIMEOUT })?;
        response.map_err(|_| ConversationRequestError::Closed)
    }

    fn envelope<M: Message>(&self, payload: &M, budget: Duration) -> Envelope {
        Envelope::from_payload(payload)
            .reply_to(self.reply_to.clone())
            .within(budget)
            .with_source("user")
            .with_trust(ContentTrust::UserInput)
    }

    /// Publishes to an agent, up to [`PUBLISH_ATTEMPTS`] times while the broker does not confirm it.
    async fn publish(&self, agent: &AgentName, publication: Publication) -> Result<(), SendError> {
        let mut unconfirmed = None;
        for _ in 0..PUBLISH_ATTEMPTS {
            match self.bus.publish(publication.clone()).await {
                Ok(()) => return Ok(()),
                Err(error @ PublishError::Unconfirmed { .. }) => {
                    debug!(%error, "message not confirmed");
                    unconfirmed = Some(error);
                }
                Err(error) => {
                    // An earlier, unconfirmed attempt may have arrived, although this one failed.
                    return Err(SendError::from_publish(agent, unconfirmed.unwrap_or(error)));
                }
            }
        }
        unconfirmed.map_or(Ok(()), |error| Err(SendError::from_publish(agent, error)))
    }
}

impl Drop for AgentClient {
    fn drop(&mut self) {
        self.listener.abort();
        self.pending.clear();
        self.requests.clear();
    }
}

impl fmt::Debug for AgentClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentClient").field("reply_to", &self.reply_to).finish_non_exhaustive()
    }
}

/// Dispatches replies to their readers.
struct Dispatcher {
    pending: Arc<PendingReplies>,
    requests: Arc<PendingRequests>,
    follow_ups: Arc<FollowUpQueue>,
}

impl Dispatcher {
    async fn run(self, mut consumer: Consumer) {
        while let Some(delivery) = consumer.next().await {
            self.dispatch(&delivery.into_envelope());
        }
        self.pending.clear();
        self.requests.clear();
    }

    fn dispatch(&self, envelope: &Envelope) {
        if [ConversationResponse::TYPE, ScheduleResponse::TYPE].contains(&envelope.message_type()) {
            return self.requests.dispatch(envelope);
        }
        match envelope.decode::<AgentReply>(Limits::default()) {
            Ok(reply) if may_reply_as(envelope.user_id.as_deref(), &reply.agent) => {
                if self.pending.is_pending(&reply.in_reply_to) {
                    return self.pending.dispatch(reply);
                }
                if let Err(reply) = self.follow_ups.push(reply) {
                    self.pending.dispatch(*reply);
                }
            }
            Ok(reply) => {
                let user = envelope.user_id.as_deref();
                warn!(agent = %reply.agent, user, "reply dropped: its broker user may not reply for the agent");
            }
            Err(error) => warn!(%error, "invalid reply"),
        }
    }
}
