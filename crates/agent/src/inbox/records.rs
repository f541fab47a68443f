//! What the log has of a message that was delivered.

use tracing::{debug, info};

use super::{handler::InboxHandler, incoming::Incoming};
use crate::conversation::StoredMessage;

/// Delivery from which a recorded message is settled at once. The rest is left for those that are not
/// recorded.
const SETTLE_FROM: u32 = 5;

impl InboxHandler {
    /// Returns whether a process has recorded the message. One whose record cannot be read was.
    pub(super) async fn is_recorded(&self, incoming: &Incoming<'_>) -> bool {
        let (session, id) = (&incoming.message.session_id, &incoming.envelope.message_id);
        let recorded = self.agent.conversations().message(session, id).await;
        recorded.map_or(true, |message| message.is_some())
    }

    /// Returns whether another process may have recorded the message, or may still do so: it was delivered,
    /// forwarded or sent before.
    pub(super) async fn may_be_recorded(&self, incoming: &Incoming<'_>) -> bool {
        let (session, id) = (&incoming.message.session_id, &incoming.envelope.message_id);
        incoming.is_redelivered()
            || incoming.forwarded_by.is_some()
            || incoming.envelope.attempt > 1
            || matches!(self.agent.conversations().message(session, id).await, Ok(Some(_)))
    }

    /// Returns whether the answer to the message is recorded and was published to its sender. A client that
    /// asks for the answer at another address has not received it.
    pub(super) async fn is_published(&self, incoming: &Incoming<'_>) -> bool {
        let (session, id) = (&incoming.message.session_id, &incoming.envelope.message_id);
        let conversations = self.agent.conversations();
        let recorded = conversations.message(session, id).await;
        let Ok(Some(recorded)) = recorded else { return false };
        if !recorded.is_answered || !is_same(&recorded, incoming) {
            return false;
        }
        conversations.marked(session).await.is_ok_and(|marked| !marked.contains(id))
    }

    /// Returns whether a message that was often delivered does not need its delivery: it is recorded, so
    /// that the search for open turns finds it. Each process that is lost or stops costs a message one of
    /// its deliveries, and after the last one it is a dead letter.
    pub(super) async fn is_resumed_without_delivery(&self, incoming: &Incoming<'_>) -> bool {
        if incoming.delivery < SETTLE_FROM {
            return false;
        }
        let (session, id) = (&incoming.message.session_id, &incoming.envelope.message_id);
        let conversations = self.agent.conversations();
        let recorded = match conversations.message(session, id).await {
            Ok(Some(message)) if is_same(&message, incoming) => message,
            Ok(_) => return false,
            Err(error) => {
                debug!(session_id = %session, %error, "record of a message not read");
                return false;
            }
        };
        // Unmarked, an open turn would not be found.
        let is_marked = match conversations.marked(session).await {
            Ok(marked) => marked.contains(id),
            Err(_) => return false,
        };
        let is_settled = is_marked || recorded.is_answered;
        if is_settled {
            info!(session_id = %session, delivery = incoming.delivery, "recorded message settled");
        }
        is_settled
    }
}

/// Returns whether a recorded message with the same id is this one, and not one of another sender or with
/// another text.
fn is_same(recorded: &StoredMessage, incoming: &Incoming<'_>) -> bool {
    let has_text = incoming.message.cancel || recorded.text == incoming.message.text;
    has_text && recorded.reply_to.as_ref() == Some(incoming.reply_to)
}
