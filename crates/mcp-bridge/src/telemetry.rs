//! Spans of calls to servers, and metrics of servers.
//!
//! Spans follow OpenTelemetry's conventions for MCP: `tools/call {tool}`. The server gets the trace
//! context in `_meta`, as specified.

use std::collections::BTreeSet;

use metrics::gauge;
use parking_lot::Mutex;
use rmcp::model::RequestMetaObject;
use rockbot_contracts::{labels::OTHER, mcp::McpToolDefinition, trace};
use rockbot_tools::{CallStatus, ToolContext, ToolFailure, ToolResult};
use tracing::{Span, info_span};

use crate::status::ServerStatus;

/// The maximum number of servers with their own `server` label.
const MAX_LABELS: usize = 200;

/// Returns the span of a call.
pub(crate) fn call_span(protocol: &str, tool: &McpToolDefinition, context: &ToolContext) -> Span {
    info_span!(
        target: trace::TARGET,
        "tools/call",
        otel.name = format!("tools/call {}", tool.name),
        otel.kind = "client",
        mcp.method.name = "tools/call",
        mcp.protocol.version = protocol,
        gen_ai.operation.name = "execute_tool",
        gen_ai.tool.name = tool.name.as_str(),
        gen_ai.tool.call.id = context.tool_call_id.as_str(),
    )
}

/// Records the outcome of a call in its span.
pub(crate) fn record_outcome(span: &Span, outcome: &Result<ToolResult, ToolFailure>) {
    let status = CallStatus::from_outcome(outcome);
    if !status.is_ok() {
        trace::fail(span, status.as_str());
    }
}

/// Records in the span of a call that the session had expired.
pub(crate) fn record_session_expiry(span: &Span) {
    trace::fail(span, "session_expired");
}

/// Returns the trace context to send with a request, or `None` when no traces are recorded.
pub(crate) fn trace_meta() -> Option<RequestMetaObject> {
    let context = trace::current();
    let mut meta = RequestMetaObject::new();
    meta.0.set_traceparent(context.parent?.as_ref());
    if let Some(state) = context.state {
        meta.0.set_tracestate(state.as_ref());
    }
    Some(meta)
}

/// The servers with their own metric label. Bounded, because callers can add and name servers.
#[derive(Debug, Default)]
pub(crate) struct ServerMetrics(Mutex<BTreeSet<String>>);

impl ServerMetrics {
    /// Returns the label of a server: its name, or [`OTHER`] above the limit.
    pub(crate) fn label<'a>(&self, server: &'a str) -> &'a str {
        let mut names = self.0.lock();
        if names.contains(server) {
            return server;
        }
        if names.len() >= MAX_LABELS {
            return OTHER;
        }
        names.insert(server.to_owned());
        server
    }

    /// Sets the gauges from the status of the servers.
    pub(crate) fn record(&self, servers: &[ServerStatus]) {
        let count = |state: &'static str, wanted: &dyn Fn(&ServerStatus) -> bool| {
            let servers = servers.iter().filter(|server| wanted(server)).count();
            gauge!("rockbot_mcp_servers", "state" => state).set(servers as f64);
        };
        let is_here = |server: &ServerStatus| server.protocol_version.is_some();
        count("here", &is_here);
        count("elsewhere", &|server| server.ready && !is_here(server));
        count("down", &|server| !server.ready);
        let up = |server: &str, up: f64| {
            gauge!("rockbot_mcp_server_up", "server" => server.to_owned()).set(up);
        };
        for server in servers {
            match self.label(&server.name) {
                OTHER => {}
                name => up(name, f64::from(u8::from(server.ready))),
            }
        }
        let names = self.0.lock();
        let is_removed = |name: &&String| servers.iter().all(|server| server.name != **name);
        // A server that was removed is neither up nor down.
        names.iter().filter(is_removed).for_each(|name| up(name, f64::NAN));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_above_limit_share_a_label() {
        let metrics = ServerMetrics::default();
        for number in 0..MAX_LABELS {
            let name = format!("server-{number}");
            assert_eq!(metrics.label(&name), name);
        }
        assert_eq!(metrics.label("another"), OTHER);
        assert_eq!(metrics.label("server-0"), "server-0");
    }
}
