//! Whether and when a request that failed before its first event is sent again.

use std::time::Duration;

use crate::error::ChatError;

/// The longest wait between two attempts.
const MAX_WAIT: Duration = Duration::from_secs(30);
const FIRST_BACKOFF: Duration = Duration::from_millis(500);
const MAX_BACKOFF: Duration = Duration::from_secs(8);

/// How long to wait before the next attempt; `None` to give up.
///
/// A server that says when to come back is obeyed. One that asks for more than [`MAX_WAIT`] is not
/// asked again, since an earlier attempt is refused too: the caller learns the time instead.
/// `attempt` counts from 1; `jitter` is from 0 to 1.
pub(super) fn wait_before_next(
    error: &ChatError,
    retry_after: Option<Duration>,
    attempt: u32,
    max_attempts: u32,
    jitter: f64,
) -> Option<Duration> {
    if attempt >= max_attempts || !error.is_transient() {
        return None;
    }
    if let Some(wait) = retry_after {
        return (wait <= MAX_WAIT).then_some(wait);
    }
    let doubled = FIRST_BACKOFF.saturating_mul(2_u32.saturating_pow(attempt - 1));
    Some(doubled.min(MAX_BACKOFF).mul_f64(0.5 + jitter.clamp(0.0, 1.0) / 2.0))
}

/// The seconds of a `Retry-After` header. Dates are not read: they need both clocks to agree.
pub(super) fn parse_retry_after(value: &str) -> Option<Duration> {
    value.trim().parse().ok().map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unavailable() -> ChatError {
        ChatError::Rejected { status: Some(503), message: String::new() }
    }

    #[test]
    fn waits_double_up_to_a_limit_and_are_spread() {
        let waits = |jitter| -> Vec<_> {
            let wait = |attempt| wait_before_next(&unavailable(), None, attempt, 10, jitter);
            (1..=6).map(|attempt| wait(attempt).unwrap().as_millis()).collect()
        };
        assert_eq!(waits(1.0), [500, 1000, 2000, 4000, 8000, 8000]);
        assert_eq!(waits(0.0), [250, 500, 1000, 2000, 4000, 4000]);
    }

    #[test]
    fn the_last_attempt_and_lasting_failures_are_not_repeated() {
        assert!(wait_before_next(&unavailable(), None, 3, 3, 0.0).is_none());
        for status in [400, 402, 501] {
            let error = ChatError::Rejected { status: Some(status), message: String::new() };
            assert!(wait_before_next(&error, None, 1, 3, 0.0).is_none(), "{status}");
        }
        let nonsense = ChatError::malformed("nonsense");
        assert!(wait_before_next(&nonsense, None, 1, 3, 0.0).is_none());
    }

    #[test]
    fn a_server_that_names_a_time_is_obeyed_or_left_alone() {
        let wait = |seconds| {
            let asked = Some(Duration::from_secs(seconds));
            wait_before_next(&unavailable(), asked, 1, 3, 0.0)
        };
        assert_eq!(wait(0), Some(Duration::ZERO));
        assert_eq!(wait(30), Some(Duration::from_secs(30)));
        assert_eq!(wait(31), None);
        assert_eq!(parse_retry_after(" 7 "), Some(Duration::from_secs(7)));
        assert_eq!(parse_retry_after("Wed, 21 Oct 2026 07:28:00 GMT"), None);
    }
}
