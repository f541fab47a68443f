//! The state of a server's connection.

use std::{collections::BTreeMap, sync::Arc};

use rockbot_contracts::mcp::McpToolDefinition;

use crate::{output_check::OutputSchemas, server_session::ServerSession};

/// The state of a server.
#[derive(Clone)]
pub(crate) enum ServerState {
    /// It is being connected; `failures` counts consecutive failed attempts.
    Connecting { failures: u32, reason: Option<Arc<str>> },
    /// Another bridge owns it.
    OwnedElsewhere { owner: Arc<str> },
    /// Its tools can be called.
    Ready(Arc<ActiveSession>),
    /// It was removed.
    Stopped,
}

/// An open session and its tools.
pub(crate) struct ActiveSession {
    pub(crate) session: Arc<dyn ServerSession>,
    /// Definitions by the tools' names on the server.
    pub(crate) tools: Arc<BTreeMap<String, McpToolDefinition>>,
    /// Schemas of the tools' results.
    pub(crate) outputs: Arc<OutputSchemas>,
    /// Why the tools are not up to date, if so.
    pub(crate) outdated: Option<Arc<str>>,
}
