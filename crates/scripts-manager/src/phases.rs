//! How long scripts take, phase by phase, as metrics.

use metrics::{gauge, histogram};
use tokio::time::Instant;

/// A script on its way; what is known of its phases is told when it is dropped.
pub(crate) struct Phases {
    asked: Instant,
    runs_since: Option<Instant>,
}

impl Phases {
    pub(crate) fn begin() -> Self {
        gauge!("rockbot_scripts_running").increment(1.0);
        Self { asked: Instant::now(), runs_since: None }
    }

    /// It runs from now on; how long it took until then.
    pub(crate) fn runs(&mut self) -> std::time::Duration {
        let now = Instant::now();
        self.runs_since = Some(now);
        let pending = now - self.asked;
        tell("pending", pending);
        pending
    }
}

impl Drop for Phases {
    fn drop(&mut self) {
        if let Some(since) = self.runs_since {
            tell("running", since.elapsed());
        }
        tell("total", self.asked.elapsed());
        gauge!("rockbot_scripts_running").decrement(1.0);
    }
}

fn tell(phase: &'static str, took: std::time::Duration) {
    histogram!("rockbot_script_phase_duration_seconds", "phase" => phase).record(took);
}
