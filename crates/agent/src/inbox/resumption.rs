//! Continues an open turn for the sender of its message.

use std::sync::Arc;

use metrics::counter;
use rockbot_contracts::SessionId;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::{handler::InboxHandler, replies::ReplyTarget};
use crate::{
    dedup::{Deduplicator, ProcessingGuard},
    event::ProgressSink,
    message::RecordedMessage,
    progress_queue::ProgressQueue,
};

impl InboxHandler {
    /// Continues the open turn of a conversation that this process claimed, and publishes its progress and
    /// its answer to the sender of its message; or publishes a recorded answer that was not published.
    /// Returns `false` if there was nothing to continue.
    pub(super) async fn resume(&self, session: &SessionId) -> bool {
        let queue = Arc::new(ProgressQueue::default());
        let (start, started) = oneshot::channel();
        let replies = {
            let (dedup, queue) = (self.dedup.clone(), queue.clone());
            move |recorded: &RecordedMessage| -> ProgressSink {
                counter!("rockbot_agent_takeovers_total", "reason" => "unowned").increment(1);
                // The receiver waits for it.
                let _ = start.send(begin(&dedup, recorded));
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
            let (guard, target) = started.await.ok().flatten()?;
            let mut replies = self.replies(target);
            replies.publish_all(&queue, &ended).await;
            Some((guard, replies))
        };
        let (resumed, published) = tokio::join!(turn, publish);
        let Some((recorded, answer)) = resumed else { return false };
        if !answer.ended.is_answer() {
            return true;
        }
        // A recorded answer has no progress.
        let published = published.or_else(|| {
            begin(&self.dedup, &recorded).map(|(guard, target)| (guard, self.replies(target)))
        });
        match published {
            Some((guard, replies)) => {
                self.finish(guard, replies, answer).await;
            }
            // Its delivery is being processed here, and is answered there; or it has no sender.
            None if recorded.reply_to.is_some() => {}
            None => self.record_published(&recorded).await,
        }
        true
    }

    async fn record_published(&self, recorded: &RecordedMessage) {
        let RecordedMessage { id: Some(id), session, .. } = recorded else { return };
        // Without it, the answer is found again.
        let _ = self.agent.conversations().answered(session, id).await;
    }
}

/// Starts to process the message of a resumed turn, unless its delivery is being processed.
fn begin(
    dedup: &Arc<Deduplicator>,
    recorded: &RecordedMessage,
) -> Option<(ProcessingGuard, ReplyTarget)> {
    let target = ReplyTarget {
        session_id: recorded.session.clone(),
        in_reply_to: recorded.id.clone()?,
        reply_to: recorded.reply_to.clone()?,
    };
    let guard = dedup.begin(&target.in_reply_to, &target.reply_to)?;
    Some((guard, target))
}
