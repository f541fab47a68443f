//! Intervals that differ between the processes of an agent, so that they do not use the store together.

use std::{
    ops::Range,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// Returns `interval`, multiplied by a random number of the range.
pub(super) fn jittered(interval: Duration, range: Range<f64>) -> Duration {
    // The low digits of the clock differ enough between processes.
    let nanos =
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.subsec_nanos());
    let random = f64::from(nanos % 1_000_000) / 1_000_000.0;
    interval.mul_f64(range.start + (range.end - range.start) * random)
}
