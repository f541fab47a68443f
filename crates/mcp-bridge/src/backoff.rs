//! Delays between attempts to connect a server.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};

const MIN_DELAY: Duration = Duration::from_secs(1);
const MAX_DELAY: Duration = Duration::from_secs(60);

/// A session that lasted this long resets the back-off.
pub(crate) const STABLE_AFTER: Duration = Duration::from_secs(30);

/// Consecutive failures of one server, and the delay before the next attempt: none at first, then
/// 1 s, doubling up to 60 s.
pub(crate) struct Backoff {
    failures: u32,
    delay: Duration,
    delays: ExponentialBackoff,
}

impl Backoff {
    pub(crate) fn new() -> Self {
        let delays = ExponentialBuilder::new()
            .with_min_delay(MIN_DELAY)
            .with_max_delay(MAX_DELAY)
            .without_max_times()
            .build();
        Self { failures: 0, delay: Duration::ZERO, delays }
    }

    /// Returns the number of consecutive failures.
    pub(crate) fn failures(&self) -> u32 {
        self.failures
    }

    /// Returns the delay before the next attempt.
    pub(crate) fn delay(&self) -> Duration {
        self.delay
    }

    pub(crate) fn record_failure(&mut self) {
        self.failures = self.failures.saturating_add(1);
        self.delay = self.delays.next().unwrap_or(MAX_DELAY);
    }

    pub(crate) fn reset(&mut self) {
        *self = Self::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delay_doubles_up_to_limit_and_resets() {
        let mut backoff = Backoff::new();
        let mut delays = vec![backoff.delay().as_secs()];
        for _ in 0..8 {
            backoff.record_failure();
            delays.push(backoff.delay().as_secs());
        }
        assert_eq!(delays, [0, 1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(backoff.failures(), 8);
        backoff.reset();
        assert_eq!((backoff.failures(), backoff.delay()), (0, Duration::ZERO));
    }
}
