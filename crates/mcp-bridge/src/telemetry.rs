//! Calls of servers as spans, and how the servers are as numbers.
//!
//! Spans are those of OpenTelemetry's conventions for MCP: `tools/call {tool}`. The server gets the
//! trace in `_meta`, as the specification says.

use std::collections::BTreeSet;

use metrics::gauge;
use parking_lot::Mutex;
use rmcp::model::RequestMetaObject;
use rockbot_contracts::{labels::OTHER, mcp::McpToolDefinition, trace};
use rockbot_tools::{CallStatus, ToolContext, ToolFailure, ToolResult};
use tracing::{Span, info_span};

use crate::bridge::ServerStatus;

/// The most servers with a series of their own; how the others are is in the counts.
const MOST_SERVERS: usize = 200;

pub(crate) fn call(protocol: &str, tool: &McpToolDefinition, context: &ToolContext) -> Span {
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

pub(crate) fn ended(span: &Span, ended: &Result<ToolResult, ToolFailure>) {
    let status = CallStatus::from_outcome(ended);
    if !status.is_ok() {
        trace::fail(span, status.as_str());
    }
}

/// Returns the trace context for a request sent now; `None` outside of a trace.
pub(crate) fn meta() -> Option<RequestMetaObject> {
    let context = trace::current();
    let mut meta = RequestMetaObject::new();
    meta.0.set_traceparent(context.parent?.as_ref());
    if let Some(state) = context.state {
        meta.0.set_tracestate(state.as_ref());
    }
    Some(meta)
}

/// Servers that have a series of their own. They come and go, and some are named by models.
#[derive(Debug, Default)]
pub(crate) struct Told(Mutex<BTreeSet<String>>);

impl Told {
    /// The name that a server goes by.
    pub(crate) fn label<'a>(&self, server: &'a str) -> &'a str {
        let mut told = self.0.lock();
        if told.contains(server) {
            return server;
        }
        if told.len() >= MOST_SERVERS {
            return OTHER;
        }
        told.insert(server.to_owned());
        server
    }

    /// Tells how servers are.
    pub(crate) fn tell(&self, servers: &[ServerStatus]) {
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
        let told = self.0.lock();
        let is_gone = |name: &&String| servers.iter().all(|server| server.name != **name);
        // A server that was removed is neither up nor down.
        told.iter().filter(is_gone).for_each(|name| up(name, f64::NAN));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_without_end_share_a_name() {
        let told = Told::default();
        for number in 0..MOST_SERVERS {
            let name = format!("server-{number}");
            assert_eq!(told.label(&name), name);
        }
        assert_eq!(told.label("one more"), OTHER);
        assert_eq!(told.label("server-0"), "server-0");
    }
}
