//! Judgement of a request that did not succeed.

use std::time::Duration;

use crate::metrics::Outcome;

/// Maximum number of retries of one call.
const MAX_RETRIES: u32 = 2;
/// Maximum time that a call waits because the server requests it.
const MAX_WAIT: Duration = Duration::from_secs(10);
/// Delays before the first and the second retry.
const DELAYS: [Duration; 2] = [Duration::from_millis(200), Duration::from_secs(1)];

/// A request without a success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestFailure {
    /// Nothing was sent.
    NotSent,
    /// The connection broke after the request was sent.
    Broken,
    /// The server was silent for too long after the request was sent.
    Silent,
    /// The server replied with this status, and how long to wait.
    Status(u16, Option<Duration>),
}

impl RequestFailure {
    /// Returns `true` if the server may have executed the request.
    pub(super) fn may_have_run(self) -> bool {
        match self {
            Self::NotSent => false,
            Self::Broken | Self::Silent => true,
            Self::Status(status, _) => !matches!(status, 401 | 403 | 408 | 425 | 429 | 503),
        }
    }

    /// Returns the outcome for metrics.
    pub(super) fn outcome(self) -> Outcome {
        match self {
            Self::NotSent => Outcome::Unreachable,
            Self::Broken => Outcome::Unknown,
            Self::Silent => Outcome::Timeout,
            Self::Status(429, _) => Outcome::Limited,
            Self::Status(500.., _) => Outcome::ServerError,
            Self::Status(..) => Outcome::ClientError,
        }
    }
}

/// Consequence of a failed request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Send the request again after this time.
    Retry(Duration),
    /// The tool reports the status and the body.
    Report,
    /// The API does not accept the configured credentials.
    CredentialsRefused,
    /// Unavailable, and the request was not executed.
    Unreachable,
    /// Unavailable, and an execution does no harm.
    Unavailable,
    /// No response in time, and an execution does no harm.
    TimedOut,
    /// The request was rejected because of the load; a time to wait, if the server names one.
    Overloaded(Option<Duration>),
    /// The request may have been executed, and must not be sent again.
    OutcomeUnknown,
}

/// Judges a failed request. `repeatable`: sending it twice does no harm. `retries`: those that have
/// been made.
pub(super) fn judge(failure: RequestFailure, repeatable: bool, retries: u32) -> Verdict {
    let delay = DELAYS.get(retries as usize).copied().filter(|_| retries < MAX_RETRIES);
    let retry_or = |verdict| delay.map_or(verdict, Verdict::Retry);
    match failure {
        RequestFailure::NotSent => retry_or(Verdict::Unreachable),
        RequestFailure::Broken | RequestFailure::Silent | RequestFailure::Status(502 | 504, _)
            if !repeatable =>
        {
            Verdict::OutcomeUnknown
        }
        RequestFailure::Broken | RequestFailure::Status(502 | 504, _) => {
            retry_or(Verdict::Unavailable)
        }
        RequestFailure::Silent => retry_or(Verdict::TimedOut),
        RequestFailure::Status(408 | 425 | 429 | 503, wait) => match (delay, wait) {
            _ if !repeatable => Verdict::Overloaded(wait),
            (Some(delay), None) => Verdict::Retry(delay),
            (Some(delay), Some(wait)) if wait <= MAX_WAIT => Verdict::Retry(wait.max(delay)),
            _ => Verdict::Overloaded(wait),
        },
        RequestFailure::Status(500, _) if repeatable && retries == 0 => Verdict::Retry(DELAYS[0]),
        RequestFailure::Status(401 | 403, _) => Verdict::CredentialsRefused,
        RequestFailure::Status(..) => Verdict::Report,
    }
}

/// Judges a failed request that cannot be sent again because no time is left.
pub(super) fn judge_last(failure: RequestFailure, repeatable: bool) -> Verdict {
    judge(failure, repeatable, MAX_RETRIES)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Returns the delays of the retries in milliseconds, and the final verdict.
    fn course(failure: RequestFailure, repeatable: bool) -> (Vec<u128>, Verdict) {
        let mut delays = Vec::new();
        for retries in 0.. {
            match judge(failure, repeatable, retries) {
                Verdict::Retry(delay) => delays.push(delay.as_millis()),
                verdict => return (delays, verdict),
            }
        }
        unreachable!()
    }

    #[test]
    fn unsent_request_is_retried_for_every_method() {
        for repeatable in [true, false] {
            let course = course(RequestFailure::NotSent, repeatable);
            assert_eq!(course, (vec![200, 1000], Verdict::Unreachable));
        }
    }

    #[test]
    fn sent_request_is_retried_only_if_repeatable() {
        let gateway = |status| RequestFailure::Status(status, None);
        for (failure, last) in [
            (RequestFailure::Broken, Verdict::Unavailable),
            (RequestFailure::Silent, Verdict::TimedOut),
            (gateway(502), Verdict::Unavailable),
            (gateway(504), Verdict::Unavailable),
        ] {
            assert_eq!(course(failure, true), (vec![200, 1000], last), "{failure:?}");
            assert_eq!(course(failure, false), (vec![], Verdict::OutcomeUnknown), "{failure:?}");
            assert_eq!(judge_last(failure, true), last);
        }
    }

    #[test]
    fn overloaded_server_is_retried_after_its_wait() {
        for status in [408, 425, 429, 503] {
            let wait = |seconds| RequestFailure::Status(status, Some(seconds * SECOND));
            assert_eq!(
                course(wait(3), true),
                (vec![3000, 3000], Verdict::Overloaded(Some(3 * SECOND)))
            );
            assert_eq!(course(wait(0), true).0, [200, 1000]);
            assert_eq!(course(wait(11), true), (vec![], Verdict::Overloaded(Some(11 * SECOND))));
            assert_eq!(course(wait(3), false), (vec![], Verdict::Overloaded(Some(3 * SECOND))));
            let unknown = RequestFailure::Status(status, None);
            assert_eq!(course(unknown, true), (vec![200, 1000], Verdict::Overloaded(None)));
        }
    }

    #[test]
    fn other_statuses_are_reported() {
        for status in [301, 400, 404, 405, 409, 410, 412, 415, 422, 501] {
            for repeatable in [true, false] {
                let failure = RequestFailure::Status(status, None);
                assert_eq!(course(failure, repeatable), (vec![], Verdict::Report), "{status}");
            }
        }
        for status in [401, 403] {
            let failure = RequestFailure::Status(status, None);
            assert_eq!(course(failure, true), (vec![], Verdict::CredentialsRefused));
        }
        let failed = RequestFailure::Status(500, None);
        assert_eq!(course(failed, true), (vec![200], Verdict::Report));
        assert_eq!(course(failed, false), (vec![], Verdict::Report));
    }
}
