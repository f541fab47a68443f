//! The agent's inbox on the bus: consumes user messages and publishes progress and answers.

use std::{sync::Arc, time::Duration};

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
use tokio::{task::JoinHandle, time::sleep};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::{
    agent::{Agent, CANCEL_GRACE},
    dedup::{Admission, Deduplicator, ProcessingGuard},
    event::{ProgressSink, TurnAnswer, TurnEvent},
    inbox_watch::InboxWatch,
    origin::TurnOrigin,
    progress_queue::{Progress, ProgressQueue, Queued},
};

/// Longest text of an answer, in bytes. Escaped as JSON, it still fits into a message.
const MAX_ANSWER_BYTES: usize = 512 * 1024;
/// Prefetch for approval responses.
const APPROVAL_PREFETCH: u16 = 64;
/// Time limit for publishing text and progress lines, since later replies wait for them.
const PROGRESS_TIMEOUT: Duration = Duration::from_secs(2);
/// Pause before a failed event is published again.
const RETRY_WAIT: Duration = Duration::from_millis(200);

/// The consumer of an agent's inbox. Dropping it aborts running turns; the broker redelivers their
/// messages, which are then answered as lost.
#[derive(Debug)]
pub struct AgentInbox {
    worker: Worker,
    agent: Agent,
    _approvals: Option<ApprovalListener>,
    watch: InboxWatch,
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
/// Replies arrive in the order of their sequence numbers; a gap means that progress was lost.
///
/// `concurrency` bounds the messages in progress. A message is in progress until its turn ends, so allow
/// for messages that steer or cancel a running turn. Conversations are kept in this process: several
/// processes of one agent lose context, which each of them logs.
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
    let name = queue.name.clone();
    let subscription = Subscription::new(queue, concurrency);
    let worker = Worker::start(bus.as_ref(), subscription, Arc::new(handler)).await?;
    let watch = InboxWatch::start(bus, agent.name().clone(), name);
    Ok(AgentInbox { worker, agent, _approvals: approvals, watch })
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
        let Self { worker, agent, _approvals, watch } = self;
        drop(watch);
        // After its turn, the rest of the progress and then the answer are published.
        let answered = worker.drain(grace + CANCEL_GRACE + 2 * Publication::DEFAULT_TIMEOUT);
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

/// Returns `true` if the bus may accept the message later. A duplicate of an unconfirmed message is
/// recognized by its sequence number.
fn is_temporary(error: &PublishError) -> bool {
    use PublishError::{Disconnected, Refused, Unconfirmed};
    matches!(error, Disconnected { .. } | Unconfirmed { .. } | Refused { .. })
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
        let queue = Arc::new(ProgressQueue::default());
        let sink: ProgressSink = {
            let queue = queue.clone();
            Arc::new(move |event| queue.push(event))
        };
        let origin = TurnOrigin::new(EntryPoint::UserTurn).with_message(self.in_reply_to.clone());
        let ended = CancellationToken::new();
        let agent = self.agent;
        let turn = async {
            let answer = agent.run_turn(origin, message, sink).await;
            queue.close();
            ended.cancel();
            answer
        };
        let (answer, ()) = tokio::join!(turn, self.publish_all(&queue, &ended));
        answer
    }

    /// Publishes the progress until the queue is closed and empty. If the bus fails, gives up 10 s after
    /// the end of the turn.
    async fn publish_all(&mut self, queue: &ProgressQueue<TurnEvent>, ended: &CancellationToken) {
        let late = async {
            ended.cancelled().await;
            sleep(Publication::DEFAULT_TIMEOUT).await;
        };
        let all = async {
            while let Some(event) = queue.next().await {
                self.publish_progress(event).await;
            }
        };
        let is_complete = tokio::select! {
            biased;
            () = all => true,
            () = late => false,
        };
        if !is_complete {
            // The gap in the sequence numbers shows the loss to the client.
            self.sequence = self.sequence.saturating_add(queue.discard());
            warn!(in_reply_to = %self.in_reply_to, "progress publish failed; remaining progress dropped");
        }
    }

    /// Publishes an event. A confirm is awaited, and essential events are retried, because events on
    /// different publish channels could overtake each other and the answer.
    async fn publish_progress(&mut self, event: Queued<TurnEvent>) {
        let Queued { lost_before, item } = event;
        let is_optional = item.is_optional();
        let timeout = if is_optional { PROGRESS_TIMEOUT } else { Publication::DEFAULT_TIMEOUT };
        self.sequence = self.sequence.saturating_add(lost_before);
        let envelope = self.reply(item.into(), false).transient();
        loop {
            let publication = Publication::mandatory(self.reply_to.clone(), envelope.clone());
            match self.bus.publish(publication.within(timeout)).await {
                Ok(()) => return,
                Err(error) if is_optional || !is_temporary(&error) => {
                    debug!(%error, "progress publish failed");
                    return;
                }
                Err(error) => debug!(%error, "progress publish failed; retrying"),
            }
            sleep(RETRY_WAIT).await;
        }
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
        self.sequence = self.sequence.saturating_add(1);
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
