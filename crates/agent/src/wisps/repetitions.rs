//! A bound on plans that a model runs again and again.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::Instant;

/// Runs of equal plans within [`WINDOW`] that are permitted.
const MAX_RUNS: usize = 30;
const WINDOW: Duration = Duration::from_secs(300);
/// Maximum number of different plans that are remembered.
const MAX_PLANS: usize = 1024;

/// The runs of equal plans of one agent in this process.
#[derive(Debug, Default)]
pub(crate) struct Repetitions(Mutex<HashMap<String, VecDeque<Instant>>>);

impl Repetitions {
    /// Counts a run of the plans with this hash. Returns `false` if they ran too often.
    pub(crate) fn count(&self, hash: String) -> bool {
        let (mut plans, now) = (self.0.lock(), Instant::now());
        let is_recent = |at: &Instant| now.duration_since(*at) < WINDOW;
        if plans.len() >= MAX_PLANS {
            plans.retain(|_, runs| runs.back().is_some_and(is_recent));
        }
        if plans.len() >= MAX_PLANS && !plans.contains_key(&hash) {
            // Plans that all differ are no repetition.
            return true;
        }
        let runs = plans.entry(hash).or_default();
        while runs.front().is_some_and(|at| !is_recent(at)) {
            runs.pop_front();
        }
        if runs.len() >= MAX_RUNS {
            return false;
        }
        runs.push_back(now);
        true
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn equal_plans_are_refused_after_thirty_runs() {
        let repetitions = Repetitions::default();
        for _ in 0..MAX_RUNS {
            assert!(repetitions.count("a".to_owned()));
        }
        assert!(!repetitions.count("a".to_owned()));
        assert!(repetitions.count("b".to_owned()));
        advance(WINDOW).await;
        assert!(repetitions.count("a".to_owned()));
    }
}
