//! The order of messages that one client sends without waiting, and that several processes receive.

use std::{collections::HashSet, time::Duration};

use parking_lot::Mutex;
use rockbot_contracts::MessageId;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::incoming::Incoming;
use crate::{conversation::Conversations, dedup::Deduplicator};

/// Time limit for the message before. It may be lost, or wait for the redelivery of a dead process.
const PREDECESSOR_WAIT: Duration = Duration::from_secs(2);
/// Pause between two checks.
const PAUSE: Duration = Duration::from_millis(50);
/// Number of pauses between two reads of the conversation.
const PAUSES_BETWEEN_READS: u32 = 10;

/// Delays messages until the ones before them were taken.
#[derive(Debug, Default)]
pub(super) struct MessageOrder {
    /// Messages of this process that are delayed.
    delayed: Mutex<HashSet<MessageId>>,
}

impl MessageOrder {
    /// Waits until the message that the sender sent before this one was taken by a process: at most 2 s, and
    /// until `stop`. Does not wait for a cancel: it applies to the messages before it, in whatever order
    /// they arrive.
    pub(super) async fn wait_for_predecessor(
        &self,
        incoming: &Incoming<'_>,
        dedup: &Deduplicator,
        conversations: &Conversations,
        stop: &CancellationToken,
    ) {
        let Some(after) = incoming.message.after.as_ref().filter(|_| !incoming.message.cancel)
        else {
            return;
        };
        let _delayed = Delayed::new(&self.delayed, &incoming.envelope.message_id);
        let deadline = Instant::now() + PREDECESSOR_WAIT;
        let mut pauses = 0_u32;
        loop {
            // In this process, messages are taken in the order in which they leave this function.
            let is_here = dedup.knows(after, incoming.reply_to);
            if is_here && !self.delayed.lock().contains(after) {
                return;
            }
            let session = &incoming.message.session_id;
            let reads = pauses.is_multiple_of(PAUSES_BETWEEN_READS);
            match conversations.has_taken(session, after, reads).await {
                Ok(false) => {}
                Ok(true) | Err(_) => return,
            }
            if Instant::now() >= deadline {
                debug!(session_id = %session, "message before this one not received");
                return;
            }
            if stop.run_until_cancelled(sleep(PAUSE)).await.is_none() {
                return;
            }
            pauses += 1;
        }
    }
}

/// Notes that a message is delayed, until it is dropped.
struct Delayed<'a> {
    delayed: &'a Mutex<HashSet<MessageId>>,
    id: &'a MessageId,
}

impl<'a> Delayed<'a> {
    fn new(delayed: &'a Mutex<HashSet<MessageId>>, id: &'a MessageId) -> Self {
        delayed.lock().insert(id.clone());
        Self { delayed, id }
    }
}

impl Drop for Delayed<'_> {
    fn drop(&mut self) {
        self.delayed.lock().remove(self.id);
    }
}
