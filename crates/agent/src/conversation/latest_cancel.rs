//! The last cancel of a conversation.

use rockbot_contracts::MessageId;

/// Maximum time that the clock of a sender may be ahead, in milliseconds.
const MAX_AHEAD_MS: u64 = 5 * 60 * 1000;

/// The cancel with the latest id. It also ends messages that were sent before it but arrive after it, for
/// example because their process was lost.
#[derive(Debug, Clone, Default)]
pub(crate) struct LatestCancel(Option<MessageId>);

impl LatestCancel {
    /// Adds a cancel that was recorded at a time, in Unix milliseconds. An id without a time, or with one in
    /// the future, is ignored: it would end all messages to come.
    pub(crate) fn record(&mut self, id: &MessageId, at: u64) {
        let is_ordered = sent_at(id).is_some_and(|sent| sent <= at.saturating_add(MAX_AHEAD_MS));
        if is_ordered && self.0.as_ref().is_none_or(|latest| latest < id) {
            self.0 = Some(id.clone());
        }
    }

    /// Returns `true` if a message was sent before the cancel.
    pub(crate) fn covers(&self, message: &MessageId) -> bool {
        sent_at(message).is_some() && self.0.as_ref().is_some_and(|cancel| message < cancel)
    }
}

/// Returns the time of a UUID v7 in simple form, in Unix milliseconds.
fn sent_at(id: &MessageId) -> Option<u64> {
    let id = id.as_str();
    let is_simple = id.len() == 32
        && id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        && id.as_bytes()[12] == b'7';
    if is_simple { u64::from_str_radix(&id[..12], 16).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(ms: u64) -> MessageId {
        MessageId::new(format!("{ms:012x}7{}", "0".repeat(19))).unwrap()
    }

    #[test]
    fn cancel_covers_earlier_messages_only() {
        let mut cancel = LatestCancel::default();
        assert!(!cancel.covers(&id(1)));
        cancel.record(&id(2000), 2000);
        cancel.record(&id(1000), 2000);
        assert!(cancel.covers(&id(1999)) && !cancel.covers(&id(2000)) && !cancel.covers(&id(2001)));
        assert!(!cancel.covers(&MessageId::new("1").unwrap()));
    }

    #[test]
    fn cancel_of_the_future_or_without_time_covers_nothing() {
        let mut cancel = LatestCancel::default();
        cancel.record(&id(2000 + MAX_AHEAD_MS + 1), 2000);
        cancel.record(&MessageId::new("zz").unwrap(), 2000);
        assert!(!cancel.covers(&id(1)));
    }

    #[test]
    fn generated_ids_have_a_time() {
        assert!(sent_at(&MessageId::generate()).is_some());
    }
}
