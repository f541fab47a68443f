//! Messages that wait for their replies.

use std::{collections::HashMap, sync::Arc};

use parking_lot::{Mutex, MutexGuard};
use rockbot_contracts::{AgentName, AgentReply, MessageId, SessionId};
use tracing::{debug, warn};

use super::send_error::{MAX_PENDING, SendError};
use crate::{conversation::TextDigest, progress_queue::ProgressQueue};

/// The messages of a client that wait for their final reply.
#[derive(Default)]
pub(super) struct PendingReplies {
    messages: Mutex<HashMap<MessageId, PendingReply>>,
}

/// A message that waits for its final reply. Dropping it ends its replies.
struct PendingReply {
    /// The receiver of the message, which alone may reply.
    agent: AgentName,
    /// The conversation; `None` for a cancel, which later messages do not wait for.
    session: Option<SessionId>,
    text: TextDigest,
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

    /// Counts the replies missing before `sequence`. Another process that continues the turn starts at a
    /// larger base; replies that its predecessor may have sent last are not counted.
    fn skip_to(&mut self, sequence: u64) {
        let last = self.sequence.max(AgentReply::sequence_base_of(sequence));
        let lost = sequence.saturating_sub(last).saturating_sub(1);
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

impl PendingReplies {
    /// Passes a reply on to the reader of its message.
    pub(super) fn dispatch(&self, reply: AgentReply) {
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

    /// Returns the last message of a conversation that waits for its final reply. The ids of one process
    /// are ordered by time.
    pub(super) fn last_in(&self, agent: &AgentName, session: &SessionId) -> Option<MessageId> {
        let messages = self.lock();
        let waits = |message: &PendingReply| {
            message.agent == *agent && message.session.as_ref() == Some(session)
        };
        messages.iter().filter(|(_, message)| waits(message)).map(|(id, _)| id).max().cloned()
    }

    /// Returns `true` if a reader waits for replies to `id`.
    pub(super) fn is_pending(&self, id: &MessageId) -> bool {
        self.lock().contains_key(id)
    }

    /// Waits for the replies to `id` from now on. Another reader of the same message is ended.
    ///
    /// # Errors
    /// If a message with another text waits under this id, or too many messages wait.
    pub(super) fn insert(
        &self,
        agent: &AgentName,
        session: Option<SessionId>,
        id: &MessageId,
        text: TextDigest,
    ) -> Result<Arc<ProgressQueue<AgentReply>>, SendError> {
        let queue = Arc::new(ProgressQueue::default());
        let mut messages = self.lock();
        match messages.get(id) {
            // The rejection of this one would end the reader of that one.
            Some(waiting) if waiting.text != text => {
                return Err(SendError::OtherText { id: id.clone() });
            }
            None if messages.len() >= MAX_PENDING => return Err(SendError::TooManyPending),
            _ => {}
        }
        let (agent, sequence) = (agent.clone(), 0);
        let entry = PendingReply { agent, session, text, queue: queue.clone(), sequence };
        messages.insert(id.clone(), entry);
        Ok(queue)
    }

    /// Stops waiting for `id`, unless another reader than that of `queue` waits for it.
    pub(super) fn remove(&self, id: &MessageId, queue: &Arc<ProgressQueue<AgentReply>>) {
        let mut messages = self.lock();
        if messages.get(id).is_some_and(|message| Arc::ptr_eq(&message.queue, queue)) {
            messages.remove(id);
        }
    }

    /// Ends all readers.
    pub(super) fn clear(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<MessageId, PendingReply>> {
        self.messages.lock()
    }
}
