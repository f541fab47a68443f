//! The status of a server.

use rockbot_contracts::mcp::{McpConnection, McpRejectedTool, McpRenamedTool, McpServerState};

use crate::{
    config::ServerConfig,
    state::{ActiveSession, ServerState},
};

/// The status of a server, for display.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerStatus {
    /// The name.
    pub name: String,
    /// The transport: `stdio`, `http`, `sse`, `websocket` or `openapi`.
    pub transport: &'static str,
    /// The bridge is not ready without this server.
    pub required: bool,
    /// The state of the connection.
    pub connection: McpConnection,
    /// It is connected, here or at another bridge.
    pub ready: bool,
    /// The number of offered tools; 0 while they cannot be called here.
    pub tools: usize,
    /// Tools that it lists and that cannot be offered.
    pub rejected_tools: Vec<McpRejectedTool>,
    /// The number of those tools, of which at most 20 are in `rejected_tools`.
    pub tools_left_out: usize,
    /// Tools with a hash in their names for models, at most 20.
    pub renamed_tools: Vec<McpRenamedTool>,
    /// The number of those tools beyond the limit.
    pub renamed_left_out: u32,
    /// The protocol revision, or the version of an OpenAPI document, while it is connected here.
    pub protocol_version: Option<String>,
    /// Why it is not connected here, or why its tools are not up to date, if known.
    pub reason: Option<String>,
}

/// The listed tools of a server.
#[derive(Debug, Default)]
pub(crate) struct ListedTools {
    pub(crate) offered: usize,
    /// Tools that cannot be offered, within the limit of a summary.
    pub(crate) rejected: Vec<McpRejectedTool>,
    /// The number of all of those tools.
    pub(crate) left_out: usize,
    /// Tools with a hash in their names for models, within the limit of a summary.
    pub(crate) renamed: Vec<McpRenamedTool>,
    /// The number of those beyond the limit.
    pub(crate) renamed_left_out: u32,
}

impl ServerStatus {
    /// Returns the status of a server. `listed` are its tools while the catalog has them.
    pub(crate) fn new(
        config: &ServerConfig,
        state: &ServerState,
        listed: Option<ListedTools>,
    ) -> Self {
        let connection = match state {
            ServerState::Ready(_) => McpConnection::Connected,
            ServerState::OwnedElsewhere { .. } => McpConnection::OwnedElsewhere,
            ServerState::Connecting { failures: 0, .. } => McpConnection::Connecting,
            ServerState::Connecting { .. } => McpConnection::Failed,
            ServerState::Stopped => McpConnection::Unknown,
        };
        let (protocol_version, reason) = match state {
            ServerState::Ready(active) => {
                let ActiveSession { session, outdated, .. } = active.as_ref();
                let version = session.info().protocol_version.clone();
                (Some(version), outdated.as_ref().map(ToString::to_string))
            }
            ServerState::OwnedElsewhere { owner } => {
                (None, Some(format!("it is owned by bridge {owner}")))
            }
            ServerState::Connecting { reason, .. } => {
                (None, reason.as_ref().map(ToString::to_string))
            }
            ServerState::Stopped => (None, None),
        };
        let listed = listed.filter(|_| connection == McpConnection::Connected);
        let ListedTools { offered, rejected, left_out, renamed, renamed_left_out } =
            listed.unwrap_or_default();
        Self {
            name: config.name.clone(),
            transport: config.transport.name(),
            required: config.required,
            connection,
            ready: connection.is_usable(),
            tools: offered,
            rejected_tools: rejected,
            tools_left_out: left_out,
            renamed_tools: renamed,
            renamed_left_out,
            protocol_version,
            reason,
        }
    }

    /// Returns the state to announce. Its publisher sets the time.
    pub(crate) fn announced(self, restarts: u32) -> McpServerState {
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        McpServerState {
            tools_offered: number(self.tools),
            tools_left_out: number(self.tools_left_out),
            name: self.name,
            connection: self.connection,
            reason: self.reason,
            since_ms: 0,
            restarts,
            transport: self.transport.to_owned(),
            protocol_version: self.protocol_version,
            required: self.required,
        }
    }
}
