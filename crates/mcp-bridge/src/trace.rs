//! Log lines of the requests to servers, enabled by `traceMCP` in the servers file. They contain no content.

use rockbot_contracts::outside_text::plain;
use rockbot_tools::ToolResult;
use tokio::time::Instant;
use tracing::info;

use crate::call_error::CallError;

/// The longest tool name in a log line, in characters.
const MAX_NAME_CHARS: usize = 128;

/// A request to a server, which is logged when it ends. Without `traceMCP`, nothing is.
pub(crate) struct RequestTrace<'a> {
    server: &'a str,
    is_enabled: bool,
    method: &'static str,
    started: Instant,
}

impl<'a> RequestTrace<'a> {
    pub(crate) fn start(server: &'a str, is_enabled: bool, method: &'static str) -> Self {
        Self { server, is_enabled, method, started: Instant::now() }
    }

    pub(crate) fn is_enabled(&self) -> bool {
        self.is_enabled
    }

    /// Logs the end of the call of a tool, with the sizes of its arguments and of its result.
    pub(crate) fn call_ended(
        self,
        tool: &str,
        sent_bytes: usize,
        outcome: &Result<ToolResult, CallError>,
    ) {
        if !self.is_enabled {
            return;
        }
        let code;
        let (status, received_bytes) = match outcome {
            Ok(result) if result.is_error => ("tool_error", result.bytes()),
            Ok(result) => ("ok", result.bytes()),
            Err(CallError::SessionExpired) => ("session_expired", 0),
            Err(CallError::TaskDetached) => ("task_detached", 0),
            Err(CallError::Failed(failure)) => {
                code = failure.code();
                (code.as_str(), 0)
            }
        };
        let (server, method, elapsed_ms) = (self.server, self.method, self.elapsed_ms());
        let tool = plain(tool, MAX_NAME_CHARS);
        info!(%server, method, tool, status, sent_bytes, received_bytes, elapsed_ms,
            "MCP request finished");
    }

    /// Logs the end of another request.
    pub(crate) fn ended(self, is_ok: bool) {
        if self.is_enabled {
            let status = if is_ok { "ok" } else { "failed" };
            let (server, method, elapsed_ms) = (self.server, self.method, self.elapsed_ms());
            info!(%server, method, status, elapsed_ms, "MCP request finished");
        }
    }

    fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}
