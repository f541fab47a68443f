//! The replies to one message.

use std::{fmt, sync::Arc, time::Duration};

use rockbot_contracts::{AgentReply, MessageId};
use tokio::time::{Instant, timeout_at};

use super::pending::PendingReplies;
use crate::progress_queue::{ProgressQueue, Queued};

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
    pub(super) fn new(
        message_id: MessageId,
        pending: Arc<PendingReplies>,
        queue: Arc<ProgressQueue<AgentReply>>,
        idle_timeout: Duration,
    ) -> Self {
        Self {
            message_id,
            pending,
            queue,
            is_ended: false,
            lost: 0,
            idle_timeout,
            idle_deadline: None,
        }
    }

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
        self.pending.remove(&self.message_id, &self.queue);
    }
}

impl fmt::Debug for Replies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replies").field("message_id", &self.message_id).finish_non_exhaustive()
    }
}
