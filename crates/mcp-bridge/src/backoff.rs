//! How long a server that can't be reached is left alone.

use std::time::Duration;

/// The pauses before the first, second, … attempt; the last one is for all that follow.
const PAUSES: [u64; 7] = [0, 1, 2, 5, 10, 30, 60];

/// A session that lasted this long counts as one: the next attempt after it is a first one.
pub(crate) const LASTING: Duration = Duration::from_secs(30);

/// The pause after so many attempts that failed.
pub(crate) fn pause(failed: u32) -> Duration {
    let at = usize::try_from(failed).unwrap_or(usize::MAX).min(PAUSES.len() - 1);
    Duration::from_secs(PAUSES[at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_stay() {
        let pauses: Vec<_> = (0..9).map(|failed| pause(failed).as_secs()).collect();
        assert_eq!(pauses, [0, 1, 2, 5, 10, 30, 60, 60, 60]);
    }
}
