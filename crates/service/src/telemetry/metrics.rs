//! `/metrics`: the metrics of this process, in Prometheus' text format.
//!
//! Crates record metrics with the `metrics` facade; its recorder feeds one `prometheus` registry.
//! [`CATALOG`] describes each metric.

use std::{
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use metrics::gauge;
use metrics_prometheus::{
    Recorder,
    failure::{Action, Strategy},
};
use parking_lot::Mutex;
use prometheus::{Registry, TextEncoder, process_collector::ProcessCollector};
use tracing::error;

use super::catalog::CATALOG;

/// Updates gauges that show the current state of the process.
type Refresh = Box<dyn Fn() + Send + Sync>;

/// The metrics of this process. Clones share them.
#[derive(Clone)]
pub struct Metrics {
    registry: Registry,
    refreshes: Arc<Mutex<Vec<Refresh>>>,
}

impl Metrics {
    /// Starts to record metrics: the first call in a process installs the recorder, later ones share
    /// it. To be called before anything that records metrics is created.
    #[must_use]
    pub fn start(name: &'static str, version: &'static str) -> Self {
        static REGISTRY: OnceLock<Registry> = OnceLock::new();
        let registry = REGISTRY.get_or_init(install).clone();
        gauge!("rockbot_build_info", "version" => version, "process" => name).set(1.0);
        Self { registry, refreshes: Arc::default() }
    }

    /// Registers `refresh`, which is called before each response to set gauges. It must not block.
    pub fn refresh_with(&self, refresh: impl Fn() + Send + Sync + 'static) {
        self.refreshes.lock().push(Box::new(refresh));
    }

    /// Returns all metrics in Prometheus' text format.
    #[must_use]
    pub fn text(&self) -> String {
        // Held until all is gathered: a counter set to an absolute value is briefly zero.
        let refreshes = self.refreshes.lock();
        refreshes.iter().for_each(|refresh| refresh());
        let encoded = TextEncoder::new().encode_to_string(&self.registry.gather());
        encoded.unwrap_or_else(|error| {
            error!(%error, "metrics encoding failed");
            String::new()
        })
    }
}

/// Installs the recorder of the process. A process that has one already keeps it, and nothing is
/// recorded here.
fn install() -> Registry {
    let registry = Registry::new();
    let recorder = Recorder::builder()
        .with_registry(registry.clone())
        .with_failure_strategy(ReportOnce::default())
        .build();
    let process = registry.register(Box::new(ProcessCollector::for_self()));
    let registered = CATALOG.iter().map(|metric| metric.register(&recorder)).chain([process]);
    for error in registered.filter_map(Result::err) {
        error!(%error, "metric registration failed");
    }
    let _ = metrics::set_global_recorder(recorder);
    registry
}

/// Drops measurements whose labels do not match the catalog, and logs the first error.
#[derive(Debug, Default)]
struct ReportOnce {
    reported: AtomicBool,
}

impl Strategy for ReportOnce {
    fn decide(&self, error: &prometheus::Error) -> Action {
        if !self.reported.swap(true, Ordering::Relaxed) {
            error!(%error, "metric dropped: its labels differ from the catalog; this is a bug");
        }
        Action::NoOp
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use metrics::{counter, histogram};

    use super::*;

    #[test]
    fn recorded_metrics_are_exposed_with_help_and_buckets() {
        let metrics = Metrics::start("rockbot-test", "1.2.3");
        counter!("rockbot_tool_invocations_total", "tool_name" => "echo", "status" => "ok")
            .increment(2);
        histogram!("rockbot_tool_invoke_duration_milliseconds", "tool_name" => "echo",
            "status" => "ok")
        .record(7.0);
        histogram!("rockbot_agent_turn_duration_seconds").record(0.2);
        metrics.refresh_with(|| gauge!("rockbot_tool_calls_running").set(3.0));
        let text = metrics.text();
        for line in [
            "# HELP rockbot_tool_invocations_total Calls that ended in this tool handler.",
            "# TYPE rockbot_tool_invocations_total counter",
            r#"rockbot_tool_invocations_total{status="ok",tool_name="echo"} 2"#,
            "# TYPE rockbot_tool_invoke_duration_milliseconds histogram",
            r#"rockbot_tool_invoke_duration_milliseconds_bucket{status="ok",tool_name="echo",le="5"} 0"#,
            r#"rockbot_tool_invoke_duration_milliseconds_bucket{status="ok",tool_name="echo",le="10"} 1"#,
            r#"rockbot_agent_turn_duration_seconds_bucket{le="0.25"} 1"#,
            "rockbot_tool_calls_running 3",
            r#"rockbot_build_info{process="rockbot-test",version="1.2.3"} 1"#,
        ] {
            assert!(text.lines().any(|one| one == line), "{line}\nis not in\n{text}");
        }
        assert!(text.contains("process_resident_memory_bytes"), "{text}");
        assert!(!text.contains("rockbot_llm_tokens_total"), "without a series: {text}");
    }

    #[test]
    fn mismatched_labels_drop_the_measurement() {
        let metrics = Metrics::start("rockbot-test", "1.2.3");
        counter!("rockbot_agent_turns_total", "unknown" => "label").increment(1);
        assert!(!metrics.text().contains("rockbot_agent_turns_total{"));
        counter!("rockbot_agent_turns_total", "outcome" => "answered").increment(1);
        assert!(metrics.text().contains(r#"rockbot_agent_turns_total{outcome="answered"} 1"#));
    }
}
