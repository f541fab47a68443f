//! The messages under way on one channel.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts what is published on one channel.
#[derive(Default)]
pub(crate) struct Traffic {
    begun: AtomicU64,
    under_way: AtomicU64,
}

/// One message, until it is known what became of it.
pub(crate) struct Flight<'a> {
    traffic: &'a Traffic,
    number: u64,
    /// How many were under way when it began.
    others: u64,
}

impl Traffic {
    pub(crate) fn begin(&self) -> Flight<'_> {
        let others = self.under_way.fetch_add(1, Ordering::SeqCst);
        let number = 1 + self.begun.fetch_add(1, Ordering::SeqCst);
        Flight { traffic: self, number, others }
    }
}

impl Flight<'_> {
    /// Whether no other message was under way at any time since it began.
    pub(crate) fn was_alone(&self) -> bool {
        self.others == 0 && self.traffic.begun.load(Ordering::SeqCst) == self.number
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        self.traffic.under_way.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_was_alone_unless_another_was_under_way_meanwhile() {
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
