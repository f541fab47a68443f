//! Metrics of a handler's calls.
//!
//! | metric | labels |
//! |---|---|
//! | `rockbot_tool_invoke_duration_milliseconds` | `tool_name`, `status` |
//! | `rockbot_tool_invocations_total` | `tool_name`, `status` |
//! | `rockbot_tool_stage_duration_seconds` | `stage` |
//! | `rockbot_tool_calls_running`, `_waiting`, `rockbot_tool_oldest_call_seconds` | |
//! | `rockbot_tool_undelivered_replies_total`, `rockbot_tool_replayed_results_total` | |

use std::{
    array,
    collections::HashMap,
    sync::{Arc, OnceLock},
    time::{Duration, SystemTime},
};

use parking_lot::RwLock;

use metrics::{Counter, Histogram, counter, gauge, histogram};
use rockbot_contracts::{Envelope, HandlerLoad, labels::OTHER};
use rockbot_tools::status::CallStatus;

use super::stats::HandlerStats;

/// Maximum number of tools with their own series. Further tools, and unknown ones, share one label.
const MAX_TOOLS: usize = 500;

/// Series of one tool, by status.
type ToolSeries = [OnceLock<(Counter, Histogram)>; CallStatus::COUNT];

/// Recorder of call metrics. Handles are looked up once and kept.
pub(super) struct CallMetrics {
    tools: RwLock<HashMap<Arc<str>, Arc<ToolSeries>>>,
    queue: Histogram,
    start: Histogram,
    run: Histogram,
    reply: Histogram,
}

impl CallMetrics {
    pub(super) fn new() -> Self {
        let stage =
            |name: &'static str| histogram!("rockbot_tool_stage_duration_seconds", "stage" => name);
        Self {
            tools: RwLock::default(),
            queue: stage("queue"),
            start: stage("start"),
            run: stage("run"),
            reply: stage("reply"),
        }
    }

    /// Records a finished call; `tool` is `None` when no registered tool was found.
    pub(super) fn record_call(&self, tool: Option<&str>, status: CallStatus, duration: Duration) {
        let (tool, series) = self.series(tool.unwrap_or(OTHER));
        let (calls, durations) = series[status.index()].get_or_init(|| {
            let labels = [("tool_name", tool.to_owned()), ("status", status.as_str().to_owned())];
            (
                counter!("rockbot_tool_invocations_total", &labels),
                histogram!("rockbot_tool_invoke_duration_milliseconds", &labels),
            )
        });
        calls.increment(1);
        durations.record(duration.as_secs_f64() * 1000.0);
    }

    /// Records and returns the time between the caller's clock at publishing and this process's clock now;
    /// `None` for a request without a time budget.
    pub(super) fn record_queue_time(&self, envelope: &Envelope) -> Option<Duration> {
        let queued = envelope.budget?.age(SystemTime::now());
        self.queue.record(queued);
        Some(queued)
    }

    /// Publishes the current load and the counters of `stats`.
    pub(super) fn report(&self, load: &HandlerLoad, stats: &HandlerStats) {
        gauge!("rockbot_tool_calls_running").set(load.running as f64);
        gauge!("rockbot_tool_calls_waiting").set(load.waiting as f64);
        let oldest = Duration::from_millis(load.oldest_ms.unwrap_or_default());
        gauge!("rockbot_tool_oldest_call_seconds").set(oldest);
        counter!("rockbot_tool_undelivered_replies_total").absolute(stats.undelivered());
        counter!("rockbot_tool_replayed_results_total").absolute(stats.replayed());
    }

    /// Records the duration from the receipt of a request to the start of its tool.
    pub(super) fn record_time_to_start(&self, duration: Duration) {
        self.start.record(duration);
    }

    pub(super) fn record_run_time(&self, duration: Duration) {
        self.run.record(duration);
    }

    pub(super) fn record_reply_time(&self, duration: Duration) {
        self.reply.record(duration);
    }

    /// Returns the `tool_name` label of a tool and its series.
    fn series<'a>(&self, tool: &'a str) -> (&'a str, Arc<ToolSeries>) {
        let tools = self.tools.read();
        if let Some(series) = tools.get(tool) {
            return (tool, series.clone());
        }
        let tool = if tools.len() < MAX_TOOLS { tool } else { OTHER };
        drop(tools);
        let mut tools = self.tools.write();
        let series = || Arc::new(array::from_fn(|_| OnceLock::new()));
        (tool, tools.entry(tool.into()).or_insert_with(series).clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rockbot_tools::ToolResult;

    #[test]
    fn tools_over_the_limit_share_a_series() {
        let metrics = CallMetrics::new();
        for number in 0..MAX_TOOLS + 50 {
            let tool = format!("tool-{number}");
            let status = CallStatus::from_outcome(&Ok(ToolResult::text("4")));
            metrics.record_call(Some(&tool), status, Duration::ZERO);
        }
        let tools = metrics.tools.read();
        assert_eq!(tools.len(), MAX_TOOLS + 1);
        assert!(tools.contains_key(OTHER));
    }
}
