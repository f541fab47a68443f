//! Catalog of RockBot's metrics: kind, labels and meaning.

use prometheus::{GaugeVec, HistogramOpts, HistogramVec, IntCounterVec, Opts};

/// Upper bounds of histogram buckets, in seconds: from a call inside one machine to the longest script.
const SECONDS: [f64; 20] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
    60.0, 120.0, 300.0, 600.0, 1800.0,
];
/// [`SECONDS`] in milliseconds, for metrics with that unit in their name.
const MILLISECONDS: [f64; 20] = [
    0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1e3, 2.5e3, 5e3, 1e4, 3e4, 6e4,
    1.2e5, 3e5, 6e5, 1.8e6,
];

/// Kind of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A number that only increases.
    Counter,
    /// A number that goes up and down.
    Gauge,
    /// A distribution of measurements.
    Histogram,
}

/// A metric that a process may expose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metric {
    /// Kind of number.
    pub kind: Kind,
    /// Name, with the unit at its end.
    pub name: &'static str,
    /// Labels of its series.
    pub labels: &'static [&'static str],
    /// Help text.
    pub help: &'static str,
}

/// Every metric of RockBot.
pub const CATALOG: &[Metric] = &[
    histogram(
        "rockbot_tool_invoke_duration_milliseconds",
        &["tool_name", "status"],
        "Duration of calls in their tool handler, from arrival to outcome.",
    ),
    counter(
        "rockbot_tool_invocations_total",
        &["tool_name", "status"],
        "Calls that ended in this tool handler.",
    ),
    histogram(
        "rockbot_tool_stage_duration_seconds",
        &["stage"],
        "Duration of each stage of a call: queue, start, run, reply.",
    ),
    gauge("rockbot_tool_calls_running", &[], "Calls that are running."),
    gauge("rockbot_tool_calls_waiting", &[], "Received calls that wait for a permit."),
    gauge("rockbot_tool_oldest_call_seconds", &[], "Age of the oldest received call."),
    histogram("rockbot_tool_queue_wait_seconds", &[], "Time that calls waited for a permit."),
    counter(
        "rockbot_tool_cache_total",
        &["outcome"],
        "Calls of tools with cached results, by cache outcome.",
    ),
    counter("rockbot_tool_undelivered_replies_total", &[], "Replies that could not be delivered."),
    counter(
        "rockbot_tool_replayed_results_total",
        &[],
        "Redelivered calls that got their recorded result.",
    ),
    counter(
        "rockbot_audit_records_total",
        &["outcome"],
        "Records of the audit log, by whether they were written.",
    ),
    counter("rockbot_hook_runs_total", &["outcome"], "Runs of hook commands, by outcome."),
    counter("rockbot_bus_published_total", &["kind", "outcome"], "Messages published, by outcome."),
    histogram(
        "rockbot_bus_publish_duration_seconds",
        &[],
        "Time until the bus confirmed a message.",
    ),
    histogram(
        "rockbot_bus_process_duration_seconds",
        &["queue"],
        "Time from the delivery of a message until it was settled.",
    ),
    counter(
        "rockbot_bus_deliveries_total",
        &["queue", "outcome"],
        "Deliveries settled, by outcome.",
    ),
    counter(
        "rockbot_bus_redeliveries_total",
        &["queue"],
        "Deliveries of messages that were delivered before.",
    ),
    counter("rockbot_bus_reconnects_total", &[], "Connections made after a disconnect."),
    counter(
        "rockbot_bus_task_panics_total",
        &["task"],
        "Panics of tasks on the bus that were restarted.",
    ),
    counter(
        "rockbot_bus_dead_letters_dropped_total",
        &[],
        "Dead letters dropped over the limit of a consumer.",
    ),
    gauge("rockbot_bus_connected", &[], "1 while connected to the bus, else 0."),
    gauge("rockbot_bus_reply_consumers", &[], "Consumers of the reply queue of this process."),
    gauge("rockbot_bus_queue_messages", &["queue"], "Messages that wait in a queue."),
    gauge("rockbot_requests_pending", &[], "Requests that wait for a reply."),
    gauge("rockbot_requests_oldest_seconds", &[], "Age of the oldest pending request."),
    counter("rockbot_requests_late_replies_total", &[], "Replies without a pending request."),
    counter(
        "rockbot_requests_foreign_replies_total",
        &[],
        "Replies and progress dropped because their broker user does not serve the request.",
    ),
    counter("rockbot_requests_retries_total", &[], "Retries of requests."),
    counter("rockbot_agent_turns_total", &["outcome"], "Turns that ended, by outcome."),
    histogram("rockbot_agent_turn_duration_seconds", &[], "Duration of turns."),
    gauge(
        "rockbot_agent_foreign_processes",
        &[],
        "Processes that serve this agent and do not share the conversations of this one.",
    ),
    counter(
        "rockbot_agent_turns_resumed_total",
        &[],
        "Turns of other processes, or of an earlier incarnation, that were continued.",
    ),
    counter(
        "rockbot_agent_takeovers_total",
        &["reason"],
        "Conversations taken from processes that died, by how they were found.",
    ),
    gauge("rockbot_agent_unowned_turns", &[], "Open turns that no process continues."),
    counter(
        "rockbot_agent_cards_dropped_total",
        &["reason"],
        "Announcements of agents that were dropped.",
    ),
    gauge("rockbot_agent_known_agents", &[], "Agents that the directory of this process knows."),
    counter(
        "rockbot_agent_delegations_started_total",
        &["kind"],
        "Sub-agents and tasks of agents that were started.",
    ),
    counter(
        "rockbot_agent_delegations_ended_total",
        &["kind", "state"],
        "Sub-agents and tasks of agents that ended, by state.",
    ),
    counter(
        "rockbot_agent_peer_tasks_refused_total",
        &[],
        "Tasks of other agents that were refused.",
    ),
    counter(
        "rockbot_agent_peer_responses_dropped_total",
        &["reason"],
        "Responses to tasks that were dropped.",
    ),
    counter(
        "rockbot_agent_peer_duplicates_total",
        &[],
        "Responses to tasks that changed nothing, because the task had ended.",
    ),
    gauge(
        "rockbot_agent_delegations_running",
        &[],
        "Sub-agents and tasks of other agents that run in this process.",
    ),
    counter(
        "rockbot_agent_delegations_tokens_total",
        &[],
        "Tokens that ended sub-agents and tasks of agents spent.",
    ),
    counter("rockbot_agent_folds_total", &[], "Turns that passed results of sub-agents on."),
    histogram(
        "rockbot_agent_fold_seconds",
        &[],
        "Time of turns that passed results of sub-agents on, with the wait for the conversation.",
    ),
    counter(
        "rockbot_agent_handoffs_total",
        &["outcome"],
        "Messages that were handed off to another agent, by the outcome of its turn.",
    ),
    gauge("rockbot_schedule_tasks", &[], "Scheduled tasks of the agent."),
    counter(
        "rockbot_schedule_fires_total",
        &["outcome"],
        "Fires of scheduled tasks whose turn ended, by its outcome.",
    ),
    counter(
        "rockbot_schedule_missed_total",
        &[],
        "Fires of scheduled tasks that were skipped because no process ran.",
    ),
    counter(
        "rockbot_schedule_overlapped_total",
        &[],
        "Fires of scheduled tasks that were skipped because the turn of an earlier one ran.",
    ),
    histogram(
        "rockbot_schedule_lateness_seconds",
        &[],
        "Time from a fire of a scheduled task to the start of its turn.",
    ),
    counter(
        "rockbot_agent_leases_lost_total",
        &[],
        "Leases on conversations that expired while a turn was running.",
    ),
    histogram(
        "rockbot_agent_log_append_seconds",
        &[],
        "Time to append to the log of a conversation.",
    ),
    counter(
        "rockbot_agent_log_conflicts_total",
        &[],
        "Appends refused because another process had continued the conversation.",
    ),
    gauge(
        "rockbot_catalog_mismatched_tools",
        &[],
        "Tools that the handlers of one pool do not all announce with the same definition.",
    ),
    gauge(
        "rockbot_catalog_conflicting_tools",
        &[],
        "Tools that several pools announce; callers offer that of the pool that owns the name.",
    ),
    counter("rockbot_llm_requests_total", &["model", "status"], "Requests to models, by status."),
    histogram(
        "rockbot_llm_request_duration_seconds",
        &["model"],
        "Duration of requests to models.",
    ),
    counter(
        "rockbot_llm_tokens_total",
        &["model", "direction"],
        "Tokens read and written by models.",
    ),
    counter(
        "rockbot_rest_requests_total",
        &["tool_set", "outcome"],
        "Requests of REST tools, retries included.",
    ),
    counter(
        "rockbot_rest_retries_total",
        &["tool_set"],
        "Requests of REST tools that were retried.",
    ),
    gauge("rockbot_mcp_servers", &["state"], "Configured MCP servers, by state."),
    gauge(
        "rockbot_mcp_server_up",
        &["server"],
        "1 while the MCP server has a session, in this bridge or another one.",
    ),
    counter(
        "rockbot_mcp_server_restarts_total",
        &["server"],
        "Sessions with the MCP server that were lost.",
    ),
    counter(
        "rockbot_mcp_output_violations_total",
        &[],
        "Results of MCP tools that violate the output schema of their tool.",
    ),
    counter(
        "rockbot_mcp_input_requests_total",
        &["outcome"],
        "Requests of MCP servers for input, by outcome: accept, decline, cancel, no_user, refused.",
    ),
    counter(
        "rockbot_mcp_tasks_total",
        &["outcome"],
        "Calls that an MCP server ran as tasks, by outcome: ok, failed.",
    ),
    counter(
        "rockbot_mcp_tasks_continued_total",
        &[],
        "Tasks of MCP servers that this bridge continued after a lost bridge or session.",
    ),
    histogram(
        "rockbot_script_phase_duration_seconds",
        &["phase"],
        "Duration of each phase of a script: pending, running, total.",
    ),
    gauge("rockbot_scripts_running", &[], "Scripts whose pod was created and has not ended."),
    counter(
        "rockbot_web_search_requests_total",
        &["provider", "outcome"],
        "Requests to search providers, by outcome.",
    ),
    histogram(
        "rockbot_web_search_wait_seconds",
        &["provider"],
        "Time that searches waited for the rate limit of a provider.",
    ),
    gauge(
        "rockbot_web_search_quota_remaining",
        &["provider"],
        "Searches left in the quota of a provider, as its last response reported.",
    ),
    counter("rockbot_web_pages_total", &["outcome"], "Web pages fetched, by outcome."),
    histogram("rockbot_web_page_seconds", &[], "Duration of fetching and reading web pages."),
    gauge("rockbot_reply_probe_up", &[], "1 when the last probe got a reply, else 0."),
    histogram("rockbot_reply_probe_duration_seconds", &[], "Round-trip time of probes."),
    counter("rockbot_telemetry_spans_total", &["outcome"], "Spans of traces, by export outcome."),
    gauge(
        "rockbot_ready",
        &[],
        "1 while the process is ready for work, as /readyz reports, else 0.",
    ),
    gauge(
        "rockbot_build_info",
        &["version", "process"],
        "1, with the version and the process as labels.",
    ),
    counter(
        "rockbot_gateway_requests_total",
        &["face", "status"],
        "Responses of the gateway, by face (none for unknown paths) and HTTP status.",
    ),
    counter(
        "rockbot_gateway_turns_total",
        &["face", "repeated"],
        "Messages that requests sent to agents; repeated ones run no turn of their own.",
    ),
    counter(
        "rockbot_gateway_push_attempts_total",
        &["outcome"],
        "Attempts to deliver push notifications, by outcome; given_up counts targets, not attempts.",
    ),
    gauge("rockbot_gateway_open_requests", &[], "Requests and streams that have not ended."),
];

type Labels = &'static [&'static str];

const fn counter(name: &'static str, labels: Labels, help: &'static str) -> Metric {
    Metric { kind: Kind::Counter, name, labels, help }
}

const fn gauge(name: &'static str, labels: Labels, help: &'static str) -> Metric {
    Metric { kind: Kind::Gauge, name, labels, help }
}

const fn histogram(name: &'static str, labels: Labels, help: &'static str) -> Metric {
    Metric { kind: Kind::Histogram, name, labels, help }
}

impl Metric {
    /// Registers the metric with `recorder`. It is exposed as soon as it has a series.
    pub(super) fn register<S>(
        &self,
        recorder: &metrics_prometheus::Recorder<S>,
    ) -> prometheus::Result<()> {
        let Self { kind, name, labels, help } = *self;
        match kind {
            Kind::Counter => {
                let family = IntCounterVec::new(Opts::new(name, help), labels)?;
                recorder.try_register_metric(family)
            }
            Kind::Gauge => {
                let family = GaugeVec::new(Opts::new(name, help), labels)?;
                recorder.try_register_metric(family)
            }
            Kind::Histogram => {
                let is_in_milliseconds = name.ends_with("_milliseconds");
                let bounds = if is_in_milliseconds { MILLISECONDS } else { SECONDS };
                let options = HistogramOpts::new(name, help).buckets(bounds.into());
                recorder.try_register_metric(HistogramVec::new(options, labels)?)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn catalog_matches_list_for_rules_and_dashboards() {
        let listed = include_str!("../../../../deploy/observability/metrics.txt");
        let listed: BTreeSet<_> = listed
            .lines()
            .filter(|line| line.starts_with("rockbot_"))
            .map(|line| line.trim_end().to_owned())
            .collect();
        let line = |metric: &Metric| {
            let kind = format!("{:?}", metric.kind).to_lowercase();
            format!("{} {kind} {}", metric.name, metric.labels.join(",")).trim_end().to_owned()
        };
        assert_eq!(listed, CATALOG.iter().map(line).collect::<BTreeSet<_>>());
    }

    #[test]
    fn names_end_with_their_unit() {
        let mut seen = BTreeSet::new();
        for Metric { kind, name, help, .. } in CATALOG {
            assert!(seen.insert(name) && help.ends_with('.'), "{name}");
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
