//! Conversations under load, in large numbers and sizes. `ROCKBOT_TEST_ENDURANCE=1` selects the sizes of the
//! tables in `docs/conversations.md` and `docs/performance.md`; each run of the suite uses smaller ones.

mod load;
mod memory;
mod rolling_load;
mod scale;
mod takeover_times;

use std::{env, time::Duration};

/// Returns the size of a test for this run.
pub(super) fn size<T>(of_suite: T, full: T) -> T {
    if is_full() { full } else { of_suite }
}

pub(super) fn is_full() -> bool {
    env::var_os("ROCKBOT_TEST_ENDURANCE").is_some()
}

/// Prints the number, the median and the maximum of times.
#[track_caller]
fn print_times(what: &str, mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    let (median, worst) = (times[times.len() / 2], times[times.len() - 1]);
    let ms = |time: Duration| time.as_secs_f64() * 1000.0;
    println!(
        "{what}: {} times, median {:.1} ms, worst {:.1} ms",
        times.len(),
        ms(median),
        ms(worst)
    );
    median
}
