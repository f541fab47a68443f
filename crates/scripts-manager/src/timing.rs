//! Metrics of the phases of a run.

use std::time::Duration;

use metrics::{gauge, histogram};
use tokio::time::Instant;

/// Measures the phases of a run, which are recorded when they end or when this is dropped.
pub(crate) struct RunTiming {
    requested_at: Instant,
    running_since: Option<Instant>,
}

impl RunTiming {
    pub(crate) fn start() -> Self {
        gauge!("rockbot_scripts_running").increment(1.0);
        Self { requested_at: Instant::now(), running_since: None }
    }

    /// Records that the script runs. Returns how long it was pending.
    pub(crate) fn mark_running(&mut self) -> Duration {
        let now = Instant::now();
        self.running_since = Some(now);
        let pending = now - self.requested_at;
        record("pending", pending);
        pending
    }
}

impl Drop for RunTiming {
    fn drop(&mut self) {
        if let Some(since) = self.running_since {
            record("running", since.elapsed());
        }
        record("total", self.requested_at.elapsed());
        gauge!("rockbot_scripts_running").decrement(1.0);
    }
}

fn record(phase: &'static str, duration: Duration) {
    histogram!("rockbot_script_phase_duration_seconds", "phase" => phase).record(duration);
}
