//! The agent's inbox on the bus: consumes user messages and publishes progress and answers.

use std::{pin::pin, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use rockbot_bus::{
    Bus, ConsumeError, Delivery, Handler, Publication, PublishError, Settlement, Subscription,
    Worker, worker::WorkerStats,
};
use rockbot_contracts::{
    AgentReply, ApprovalAnswer, ContentTrust, Envelope, InstanceId, MessageId, QueueSpec,
    ReplyBody, RoutingKey, SessionId, UserMessage,
    json::Limits,
    topology::{is_user_reply, user_approval, user_message},
    user::TurnOutcome,
};
use rockbot_tools::EntryPoint;
use tokio::task::JoinHandle;
use tracing::{debug, warn};

use crate::{
    agent::{Agent, CANCEL_GRACE},
    dedup::{Admission, Deduplicator, ProcessingGuard},
    event::{TurnAnswer, TurnEvent},
    origin::TurnOrigin,
    progress_buffer::ProgressBuffer,
};

/// Longest text of an answer, in bytes. Escaped as JSON, it still fits into a message.
const MAX_ANSWER_BYTES: usize = 512 * 1024;
/// Prefetch for approval responses.
const APPROVAL_PREFETCH: u16 = 64;
/// Time limit for publishing a progress event, since later replies wait for it.
const PROGRESS_TIMEOUT: Duration = Duration::from_secs(2);

/// The consumer of an agent's inbox. Dropping it aborts running turns; the broker redelivers their
/// messages, which are then answered as lost.
#[derive(Debug)]
pub struct AgentInbox {
    worker: Worker,
    agent: Agent,
    _approvals: Option<ApprovalListener>,
}

/// Receives approval responses until it is dropped.
#[derive(Debug)]
struct ApprovalListener(JoinHandle<()>);

impl ApprovalListener {
    /// Consumes `user.approval.<agent>` on an exclusive queue. Each process receives every response; only
    /// the process with the open request accepts it.
    async fn start(agent: &Agent, bus: &dyn Bus) -> Result<Option<Self>, ConsumeError> {
        let Some(approvals) = agent.approvals().cloned() else { return Ok(None) };
        let queue = QueueSpec::exclusive(&user_approval(agent.name()), &InstanceId::generate());
        let mut consumer = bus.consume(Subscription::on_receipt(queue, APPROVAL_PREFETCH)).await?;
        Ok(Some(Self(tokio::spawn(async move {
            while let Some(delivery) = consumer.next().await {
                match delivery.into_envelope().decode::<ApprovalAnswer>(Limits::default()) {
                    Ok(answer) => {
                        approvals.answer(&answer);
                    }
                    Err(error) => warn!(%error, "invalid approval response"),
                }
            }
        }))))
    }
}

impl Drop for ApprovalListener {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Consumes `user.message.<agent>` and answers every message exactly once. The answer is the last reply.
///
/// `concurrency` bounds the messages in progress. A message is in progress until its turn ends, so allow
/// for messages that steer or cancel a running turn. Conversations are kept in this process: with several
/// processes of one agent, the messages of a conversation must all reach the same process.
///
/// A delivery stays unsettled until its answer is confirmed. A redelivered message of another process is
/// answered as lost and not run again, because its tools may have run. A message whose time budget has
/// expired is not run either, because its sender no longer waits.
///
/// # Errors
/// Fails if the queue cannot be consumed.
pub async fn serve(
    agent: Agent,
    bus: Arc<dyn Bus>,
    concurrency: u16,
) -> Result<AgentInbox, ConsumeError> {
    let approvals = ApprovalListener::start(&agent, bus.as_ref()).await?;
    let queue = QueueSpec::work(&user_message(agent.name()));
    let handler = InboxHandler { agent: agent.clone(), bus: bus.clone(), dedup: Arc::default() };
    let subscription = Subscription::new(queue, concurrency);
    let worker = Worker::start(bus.as_ref(), subscription, Arc::new(handler)).await?;
    Ok(AgentInbox { worker, agent, _approvals: approvals })
}

impl AgentInbox {
    /// Returns the statistics of the consumer.
    #[must_use]
    pub fn stats(&self) -> &Arc<WorkerStats> {
        self.worker.stats()
    }

    /// Stops consuming, waits up to `grace` for running turns, cancels the remaining ones, and publishes
    /// all answers. Returns `true` if no turn was cancelled and every answer was published.
    pub async fn drain(self, grace: Duration) -> bool {
        let Self { worker, agent, _approvals } = self;
        let answered = worker.drain(grace + CANCEL_GRACE + Publication::DEFAULT_TIMEOUT);
        let (answered, ended) = tokio::join!(answered, agent.shut_down(grace));
        answered && ended
    }
}

/// Processes deliveries.
struct InboxHandler {
    agent: Agent,
    bus: Arc<dyn Bus>,
    dedup: Arc<Deduplicator>,
}

impl Handler for InboxHandler {
    fn handle<'a>(&'a self, delivery: &'a Delivery) -> BoxFuture<'a, Settlement> {
        Box::pin(self.process(delivery))
    }
}

impl InboxHandler {
    async fn process(&self, delivery: &Delivery) -> Settlement {
        let envelope = delivery.envelope();
        let reply_to = match &envelope.reply_to {
            Some(key) if is_user_reply(key) => key,
            // A reply to any other key would let the sender publish requests through this process.
            Some(_) => {
                return Settlement::dead_letter("reply-to is not an agent reply address");
            }
            None => return Settlement::dead_letter("reply-to is missing"),
        };
        let message: UserMessage = match envelope.decode(Limits::default()) {
            Ok(message) => message,
            Err(error) => return Settlement::dead_letter(error.to_string()),
        };
        let mut replies = ReplyPublisher {
            bus: self.bus.as_ref(),
            agent: &self.agent,
            reply_to,
            session_id: message.session_id.clone(),
            in_reply_to: envelope.message_id.clone(),
            sequence: 0,
        };
        let (guard, answer) = match self.dedup.admit(&envelope.message_id, reply_to).await {
            Admission::Answered => return Settlement::Ack,
            Admission::Unsent(guard, answer) => (guard, answer),
            Admission::New(guard) if delivery.is_redelivered() => (guard, lost()),
            Admission::New(guard) if envelope.remaining() == Some(Duration::ZERO) => {
                (guard, expired())
            }
            Admission::New(guard) => (guard, replies.run(message).await),
        };
        settle(guard, replies.publish_answer(&answer).await, answer)
    }
}

fn settle(
    guard: ProcessingGuard,
    published: Result<(), PublishError>,
    answer: TurnAnswer,
) -> Settlement {
    match published {
        Ok(()) => guard.answered(),
        Err(PublishError::Unroutable { .. }) => {
            warn!("reply queue is gone; answer dropped");
            guard.answered();
        }
        Err(error) => {
            warn!(%error, "answer publish failed; message requeued");
            guard.unsent(answer);
            return Settlement::Retry;
        }
    }
    Settlement::Ack
}

/// Answers a redelivered message of a process that died.
fn lost() -> TurnAnswer {
    let text = "The process of the agent died before it answered this message. The turn was not \
                repeated, because its tools may have run. Check what was done and try again.";
    TurnAnswer::new(TurnOutcome::ModelFailed, text)
}

/// Answers a message whose time budget has expired.
fn expired() -> TurnAnswer {
    let text = "The message expired before the agent received it. Nothing was done. Try again.";
    TurnAnswer::new(TurnOutcome::Expired, text)
}

/// Publishes the replies to one message, in order.
struct ReplyPublisher<'a> {
    bus: &'a dyn Bus,
    agent: &'a Agent,
    reply_to: &'a RoutingKey,
    session_id: SessionId,
    in_reply_to: MessageId,
    sequence: u64,
}

impl ReplyPublisher<'_> {
    /// Runs the turn of the message and publishes its progress.
    async fn run(&mut self, message: UserMessage) -> TurnAnswer {
        let buffer = Arc::new(ProgressBuffer::default());
        let origin = TurnOrigin::new(EntryPoint::UserTurn).with_message(self.in_reply_to.clone());
        let mut turn = pin!(self.agent.run_turn(origin, message, buffer.sink()));
        let answer = loop {
            tokio::select! {
                biased;
                answer = &mut turn => break answer,
                event = buffer.next() => {
                    self.publish_progress(event).await;
                }
            }
        };
        while let Some(event) = buffer.pop() {
            if !self.publish_progress(event).await {
                // The bus is failing; publish the answer without the remaining progress.
                break;
            }
        }
        answer
    }

    async fn publish_progress(&mut self, event: TurnEvent) -> bool {
        let envelope = self.reply(event.into(), false);
        let publication = Publication::announcement(self.reply_to.clone(), envelope);
        let published = self.bus.publish(publication.within(PROGRESS_TIMEOUT)).await;
        if let Err(error) = &published {
            debug!(%error, "progress publish failed");
        }
        published.is_ok()
    }

    async fn publish_answer(&mut self, answer: &TurnAnswer) -> Result<(), PublishError> {
        let mut answer = answer.clone();
        if answer.text.len() > MAX_ANSWER_BYTES {
            let cut = answer.text.floor_char_boundary(MAX_ANSWER_BYTES);
            let omitted = answer.text.len() - cut;
            answer.text.truncate(cut);
            answer.text.push_str(&format!("\n\n(The answer was truncated by {omitted} bytes.)"));
        }
        let envelope = self.reply(answer.into(), true);
        self.bus.publish(Publication::mandatory(self.reply_to.clone(), envelope)).await
    }

    fn reply(&mut self, body: ReplyBody, is_final: bool) -> Envelope {
        self.sequence += 1;
        let reply = AgentReply {
            session_id: self.session_id.clone(),
            in_reply_to: self.in_reply_to.clone(),
            agent: self.agent.name().clone(),
            sequence: self.sequence,
            is_final,
            body,
        };
        Envelope::from_payload(&reply)
            .with_correlation_id(self.in_reply_to.as_str())
            .with_source(self.agent.name().as_str())
            .with_trust(ContentTrust::AgentMessage)
    }
}
