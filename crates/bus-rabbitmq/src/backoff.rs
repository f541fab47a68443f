//! Exponential backoff between attempts.

use std::{
    hash::{BuildHasher, RandomState},
    time::Duration,
};

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};

const SHORTEST: Duration = Duration::from_millis(50);
/// Jitter at most doubles it, so processes reconnect within 5 s of the broker's return.
const LONGEST: Duration = Duration::from_millis(600);

/// Delays of one series of attempts.
pub(crate) struct Waits(ExponentialBackoff);

/// Returns delays from 50 ms to 1.2 s, with jitter so that the processes of a fleet don't all reconnect
/// at the same time.
pub(crate) fn waits() -> Waits {
    // By default the library uses the same seed in every process.
    let seed = RandomState::new().hash_one(());
    let builder = ExponentialBuilder::new()
        .with_min_delay(SHORTEST)
        .with_max_delay(LONGEST)
        .with_jitter()
        .with_jitter_seed(seed)
        .without_max_times();
    Waits(builder.build())
}

impl Waits {
    pub(crate) fn next_wait(&mut self) -> Duration {
        self.0.next().unwrap_or(LONGEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_are_bounded_and_differ_between_processes() {
        let series = || {
            let mut waits = waits();
            std::iter::repeat_with(move || waits.next_wait()).take(50)
        };
        assert!(series().all(|wait| wait >= SHORTEST && wait <= Duration::from_millis(1200)));
        assert_ne!(series().collect::<Vec<_>>(), series().collect::<Vec<_>>());
    }
}
