//! The other end of an agent's front door: says something to an agent and hears its replies.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rockbot_bus::{Bus, ConsumeError, Consumer, Publication, PublishError, Subscription};
use rockbot_contracts::{
    AgentName, AgentReply, ApprovalAnswer, ContentTrust, Envelope, InstanceId, MessageId,
    QueueSpec, RoutingKey, UserMessage,
    json::Limits,
    topology::{user_approval, user_message, user_response},
};
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinHandle,
    time::timeout,
};
use tracing::{debug, warn};

/// Unsettled replies at once; they are settled as they arrive.
const PREFETCH: u16 = 256;
/// Progress of one message that waits for its reader; more is dropped, the answer never is.
const MOST_PROGRESS: usize = 1024;
/// Messages that wait for an answer at once.
const MOST_OPEN: usize = 1024;
/// How long an agent may be silent by default.
const DEFAULT_SILENCE: Duration = Duration::from_secs(120);
/// How long a message may wait until an agent takes it. Later than that it is not run: whoever sent
/// it may be long gone.
const TAKEN_WITHIN: Duration = Duration::from_secs(120);

/// Why a message did not go out.
#[derive(Debug, Clone, thiserror::Error)]
pub enum SayError {
    /// Nobody consumes the agent's queue.
    #[error("nobody serves the agent {agent}; is it running, is the name right?")]
    NobodyServes {
        /// The agent.
        agent: AgentName,
    },
    /// Too many messages wait for an answer.
    #[error("{MOST_OPEN} messages wait for an answer already; wait for one")]
    TooManyOpen,
    /// The bus did not take it.
    #[error("the message was not sent: {0}")]
    Publish(#[source] PublishError),
}

/// Why there are no more replies.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ReplyError {
    /// The agent was silent for too long.
    #[error(
        "the agent said nothing for {} s; what it has begun goes on, what it has not is not done any more",
        after.as_secs_f32()
    )]
    Silent {
        /// How long that was.
        after: Duration,
    },
    /// The client or its bus is gone.
    #[error("the connection to the agent was closed before its answer came")]
    Closed,
}

/// Talks to agents over the bus and takes their replies on a queue of its own. Dropping it ends
/// every conversation's replies.
pub struct AgentClient {
    bus: Arc<dyn Bus>,
    reply_to: RoutingKey,
    open: Arc<Open>,
    listener: JoinHandle<()>,
    silence: Duration,
}

#[derive(Default)]
struct Open {
    messages: Mutex<HashMap<MessageId, Waiter>>,
}

struct Waiter {
    progress: mpsc::Sender<AgentReply>,
    answer: oneshot::Sender<AgentReply>,
}

impl AgentClient {
    /// Starts to consume `user.response.<proxy>`. Each process needs an id of its own.
    ///
    /// # Errors
    /// When the queue can't be consumed.
    pub async fn connect(bus: Arc<dyn Bus>, proxy: &InstanceId) -> Result<Self, ConsumeError> {
        let reply_to = user_response(proxy);
        let queue = QueueSpec::reply(&reply_to, vec![(&reply_to).into()]);
        let consumer = bus.consume(Subscription::on_receipt(queue, PREFETCH)).await?;
        let open = Arc::new(Open::default());
        let listener = tokio::spawn(listen(consumer, open.clone()));
        Ok(Self { bus, reply_to, open, listener, silence: DEFAULT_SILENCE })
    }

    /// The same, giving an agent up that is silent for so long. Default 120 s. An agent that takes a
    /// message only after that, or after 120 s, answers it with [`TurnOutcome::Expired`] and does
    /// nothing.
    ///
    /// [`TurnOutcome::Expired`]: rockbot_contracts::user::TurnOutcome::Expired
    #[must_use]
    pub fn with_silence(mut self, silence: Duration) -> Self {
        self.silence = silence;
        self
    }

    /// Says something to an agent. The replies come out of what this returns.
    ///
    /// # Errors
    /// See [`SayError`]. After [`PublishError::Unconfirmed`] the message may have gone out.
    pub async fn say(&self, agent: &AgentName, message: &UserMessage) -> Result<Replies, SayError> {
        let envelope = Envelope::from_payload(message)
            .reply_to(self.reply_to.clone())
            .within(self.silence.min(TAKEN_WITHIN))
            .with_source("user")
            .with_trust(ContentTrust::UserInput);
        // Before it is sent: the first reply may be quicker than the confirm.
        let replies = self.await_replies(&envelope.message_id)?;
        let publication = Publication::mandatory(user_message(agent), envelope);
        match self.bus.publish(publication).await {
            Ok(()) => Ok(replies),
            Err(PublishError::Unroutable { .. }) => {
                Err(SayError::NobodyServes { agent: agent.clone() })
            }
            Err(error) => Err(SayError::Publish(error)),
        }
    }

    /// Answers a question of an agent, [`ReplyBody::ApprovalAsked`](rockbot_contracts::ReplyBody).
    ///
    /// # Errors
    /// See [`SayError`]. Whether the answer counted is seen in the turn.
    pub async fn approve(
        &self,
        agent: &AgentName,
        answer: &ApprovalAnswer,
    ) -> Result<(), SayError> {
        let envelope =
            Envelope::from_payload(answer).with_source("user").with_trust(ContentTrust::UserInput);
        let publication = Publication::mandatory(user_approval(agent), envelope);
        match self.bus.publish(publication).await {
            Ok(()) => Ok(()),
            Err(PublishError::Unroutable { .. }) => {
                Err(SayError::NobodyServes { agent: agent.clone() })
            }
            Err(error) => Err(SayError::Publish(error)),
        }
    }

    fn await_replies(&self, id: &MessageId) -> Result<Replies, SayError> {
        let (progress, from_progress) = mpsc::channel(MOST_PROGRESS);
        let (answer, from_answer) = oneshot::channel();
        let mut messages = self.open.lock();
        if messages.len() >= MOST_OPEN {
            return Err(SayError::TooManyOpen);
        }
        messages.insert(id.clone(), Waiter { progress, answer });
        Ok(Replies {
            message_id: id.clone(),
            open: self.open.clone(),
            progress: from_progress,
            answer: Some(from_answer),
            silence: self.silence,
        })
    }
}

impl Drop for AgentClient {
    fn drop(&mut self) {
        self.listener.abort();
        self.open.lock().clear();
    }
}

impl fmt::Debug for AgentClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentClient").field("reply_to", &self.reply_to).finish_non_exhaustive()
    }
}

async fn listen(mut consumer: Consumer, open: Arc<Open>) {
    while let Some(delivery) = consumer.next().await {
        let envelope = delivery.into_envelope();
        match envelope.decode::<AgentReply>(Limits::default()) {
            Ok(reply) => open.hand_out(reply),
            Err(error) => warn!(%error, "unreadable reply"),
        }
    }
    open.lock().clear();
}

impl Open {
    fn hand_out(&self, reply: AgentReply) {
        let mut messages = self.lock();
        if reply.is_final {
            if let Some(waiter) = messages.remove(&reply.in_reply_to) {
                let _ = waiter.answer.send(reply);
                return;
            }
        } else if let Some(waiter) = messages.get(&reply.in_reply_to) {
            // A reader that is too slow misses progress.
            let _ = waiter.progress.try_send(reply);
            return;
        }
        debug!(in_reply_to = %reply.in_reply_to, "a reply that nobody waits for");
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<MessageId, Waiter>> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The replies to one message: progress, then exactly one final reply. Dropping it stops listening;
/// the turn goes on.
pub struct Replies {
    message_id: MessageId,
    open: Arc<Open>,
    progress: mpsc::Receiver<AgentReply>,
    /// Gone once the final reply came out.
    answer: Option<oneshot::Receiver<AgentReply>>,
    silence: Duration,
}

impl Replies {
    /// The message that is answered.
    #[must_use]
    pub fn message_id(&self) -> &MessageId {
        &self.message_id
    }

    /// The next reply; `None` after the final one or an error.
    ///
    /// # Errors
    /// See [`ReplyError`].
    ///
    /// # Cancellation
    /// Safe: no reply is lost when the future is dropped.
    pub async fn next(&mut self) -> Option<Result<AgentReply, ReplyError>> {
        let answer = self.answer.as_mut()?;
        let next = async {
            // Ends when the final reply is here, after all progress was handed out.
            if let Some(reply) = self.progress.recv().await {
                return Ok(reply);
            }
            answer.await.map_err(|_| ReplyError::Closed)
        };
        let after = self.silence;
        let next = timeout(after, next).await.unwrap_or(Err(ReplyError::Silent { after }));
        if next.as_ref().map_or(true, |reply| reply.is_final) {
            self.answer = None;
        }
        Some(next)
    }

    /// Waits for the final reply and drops the progress.
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
        self.open.lock().remove(&self.message_id);
    }
}

impl fmt::Debug for Replies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replies").field("message_id", &self.message_id).finish_non_exhaustive()
    }
}
