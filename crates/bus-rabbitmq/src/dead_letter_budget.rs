//! A limit on the dead letters that a consumer publishes.
//!
//! Senders cause these letters: requests that can't be read, or must not be served. They cost a sender
//! nothing, and a full dead-letter queue drops its oldest letter, so that without a limit a sender could
//! push out those of messages that were delivered too often.

use std::time::Duration;

use parking_lot::Mutex;

use tokio::time::Instant;

/// Letters that may be published at once.
const BURST: f64 = 500.0;
/// Time that permits another letter: about 1,000 within the retention of dead letters.
const INTERVAL: Duration = Duration::from_secs(600);
/// Size from which a letter counts as several.
const LETTER_BYTES: f64 = 64.0 * 1024.0;

/// The letters that may still be published.
pub(crate) struct DeadLetterBudget(Mutex<(f64, Instant)>);

impl DeadLetterBudget {
    pub(crate) fn new() -> Self {
        Self(Mutex::new((BURST, Instant::now())))
    }

    /// Returns whether a letter with a body of `bytes` may be published, and counts it.
    pub(crate) fn take(&self, bytes: usize) -> bool {
        let mut state = self.0.lock();
        let (left, since) = *state;
        let now = Instant::now();
        let gained = now.duration_since(since).as_secs_f64() / INTERVAL.as_secs_f64();
        let left = (left + gained).min(BURST);
        let cost = (bytes as f64 / LETTER_BYTES).max(1.0);
        let permitted = cost <= left;
        *state = (if permitted { left - cost } else { left }, now);
        permitted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn burst_is_followed_by_one_letter_an_interval() {
        let budget = DeadLetterBudget::new();
        assert_eq!((0..600).filter(|_| budget.take(100)).count(), 500);
        tokio::time::advance(INTERVAL).await;
        assert!(budget.take(100));
        assert!(!budget.take(100));
    }

    #[tokio::test(start_paused = true)]
    async fn large_letter_counts_as_several() {
        let budget = DeadLetterBudget::new();
        assert_eq!((0..100).filter(|_| budget.take(4 * 1024 * 1024)).count(), 7);
        assert!(budget.take(100));
    }
}
