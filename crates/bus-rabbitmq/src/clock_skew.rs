//! Correction of deadlines by the difference between clocks.
//!
//! A deadline is a time by the sender's clock. A receiver whose clock is ahead would find that requests
//! have expired which were sent just now. A *fresh* delivery was published just now, since the broker
//! hands a message to a waiting consumer at once: its apparent age is the difference between the clocks.

use std::{
    collections::VecDeque,
    time::{Duration, SystemTime},
};

use rockbot_contracts::{Envelope, envelope::TimeBudget};
use tokio::time::Instant;
use tracing::warn;

/// Largest correction of a deadline.
const MAX_CORRECTION: Duration = Duration::from_secs(300);
/// Apparent age of a fresh message from which its deadline is corrected.
const TOLERANCE: Duration = Duration::from_secs(2);
/// Difference that operators are warned of.
const WARN_FROM: Duration = Duration::from_secs(5);
/// Number of fresh deliveries that the correction of others is estimated from.
const SAMPLES: usize = 8;

/// Interval at which a waiting consumer reports that it waits.
pub(crate) const TICK: Duration = Duration::from_millis(500);
/// Time between two reports from which the process counts as stalled: a message may have waited in it.
const STALL: Duration = Duration::from_secs(1);
/// Time that a consumer must have waited for a fresh delivery.
const MIN_WAIT: Duration = Duration::from_secs(1);
/// Time after the start of a subscription within which the broker delivers what waited in the queue.
const BACKLOG: Duration = Duration::from_secs(5);

/// Time that a consumer has been waiting, ready to receive.
pub(crate) struct WaitClock {
    /// Start of the wait; in the future while the backlog is delivered.
    since: Instant,
    last_tick: Instant,
}

impl WaitClock {
    /// Creates the clock of a new subscription.
    pub(crate) fn new() -> Self {
        let now = Instant::now();
        Self { since: now + BACKLOG, last_tick: now }
    }

    /// Records that the consumer waits for a delivery. The wait starts again after a stall, and while
    /// the consumer may not receive any.
    pub(crate) fn tick(&mut self, may_receive: bool) {
        let now = Instant::now();
        if !may_receive || now.duration_since(self.last_tick) > STALL {
            self.since = self.since.max(now);
        }
        self.last_tick = now;
    }

    /// Ends the wait with a delivery; returns whether it is fresh.
    pub(crate) fn receive(&mut self) -> bool {
        let now = Instant::now();
        let stalled = now.duration_since(self.last_tick) > STALL;
        let fresh = !stalled && now.checked_duration_since(self.since) >= Some(MIN_WAIT);
        self.since = self.since.max(now);
        self.last_tick = now;
        fresh
    }
}

/// The apparent ages of the last fresh deliveries.
#[derive(Default)]
pub(crate) struct SkewEstimate {
    ages: VecDeque<Duration>,
    warned: bool,
}

impl SkewEstimate {
    /// Extends the deadline of a received message by the difference between the clocks.
    pub(crate) fn correct(&mut self, envelope: &mut Envelope, fresh: bool, now: SystemTime) {
        let Some(budget) = &mut envelope.budget else { return };
        // Without a deadline and a duration, the time of sending is unknown.
        if budget.deadline_unix_ms == u64::MAX || budget.timeout > MAX_TIMEOUT {
            return;
        }
        let age = budget.age(now);
        let correction = if fresh {
            self.record(budget, age, now);
            age
        } else {
            self.ages.iter().min().copied().unwrap_or_default()
        };
        if correction > TOLERANCE {
            let millis = correction.min(MAX_CORRECTION).as_millis();
            let millis = u64::try_from(millis).unwrap_or_default();
            budget.deadline_unix_ms = budget.deadline_unix_ms.saturating_add(millis);
        }
    }

    fn record(&mut self, budget: &TimeBudget, age: Duration, now: SystemTime) {
        self.ages.push_back(age);
        if self.ages.len() > SAMPLES {
            self.ages.pop_front();
        }
        let behind = budget.behind(now);
        if !self.warned && age.max(behind) > WARN_FROM {
            self.warned = true;
            let (ahead, behind) = (age.as_secs(), behind.as_secs());
            warn!(
                ahead_seconds = ahead,
                behind_seconds = behind,
                "clock differs from that of a sender; synchronize the clocks of all hosts"
            );
        }
    }
}

/// Longest duration of a request.
const MAX_TIMEOUT: Duration = Duration::from_secs(366 * 24 * 3600);

#[cfg(test)]
mod tests {
    use super::*;

    fn request(timeout: Duration) -> Envelope {
        Envelope::raw("Any", Vec::new()).within(timeout)
    }

    fn remaining(envelope: &Envelope, now: SystemTime) -> Duration {
        envelope.budget.expect("a budget").remaining(now)
    }

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn fresh_request_keeps_its_time_on_a_clock_up_to_5_minutes_ahead() {
        for ahead in [0, 1, 3, 90, 299] {
            let mut estimate = SkewEstimate::default();
            let mut envelope = request(MINUTE);
            let now = SystemTime::now() + Duration::from_secs(ahead);
            estimate.correct(&mut envelope, true, now);
            assert!(remaining(&envelope, now) >= MINUTE - TOLERANCE, "{ahead} s");
            assert!(remaining(&envelope, now) <= MINUTE);
            assert_eq!(estimate.warned, ahead > 5);
        }
        let mut envelope = request(MINUTE);
        let now = SystemTime::now() + MAX_CORRECTION + 2 * MINUTE;
        SkewEstimate::default().correct(&mut envelope, true, now);
        assert_eq!(remaining(&envelope, now), Duration::ZERO);
    }

    #[test]
    fn request_that_waited_is_corrected_by_the_known_difference() {
        let mut estimate = SkewEstimate::default();
        let ahead = Duration::from_secs(90);
        let mut waited = request(MINUTE);
        estimate.correct(&mut waited, false, SystemTime::now() + ahead);
        assert_eq!(
            remaining(&waited, SystemTime::now() + ahead),
            Duration::ZERO,
            "nothing is known"
        );
        estimate.correct(&mut request(MINUTE), true, SystemTime::now() + ahead);
        let mut waited = request(MINUTE);
        let now = SystemTime::now() + ahead + Duration::from_secs(20);
        estimate.correct(&mut waited, false, now);
        let left = remaining(&waited, now);
        assert!(left > Duration::from_secs(38) && left < Duration::from_secs(42), "{left:?}");
    }

    #[test]
    fn equal_clocks_change_no_deadline() {
        let mut estimate = SkewEstimate::default();
        let now = SystemTime::now();
        for fresh in [true, false] {
            let mut envelope = request(MINUTE);
            let budget = envelope.budget;
            estimate.correct(&mut envelope, fresh, now + Duration::from_secs(1));
            assert_eq!(envelope.budget, budget);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_delivery_after_a_wait_is_fresh() {
        let mut clock = WaitClock::new();
        let wait = async |clock: &mut WaitClock, seconds: u64, may_receive: bool| {
            for _ in 0..seconds * 2 {
                tokio::time::advance(TICK).await;
                clock.tick(may_receive);
            }
        };
        wait(&mut clock, 3, true).await;
        assert!(!clock.receive(), "may have waited in the queue");
        wait(&mut clock, 7, true).await;
        assert!(clock.receive());
        assert!(!clock.receive(), "arrived together with another");
        wait(&mut clock, 3, false).await;
        assert!(!clock.receive(), "waited until the consumer could receive it");
        wait(&mut clock, 3, true).await;
        tokio::time::advance(Duration::from_secs(30)).await;
        assert!(!clock.receive(), "may have waited in the stalled process");
        wait(&mut clock, 3, true).await;
        tokio::time::advance(Duration::from_secs(30)).await;
        clock.tick(true);
        assert!(!clock.receive());
    }
}
