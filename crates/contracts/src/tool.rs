//! The tool call on the wire: request, response, error, progress, cancel.

use std::{borrow::Cow, fmt};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::{
    ids::{SessionId, ToolCallId},
    message::Message,
};

/// Request to run a tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", from = "ReceivedToolInvokeRequest")]
pub struct ToolInvokeRequest {
    /// Id of the call, which correlates all of its messages.
    pub tool_call_id: ToolCallId,
    /// Name in the registry of the handler.
    pub tool_name: String,
    /// Arguments: a JSON object as text.
    pub arguments: String,
    /// The conversation it belongs to. A call that is sent without one is a conversation of its own, with
    /// the id of the call.
    pub session_id: SessionId,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReceivedToolInvokeRequest {
    tool_call_id: ToolCallId,
    tool_name: String,
    arguments: String,
    #[serde(default)]
    session_id: Option<SessionId>,
}

impl From<ReceivedToolInvokeRequest> for ToolInvokeRequest {
    fn from(received: ReceivedToolInvokeRequest) -> Self {
        let ReceivedToolInvokeRequest { tool_call_id, tool_name, arguments, session_id } = received;
        let session_id = session_id.unwrap_or_else(|| SessionId::from(&tool_call_id));
        Self { tool_call_id, tool_name, arguments, session_id }
    }
}

/// Tool name of the reply probe, which checks that replies arrive. Handlers reply without a tool; no tool
/// can have this name. An older handler replies `tool_not_found`, which is as conclusive.
pub const REPLY_PROBE: &str = "rockbot.reply_probe";

impl Message for ToolInvokeRequest {
    const TYPE: &'static str = "ToolInvokeRequest";
}

/// Result of a tool. With `is_error` the tool ran and reported a failure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolInvokeResponse {
    /// The call.
    pub tool_call_id: ToolCallId,
    /// The tool that ran.
    pub tool_name: String,
    /// The result as text, for the model.
    pub content: String,
    /// Set when the tool reported a failure.
    #[serde(default, deserialize_with = "null_is_default")]
    pub is_error: bool,
    /// Content blocks in order; absent when `content` holds all of the result.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub blocks: Vec<ContentBlock>,
    /// Structured data for programs; never sent to a model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<serde_json::Value>,
    /// The loop that a sub-agent ran for this call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child_loop_id: Option<String>,
    /// Run time of the tool in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elapsed_ms: Option<u64>,
    /// Durations of the call's stages; absent from handlers that do not measure them.
    #[serde(
        default,
        deserialize_with = "readable_or_none",
        skip_serializing_if = "Option::is_none"
    )]
    pub stages: Option<CallStages>,
}

impl Message for ToolInvokeResponse {
    const TYPE: &'static str = "ToolInvokeResponse";
}

/// Durations of the stages of a call before its reply, in whole milliseconds, as its handler measured them.
/// The rest of the caller's latency is the transport of the reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallStages {
    /// From the publishing of the request, by the caller's clock, to its receipt, by the handler's clock.
    /// Absent for a request without a time budget, which carries no time of publishing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_ms: Option<u64>,
    /// From the receipt to the start of the tool: admission, the journal, and copies of the call.
    pub start_ms: u64,
    /// From the start of the tool to its end.
    pub run_ms: u64,
}

/// A part of a tool's result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum ContentBlock {
    /// Plain text.
    Text {
        /// The text.
        text: String,
    },
    /// An image.
    Image {
        /// Base64-encoded data.
        data: String,
        /// MIME type, such as `image/png`.
        mime_type: String,
    },
    /// Audio.
    Audio {
        /// Base64-encoded data.
        data: String,
        /// MIME type, such as `audio/wav`.
        mime_type: String,
    },
    /// A resource by reference, or included as text.
    Resource {
        /// URI of the resource.
        uri: String,
        /// MIME type, such as `text/plain`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mime_type: Option<String>,
        /// Text of the resource, if included.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        text: Option<String>,
    },
}

/// A failed call: error code, whether a retry makes sense, and whether the tool ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolError {
    /// The call that failed.
    pub tool_call_id: ToolCallId,
    /// The requested tool.
    pub tool_name: String,
    /// Error code.
    pub code: ToolErrorCode,
    /// Short message for the model: no hosts, no paths of the handler, no stack.
    pub message: String,
    /// Set when a retry of the same call may succeed without executing twice.
    #[serde(default, deserialize_with = "null_is_default")]
    pub is_retryable: bool,
    /// Execution state of the tool; unknown when absent, as from older peers.
    #[serde(default, deserialize_with = "null_is_default")]
    pub executed: Executed,
    /// Durations of the call's stages; absent if the tool did not start in the replying handler.
    #[serde(
        default,
        deserialize_with = "readable_or_none",
        skip_serializing_if = "Option::is_none"
    )]
    pub stages: Option<CallStages>,
}

impl Message for ToolError {
    const TYPE: &'static str = "ToolError";
}

/// Error codes on the wire. An unknown code of a newer peer is preserved.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ToolErrorCode {
    /// The handler has no tool of that name.
    ToolNotFound,
    /// The arguments or the request are invalid.
    InvalidArguments,
    /// The deadline passed.
    Timeout,
    /// The tool failed.
    ExecutionFailed,
    /// The caller cancelled.
    Cancelled,
    /// Refused by a profile, a hook or a limit.
    NotPermitted,
    /// No capacity is left.
    Overloaded,
    /// No handler is available.
    Unavailable,
    /// The tool may have run.
    OutcomeUnknown,
    /// A code that this build does not know.
    Other(Box<str>),
}

impl ToolErrorCode {
    /// Codes that this build knows.
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

    /// Returns the code on the wire.
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

/// Execution state of a tool, part of every failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Executed {
    /// It did not start.
    No,
    /// It ran, completely or partially.
    Yes,
    /// It may have run.
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

/// Progress of a running call. May be lost; never the result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolProgress {
    /// The running call.
    pub tool_call_id: ToolCallId,
    /// The running tool.
    pub tool_name: String,
    /// Sequence number within the call, from 1.
    pub sequence: u64,
    /// Human-readable text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// A partial result for users and logs, never for the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partial: Option<String>,
}

impl Message for ToolProgress {
    const TYPE: &'static str = "ToolProgress";
}

/// Request to every handler to cancel a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolCancel {
    /// The call to stop.
    pub tool_call_id: ToolCallId,
    /// Reason, for the log.
    #[serde(default, deserialize_with = "null_is_default")]
    pub reason: String,
}

impl Message for ToolCancel {
    const TYPE: &'static str = "ToolCancel";
}

/// Reads stages; `None` if they have another form. They inform only, so that they do not make a reply unreadable.
pub(crate) fn readable_or_none<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<CallStages>, D::Error> {
    Ok(serde_json::from_value(Value::deserialize(deserializer)?).ok())
}

/// Deserializes `null` as the default: absent and `null` are equal on the wire.
pub(crate) fn null_is_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}
