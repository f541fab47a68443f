//! Continues an open turn for the sender of its message.

use std::sync::Arc;

use metrics::counter;
use rockbot_contracts::{SessionId, user::ReplyDetail};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::{
    handler::{InboxHandler, Processed},
    replies::{ReplyPublisher, ReplyTarget},
};
use crate::{
    dedup::{ProcessingGuard, ResumedMessage},
    delegation::is_task_session,
    event::{ProgressSink, TurnEnd},
    message::RecordedMessage,
    progress_queue::ProgressQueue,
};

/// Recipient of the replies of a resumed turn.
enum Recipient {
    /// The sender of its message.
    Sender(ProcessingGuard, ReplyPublisher),
    /// The delivery of its message, which is being processed in this process and publishes them.
    Delivery,
    /// No recipient: the message has no reply address, or its answer was published.
    None,
}

impl InboxHandler {
    /// Continues the open turn of a conversation that this process claimed, and publishes its progress and
    /// its answer to the sender of its message; or publishes a recorded answer that was not published.
    /// Returns `false` if there was nothing to continue, or the message is still open.
    pub(super) async fn resume(&self, session: &SessionId) -> bool {
        if is_task_session(session) {
            // Without sub-agents of its own, this process leaves them to others.
            let Some(delegation) = self.agent.delegation() else { return false };
            return delegation.continue_task(session).await;
        }
        let queue = Arc::new(ProgressQueue::default());
        let (start, started) = oneshot::channel();
        let replies = {
            let (recipient, queue) = (self.recipients(), queue.clone());
            move |recorded: &RecordedMessage| -> ProgressSink {
                counter!("rockbot_agent_takeovers_total", "reason" => "unowned").increment(1);
                // The receiver waits for it.
                let _ = start.send(recipient(recorded));
                Arc::new(move |event| queue.push(event))
            }
        };
        let ended = CancellationToken::new();
        let turn = async {
            let resumed = self.agent.resume(session, replies).await;
            queue.close();
            ended.cancel();
            resumed
        };
        let publish = async {
            let mut recipient = started.await.ok()?;
            if let Recipient::Sender(_, replies) = &mut recipient {
                replies.publish_all(&queue, &ended).await;
            }
            Some(recipient)
        };
        let (resumed, recipient) = tokio::join!(turn, publish);
        let Some((recorded, answer)) = resumed else { return false };
        if answer.ended == TurnEnd::Suspended {
            if let Some(Recipient::Sender(_, mut replies)) = recipient {
                replies.publish_suspended().await;
            }
            return false;
        }
        if !answer.ended.is_answer() {
            return true;
        }
        let is_recorded = answer.ended == TurnEnd::Answered;
        // A recorded answer has no progress.
        match recipient.unwrap_or_else(|| self.recipients()(&recorded)) {
            Recipient::Sender(guard, replies) => {
                self.finish(guard, replies, answer).await == Processed::Answered && is_recorded
            }
            Recipient::Delivery => true,
            Recipient::None => is_recorded && self.record_published(&recorded).await,
        }
    }

    /// Returns `true` if the message is not resumed any more.
    async fn record_published(&self, recorded: &RecordedMessage) -> bool {
        let RecordedMessage { id, session, .. } = recorded;
        let removed = self.agent.conversations().unmark(session, id).await;
        if let Err(error) = &removed {
            debug!(session_id = %session, %error, "published answer not recorded; retrying");
        }
        removed.is_ok()
    }

    /// Returns a function that starts to process the message of a resumed turn, and returns the recipient.
    fn recipients(&self) -> impl Fn(&RecordedMessage) -> Recipient + Send + 'static {
        let (dedup, bus, agent) = (self.dedup.clone(), self.bus.clone(), self.agent.name().clone());
        move |recorded| {
            let RecordedMessage { id, reply_to: Some(reply_to), session, .. } = recorded else {
                return Recipient::None;
            };
            match dedup.begin(id, reply_to, recorded.text_digest) {
                ResumedMessage::Free(guard) => {
                    let target = ReplyTarget {
                        session_id: session.clone(),
                        in_reply_to: id.clone(),
                        reply_to: reply_to.clone(),
                        // It is not recorded. A client that adopts the turn names it again.
                        detail: ReplyDetail::Brief,
                    };
                    let replies = ReplyPublisher::new(bus.clone(), agent.clone(), target);
                    Recipient::Sender(guard, replies)
                }
                ResumedMessage::Running => Recipient::Delivery,
                ResumedMessage::Answered => Recipient::None,
            }
        }
    }
}
