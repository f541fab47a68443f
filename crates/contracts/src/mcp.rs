//! MCP servers behind a bridge: what they offer, and how one is shown, added and removed.
//!
//! A call of one of their tools is a [`ToolInvokeRequest`](crate::ToolInvokeRequest) like any other,
//! with the server's name in the envelope and the tool's own name in the payload.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    catalog::{ToolHints, ToolRegistration},
    ids::InstanceId,
    message::Message,
    tool::null_is_default,
};

/// A bridge says which servers it serves: on start, on every change, when asked, and every ten
/// seconds, so that a bridge that died is missed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct McpServersIndexed {
    /// The bridge's process.
    pub instance: InstanceId,
    /// The servers that are new or changed since the last time; all of them when `is_complete`.
    #[serde(default, deserialize_with = "null_is_default")]
    pub servers: Vec<McpServerSummary>,
    /// Names of servers that it no longer serves.
    #[serde(default, deserialize_with = "null_is_default")]
    pub removed: Vec<String>,
    /// Whether `servers` is everything that this process serves.
    #[serde(default, deserialize_with = "null_is_default")]
    pub is_complete: bool,
    /// The fingerprint of what this adds to, so that a lost delta is noticed; none when complete.
    /// Whoever knows another one asks for everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// Changes when anything about any of its servers changes. To be compared and not computed: a
    /// reader may know less about a server than was said.
    pub fingerprint: String,
}

impl Message for McpServersIndexed {
    const TYPE: &'static str = "McpServersIndexed";
}

/// One server in the index: enough for a model to decide whether to look closer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct McpServerSummary {
    /// Its name in the bridge's configuration; compared without regard to case.
    pub name: String,
    /// What it calls itself. Outside text.
    #[serde(default, deserialize_with = "null_is_default")]
    pub display_name: String,
    /// One or two sentences on what it is for. Outside text.
    #[serde(default, deserialize_with = "null_is_default")]
    pub summary: String,
    /// How many tools may be called.
    #[serde(default, deserialize_with = "null_is_default")]
    pub tool_count: u32,
    /// Their names on the server.
    #[serde(default, deserialize_with = "null_is_default")]
    pub tool_names: Vec<String>,
    /// Changes when a definition of one of its tools changes.
    pub fingerprint: String,
}

/// Asks every bridge for its index, or for the part of one server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct McpMetadataRefreshRequest {
    /// The one server of interest; all when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_name: Option<String>,
}

impl Message for McpMetadataRefreshRequest {
    const TYPE: &'static str = "McpMetadataRefreshRequest";
}

/// Asks for the definitions of a server's tools.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct McpServerDetailsRequest {
    /// The server.
    pub server_name: String,
    /// The one tool of interest; all when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_name: Option<String>,
}

impl Message for McpServerDetailsRequest {
    const TYPE: &'static str = "McpServerDetailsRequest";
}

/// A server in full.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct McpServerDetails {
    /// The server.
    #[serde(flatten)]
    pub server: McpServerSummary,
    /// How to use it, in its own words. Outside text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
    /// The revision of the protocol that is spoken with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol_version: Option<String>,
    /// Its tools that may be called, or the one asked for.
    #[serde(default, deserialize_with = "null_is_default")]
    pub tools: Vec<McpToolDefinition>,
}

impl Message for McpServerDetails {
    const TYPE: &'static str = "McpServerDetails";
}

/// A tool as its server defines it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct McpToolDefinition {
    /// Its name on the server: what a request carries.
    pub name: String,
    /// The name that it has in a model's list of tools.
    pub model_name: String,
    /// A title for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What it does, in its server's words. Outside text.
    #[serde(default, deserialize_with = "null_is_default")]
    pub description: String,
    /// JSON Schema of the arguments, unchanged.
    pub parameters: Value,
    /// What calling it may do. A server's word never lifts a restriction.
    #[serde(default, deserialize_with = "null_is_default")]
    pub hints: ToolHints,
    /// Its time-out in milliseconds, where its server's configuration has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

impl McpToolDefinition {
    /// The tool as it is registered with a model: under its model name.
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

/// Asks a bridge to serve one more server, where its configuration lets callers do so.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct McpRegisterServerRequest {
    /// The name it gets.
    pub server_name: String,
    /// A program to start, from the bridge's list of allowed ones. Never with `url`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// The program's arguments.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<String>,
    /// Where it is served. Never with `command`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

impl Message for McpRegisterServerRequest {
    const TYPE: &'static str = "McpRegisterServerRequest";
}

/// A server was added, is connected, and this is what it offers.
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

/// Asks a bridge to drop a server that was added at run time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct McpUnregisterServerRequest {
    /// The server.
    pub server_name: String,
}

impl Message for McpUnregisterServerRequest {
    const TYPE: &'static str = "McpUnregisterServerRequest";
}

/// A server was dropped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct McpServerUnregistered {
    /// Its name.
    pub server_name: String,
}

impl Message for McpServerUnregistered {
    const TYPE: &'static str = "McpServerUnregistered";
}

/// Why a server was not shown, added or removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "camelCase")]
#[error("{message}")]
pub struct McpManageError {
    /// The server that was asked about.
    pub server_name: String,
    /// What kind of refusal.
    pub code: McpManageErrorCode,
    /// What happened and what to do next; fit for a model.
    pub message: String,
}

impl Message for McpManageError {
    const TYPE: &'static str = "McpManageError";
}

/// The kinds of refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum McpManageErrorCode {
    /// No server, or no tool, of that name.
    NotFound,
    /// The configuration does not let callers do this.
    NotPermitted,
    /// The request can't be understood.
    InvalidRequest,
    /// The name is taken.
    Conflict,
    /// The server can't be reached, or nobody serves it now.
    Unavailable,
    /// A newer peer's code.
    #[serde(other)]
    Other,
}
