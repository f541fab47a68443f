//! Script runs on the wire: request and response.
//!
//! A failure (a script that did not run or did not complete) is a
//! [`ToolError`](crate::ToolError), as with any tool.

use serde::{Deserialize, Serialize};

use crate::{
    ids::{SessionId, ToolCallId},
    message::Message,
    tool::null_is_default,
};

/// Request to run a script.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScriptInvokeRequest {
    /// Correlates all messages about this run.
    pub tool_call_id: ToolCallId,
    /// Python source.
    pub script: String,
    /// Standard input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_data: Option<String>,
    /// Timeout in seconds.
    pub timeout_seconds: u32,
    /// Packages to install, as PEP 508 requirements without URLs.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub pip_packages: Vec<String>,
    /// The conversation, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
}

impl Message for ScriptInvokeRequest {
    const TYPE: &'static str = "ScriptInvokeRequest";
}

/// Result of a script.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScriptInvokeResponse {
    /// The run.
    pub tool_call_id: ToolCallId,
    /// Standard output, up to the limit of the runner.
    pub output: String,
    /// The end of standard error.
    #[serde(default, deserialize_with = "null_is_default")]
    pub stderr: String,
    /// 0 for success; 128 plus the signal number when a signal terminated it.
    pub exit_code: i32,
    /// Run time in milliseconds.
    #[serde(default, deserialize_with = "null_is_default")]
    pub elapsed_ms: u64,
    /// The limit that terminated it, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_by: Option<ScriptLimit>,
    /// Isolation of the script, human-readable; absent from older peers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolation: Option<String>,
    /// Gaps in the isolation, human-readable; absent without any.
    #[serde(
        rename = "notKeptFrom",
        default,
        deserialize_with = "null_is_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub isolation_gaps: Vec<String>,
}

impl Message for ScriptInvokeResponse {
    const TYPE: &'static str = "ScriptInvokeResponse";
}

/// A limit whose excess terminates a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ScriptLimit {
    /// Output size.
    Output,
    /// Memory.
    Memory,
    /// Disk space.
    Disk,
    /// A limit that this build does not know.
    #[serde(other)]
    Other,
}
