//! The delay that a server requests of callers.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, header::RETRY_AFTER};

/// Maximum wait that is reported, in seconds: a day.
const MAX_SECONDS: u64 = 24 * 3600;

/// Returns the wait in `Retry-After`, in seconds or as a date, at most a day.
pub(super) fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = match value.parse::<u64>() {
        Ok(seconds) => Duration::from_secs(seconds.min(MAX_SECONDS)),
        Err(_) => httpdate::parse_http_date(value).ok()?.duration_since(now).unwrap_or_default(),
    };
    Some(wait.min(Duration::from_secs(MAX_SECONDS)))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn seconds_and_dates_are_read() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        let date = |seconds| httpdate::fmt_http_date(now + Duration::from_secs(seconds));
        for (value, expected) in [
            ("7".to_owned(), Some(7)),
            ("999999999999".to_owned(), Some(MAX_SECONDS)),
            (date(90), Some(90)),
            ("Thu, 01 Jan 1970 00:00:00 GMT".to_owned(), Some(0)),
            ("-1".to_owned(), None),
            ("soon".to_owned(), None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, HeaderValue::from_str(&value).unwrap());
            let wait = retry_after(&headers, now).map(|wait| wait.as_secs());
            assert_eq!(wait, expected, "{value}");
        }
        assert_eq!(retry_after(&HeaderMap::new(), now), None);
    }
}
