//! Requests of servers for input from the user of a call.

use serde::{Deserialize, Serialize};

use crate::{
    ids::{InputId, InstanceId, ToolCallId},
    input::{InputRequest, InputResponse},
    message::Message,
    tool::null_is_default,
};

/// A request of a server for input from the user of a running call. It goes where the progress of the call
/// goes, and only for calls whose request accepts input. May be lost; it expires then.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct McpInputAsked {
    /// The running call.
    pub tool_call_id: ToolCallId,
    /// The request.
    pub input_id: InputId,
    /// The bridge that waits for the [`McpInputAnswer`].
    pub bridge: InstanceId,
    /// Time until the request expires in milliseconds; an expired one counts as cancelled.
    pub expires_in_ms: u64,
    /// The requested input.
    pub request: InputRequest,
}

impl Message for McpInputAsked {
    const TYPE: &'static str = "McpInputAsked";
}

/// The response to a server's request for input. The bridge accepts one, and only from the caller of the
/// tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct McpInputAnswer {
    /// The request.
    pub input_id: InputId,
    /// The response.
    #[serde(flatten)]
    pub response: InputResponse,
}

impl Message for McpInputAnswer {
    const TYPE: &'static str = "McpInputAnswer";
}

/// Receipt of a bridge for an [`McpInputAnswer`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct McpInputAnswered {
    /// The request.
    pub input_id: InputId,
    /// Set if the server gets the response. The request was closed otherwise.
    #[serde(default, deserialize_with = "null_is_default")]
    pub accepted: bool,
}

impl Message for McpInputAnswered {
    const TYPE: &'static str = "McpInputAnswered";
}
