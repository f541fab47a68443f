//! Rate limits that a provider announces in its headers.
//!
//! `X-RateLimit-Policy: 1;w=1, 15000;w=2592000` lists limits and their windows in seconds.
//! `X-RateLimit-Remaining` and `X-RateLimit-Reset` (seconds) have one entry for each.

use std::time::Duration;

use crate::api::ApiResponse;

/// Maximum number of windows that are read.
const MAX_WINDOWS: usize = 8;
/// Windows from this length on are quotas: they are too long to wait for.
const QUOTA_WINDOW: Duration = Duration::from_secs(3_600);

/// A limit of requests in a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Window {
    /// Requests, at least 1.
    pub(super) limit: u32,
    /// Length.
    pub(super) length: Duration,
    /// Requests that remain, if known.
    pub(super) remaining: Option<u32>,
    /// Time until the window ends, if known.
    pub(super) reset: Option<Duration>,
}

/// The limits in the headers of a response.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct RateLimits {
    /// The shortest window.
    pub(super) rate: Option<Window>,
    /// The longest window of at least an hour.
    pub(super) quota: Option<Window>,
    /// First entry of `X-RateLimit-Reset`.
    pub(super) reset: Option<Duration>,
}

impl RateLimits {
    /// Reads the headers. Missing and unreadable parts are absent.
    pub(super) fn from_response(response: &ApiResponse) -> Self {
        let list = |name| numbers(response.header(name).unwrap_or_default());
        let (remaining, reset) = (list("x-ratelimit-remaining"), list("x-ratelimit-reset"));
        let seconds = |seconds: u32| Duration::from_secs(seconds.into());
        let policy = response.header("x-ratelimit-policy").unwrap_or_default();
        let windows =
            policy.split(',').take(MAX_WINDOWS).enumerate().filter_map(|(index, entry)| {
                let (limit, length) = policy_entry(entry)?;
                Some(Window {
                    limit,
                    length: seconds(length),
                    remaining: remaining.get(index).copied().flatten(),
                    reset: reset.get(index).copied().flatten().map(seconds),
                })
            });
        let mut windows: Vec<Window> = windows.collect();
        windows.sort_by_key(|window| window.length);
        Self {
            rate: windows.first().filter(|window| window.length < QUOTA_WINDOW).copied(),
            quota: windows.last().filter(|window| window.length >= QUOTA_WINDOW).copied(),
            reset: reset.first().copied().flatten().map(seconds),
        }
    }

    /// Returns the time until requests are possible again, if the quota is used up.
    pub(super) fn exhausted(&self) -> Option<Duration> {
        let quota = self.quota.filter(|quota| quota.remaining == Some(0))?;
        Some(quota.reset.unwrap_or(quota.length))
    }
}

/// Parses `15000;w=2592000`. A limit of zero means no limit.
fn policy_entry(entry: &str) -> Option<(u32, u32)> {
    let mut parts = entry.split(';').map(str::trim);
    let limit = parts.next()?.parse().ok().filter(|limit| *limit > 0)?;
    let length = parts.find_map(|part| part.strip_prefix("w="))?;
    let length = length.parse().ok().filter(|length| *length > 0)?;
    Some((limit, length))
}

fn numbers(list: &str) -> Vec<Option<u32>> {
    list.split(',').take(MAX_WINDOWS).map(|number| number.trim().parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

    use super::*;

    fn limits(headers: &[(&'static str, &'static str)]) -> RateLimits {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        let (status, body) = (StatusCode::OK, Vec::new());
        RateLimits::from_response(&ApiResponse { status, headers: map, body, truncated: false })
    }

    #[test]
    fn rate_and_quota_are_read() {
        let limits = limits(&[
            ("x-ratelimit-policy", "1;w=1, 15000;w=2592000"),
            ("x-ratelimit-remaining", "0, 14522"),
            ("x-ratelimit-reset", "1, 1419704"),
        ]);
        let rate = limits.rate.expect("a rate");
        assert_eq!((rate.limit, rate.length), (1, Duration::from_secs(1)));
        let quota = limits.quota.expect("a quota");
        assert_eq!((quota.limit, quota.remaining), (15_000, Some(14_522)));
        assert_eq!(quota.reset, Some(Duration::from_secs(1_419_704)));
        assert_eq!((limits.exhausted(), limits.reset), (None, Some(Duration::from_secs(1))));
    }

    #[test]
    fn used_up_quota_lasts_until_reset() {
        let mut headers = vec![
            ("x-ratelimit-policy", "2000;w=2592000, 1;w=1"),
            ("x-ratelimit-remaining", "0, 1"),
        ];
        assert_eq!(limits(&headers).exhausted(), Some(Duration::from_secs(2_592_000)));
        headers.push(("x-ratelimit-reset", "77, 1"));
        assert_eq!(limits(&headers).exhausted(), Some(Duration::from_secs(77)));
    }

    #[test]
    fn limit_of_zero_is_no_limit() {
        let limits = limits(&[
            ("x-ratelimit-policy", "50;w=1, 0;w=2592000"),
            ("x-ratelimit-remaining", "49, 0"),
            ("x-ratelimit-reset", "1, 100"),
        ]);
        assert_eq!((limits.quota, limits.exhausted()), (None, None));
    }

    #[test]
    fn unreadable_headers_are_ignored() {
        for policy in ["", "1", ";w=1", "-1;w=1", "x;w=1", "1;w=0", "99999999999;w=1", ",,,;;"] {
            let policy: &'static str = Box::leak(policy.to_owned().into_boxed_str());
            let limits = limits(&[("x-ratelimit-policy", policy), ("x-ratelimit-remaining", "x")]);
            assert_eq!(limits, RateLimits::default(), "{policy}");
        }
    }
}
