//! The tool call on the wire: request, response, error, progress, cancel.

use std::{borrow::Cow, fmt};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{
    ids::{SessionId, ToolCallId},
    message::Message,
};

/// Asks whoever serves a tool to run it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolInvokeRequest {
    /// Correlates everything said about this call.
    pub tool_call_id: ToolCallId,
    /// Name in the handler's registry.
    pub tool_name: String,
    /// The arguments: a JSON object, as text.
    pub arguments: String,
    /// The conversation it belongs to.
    pub session_id: SessionId,
}

/// What is asked for to learn whether answers arrive. Handlers answer it themselves; no tool can have
/// this name, and a handler that does not know it answers that there is no such tool, which shows as
/// much.
pub const REPLY_PROBE: &str = "rockbot.reply_probe";

impl Message for ToolInvokeRequest {
    const TYPE: &'static str = "ToolInvokeRequest";
}

/// What a tool said. `is_error` means that the tool ran and failed in its own words.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolInvokeResponse {
    /// The call that is answered.
    pub tool_call_id: ToolCallId,
    /// The tool that ran.
    pub tool_name: String,
    /// The result as text: what a model reads.
    pub content: String,
    /// Whether the tool says that it failed.
    #[serde(default, deserialize_with = "null_is_default")]
    pub is_error: bool,
    /// Content that is more than text, in order; absent when `content` says it all.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub blocks: Vec<ContentBlock>,
    /// Facts for programs; never sent to a model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<serde_json::Value>,
    /// The loop that a sub-agent ran for this call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child_loop_id: Option<String>,
    /// How long the tool ran, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elapsed_ms: Option<u64>,
}

impl Message for ToolInvokeResponse {
    const TYPE: &'static str = "ToolInvokeResponse";
}

/// One piece of a tool's result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum ContentBlock {
    /// Plain text.
    Text {
        /// The text.
        text: String,
    },
    /// A picture.
    Image {
        /// Base64.
        data: String,
        /// Such as `image/png`.
        mime_type: String,
    },
    /// Sound.
    Audio {
        /// Base64.
        data: String,
        /// Such as `audio/wav`.
        mime_type: String,
    },
    /// Something that stays where it is, or comes along as text.
    Resource {
        /// Where it is.
        uri: String,
        /// Such as `text/plain`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mime_type: Option<String>,
        /// Its text, when it came along.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        text: Option<String>,
    },
}

/// Why there is no result, whether asking again makes sense, and whether the tool ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolError {
    /// The call that failed.
    pub tool_call_id: ToolCallId,
    /// The tool that was asked for.
    pub tool_name: String,
    /// What kind of failure.
    pub code: ToolErrorCode,
    /// Short and fit for a model: no hosts, no paths of the handler, no stack.
    pub message: String,
    /// Whether the same call may succeed if sent again, without doing its work twice.
    #[serde(default, deserialize_with = "null_is_default")]
    pub is_retryable: bool,
    /// Whether the tool ran. Absent from older peers: then nobody knows.
    #[serde(default, deserialize_with = "null_is_default")]
    pub executed: Executed,
}

impl Message for ToolError {
    const TYPE: &'static str = "ToolError";
}

/// The kinds of failure on the wire. A code of a newer peer is kept as it came.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ToolErrorCode {
    /// No tool of that name here.
    ToolNotFound,
    /// The arguments, or the request itself, could not be understood.
    InvalidArguments,
    /// The deadline passed.
    Timeout,
    /// The tool failed.
    ExecutionFailed,
    /// The asker cancelled.
    Cancelled,
    /// A profile, a hook or a limit refused it.
    NotPermitted,
    /// No room now.
    Overloaded,
    /// Nobody serves it now.
    Unavailable,
    /// It may have run; nobody can say.
    OutcomeUnknown,
    /// A code this build does not know.
    Other(Box<str>),
}

impl ToolErrorCode {
    /// Every code this build knows.
    pub const KNOWN: [Self; 9] = [
        Self::ToolNotFound,
        Self::InvalidArguments,
        Self::Timeout,
        Self::ExecutionFailed,
        Self::Cancelled,
        Self::NotPermitted,
        Self::Overloaded,
        Self::Unavailable,
        Self::OutcomeUnknown,
    ];

    /// The code on the wire.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::ToolNotFound => "tool_not_found",
            Self::InvalidArguments => "invalid_arguments",
            Self::Timeout => "timeout",
            Self::ExecutionFailed => "execution_failed",
            Self::Cancelled => "cancelled",
            Self::NotPermitted => "not_permitted",
            Self::Overloaded => "overloaded",
            Self::Unavailable => "unavailable",
            Self::OutcomeUnknown => "outcome_unknown",
            Self::Other(code) => code,
        }
    }
}

impl fmt::Display for ToolErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for ToolErrorCode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for ToolErrorCode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let code = Cow::<'de, str>::deserialize(deserializer)?;
        let known = Self::KNOWN.into_iter().find(|known| known.as_str() == code);
        Ok(known.unwrap_or_else(|| Self::Other(code.chars().take(64).collect())))
    }
}

/// Whether a tool ran: the promise that a caller is always told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Executed {
    /// It did not start.
    No,
    /// It ran, to its end or part of the way.
    Yes,
    /// It may have; nobody can say.
    #[default]
    #[serde(other)]
    Unknown,
}

impl fmt::Display for Executed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::No => "no",
            Self::Yes => "yes",
            Self::Unknown => "unknown",
        })
    }
}

/// A sign of life from a running call. May be lost; never the result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolProgress {
    /// The running call.
    pub tool_call_id: ToolCallId,
    /// The running tool.
    pub tool_name: String,
    /// Grows by one with each progress of a call, from 1.
    pub sequence: u64,
    /// A line for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// A partial result for people and logs, never for the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partial: Option<String>,
}

impl Message for ToolProgress {
    const TYPE: &'static str = "ToolProgress";
}

/// Asks every worker to stop a call, wherever it runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolCancel {
    /// The call to stop.
    pub tool_call_id: ToolCallId,
    /// Why, for the log.
    #[serde(default, deserialize_with = "null_is_default")]
    pub reason: String,
}

impl Message for ToolCancel {
    const TYPE: &'static str = "ToolCancel";
}

/// Missing and `null` mean the same on this wire.
pub(crate) fn null_is_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}
