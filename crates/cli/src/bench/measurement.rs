//! Latencies and failures, and their summary.

use std::{collections::BTreeMap, time::Duration};

use serde_json::json;

use crate::render;

/// Percentiles in the report.
const PERCENTILES: [(&str, f64); 5] =
    [("min", 0.0), ("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("max", 1.0)];

/// The results of a measurement.
#[derive(Debug, Default)]
pub(super) struct Measurement {
    /// Of the successful ones, sorted after [`finish`](Self::finish).
    latencies: Vec<Duration>,
    /// Number of failures, by their code.
    failures: BTreeMap<String, usize>,
    elapsed: Duration,
}

impl Measurement {
    pub(super) fn succeed(&mut self, latency: Duration) {
        self.latencies.push(latency);
    }

    /// Records a failure. `code` is one of a closed set.
    pub(super) fn fail(&mut self, code: impl Into<String>) {
        *self.failures.entry(code.into()).or_default() += 1;
    }

    /// Ends the measurement.
    pub(super) fn finish(mut self, elapsed: Duration) -> Self {
        self.latencies.sort_unstable();
        Self { elapsed, ..self }
    }

    pub(super) fn failures(&self) -> usize {
        self.failures.values().sum()
    }

    /// Returns the number of successes and failures.
    pub(super) fn ended(&self) -> usize {
        self.latencies.len() + self.failures()
    }

    /// Returns the successes per second.
    fn rate(&self) -> f64 {
        let seconds = self.elapsed.as_secs_f64();
        if seconds > 0.0 { self.latencies.len() as f64 / seconds } else { 0.0 }
    }

    /// Returns the latency that a part of the successes does not exceed.
    fn percentile(&self, part: f64) -> Option<Duration> {
        let last = self.latencies.len().checked_sub(1)?;
        let index = (last as f64 * part).ceil() as usize;
        self.latencies.get(index.min(last)).copied()
    }

    pub(super) fn describe(&self, what: &str) -> String {
        let (done, elapsed) = (self.latencies.len(), render::duration(self.elapsed));
        let mut lines = vec![format!("{what}: {done} in {elapsed}, {:.1} per second", self.rate())];
        let latencies: Vec<_> = PERCENTILES
            .iter()
            .filter_map(|(name, part)| {
                Some(format!("{name} {}", render::duration(self.percentile(*part)?)))
            })
            .collect();
        if !latencies.is_empty() {
            lines.push(format!("latency: {}", latencies.join(", ")));
        }
        for (code, number) in &self.failures {
            lines.push(render::bad(&format!("failed: {number} with {}", render::clean(code))));
        }
        lines.join("\n")
    }

    pub(super) fn to_json(&self, concurrency: u16, tool: Option<&str>) -> serde_json::Value {
        let latencies: serde_json::Map<_, _> = PERCENTILES
            .iter()
            .filter_map(|(name, part)| {
                let micros = self.percentile(*part)?.as_micros();
                Some(((*name).to_owned(), json!(u64::try_from(micros).unwrap_or(u64::MAX))))
            })
            .collect();
        json!({
            "tool": tool, "concurrency": concurrency, "succeeded": self.latencies.len(),
            "failed": self.failures(), "failures": self.failures,
            "elapsedMs": u64::try_from(self.elapsed.as_millis()).unwrap_or(u64::MAX),
            "perSecond": self.rate(), "latencyMicros": latencies,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_has_rate_percentiles_and_failures() {
        let mut measured = Measurement::default();
        (1..=100).rev().for_each(|ms| measured.succeed(Duration::from_millis(ms)));
        measured.fail("timeout");
        measured.fail("timeout");
        let measured = measured.finish(Duration::from_secs(2));
        let text = measured.describe("bash");
        assert!(text.starts_with("bash: 100 in 2.0 s, 50.0 per second\n"), "{text}");
        assert!(text.contains("min 1.0 ms, p50 51.0 ms, p95 96.0 ms, p99 100.0 ms, max 100.0 ms"));
        assert!(text.contains("failed: 2 with timeout"), "{text}");
        assert_eq!((measured.ended(), measured.failures()), (102, 2));
        let json = measured.to_json(4, None);
        assert_eq!((&json["latencyMicros"]["max"], &json["failed"]), (&json!(100_000), &json!(2)));
    }

    #[test]
    fn empty_measurement_has_no_latencies() {
        let measured = Measurement::default().finish(Duration::ZERO);
        assert_eq!(measured.describe("x"), "x: 0 in 0 µs, 0.0 per second");
    }
}
