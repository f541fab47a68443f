//! Publishes the replies to one message.

use std::{sync::Arc, time::Duration};

use rockbot_bus::{Bus, Publication, PublishError};
use rockbot_contracts::{
    AgentName, AgentReply, ContentTrust, Envelope, MessageId, ReplyBody, RoutingKey, SessionId,
    user::ReplyDetail,
};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::{
    event::{TurnAnswer, TurnEvent},
    progress_queue::{Progress, ProgressQueue, Queued},
};

/// Longest text of an answer, in bytes. Escaped as JSON, it still fits into a message.
const MAX_ANSWER_BYTES: usize = 512 * 1024;
/// Time limit for publishing text and progress lines, since later replies wait for them.
const PROGRESS_TIMEOUT: Duration = Duration::from_secs(2);
/// The work of a turn whose next step could not be recorded.
const SUSPENDED: &str = "the agent's store of conversations is unavailable; the turn continues after its last recorded \
                         step when the store is available again";
/// Pause before a failed event is published again.
const RETRY_WAIT: Duration = Duration::from_millis(200);

/// The message that is replied to.
#[derive(Debug, Clone)]
pub(super) struct ReplyTarget {
    pub(super) session_id: SessionId,
    pub(super) in_reply_to: MessageId,
    pub(super) reply_to: RoutingKey,
    pub(super) detail: ReplyDetail,
}

/// Publishes the replies to one message, in order.
pub(super) struct ReplyPublisher {
    bus: Arc<dyn Bus>,
    agent: AgentName,
    target: ReplyTarget,
    sequence: u64,
}

impl ReplyPublisher {
    pub(super) fn new(bus: Arc<dyn Bus>, agent: AgentName, target: ReplyTarget) -> Self {
        Self { bus, agent, target, sequence: 0 }
    }

    /// Publishes the progress until the queue is closed and empty. If the bus fails, gives up 10 s after
    /// `ended`, the end of the turn.
    pub(super) async fn publish_all(
        &mut self,
        queue: &ProgressQueue<TurnEvent>,
        ended: &CancellationToken,
    ) {
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
            let in_reply_to = &self.target.in_reply_to;
            warn!(%in_reply_to, "progress publish failed; remaining progress dropped");
        }
    }

    /// Publishes an event. A confirm is awaited, and essential events are retried, because events on
    /// different publish channels could overtake each other and the answer.
    async fn publish_progress(&mut self, event: Queued<TurnEvent>) {
        let Queued { lost_before, item } = event;
        let is_optional = item.is_optional();
        let timeout = if is_optional { PROGRESS_TIMEOUT } else { Publication::DEFAULT_TIMEOUT };
        self.sequence = self.sequence.saturating_add(lost_before);
        if let TurnEvent::Resumed { attempt, .. } = item {
            // Replies of the process before have smaller numbers, however many it published.
            self.sequence = self.sequence.max(AgentReply::sequence_base(attempt));
        }
        let envelope = self.reply(item.into_reply(self.target.detail), false).transient();
        loop {
            let key = self.target.reply_to.clone();
            let publication = Publication::mandatory(key, envelope.clone());
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

    /// Reports that the turn waits for the store of conversations. Its answer follows when a process could resume it.
    pub(super) async fn publish_suspended(&mut self) {
        let item = TurnEvent::TaskStatus {
            status: "waiting".to_owned(),
            done: String::new(),
            pending: String::new(),
            now: SUSPENDED.to_owned(),
        };
        let publish = self.publish_progress(Queued { lost_before: 0, item });
        if timeout(Publication::DEFAULT_TIMEOUT, publish).await.is_err() {
            debug!("suspended turn not reported");
        }
    }

    /// Publishes the final reply.
    pub(super) async fn publish_answer(&mut self, answer: &TurnAnswer) -> Result<(), PublishError> {
        let mut answer = answer.clone();
        if answer.text.len() > MAX_ANSWER_BYTES {
            let cut = answer.text.floor_char_boundary(MAX_ANSWER_BYTES);
            let omitted = answer.text.len() - cut;
            answer.text.truncate(cut);
            answer.text.push_str(&format!("\n\n(The answer was truncated by {omitted} bytes.)"));
        }
        let envelope = self.reply(answer.into(), true);
        self.bus.publish(Publication::mandatory(self.target.reply_to.clone(), envelope)).await
    }

    /// Returns the message that was replied to.
    pub(super) fn into_target(self) -> ReplyTarget {
        self.target
    }

    fn reply(&mut self, body: ReplyBody, is_final: bool) -> Envelope {
        self.sequence = self.sequence.saturating_add(1);
        let ReplyTarget { session_id, in_reply_to, .. } = self.target.clone();
        let (agent, sequence) = (self.agent.clone(), self.sequence);
        let id = in_reply_to.as_str().to_owned();
        let reply = AgentReply { session_id, in_reply_to, agent, sequence, is_final, body };
        Envelope::from_payload(&reply)
            .with_correlation_id(id)
            .with_source(self.agent.as_str())
            .with_trust(ContentTrust::AgentMessage)
    }
}

/// Returns `true` if the bus may accept the message later. A duplicate of an unconfirmed message is
/// recognized by its sequence number.
fn is_temporary(error: &PublishError) -> bool {
    use PublishError::{Disconnected, Refused, Unconfirmed};
    matches!(error, Disconnected { .. } | Unconfirmed { .. } | Refused { .. })
}
