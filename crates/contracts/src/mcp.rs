//! MCP servers of a bridge: their index and details, registration and removal.
//!
//! A call of one of their tools is a [`ToolInvokeRequest`](crate::ToolInvokeRequest) with the server's
//! name in the envelope and the tool's name on the server in the payload.

mod input;
mod prompt;
mod resource;
mod state;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::{
    catalog::{ToolHints, ToolRegistration},
    ids::InstanceId,
    message::Message,
    tool::null_is_default,
};

pub use self::{
    input::{McpInputAnswer, McpInputAnswered, McpInputAsked},
    prompt::{
        McpGetPromptRequest, McpPrompt, McpPromptArgument, McpPromptMessage, McpPromptMessages,
        McpPromptRole,
    },
    resource::{
        McpListResourcesRequest, McpReadResourceRequest, McpResource, McpResourceContent,
        McpResourcePage, McpResourcesChanged,
    },
    state::{McpConnection, McpServerState},
};

/// Index of the MCP servers of a bridge process: announced on start, on changes, on request, and every
/// ten seconds as a heartbeat.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct McpServersIndexed {
    /// Instance id of the bridge process.
    pub instance: InstanceId,
    /// Servers added or changed since the last announcement; all servers when `is_complete`.
    #[serde(default, deserialize_with = "null_is_default")]
    pub servers: Vec<McpServerSummary>,
    /// Names of removed servers.
    #[serde(default, deserialize_with = "null_is_default")]
    pub removed: Vec<String>,
    /// States of all servers that the process is configured with, connected or not; unchanged since the
    /// last announcement when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub states: Option<Vec<McpServerState>>,
    /// Set when `servers` contains all servers of the process.
    #[serde(default, deserialize_with = "null_is_default")]
    pub is_complete: bool,
    /// Fingerprint of the index that this delta applies to; `None` when complete. A receiver with
    /// another fingerprint has missed a delta and requests the complete index.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// Hash of the complete index and all states. Receivers compare it and don't compute it, since they may not know all
    /// fields of a server.
    pub fingerprint: String,
}

impl Message for McpServersIndexed {
    const TYPE: &'static str = "McpServersIndexed";
}

/// Index entry of one server, from which a model decides whether to request details.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct McpServerSummary {
    /// Name in the bridge's configuration; compared case-insensitively.
    pub name: String,
    /// Title that the server reports. Untrusted text.
    #[serde(default, deserialize_with = "null_is_default")]
    pub display_name: String,
    /// Purpose of the server in one or two sentences. Untrusted text.
    #[serde(default, deserialize_with = "null_is_default")]
    pub summary: String,
    /// Number of permitted tools.
    #[serde(default, deserialize_with = "null_is_default")]
    pub tool_count: u32,
    /// Names of the permitted tools on the server, or of the first ones where all would make the entry
    /// too large. `tool_count` counts all.
    #[serde(default, deserialize_with = "null_is_default")]
    pub tool_names: Vec<String>,
    /// Tools that it lists and that cannot be offered.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub rejected_tools: Vec<McpRejectedTool>,
    /// Tools whose names for models differ from their own: they are too long, or taken. At most
    /// [`McpRenamedTool::MAX_LISTED`].
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub renamed_tools: Vec<McpRenamedTool>,
    /// Number of those tools that are left out.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "is_zero")]
    pub renamed_left_out: u32,
    /// Set when its details contain instructions, which agents offer as a guide.
    #[serde(
        default,
        deserialize_with = "null_is_default",
        skip_serializing_if = "std::ops::Not::not"
    )]
    pub has_instructions: bool,
    /// Set when it has resources, which can be listed and read.
    #[serde(
        default,
        deserialize_with = "null_is_default",
        skip_serializing_if = "std::ops::Not::not"
    )]
    pub has_resources: bool,
    /// Its prompts, at most [`McpPrompt::MAX_LISTED`].
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub prompts: Vec<McpPrompt>,
    /// Number of its prompts that are left out, at least: unusable ones, and those beyond the limits.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "is_zero")]
    pub prompts_left_out: u32,
    /// Selection of its tools for agents whose definition has none.
    #[serde(default, deserialize_with = "known_exposure", skip_serializing_if = "Option::is_none")]
    pub exposure: Option<McpExposure>,
    /// Hash of the definitions of its tools.
    pub fingerprint: String,
}

/// Selection of the tools of a server that a model is offered directly. The tools that manage servers and call
/// MCP tools by name are offered in every mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum McpExposure {
    /// None.
    Off,
    /// All tools.
    Eager,
    /// Tools that the conversation found with `mcp_find_tools`.
    Lazy,
    /// Like `Lazy`, and all tools of servers that the conversation has called.
    #[default]
    Pinned,
}

/// Returns `true` for zero, which is not serialized.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "required by serde")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// Deserializes a value that this build does not know as absent.
fn known_exposure<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<McpExposure>, D::Error> {
    let value = Value::deserialize(deserializer)?;
    Ok(McpExposure::deserialize(value).ok())
}

/// A tool of a server that cannot be offered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct McpRejectedTool {
    /// Name on the server, truncated. Untrusted text.
    pub name: String,
    /// Cause. Contains parts of its definition, so it is untrusted as well.
    pub reason: String,
}

impl McpRejectedTool {
    /// Maximum number of rejected tools in a summary. The last one stands for further ones.
    pub const MAX_LISTED: usize = 20;
}

/// A tool whose name for models ends in a hash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct McpRenamedTool {
    /// Name on the server. Untrusted text.
    pub name: String,
    /// Name for models.
    pub model_name: String,
}

impl McpRenamedTool {
    /// Maximum number of renamed tools in a summary.
    pub const MAX_LISTED: usize = 20;
}

/// Request to every bridge to announce its index, or the entry of one server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct McpMetadataRefreshRequest {
    /// The requested server; all servers when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_name: Option<String>,
}

impl Message for McpMetadataRefreshRequest {
    const TYPE: &'static str = "McpMetadataRefreshRequest";
}

/// Request for the definitions of a server's tools.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct McpServerDetailsRequest {
    /// The server.
    pub server_name: String,
    /// The requested tool; all tools when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_name: Option<String>,
    /// Requests a part of the tools: those after the one with this name, in the order of the server, as
    /// many as fit into a reply. Empty for the first part. All tools are in one reply when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

impl Message for McpServerDetailsRequest {
    const TYPE: &'static str = "McpServerDetailsRequest";
}

/// Details of a server.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct McpServerDetails {
    /// The server.
    #[serde(flatten)]
    pub server: McpServerSummary,
    /// Instructions of the server. Untrusted text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
    /// Negotiated revision of the protocol.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol_version: Option<String>,
    /// Permitted tools, or the requested one.
    #[serde(default, deserialize_with = "null_is_default")]
    pub tools: Vec<McpToolDefinition>,
    /// Value of `after` for the next part. Absent in the last part, and in a reply with all tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

impl Message for McpServerDetails {
    const TYPE: &'static str = "McpServerDetails";
}

/// Definition of a tool by its server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct McpToolDefinition {
    /// Name on the server, as used in requests.
    pub name: String,
    /// Name in a model's list of tools.
    pub model_name: String,
    /// Display name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Description by the server. Untrusted text.
    #[serde(default, deserialize_with = "null_is_default")]
    pub description: String,
    /// JSON Schema of the arguments. A schema of another dialect is rewritten.
    pub parameters: Value,
    /// JSON Schema of the structured content of its results, if the server has one that is usable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
    /// Possible effects of a call. A server's hints never remove a restriction.
    #[serde(default, deserialize_with = "null_is_default")]
    pub hints: ToolHints,
    /// Timeout in milliseconds from the configuration of its server, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

impl McpToolDefinition {
    /// Returns the registration of the tool under its model name.
    #[must_use]
    pub fn registration(&self, server: &str) -> ToolRegistration {
        ToolRegistration {
            name: self.model_name.clone(),
            label: self.title.clone(),
            description: self.description.clone(),
            tool_description: None,
            parameters: self.parameters.clone(),
            source: crate::ToolSource::Mcp(server.to_owned()),
            hints: self.hints,
            timeout_ms: self.timeout_ms,
        }
    }
}

/// Request to add a server. The bridge's configuration must permit it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct McpRegisterServerRequest {
    /// Name of the new server.
    pub server_name: String,
    /// Program to start, from the bridge's list of permitted programs. Excludes `url`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Arguments of the program.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<String>,
    /// URL of the server. Excludes `command`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

impl Message for McpRegisterServerRequest {
    const TYPE: &'static str = "McpRegisterServerRequest";
}

/// Response for a server that was added and is connected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct McpServerRegistered {
    /// The server.
    #[serde(flatten)]
    pub server: McpServerSummary,
}

impl Message for McpServerRegistered {
    const TYPE: &'static str = "McpServerRegistered";
}

/// Request to remove a server that was added at run time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct McpUnregisterServerRequest {
    /// The server.
    pub server_name: String,
}

impl Message for McpUnregisterServerRequest {
    const TYPE: &'static str = "McpUnregisterServerRequest";
}

/// Response for a removed server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct McpServerUnregistered {
    /// Name of the removed server.
    pub server_name: String,
}

impl Message for McpServerUnregistered {
    const TYPE: &'static str = "McpServerUnregistered";
}

/// Error of a request about an MCP server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "camelCase")]
#[error("{message}")]
pub struct McpManageError {
    /// The requested server.
    pub server_name: String,
    /// Error code.
    pub code: McpManageErrorCode,
    /// Cause and remedy, suitable for a model.
    pub message: String,
}

impl Message for McpManageError {
    const TYPE: &'static str = "McpManageError";
}

/// Error codes of requests about MCP servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum McpManageErrorCode {
    /// No server or tool has that name.
    NotFound,
    /// The configuration does not permit it.
    NotPermitted,
    /// The request is malformed.
    InvalidRequest,
    /// The name is in use.
    Conflict,
    /// The server can't be reached, or no bridge serves it.
    Unavailable,
    /// A code that this build does not know.
    #[serde(other)]
    Other,
}
