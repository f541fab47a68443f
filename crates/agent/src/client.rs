//! Client for agents: sends user messages and receives replies.

use std::{collections::HashMap, fmt, sync::Arc, time::Duration};

use parking_lot::{Mutex, MutexGuard};

use rockbot_bus::{Bus, ConsumeError, Consumer, Publication, PublishError, Subscription};
use rockbot_contracts::{
    AgentName, AgentReply, ApprovalAnswer, ContentTrust, Envelope, InstanceId, MessageId,
    QueueSpec, RoutingKey, UserMessage,
    identity::may_reply_as,
    json::Limits,
    topology::{user_approval, user_message, user_response},
};
use tokio::{
    task::JoinHandle,
    time::{Instant, timeout_at},
};
use tracing::{debug, warn};

use crate::progress_queue::{ProgressQueue, Queued};

/// Prefetch of replies. They are settled on receipt.
const PREFETCH: u16 = 256;
/// Maximum number of messages that wait for their final reply.
const MAX_PENDING: usize = 1024;
/// Default time limit between two replies.
const DEFAULT_IDLE_TIMEOUT: Duration = Duration::from_secs(120);
/// Maximum time limit between two replies.
const MAX_IDLE_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);
/// Time limit for a message until an agent receives it. No turn is run for an expired message,
/// because its sender may be gone.
const MESSAGE_TTL: Duration = Duration::from_secs(120);

/// Why a message was not sent.
#[derive(Debug, Clone, thiserror::Error)]
pub enum SendError {
    /// No process consumes the inbox of the agent.
    #[error(
        "agent {agent} is not available: no process consumes its inbox; check its name and start it"
    )]
    AgentUnavailable {
        /// The agent.
        agent: AgentName,
    },
    /// Too many messages are pending.
    #[error(
        "too many pending messages: {MAX_PENDING} await their final reply; wait for one of them"
    )]
    TooManyPending,
    /// The broker did not accept the message.
    #[error("message was not sent: {0}")]
    Publish(#[source] PublishError),
}

/// Why the replies ended without the final one.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ReplyError {
    /// No reply arrived in time.
    #[error(
        "no reply from the agent for {} s; a turn already running continues; an undelivered message \
         expires unprocessed",
        after.as_secs_f32()
    )]
    Silent {
        /// The time limit.
        after: Duration,
    },
    /// The client or its bus was closed.
    #[error("connection to the agent closed before the final reply arrived")]
    Closed,
}

/// Sends messages to agents and receives their replies on its own queue. Dropping it ends all replies.
pub struct AgentClient {
    bus: Arc<dyn Bus>,
    reply_to: RoutingKey,
    pending: Arc<PendingReplies>,
    listener: JoinHandle<()>,
    idle_timeout: Duration,
}

#[derive(Default)]
struct PendingReplies {
    messages: Mutex<HashMap<MessageId, PendingReply>>,
}

/// A message that waits for its final reply. Dropping it ends its replies.
struct PendingReply {
    /// The receiver of the message, which alone may reply.
    agent: AgentName,
    queue: Arc<ProgressQueue<AgentReply>>,
    /// Sequence number of the last reply.
    sequence: u64,
}

impl PendingReply {
    /// Queues a progress reply and counts the replies missing before it. The broker redelivers replies
    /// after a disconnect, so one with an earlier sequence number is a duplicate.
    fn push(&mut self, reply: AgentReply) {
        if reply.sequence <= self.sequence {
            debug!(in_reply_to = %reply.in_reply_to, sequence = reply.sequence, "duplicate reply dropped");
            return;
        }
        self.skip_to(reply.sequence);
        self.queue.push(reply);
    }

    /// Queues the final reply. Another process or a later attempt may have sent it, with sequence numbers
    /// of its own.
    fn finish(&mut self, reply: AgentReply) {
        self.skip_to(reply.sequence);
        self.queue.finish(reply);
    }

    fn skip_to(&mut self, sequence: u64) {
        let lost = sequence.saturating_sub(self.sequence).saturating_sub(1);
        if lost > 0 {
            debug!(lost, "progress of the agent lost");
            self.queue.record_lost(lost);
        }
        self.sequence = sequence;
    }
}

impl Drop for PendingReply {
    fn drop(&mut self) {
        self.queue.close();
    }
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
        let listener = tokio::spawn(dispatch_replies(consumer, pending.clone()));
        Ok(Self { bus, reply_to, pending, listener, idle_timeout: DEFAULT_IDLE_TIMEOUT })
    }

    /// Sets the time limit between two replies, up to 24 hours. Default 120 s. Only the time in which
    /// the caller waits for a reply counts. It also limits the time, up to 120 s, until an agent receives a message. A message received after that is answered with
    /// [`TurnOutcome::Expired`]; no turn is run.
    ///
    /// [`TurnOutcome::Expired`]: rockbot_contracts::user::TurnOutcome::Expired
    #[must_use]
    pub fn with_idle_timeout(mut self, idle_timeout: Duration) -> Self {
        self.idle_timeout = idle_timeout.min(MAX_IDLE_TIMEOUT);
        self
    }

    /// Sends a message to an agent and returns its replies.
    ///
    /// # Errors
    /// See [`SendError`]. After [`PublishError::Unconfirmed`] the agent may have received the message.
    pub async fn send(
        &self,
        agent: &AgentName,
        message: &UserMessage,
    ) -> Result<Replies, SendError> {
        let envelope = Envelope::from_payload(message)
            .reply_to(self.reply_to.clone())
            .within(self.idle_timeout.min(MESSAGE_TTL))
            .with_source("user")
            .with_trust(ContentTrust::UserInput);
        // Registered before the publish: the first reply may arrive before the confirm.
        let replies = self.await_replies(agent, &envelope.message_id)?;
        let publication = Publication::mandatory(user_message(agent), envelope);
        match self.bus.publish(publication).await {
            Ok(()) => Ok(replies),
            Err(PublishError::Unroutable { .. }) => {
                Err(SendError::AgentUnavailable { agent: agent.clone() })
            }
            Err(error) => Err(SendError::Publish(error)),
        }
    }

    /// Answers an approval request, [`ReplyBody::ApprovalAsked`](rockbot_contracts::ReplyBody).
    ///
    /// # Errors
    /// See [`SendError`]. The replies of the turn show whether the answer was accepted.
    pub async fn answer_approval(
        &self,
        agent: &AgentName,
        answer: &ApprovalAnswer,
    ) -> Result<(), SendError> {
        let envelope =
            Envelope::from_payload(answer).with_source("user").with_trust(ContentTrust::UserInput);
        let publication = Publication::mandatory(user_approval(agent), envelope);
        match self.bus.publish(publication).await {
            Ok(()) => Ok(()),
            Err(PublishError::Unroutable { .. }) => {
                Err(SendError::AgentUnavailable { agent: agent.clone() })
            }
            Err(error) => Err(SendError::Publish(error)),
        }
    }

    fn await_replies(&self, agent: &AgentName, id: &MessageId) -> Result<Replies, SendError> {
        let queue = Arc::new(ProgressQueue::default());
        let mut messages = self.pending.lock();
        if messages.len() >= MAX_PENDING {
            return Err(SendError::TooManyPending);
        }
        let entry = PendingReply { agent: agent.clone(), queue: queue.clone(), sequence: 0 };
        messages.insert(id.clone(), entry);
        Ok(Replies {
            message_id: id.clone(),
            pending: self.pending.clone(),
            queue,
            is_ended: false,
            lost: 0,
            idle_timeout: self.idle_timeout,
            idle_deadline: None,
        })
    }
}

impl Drop for AgentClient {
    fn drop(&mut self) {
        self.listener.abort();
        self.pending.lock().clear();
    }
}

impl fmt::Debug for AgentClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentClient").field("reply_to", &self.reply_to).finish_non_exhaustive()
    }
}

async fn dispatch_replies(mut consumer: Consumer, pending: Arc<PendingReplies>) {
    while let Some(delivery) = consumer.next().await {
        let envelope = delivery.into_envelope();
        match envelope.decode::<AgentReply>(Limits::default()) {
            Ok(reply) if may_reply_as(envelope.user_id.as_deref(), &reply.agent) => {
                pending.dispatch(reply);
            }
            Ok(reply) => {
                let user = envelope.user_id.as_deref();
                warn!(agent = %reply.agent, user, "reply dropped: not of its agent's user");
            }
            Err(error) => warn!(%error, "invalid reply"),
        }
    }
    pending.lock().clear();
}

impl PendingReplies {
    fn dispatch(&self, reply: AgentReply) {
        let mut messages = self.lock();
        let expected = messages.get(&reply.in_reply_to).map(|message| &message.agent);
        if expected.is_some_and(|agent| *agent != reply.agent) {
            warn!(agent = %reply.agent, "reply dropped: the message went to another agent");
            return;
        }
        if reply.is_final {
            if let Some(mut message) = messages.remove(&reply.in_reply_to) {
                message.finish(reply);
                return;
            }
        } else if let Some(message) = messages.get_mut(&reply.in_reply_to) {
            message.push(reply);
            return;
        }
        debug!(in_reply_to = %reply.in_reply_to, "reply to an unknown message dropped");
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<MessageId, PendingReply>> {
        self.messages.lock()
    }
}

/// The replies to one message: progress, then exactly one final reply. Dropping it stops receiving; the
/// turn continues.
///
/// A slow reader, or a bus that fails for long, can lose progress. [`lost`](Self::lost) counts it.
pub struct Replies {
    message_id: MessageId,
    pending: Arc<PendingReplies>,
    queue: Arc<ProgressQueue<AgentReply>>,
    /// Set after the final reply or an error.
    is_ended: bool,
    lost: u64,
    idle_timeout: Duration,
    /// End of the current wait. Kept while the future of the wait is dropped and created again.
    idle_deadline: Option<Instant>,
}

impl Replies {
    /// Returns the id of the message.
    #[must_use]
    pub fn message_id(&self) -> &MessageId {
        &self.message_id
    }

    /// Returns the number of replies that were lost before the last one that [`next`](Self::next) returned.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Returns the next reply, or `None` after the final one or an error.
    ///
    /// # Errors
    /// See [`ReplyError`].
    ///
    /// # Cancellation
    /// Cancel-safe: no reply is lost, and the idle time that has passed counts for the next wait.
    pub async fn next(&mut self) -> Option<Result<AgentReply, ReplyError>> {
        if self.is_ended {
            return None;
        }
        let after = self.idle_timeout;
        let deadline = *self.idle_deadline.get_or_insert_with(|| Instant::now() + after);
        let next = match timeout_at(deadline, self.queue.next()).await {
            Ok(Some(Queued { lost_before, item })) => {
                self.lost = self.lost.saturating_add(lost_before);
                Ok(item)
            }
            Ok(None) => Err(ReplyError::Closed),
            Err(_) => Err(ReplyError::Silent { after }),
        };
        self.idle_deadline = None;
        self.is_ended = next.as_ref().map_or(true, |reply| reply.is_final);
        Some(next)
    }

    /// Waits for the final reply and discards the progress.
    ///
    /// # Errors
    /// See [`ReplyError`].
    pub async fn last(mut self) -> Result<AgentReply, ReplyError> {
        while let Some(reply) = self.next().await {
            let reply = reply?;
            if reply.is_final {
                return Ok(reply);
            }
        }
        Err(ReplyError::Closed)
    }
}

impl Drop for Replies {
    fn drop(&mut self) {
        self.pending.lock().remove(&self.message_id);
    }
}

impl fmt::Debug for Replies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replies").field("message_id", &self.message_id).finish_non_exhaustive()
    }
}
