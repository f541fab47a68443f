//! The agent's queue on the bus: messages of people come in, progress and answers go out.

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
    agent::{Agent, WIND_DOWN},
    backlog::Backlog,
    event::{TurnAnswer, TurnEvent},
    ledger::{Entry, Ledger, Ticket},
    origin::TurnOrigin,
};

/// The longest answer on the bus, in bytes of text; escaped as JSON it still fits a message.
const MAX_ANSWER_BYTES: usize = 512 * 1024;
/// Answers to questions that are taken in at once.
const ANSWERS_AT_ONCE: u16 = 64;
/// How long a piece of progress may keep what follows waiting.
const PROGRESS_TIMEOUT: Duration = Duration::from_secs(2);

/// An agent behind its queue. Dropping it aborts what is under way; the bus delivers those messages
/// again, and they are answered as lost.
#[derive(Debug)]
pub struct FrontDoor {
    worker: Worker,
    agent: Agent,
    _answers: Option<Answers>,
}

/// What people say to the agent's questions, while it lives.
#[derive(Debug)]
struct Answers(JoinHandle<()>);

impl Answers {
    /// Consumes `user.approval.<agent>` on a queue of this process's own: each process hears every
    /// answer, and the one that asked takes it.
    async fn hear(agent: &Agent, bus: &dyn Bus) -> Result<Option<Self>, ConsumeError> {
        let Some(approvals) = agent.approvals().cloned() else { return Ok(None) };
        let queue = QueueSpec::exclusive(&user_approval(agent.name()), &InstanceId::generate());
        let mut consumer = bus.consume(Subscription::on_receipt(queue, ANSWERS_AT_ONCE)).await?;
        Ok(Some(Self(tokio::spawn(async move {
            while let Some(delivery) = consumer.next().await {
                match delivery.into_envelope().decode::<ApprovalAnswer>(Limits::default()) {
                    Ok(answer) => {
                        approvals.answer(&answer);
                    }
                    Err(error) => warn!(%error, "an unreadable answer to a question"),
                }
            }
        }))))
    }
}

impl Drop for Answers {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Consumes `user.message.<agent>` and answers every message exactly once, last of all its replies.
///
/// `concurrency` bounds the messages in hand. A message is in hand until its turn ended, so leave
/// room for those that steer or cancel a running turn. Conversations live in this process; with
/// several processes of one agent, a conversation must stay with one of them.
///
/// A delivery stays unsettled until its answer is confirmed. One that was delivered before is not
/// run again, since its tools may have run: it is answered as lost. One whose time budget is over
/// before it is taken is not run either: nobody waits for it any more, and the world has moved on.
///
/// # Errors
/// When the queue can't be consumed.
pub async fn serve(
    agent: Agent,
    bus: Arc<dyn Bus>,
    concurrency: u16,
) -> Result<FrontDoor, ConsumeError> {
    let answers = Answers::hear(&agent, bus.as_ref()).await?;
    let queue = QueueSpec::work(&user_message(agent.name()));
    let desk = Desk { agent: agent.clone(), bus: bus.clone(), ledger: Arc::default() };
    let subscription = Subscription::new(queue, concurrency);
    let worker = Worker::start(bus.as_ref(), subscription, Arc::new(desk)).await?;
    Ok(FrontDoor { worker, agent, _answers: answers })
}

impl FrontDoor {
    /// What it did so far.
    #[must_use]
    pub fn stats(&self) -> &Arc<WorkerStats> {
        self.worker.stats()
    }

    /// Stops taking messages, lets turns end within `grace`, cancels the rest, and sends every
    /// answer. Whether all turns ended by themselves and all answers were sent.
    pub async fn drain(self, grace: Duration) -> bool {
        let Self { worker, agent, _answers } = self;
        let answered = worker.drain(grace + WIND_DOWN + Publication::DEFAULT_TIMEOUT);
        let (answered, ended) = tokio::join!(answered, agent.shut_down(grace));
        answered && ended
    }
}

/// Answers deliveries.
struct Desk {
    agent: Agent,
    bus: Arc<dyn Bus>,
    ledger: Arc<Ledger>,
}

impl Handler for Desk {
    fn handle<'a>(&'a self, delivery: &'a Delivery) -> BoxFuture<'a, Settlement> {
        Box::pin(self.take(delivery))
    }
}

impl Desk {
    async fn take(&self, delivery: &Delivery) -> Settlement {
        let envelope = delivery.envelope();
        let reply_to = match &envelope.reply_to {
            Some(key) if is_user_reply(key) => key,
            // Answering elsewhere would let a sender make this process publish requests.
            Some(_) => {
                return Settlement::dead_letter("its reply-to is not an address for agent replies");
            }
            None => return Settlement::dead_letter("it has no reply-to to answer to"),
        };
        let message: UserMessage = match envelope.decode(Limits::default()) {
            Ok(message) => message,
            Err(error) => return Settlement::dead_letter(error.to_string()),
        };
        let mut replies = ReplyLane {
            bus: self.bus.as_ref(),
            agent: &self.agent,
            reply_to,
            session_id: message.session_id.clone(),
            in_reply_to: envelope.message_id.clone(),
            sequence: 0,
        };
        let (ticket, answer) = match self.ledger.enter(&envelope.message_id, reply_to).await {
            Entry::Answered => return Settlement::Ack,
            Entry::Unsent(ticket, answer) => (ticket, answer),
            Entry::New(ticket) if delivery.is_redelivered() => (ticket, lost()),
            Entry::New(ticket) if envelope.remaining() == Some(Duration::ZERO) => {
                (ticket, expired())
            }
            Entry::New(ticket) => (ticket, replies.run(message).await),
        };
        settle(ticket, replies.finish(&answer).await, answer)
    }
}

fn settle(ticket: Ticket, published: Result<(), PublishError>, answer: TurnAnswer) -> Settlement {
    match published {
        Ok(()) => ticket.answered(),
        Err(PublishError::Unroutable { .. }) => {
            warn!("whoever asked is gone; the answer is dropped");
            ticket.answered();
        }
        Err(error) => {
            warn!(%error, "could not answer; the message goes back");
            ticket.unsent(answer);
            return Settlement::Retry;
        }
    }
    Settlement::Ack
}

fn lost() -> TurnAnswer {
    let text = "The agent's process was lost before it answered this message. The turn is not run \
                again, because its tools may have run already: check what was done, and ask again.";
    TurnAnswer::new(TurnOutcome::ModelFailed, text)
}

fn expired() -> TurnAnswer {
    let text = "The message waited for longer than whoever sent it was going to wait. Nothing was done: \
                ask again.";
    TurnAnswer::new(TurnOutcome::Expired, text)
}

/// The replies to one message: in order, the final one last.
struct ReplyLane<'a> {
    bus: &'a dyn Bus,
    agent: &'a Agent,
    reply_to: &'a RoutingKey,
    session_id: SessionId,
    in_reply_to: MessageId,
    sequence: u64,
}

impl ReplyLane<'_> {
    /// Has the message answered and publishes what happens meanwhile.
    async fn run(&mut self, message: UserMessage) -> TurnAnswer {
        let backlog = Arc::new(Backlog::default());
        let origin = TurnOrigin::new(EntryPoint::UserTurn).said_in(self.in_reply_to.clone());
        let mut turn = pin!(self.agent.turn(origin, message, backlog.sink()));
        let answer = loop {
            tokio::select! {
                biased;
                answer = &mut turn => break answer,
                event = backlog.next() => {
                    self.progress(event).await;
                }
            }
        };
        while let Some(event) = backlog.pop() {
            if !self.progress(event).await {
                // The bus is in trouble; the answer matters more than how it came about.
                break;
            }
        }
        answer
    }

    async fn progress(&mut self, event: TurnEvent) -> bool {
        let envelope = self.reply(event.into(), false);
        let publication = Publication::announcement(self.reply_to.clone(), envelope);
        let published = self.bus.publish(publication.within(PROGRESS_TIMEOUT)).await;
        if let Err(error) = &published {
            debug!(%error, "progress is lost");
        }
        published.is_ok()
    }

    async fn finish(&mut self, answer: &TurnAnswer) -> Result<(), PublishError> {
        let mut answer = answer.clone();
        if answer.text.len() > MAX_ANSWER_BYTES {
            let cut = answer.text.floor_char_boundary(MAX_ANSWER_BYTES);
            let omitted = answer.text.len() - cut;
            answer.text.truncate(cut);
            answer
                .text
                .push_str(&format!("\n\n(The rest of the answer, {omitted} bytes, is cut.)"));
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
