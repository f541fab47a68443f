//! What `/metrics` answers: the counts of this process, in Prometheus' text format.
//!
//! The house counts through the `metrics` crate; this is where the counts go. [`CATALOGUE`] says
//! what each means.

use std::{
    fmt,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use metrics::{Unit, describe_counter, describe_gauge, describe_histogram, gauge};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use metrics_process::Collector;
use tokio::{task::JoinHandle, time::MissedTickBehavior};

/// How often what was measured is put together. Measurements are kept one by one until then.
const UPKEEP_EVERY: Duration = Duration::from_secs(2);

/// Bounds of histograms, in seconds: from a call inside a machine to the longest script.
const SECONDS: [f64; 20] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
    60.0, 120.0, 300.0, 600.0, 1800.0,
];
/// The same in milliseconds, for the one metric whose name says so.
const MILLISECONDS: [f64; 20] = [
    0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1e3, 2.5e3, 5e3, 1e4, 3e4, 6e4,
    1.2e5, 3e5, 6e5, 1.8e6,
];

/// What kind of number a metric is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// How many were how large.
    Histogram,
}

/// Every metric of the house: kind, name, and what it means.
pub const CATALOGUE: [(Kind, &str, &str); 37] = [
    (
        Kind::Histogram,
        "rockbot_tool_invoke_duration_milliseconds",
        "How long calls took in their worker, from their arrival to their end.",
    ),
    (Kind::Counter, "rockbot_tool_invocations_total", "Calls that ended in this worker."),
    (
        Kind::Histogram,
        "rockbot_tool_stage_duration_seconds",
        "How long calls were in each stage: queue, start, run, reply.",
    ),
    (Kind::Gauge, "rockbot_tool_calls_running", "Calls that run now."),
    (Kind::Gauge, "rockbot_tool_calls_waiting", "Calls in hand that wait for room."),
    (Kind::Gauge, "rockbot_tool_oldest_call_seconds", "Age of the oldest call in hand."),
    (Kind::Histogram, "rockbot_tool_queue_wait_seconds", "How long calls waited for room."),
    (Kind::Counter, "rockbot_tool_cache_total", "Calls of tools whose results are kept."),
    (Kind::Counter, "rockbot_tool_unanswered_total", "Answers that reached nobody."),
    (Kind::Counter, "rockbot_tool_answered_again_total", "Calls answered as they ended before."),
    (Kind::Counter, "rockbot_bus_published_total", "Messages published, by what became of them."),
    (
        Kind::Histogram,
        "rockbot_bus_publish_duration_seconds",
        "How long the bus took to confirm a message.",
    ),
    (Kind::Counter, "rockbot_bus_deliveries_total", "Deliveries settled, by how."),
    (Kind::Counter, "rockbot_bus_redeliveries_total", "Deliveries of what was delivered before."),
    (Kind::Counter, "rockbot_bus_reconnects_total", "Connections made after one was lost."),
    (Kind::Gauge, "rockbot_bus_connected", "1 while messages can be carried, else 0."),
    (Kind::Gauge, "rockbot_bus_reply_consumers", "Consumers of the process's own answers."),
    (Kind::Gauge, "rockbot_bus_queue_messages", "Messages that wait in a queue."),
    (Kind::Gauge, "rockbot_requests_pending", "Questions that wait for an answer."),
    (Kind::Gauge, "rockbot_requests_oldest_seconds", "Age of the oldest open question."),
    (Kind::Counter, "rockbot_requests_late_replies_total", "Answers that nobody waited for."),
    (
        Kind::Counter,
        "rockbot_requests_retries_total",
        "Requests sent again because no confirm or reply came.",
    ),
    (Kind::Counter, "rockbot_agent_turns_total", "Turns that ended, by how."),
    (Kind::Histogram, "rockbot_agent_turn_duration_seconds", "How long turns took."),
    (Kind::Counter, "rockbot_llm_requests_total", "Questions to models, by how they ended."),
    (Kind::Histogram, "rockbot_llm_request_duration_seconds", "How long models took to answer."),
    (Kind::Counter, "rockbot_llm_tokens_total", "Tokens read and written by models."),
    (Kind::Gauge, "rockbot_mcp_servers", "Configured MCP servers, by state."),
    (
        Kind::Gauge,
        "rockbot_mcp_server_up",
        "1 while the MCP server is served, here or by another bridge.",
    ),
    (
        Kind::Counter,
        "rockbot_mcp_server_restarts_total",
        "Sessions with the MCP server that were lost.",
    ),
    (
        Kind::Histogram,
        "rockbot_script_phase_duration_seconds",
        "How long scripts were in each phase: pending, running, total.",
    ),
    (Kind::Gauge, "rockbot_scripts_running", "Scripts whose pods were made and did not end."),
    (Kind::Gauge, "rockbot_reply_probe_up", "1 when the last canary call was answered, else 0."),
    (Kind::Histogram, "rockbot_reply_probe_duration_seconds", "How long canary calls took."),
    (Kind::Counter, "rockbot_telemetry_spans_total", "Spans of traces, by whether they were sent."),
    (Kind::Gauge, "rockbot_ready", "1 while the process takes work, as /readyz says, else 0."),
    (Kind::Gauge, "rockbot_build_info", "1, with the version and the process as labels."),
];

/// Says something of the process as it is now, by setting gauges.
type Look = Box<dyn Fn() + Send + Sync>;

/// The counts of this process. Clones share them.
#[derive(Clone)]
pub struct Metrics {
    handle: PrometheusHandle,
    looks: Arc<Mutex<Vec<Look>>>,
    process: Arc<Collector>,
    _upkeep: Arc<Upkeep>,
}

struct Upkeep(JoinHandle<()>);

impl Drop for Upkeep {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Metrics {
    /// Starts to count: the first call in a process does, and the later ones share its counts. To be
    /// called within a runtime, before what is to be counted is made.
    #[must_use]
    pub fn start(name: &'static str, version: &'static str) -> Self {
        static HANDLE: OnceLock<PrometheusHandle> = OnceLock::new();
        let handle = HANDLE.get_or_init(|| install().unwrap_or_else(|handle| handle)).clone();
        for (kind, name, meaning) in CATALOGUE {
            match kind {
                Kind::Counter => describe_counter!(name, Unit::Count, meaning),
                Kind::Gauge => describe_gauge!(name, meaning),
                Kind::Histogram => describe_histogram!(name, meaning),
            }
        }
        let process = Collector::default();
        process.describe();
        gauge!("rockbot_build_info", "version" => version, "process" => name).set(1.0);
        let upkept = handle.clone();
        let upkeep = tokio::spawn(async move {
            let mut ticks = tokio::time::interval(UPKEEP_EVERY);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                upkept.run_upkeep();
            }
        });
        Self {
            handle,
            looks: Arc::default(),
            process: Arc::new(process),
            _upkeep: Arc::new(Upkeep(upkeep)),
        }
    }

    /// Has `look` called before each answer, to set gauges. It must not block.
    pub fn look(&self, look: impl Fn() + Send + Sync + 'static) {
        self.looks.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(look));
    }

    /// All counts now.
    #[must_use]
    pub fn text(&self) -> String {
        for look in self.looks.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            look();
        }
        self.process.collect();
        self.handle.render()
    }
}

/// Makes the one recorder of the process. Where the process has one of its own already, nothing comes
/// here.
fn install() -> Result<PrometheusHandle, PrometheusHandle> {
    let seconds = Matcher::Suffix("_seconds".to_owned());
    let milliseconds = Matcher::Suffix("_milliseconds".to_owned());
    let builder = PrometheusBuilder::new();
    let builder = builder.set_buckets_for_metric(seconds, &SECONDS);
    // It fails without bounds only.
    let builder = builder.and_then(|one| one.set_buckets_for_metric(milliseconds, &MILLISECONDS));
    let recorder = builder.unwrap_or_default().build_recorder();
    let handle = recorder.handle();
    match metrics::set_global_recorder(recorder) {
        Ok(()) => Ok(handle),
        Err(_) => Err(handle),
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use metrics::{counter, histogram};

    use super::*;

    #[tokio::test]
    async fn what_was_counted_is_told_with_its_meaning() {
        let metrics = Metrics::start("rockbot-test", "1.2.3");
        counter!("rockbot_tool_invocations_total", "tool_name" => "echo", "status" => "ok")
            .increment(2);
        histogram!("rockbot_tool_invoke_duration_milliseconds", "tool_name" => "echo",
            "status" => "ok")
        .record(7.0);
        metrics.look(|| gauge!("rockbot_tool_calls_running").set(3.0));
        let text = metrics.text();
        for line in [
            "# HELP rockbot_tool_invocations_total Calls that ended in this worker.",
            "# TYPE rockbot_tool_invocations_total counter",
            r#"rockbot_tool_invocations_total{tool_name="echo",status="ok"} 2"#,
            "# TYPE rockbot_tool_invoke_duration_milliseconds histogram",
            r#"rockbot_tool_invoke_duration_milliseconds_bucket{tool_name="echo",status="ok",le="5"} 0"#,
            r#"rockbot_tool_invoke_duration_milliseconds_bucket{tool_name="echo",status="ok",le="10"} 1"#,
            "rockbot_tool_calls_running 3",
            r#"rockbot_build_info{version="1.2.3",process="rockbot-test"} 1"#,
        ] {
            assert!(text.lines().any(|one| one == line), "{line}\nis not in\n{text}");
        }
        assert!(text.contains("process_resident_memory_bytes"), "{text}");
    }

    #[test]
    fn rules_and_dashboards_are_written_for_what_there_is() {
        let listed = include_str!("../../../../deploy/observability/metrics.txt");
        let listed: BTreeSet<_> = listed
            .lines()
            .filter(|line| line.starts_with("rockbot_"))
            .map(|line| line.split(' ').take(2).collect::<Vec<_>>().join(" "))
            .collect();
        let kind = |kind: Kind| format!("{kind:?}").to_lowercase();
        let there = CATALOGUE.map(|(of, name, _)| format!("{name} {}", kind(of)));
        assert_eq!(listed, BTreeSet::from(there));
    }

    #[test]
    fn names_end_with_what_they_count() {
        let mut seen = BTreeSet::new();
        for (kind, name, meaning) in CATALOGUE {
            assert!(seen.insert(name) && meaning.ends_with('.'), "{name}");
            let total = name.ends_with("_total");
            let unit = name.ends_with("_seconds") || name.ends_with("_milliseconds");
            match kind {
                Kind::Counter => assert!(total, "{name}"),
                Kind::Gauge => assert!(!total, "{name}"),
                Kind::Histogram => assert!(unit, "{name}"),
            }
        }
    }
}
