//! The order of messages that one client sends without waiting, and that several processes receive.

use std::{collections::HashMap, time::Duration};

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
    /// Messages of this process that were not passed to their conversations yet, and the numbers of their
    /// deliveries.
    unpassed: Mutex<HashMap<MessageId, usize>>,
}

impl MessageOrder {
    /// Notes that a message is not passed to its conversation yet, until the result is dropped.
    pub(super) fn receive(&self, id: &MessageId) -> Unpassed<'_> {
        *self.unpassed.lock().entry(id.clone()).or_default() += 1;
        Unpassed { unpassed: &self.unpassed, id: id.clone() }
    }

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
        let deadline = Instant::now() + PREDECESSOR_WAIT;
        let mut pauses = 0_u32;
        loop {
            // In this process, it may still wait for the one before, or for the lease on the conversation.
            let is_here = dedup.knows(after, incoming.reply_to);
            if is_here && !self.unpassed.lock().contains_key(after) {
                return;
            }
            let session = &incoming.message.session_id;
            let reads = pauses.is_multiple_of(PAUSES_BETWEEN_READS);
            match conversations.was_received(session, after, reads).await {
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

/// Notes that a message is not passed to its conversation yet, until it is dropped.
#[derive(Debug)]
pub(super) struct Unpassed<'a> {
    unpassed: &'a Mutex<HashMap<MessageId, usize>>,
    id: MessageId,
}

impl Drop for Unpassed<'_> {
    fn drop(&mut self) {
        let mut unpassed = self.unpassed.lock();
        if let Some(deliveries) = unpassed.get_mut(&self.id) {
            *deliveries -= 1;
            if *deliveries == 0 {
                unpassed.remove(&self.id);
            }
        }
    }
}
