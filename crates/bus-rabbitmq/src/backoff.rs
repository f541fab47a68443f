//! How long to wait before the next attempt.

use std::{
    hash::{BuildHasher, RandomState},
    time::Duration,
};

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};

const SHORTEST: Duration = Duration::from_millis(50);
/// Jitter at most doubles it. Whoever waits for the broker is back well within 5 s.
const LONGEST: Duration = Duration::from_millis(600);

/// The waits of one series of attempts.
pub(crate) struct Waits(ExponentialBackoff);

/// Waits from 50 ms up to about 1 s, with jitter, so that a fleet does not come back all at once.
pub(crate) fn waits() -> Waits {
    // The library would begin with the same seed in every process.
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
    fn no_wait_is_over_1200_ms_and_two_processes_wait_differently() {
        let series = || {
            let mut waits = waits();
            std::iter::repeat_with(move || waits.next_wait()).take(50)
        };
        assert!(series().all(|wait| wait >= SHORTEST && wait <= Duration::from_millis(1200)));
        assert_ne!(series().collect::<Vec<_>>(), series().collect::<Vec<_>>());
    }
}
