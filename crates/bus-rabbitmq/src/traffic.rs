//! Messages in flight on a channel.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts the messages in flight on a channel.
#[derive(Default)]
pub(crate) struct Traffic {
    started: AtomicU64,
    in_flight: AtomicU64,
}

/// A message in flight, until its outcome is known.
pub(crate) struct MessageInFlight<'a> {
    traffic: &'a Traffic,
    number: u64,
    /// Number of messages in flight when it was sent.
    others: u64,
}

impl Traffic {
    pub(crate) fn begin(&self) -> MessageInFlight<'_> {
        let others = self.in_flight.fetch_add(1, Ordering::SeqCst);
        let number = 1 + self.started.fetch_add(1, Ordering::SeqCst);
        MessageInFlight { traffic: self, number, others }
    }
}

impl MessageInFlight<'_> {
    /// Returns whether no other message has been in flight since it was sent.
    pub(crate) fn was_alone(&self) -> bool {
        self.others == 0 && self.traffic.started.load(Ordering::SeqCst) == self.number
    }
}

impl Drop for MessageInFlight<'_> {
    fn drop(&mut self) {
        self.traffic.in_flight.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_messages_were_not_alone() {
        let traffic = Traffic::default();
        let first = traffic.begin();
        assert!(first.was_alone());
        let second = traffic.begin();
        assert!(!first.was_alone());
        assert!(!second.was_alone());
        drop(first);
        assert!(!second.was_alone());
        drop(second);
        assert!(traffic.begin().was_alone());
    }
}
