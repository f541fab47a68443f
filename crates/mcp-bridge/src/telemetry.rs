//! Calls of servers as spans, and how the servers are as numbers.
//!
//! Spans are those of OpenTelemetry's conventions for MCP: `tools/call {tool}`. The server gets the
//! trace in `_meta`, as the specification says.

use metrics::gauge;
use rmcp::model::RequestMetaObject;
use rockbot_contracts::{mcp::McpToolDefinition, trace};
use rockbot_tools::{CallStatus, ToolContext, ToolFailure, ToolResult};
use tracing::{Span, debug_span, field::Empty};

use crate::bridge::ServerStatus;

/// Servers with a series of their own; how the others are is in the counts.
const MOST_SERVERS: usize = 200;

pub(crate) fn call(protocol: &str, tool: &McpToolDefinition, context: &ToolContext) -> Span {
    debug_span!(
        "tools_call",
        otel.name = format_args!("tools/call {}", tool.name),
        otel.kind = "client",
        otel.status_code = Empty,
        error.type = Empty,
        mcp.method.name = "tools/call",
        mcp.protocol.version = protocol,
        gen_ai.operation.name = "execute_tool",
        gen_ai.tool.name = tool.name,
        gen_ai.tool.call.id = context.tool_call_id.as_str(),
    )
}

pub(crate) fn ended(span: &Span, ended: &Result<ToolResult, ToolFailure>) {
    let status = CallStatus::of(ended);
    if !status.is_ok() {
        span.record("error.type", status.as_str());
        span.record("otel.status_code", "ERROR");
    }
}

/// What goes with a request that is sent now; none where nobody records traces.
pub(crate) fn meta() -> Option<RequestMetaObject> {
    let context = trace::current();
    let mut meta = RequestMetaObject::new();
    meta.0.set_traceparent(context.parent?.as_ref());
    if let Some(state) = context.state {
        meta.0.set_tracestate(state.as_ref());
    }
    Some(meta)
}

/// Tells how servers are.
pub(crate) fn tell(servers: &[ServerStatus]) {
    let count = |state: &'static str, wanted: &dyn Fn(&ServerStatus) -> bool| {
        let servers = servers.iter().filter(|server| wanted(server)).count();
        gauge!("rockbot_mcp_servers", "state" => state).set(servers as f64);
    };
    let is_here = |server: &ServerStatus| server.protocol_version.is_some();
    count("here", &is_here);
    count("elsewhere", &|server| server.ready && !is_here(server));
    count("down", &|server| !server.ready);
    for server in servers.iter().take(MOST_SERVERS) {
        gauge!("rockbot_mcp_server_up", "server" => server.name.clone())
            .set(f64::from(u8::from(server.ready)));
    }
}
