//! States of the MCP servers that a bridge is configured with.

use serde::{Deserialize, Serialize};

use crate::tool::null_is_default;

/// State of a server at one bridge, whether it is connected or not.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct McpServerState {
    /// Name in the bridge's configuration; compared case-insensitively.
    pub name: String,
    /// State of the connection.
    #[serde(default, deserialize_with = "null_is_default")]
    pub connection: McpConnection,
    /// Why it is not connected here, or why its tools are not up to date. Untrusted text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Time since which `connection` is unchanged, in Unix milliseconds of the bridge; 0 when unknown.
    #[serde(default, deserialize_with = "null_is_default")]
    pub since_ms: u64,
    /// Sessions that ended unexpectedly since the bridge started.
    #[serde(default, deserialize_with = "null_is_default")]
    pub restarts: u32,
    /// Transport: `stdio`, `http`, `sse`, `websocket` or `openapi`. Empty when it is not known.
    #[serde(default, deserialize_with = "null_is_default")]
    pub transport: String,
    /// Revision of the protocol, or the version of an OpenAPI document, while it is connected here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol_version: Option<String>,
    /// Set when the bridge is not ready without it.
    #[serde(
        default,
        deserialize_with = "null_is_default",
        skip_serializing_if = "std::ops::Not::not"
    )]
    pub required: bool,
    /// Number of offered tools.
    #[serde(default, deserialize_with = "null_is_default")]
    pub tools_offered: u32,
    /// Number of tools that it lists and that cannot be offered.
    #[serde(default, deserialize_with = "null_is_default")]
    pub tools_left_out: u32,
}

/// States of the connection to a server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum McpConnection {
    /// Its first session, or the one after a session that ended, is being opened.
    Connecting,
    /// Its tools can be called.
    Connected,
    /// The last attempt to connect it failed; further attempts follow.
    Failed,
    /// Another bridge serves it.
    OwnedElsewhere,
    /// Its configuration is invalid: it is not connected until the configuration changes.
    Invalid,
    /// A state that this build does not know.
    #[default]
    #[serde(other)]
    Unknown,
}

impl McpConnection {
    /// Returns `true` if the tools of the server can be called, here or at another bridge.
    #[must_use]
    pub fn is_usable(self) -> bool {
        matches!(self, Self::Connected | Self::OwnedElsewhere)
    }
}
