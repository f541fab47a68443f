//! Rate and latency of recent calls.

use std::{collections::VecDeque, time::Duration};

use serde::Serialize;
use utoipa::ToSchema;

/// Time that the rate is of.
const WINDOW: Duration = Duration::from_secs(10);
/// Number of latencies that the percentiles are of.
const LATENCIES: usize = 512;

/// Rate and latency of recent calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RatesView {
    /// Replies per second during the last 10 s.
    per_second: f64,
    /// Median latency of the last 512 replies in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    p50_ms: Option<f64>,
    /// 95th percentile of their latency in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    p95_ms: Option<f64>,
}

/// The latest replies.
#[derive(Debug, Default)]
pub(super) struct Rates {
    /// Numbers of replies, by second since the start.
    seconds: VecDeque<(u64, u32)>,
    latencies: VecDeque<Duration>,
}

impl Rates {
    /// Counts a reply that arrived `at` after the start.
    pub(super) fn count(&mut self, at: Duration, latency: Option<Duration>) {
        let second = at.as_secs();
        match self.seconds.back_mut() {
            Some((last, count)) if *last == second => *count += 1,
            _ => self.seconds.push_back((second, 1)),
        }
        self.forget(at);
        if let Some(latency) = latency {
            if self.latencies.len() >= LATENCIES {
                self.latencies.pop_front();
            }
            self.latencies.push_back(latency);
        }
    }

    /// Returns the rates at a time after the start.
    pub(super) fn view(&mut self, now: Duration) -> RatesView {
        self.forget(now);
        let replies: u64 = self.seconds.iter().map(|(_, count)| u64::from(*count)).sum();
        let mut sorted: Vec<_> = self.latencies.iter().copied().collect();
        sorted.sort_unstable();
        let percentile = |percent: usize| {
            let last = sorted.len().checked_sub(1)?;
            Some(sorted[last * percent / 100].as_secs_f64() * 1e3)
        };
        let seconds = WINDOW.min(now.max(Duration::from_secs(1))).as_secs_f64();
        RatesView {
            per_second: replies as f64 / seconds,
            p50_ms: percentile(50),
            p95_ms: percentile(95),
        }
    }

    fn forget(&mut self, now: Duration) {
        let first = now.saturating_sub(WINDOW).as_secs();
        while self.seconds.front().is_some_and(|(second, _)| *second < first) {
            self.seconds.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_replies_do_not_count() {
        let mut rates = Rates::default();
        for number in 1..=100 {
            rates.count(Duration::from_secs(20), Some(Duration::from_millis(number)));
        }
        let view = rates.view(Duration::from_secs(21));
        assert_eq!((view.per_second, view.p50_ms, view.p95_ms), (10.0, Some(50.0), Some(95.0)));
        assert_eq!(rates.view(Duration::from_secs(60)).per_second, 0.0);
        assert_eq!(Rates::default().view(Duration::ZERO).p50_ms, None);
    }
}
