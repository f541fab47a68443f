//! Retries of requests that failed before their first event.

use std::time::Duration;

use backon::ExponentialBuilder;

/// The longest delay that a server can request with `Retry-After`.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(30);
/// Delays before jitter, which at most doubles them.
const MIN_DELAY: Duration = Duration::from_millis(250);
const MAX_DELAY: Duration = Duration::from_secs(4);

/// Returns the delays between up to `max_attempts` attempts: 250 to 500 ms at first, 4 to 8 s at most.
pub(super) fn backoff(max_attempts: u32) -> ExponentialBuilder {
    let retries = usize::try_from(max_attempts.saturating_sub(1)).unwrap_or(usize::MAX);
    ExponentialBuilder::new()
        .with_min_delay(MIN_DELAY)
        .with_max_delay(MAX_DELAY)
        .with_max_times(retries)
        .with_jitter()
}

/// Returns the delay before the next attempt, or `None` to give up.
///
/// `retry_after` takes precedence over `backoff_delay`, which is `None` after the last attempt. A
/// server that requests more than 30 s is not retried, since an earlier attempt would fail too; the
/// caller gets the requested delay with the error instead.
pub(super) fn next_delay(
    retry_after: Option<Duration>,
    backoff_delay: Option<Duration>,
) -> Option<Duration> {
    let delay = retry_after.or(backoff_delay)?;
    (backoff_delay.is_some() && delay <= MAX_RETRY_AFTER).then_some(delay)
}

/// Parses the seconds of a `Retry-After` header. Dates are ignored: they require synchronized clocks.
pub(super) fn parse_retry_after(value: &str) -> Option<Duration> {
    value.trim().parse().ok().map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use backon::BackoffBuilder;

    use super::*;

    #[test]
    fn delays_double_up_to_limit_with_jitter() {
        let delays: Vec<_> = backoff(7).build().map(|delay| delay.as_millis()).collect();
        assert_eq!(delays.len(), 6, "one fewer than attempts");
        for (delay, minimum) in delays.iter().zip([250, 500, 1000, 2000, 4000, 4000]) {
            assert!((minimum..=2 * minimum).contains(delay), "{delays:?}");
        }
        let others: Vec<_> = backoff(7).build().map(|delay| delay.as_millis()).collect();
        assert_ne!(delays, others);
    }

    #[test]
    fn single_attempt_has_no_delays() {
        assert_eq!(backoff(1).build().next(), None);
        assert_eq!(backoff(0).build().next(), None);
    }

    #[test]
    fn retry_after_takes_precedence_within_its_limit() {
        let backoff_delay = Some(Duration::from_millis(300));
        let delay = |seconds| next_delay(Some(Duration::from_secs(seconds)), backoff_delay);
        assert_eq!(delay(0), Some(Duration::ZERO));
        assert_eq!(delay(30), Some(Duration::from_secs(30)));
        assert_eq!(delay(31), None);
        assert_eq!(next_delay(None, backoff_delay), backoff_delay);
        assert_eq!(next_delay(Some(Duration::ZERO), None), None, "no attempt is left");
        assert_eq!(next_delay(None, None), None);
    }

    #[test]
    fn retry_after_is_parsed_as_seconds() {
        assert_eq!(parse_retry_after(" 7 "), Some(Duration::from_secs(7)));
        assert_eq!(parse_retry_after("Wed, 21 Oct 2026 07:28:00 GMT"), None);
    }
}
