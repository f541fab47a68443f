//! Processes the messages of users: runs their turns here, or passes them on to the process that runs
//! their conversation.

use std::{pin::pin, sync::Arc, time::Duration};

use futures_util::{future::BoxFuture, poll};
use metrics::counter;
use rockbot_bus::{Bus, Delivery, Handler, PublishError, Settlement};
use rockbot_contracts::user::{ReplyDetail, TurnOutcome};
use rockbot_tools::EntryPoint;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::{
    forward::{Forwarded, Forwarder},
    incoming::Incoming,
    leases::Holder,
    order::{MessageOrder, Unpassed},
    ownership::{Claim, ClaimOrder, Ownership},
    replies::{ReplyPublisher, ReplyTarget},
};
use crate::{
    agent::Agent,
    conversation::digest,
    dedup::{Admission, Deduplicator, ProcessingGuard},
    event::{ProgressSink, TurnAnswer, TurnEnd, TurnEvent},
    message::Rejection,
    origin::TurnOrigin,
    progress_queue::ProgressQueue,
};

/// Pause before a conversation is claimed again.
const CLAIM_RETRY: Duration = Duration::from_millis(100);
/// A message whose conversation cannot be claimed for this long is returned to its queue, or answered as not
/// processed if it is not recorded.
const CLAIM_TIMEOUT: Duration = Duration::from_secs(60);

/// The common state of the consumers of a process.
pub(super) struct InboxHandler {
    pub(super) agent: Agent,
    pub(super) bus: Arc<dyn Bus>,
    pub(super) dedup: Arc<Deduplicator>,
    /// Access to the other processes; `None` if the conversations are not shared.
    pub(super) replicas: Option<Replicas>,
    /// Cancelled when the process stops. Messages then wait for another process.
    pub(super) stop: CancellationToken,
}

/// The other processes of the agent.
pub(super) struct Replicas {
    pub(super) ownership: Ownership,
    pub(super) forwarder: Forwarder,
    pub(super) order: MessageOrder,
}

/// Outcome of a message in this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Processed {
    /// Its answer was published, or its sender is gone; or the search for open turns continues its turn.
    Answered,
    /// Another process must process it.
    Returned,
}

impl Handler for InboxHandler {
    fn handle<'a>(&'a self, delivery: &'a Delivery) -> BoxFuture<'a, Settlement> {
        Box::pin(async {
            match Incoming::from_inbox(delivery) {
                Ok(incoming) => match self.process(&incoming).await {
                    Processed::Answered => Settlement::Ack,
                    Processed::Returned => Settlement::Retry,
                },
                Err(reason) => Settlement::dead_letter(reason),
            }
        })
    }
}

impl InboxHandler {
    /// Processes a message. A message that arrives again while it is processed waits for its end.
    pub(super) async fn process(&self, incoming: &Incoming<'_>) -> Processed {
        let (id, reply_to) = (&incoming.envelope.message_id, incoming.reply_to);
        let text = digest(&incoming.message.text);
        match self.dedup.admit(id, reply_to, text, incoming.is_copy()).await {
            Admission::Answered => Processed::Answered,
            Admission::OtherText => self.reject_other_text(incoming).await,
            Admission::Unsent(guard, answer) => {
                self.finish(guard, self.replies(incoming.target()), answer).await
            }
            Admission::New(guard) => match &self.replicas {
                Some(replicas) => self.route(incoming, guard, replicas).await,
                None => {
                    let (answer, replies) = self.answer(incoming, None).await;
                    self.finish(guard, replies, answer).await
                }
            },
        }
    }

    /// Answers a message whose id belongs to one with another text. A copy gets no answer: its sender may have had one
    /// before, and now wait for the answer of the other text.
    async fn reject_other_text(&self, incoming: &Incoming<'_>) -> Processed {
        if incoming.is_redelivered() {
            debug!("copy of a message with another text dropped");
            return Processed::Answered;
        }
        let rejection = TurnAnswer::from(Rejection::OtherText);
        match self.replies(incoming.target()).publish_answer(&rejection).await {
            Ok(()) | Err(PublishError::Unroutable { .. }) => Processed::Answered,
            Err(error) => {
                warn!(%error, "rejection publish failed; message requeued");
                Processed::Returned
            }
        }
    }

    /// Runs the turn in the process that runs the conversation.
    async fn route(
        &self,
        incoming: &Incoming<'_>,
        guard: ProcessingGuard,
        replicas: &Replicas,
    ) -> Processed {
        if self.is_resumed_without_delivery(incoming).await {
            return Processed::Answered;
        }
        let (session, id) = (&incoming.message.session_id, &incoming.envelope.message_id);
        let mut unpassed = Some(replicas.order.receive(id));
        // The process that forwarded a message has waited.
        if incoming.forwarded_by.is_none() {
            let (order, conversations) = (&replicas.order, self.agent.conversations());
            order.wait_for_predecessor(incoming, &self.dedup, conversations, &self.stop).await;
        }
        let started = Instant::now();
        let mut dead: Option<Holder> = None;
        // Another process may have answered a delivery that was lost before its acknowledgement.
        let mut may_be_answered = incoming.is_redelivered();
        let mut was_run = false;
        while !self.stop.is_cancelled() {
            unpassed = unpassed.or_else(|| Some(replicas.order.receive(id)));
            let claim = match dead.take() {
                Some(dead) => replicas.ownership.take_over(session, &dead).await,
                None => replicas.ownership.claim(session).await,
            };
            match claim {
                Ok(Claim::Owned(hold, order)) => {
                    if may_be_answered && self.is_published(incoming).await {
                        drop(order);
                        hold.release().await;
                        guard.answered();
                        return Processed::Answered;
                    }
                    let (answer, mut replies) =
                        self.answer(incoming, Some((order, unpassed.take()))).await;
                    was_run = true;
                    match answer.ended {
                        TurnEnd::Answered | TurnEnd::Unrecorded => {
                            let processed = self.finish(guard, replies, answer).await;
                            hold.release().await;
                            return processed;
                        }
                        TurnEnd::Released | TurnEnd::Undecided => {
                            hold.release().await;
                            return Processed::Returned;
                        }
                        // Its message is recorded and marked. A delivery that waited for the store would be
                        // used up by a long outage.
                        TurnEnd::Suspended => {
                            replies.publish_suspended().await;
                            hold.release().await;
                            return Processed::Answered;
                        }
                        TurnEnd::Deferred => hold.release().await,
                        // Another process has the conversation, and may have answered.
                        TurnEnd::Fenced => {
                            hold.release().await;
                            if self.is_published(incoming).await {
                                guard.answered();
                                return Processed::Answered;
                            }
                            may_be_answered = true;
                        }
                    }
                }
                Ok(Claim::Held(_)) if incoming.forwarded_by.is_some() => {
                    return Processed::Returned;
                }
                Ok(Claim::Held(holder)) => {
                    match self.forward(incoming, replicas, holder, &mut unpassed).await {
                        // The other process knows whether it answered or rejected the message.
                        Passed::Answered => return Processed::Answered,
                        // Its receipt may be lost.
                        Passed::Open { dead: found } => {
                            dead = found;
                            may_be_answered = true;
                        }
                    }
                }
                Err(error) if started.elapsed() < CLAIM_TIMEOUT => {
                    debug!(session_id = %session, %error, "conversation not claimed; retrying");
                }
                Err(error) => {
                    warn!(session_id = %session, %error, "conversation not claimed");
                    if was_run || self.may_be_recorded(incoming).await {
                        return Processed::Returned;
                    }
                    return self.finish(guard, self.replies(incoming.target()), unclaimed()).await;
                }
            }
            if dead.is_none() {
                let pause = sleep(CLAIM_RETRY);
                self.stop.run_until_cancelled(pause).await;
            }
        }
        Processed::Returned
    }

    /// Passes a message on to `holder`, and drops `unpassed` once the bus has it.
    async fn forward(
        &self,
        incoming: &Incoming<'_>,
        replicas: &Replicas,
        holder: Holder,
        unpassed: &mut Option<Unpassed<'_>>,
    ) -> Passed {
        let Replicas { ownership, forwarder, .. } = replicas;
        let session = &incoming.message.session_id;
        match forwarder.forward(incoming, &holder, ownership, unpassed, &self.stop).await {
            Forwarded::Answered => Passed::Answered,
            Forwarded::Returned | Forwarded::Stopped => Passed::Open { dead: None },
            Forwarded::HolderGone => {
                // A process that lost its connection still runs its turns, and renews its lease.
                let renewed = ownership.is_renewed(session, &holder).await;
                let is_dead = matches!(renewed, Ok(false));
                if is_dead {
                    counter!("rockbot_agent_takeovers_total", "reason" => "gone").increment(1);
                }
                Passed::Open { dead: is_dead.then_some(holder) }
            }
        }
    }

    /// Runs the turn of a message in this process and publishes its progress.
    async fn answer(
        &self,
        incoming: &Incoming<'_>,
        order: Option<(ClaimOrder, Option<Unpassed<'_>>)>,
    ) -> (TurnAnswer, ReplyPublisher) {
        let mut replies = self.replies(incoming.target());
        if incoming.is_redelivered() && !self.agent.conversations().is_durable() {
            return (lost(), replies);
        }
        if incoming.is_expired() && !self.is_recorded(incoming).await {
            return (expired(), replies);
        }
        let queue = Arc::new(ProgressQueue::default());
        let sink: ProgressSink = {
            let (queue, detail) = (queue.clone(), incoming.message.detail);
            // A queue of many events keeps no detail that is not published.
            Arc::new(move |event: TurnEvent| match detail {
                ReplyDetail::Full => queue.push(event),
                ReplyDetail::Brief => queue.push(event.brief()),
            })
        };
        let mut origin = TurnOrigin::new(EntryPoint::UserTurn)
            .with_message(incoming.envelope.message_id.clone())
            .with_reply_to(incoming.reply_to.clone());
        if let Some(sender) = &incoming.sender {
            origin = origin.with_sender(sender.clone());
        }
        let ended = CancellationToken::new();
        let turn = async {
            let mut turn = pin!(self.agent.run_turn(origin, incoming.message.clone(), sink));
            // The first poll passes the message to its conversation; later messages follow.
            let first = poll!(turn.as_mut());
            drop(order);
            let answer = match first {
                std::task::Poll::Ready(answer) => answer,
                std::task::Poll::Pending => turn.await,
            };
            queue.close();
            ended.cancel();
            answer
        };
        let (answer, ()) = tokio::join!(turn, replies.publish_all(&queue, &ended));
        (answer, replies)
    }

    pub(super) fn replies(&self, target: ReplyTarget) -> ReplyPublisher {
        ReplyPublisher::new(self.bus.clone(), self.agent.name().clone(), target)
    }

    /// Publishes the answer.
    pub(super) async fn finish(
        &self,
        guard: ProcessingGuard,
        mut replies: ReplyPublisher,
        answer: TurnAnswer,
    ) -> Processed {
        match replies.publish_answer(&answer).await {
            Ok(()) => {}
            Err(PublishError::Unroutable { .. }) => warn!("reply queue is gone; answer dropped"),
            Err(error) => {
                warn!(%error, "answer publish failed; message requeued");
                guard.unsent(answer);
                return Processed::Returned;
            }
        }
        if matches!(answer.ended, TurnEnd::Unrecorded | TurnEnd::Undecided | TurnEnd::Suspended)
            && self.agent.conversations().is_durable()
        {
            // Its turn may be open. The answer of that turn is published too.
            drop(guard);
            return Processed::Answered;
        }
        // An answer that was not recorded leaves the turn open.
        if answer.ended == TurnEnd::Answered {
            let ReplyTarget { session_id, in_reply_to, .. } = replies.into_target();
            let marked = self.agent.conversations().unmark(&session_id, &in_reply_to).await;
            if let Err(error) = marked {
                debug!(%session_id, %error, "published answer not recorded");
            }
        }
        if answer.is_rejection {
            guard.rejected();
        } else {
            guard.answered();
        }
        Processed::Answered
    }
}

/// Outcome of a message that was passed on.
enum Passed {
    Answered,
    /// It is this process's again; `dead` is the process that ran the conversation, if it died.
    Open {
        dead: Option<Holder>,
    },
}

/// Answers a redelivered message of a process that died with its conversations.
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

/// Answers a message that is not recorded, and whose conversation is unavailable.
fn unclaimed() -> TurnAnswer {
    let text =
        "The agent's store of conversations is unavailable. Nothing was done. Try again later.";
    TurnAnswer::new(TurnOutcome::Overloaded, text).with_end(TurnEnd::Unrecorded)
}
