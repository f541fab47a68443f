//! What a handler's calls look like in metrics.
//!
//! | metric | labels |
//! |---|---|
//! | `rockbot_tool_invoke_duration_milliseconds` | `tool_name`, `status` |
//! | `rockbot_tool_invocations_total` | `tool_name`, `status` |
//! | `rockbot_tool_stage_duration_seconds` | `stage` |
//! | `rockbot_tool_calls_running`, `_waiting`, `rockbot_tool_oldest_call_seconds` | |
//! | `rockbot_tool_unanswered_total`, `rockbot_tool_answered_again_total` | |

use std::{
    array,
    collections::HashMap,
    sync::{Arc, OnceLock, PoisonError, RwLock},
    time::{Duration, SystemTime},
};

use metrics::{Counter, Histogram, counter, gauge, histogram};
use rockbot_contracts::{Envelope, HandlerLoad, labels::OTHER};
use rockbot_tools::status::CallStatus;

use super::stats::HandlerStats;

/// Tools with series of their own. The others, and what is no tool, are counted together.
const MOST_TOOLS: usize = 500;

/// The ends of the calls of one tool.
type Ends = [OnceLock<(Counter, Histogram)>; CallStatus::COUNT];

/// Counts calls. What it has found once it does not look up again.
pub(super) struct Meters {
    tools: RwLock<HashMap<Arc<str>, Arc<Ends>>>,
    queue: Histogram,
    start: Histogram,
    run: Histogram,
    reply: Histogram,
}

impl Meters {
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

    /// A call of a registered tool, or of none, was worked on so long and ended so.
    pub(super) fn ended(&self, tool: Option<&str>, status: CallStatus, took: Duration) {
        let (tool, ends) = self.of(tool.unwrap_or(OTHER));
        let (calls, time) = ends[status.index()].get_or_init(|| {
            let labels = [("tool_name", tool.to_owned()), ("status", status.as_str().to_owned())];
            (
                counter!("rockbot_tool_invocations_total", &labels),
                histogram!("rockbot_tool_invoke_duration_milliseconds", &labels),
            )
        });
        calls.increment(1);
        time.record(took.as_secs_f64() * 1000.0);
    }

    /// How long the request was on its way, by the clocks of both ends.
    pub(super) fn arrived(&self, envelope: &Envelope) {
        if let Some(budget) = envelope.budget {
            self.queue.record(budget.age(SystemTime::now()));
        }
    }

    /// Tells how busy the handler is now, and what it has counted by itself.
    pub(super) fn look(&self, load: &HandlerLoad, stats: &HandlerStats) {
        gauge!("rockbot_tool_calls_running").set(load.running as f64);
        gauge!("rockbot_tool_calls_waiting").set(load.waiting as f64);
        let oldest = Duration::from_millis(load.oldest_ms.unwrap_or_default());
        gauge!("rockbot_tool_oldest_call_seconds").set(oldest);
        counter!("rockbot_tool_unanswered_total").absolute(stats.unheard());
        counter!("rockbot_tool_answered_again_total").absolute(stats.kept());
    }

    pub(super) fn started(&self, after: Duration) {
        self.start.record(after);
    }

    pub(super) fn ran(&self, elapsed: Duration) {
        self.run.record(elapsed);
    }

    pub(super) fn replied(&self, elapsed: Duration) {
        self.reply.record(elapsed);
    }

    /// The series of a tool, and the name that they go by.
    fn of<'a>(&self, tool: &'a str) -> (&'a str, Arc<Ends>) {
        let tools = self.tools.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(ends) = tools.get(tool) {
            return (tool, ends.clone());
        }
        let tool = if tools.len() < MOST_TOOLS { tool } else { OTHER };
        drop(tools);
        let mut tools = self.tools.write().unwrap_or_else(PoisonError::into_inner);
        let ends = || Arc::new(array::from_fn(|_| OnceLock::new()));
        (tool, tools.entry(tool.into()).or_insert_with(ends).clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rockbot_tools::ToolResult;

    #[test]
    fn tools_without_end_share_a_series() {
        let meters = Meters::new();
        for number in 0..MOST_TOOLS + 50 {
            let tool = format!("tool-{number}");
            meters.ended(
                Some(&tool),
                CallStatus::from_outcome(&Ok(ToolResult::text("4"))),
                Duration::ZERO,
            );
        }
        let tools = meters.tools.read().unwrap();
        assert_eq!(tools.len(), MOST_TOOLS + 1);
        assert!(tools.contains_key(OTHER));
    }
}
