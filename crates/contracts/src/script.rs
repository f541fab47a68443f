//! Scripts on the wire: what a model wrote, and what became of it.
//!
//! A failure (a script that did not run, or did not come to its end) is a
//! [`ToolError`](crate::ToolError), as with any tool.

use serde::{Deserialize, Serialize};

use crate::{
    ids::{SessionId, ToolCallId},
    message::Message,
    tool::null_is_default,
};

/// Asks whoever runs scripts to run one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScriptInvokeRequest {
    /// Correlates everything said about this run.
    pub tool_call_id: ToolCallId,
    /// The Python.
    pub script: String,
    /// What it reads as its input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_data: Option<String>,
    /// How long it may take, in seconds.
    pub timeout_seconds: u32,
    /// The packages that it imports, as requirements of PEP 508 without URLs.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub pip_packages: Vec<String>,
    /// The conversation it belongs to, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
}

impl Message for ScriptInvokeRequest {
    const TYPE: &'static str = "ScriptInvokeRequest";
}

/// How a script ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScriptInvokeResponse {
    /// The run that is answered.
    pub tool_call_id: ToolCallId,
    /// What it printed, up to the runner's limit.
    pub output: String,
    /// The end of what it complained about.
    #[serde(default, deserialize_with = "null_is_default")]
    pub stderr: String,
    /// 0 when all went well; 128 and the number of the signal when one ended it.
    pub exit_code: i32,
    /// How long it ran, in milliseconds.
    #[serde(default, deserialize_with = "null_is_default")]
    pub elapsed_ms: u64,
    /// The limit that ended it, where one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_by: Option<ScriptLimit>,
    /// What kept it from everything else, in words for people; absent from older peers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolation: Option<String>,
    /// What it was not kept from, in words for people; absent when nothing was open.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub not_kept_from: Vec<String>,
}

impl Message for ScriptInvokeResponse {
    const TYPE: &'static str = "ScriptInvokeResponse";
}

/// A limit that ends a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ScriptLimit {
    /// It printed too much.
    Output,
    /// It took too much memory.
    Memory,
    /// It filled its disk.
    Disk,
    /// One that this build does not know.
    #[serde(other)]
    Other,
}
