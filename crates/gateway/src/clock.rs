//! Time for responses.

use std::time::{SystemTime, UNIX_EPOCH};

/// Returns the time of this process in Unix milliseconds.
pub(crate) fn now_ms() -> u64 {
    unix_ms(SystemTime::now())
}

/// Returns a time in Unix milliseconds.
pub(crate) fn unix_ms(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
