//! Encoding and reply addresses of tool requests and results.

use rockbot_contracts::{
    Envelope, RoutingKey, ToolInvokeRequest, ToolInvokeResponse,
    json::Limits,
    message::DecodeError,
    topology::{is_tool_reply, tool_result_default},
};

/// Encoding and reply addresses of requests and results. In every protocol, a failure is a
/// [`ToolError`](rockbot_contracts::ToolError).
pub trait CallProtocol: Send + Sync {
    /// Decodes a request. Must not block.
    ///
    /// # Errors
    /// When the message is not a request of this protocol.
    fn decode_request(&self, request: &Envelope) -> Result<ToolInvokeRequest, DecodeError>;

    /// Encodes a result.
    fn encode_result(&self, result: ToolInvokeResponse) -> Envelope;

    /// Returns `true` if replies may be sent to `key`. Any other key would let a caller make this process
    /// publish requests.
    fn accepts_reply_key(&self, key: &RoutingKey) -> bool;

    /// Returns the reply key of a request without a reply-to; `None` when a reply-to is required.
    fn default_reply_key(&self) -> Option<RoutingKey>;
}

/// Protocol of `tool.invoke`: a request names a tool.
#[derive(Debug, Clone, Copy)]
pub(super) struct ToolCallProtocol;

impl CallProtocol for ToolCallProtocol {
    fn decode_request(&self, request: &Envelope) -> Result<ToolInvokeRequest, DecodeError> {
        request.decode(Limits::default())
    }

    fn encode_result(&self, result: ToolInvokeResponse) -> Envelope {
        Envelope::from_payload(&result)
    }

    fn accepts_reply_key(&self, key: &RoutingKey) -> bool {
        is_tool_reply(key)
    }

    fn default_reply_key(&self) -> Option<RoutingKey> {
        Some(tool_result_default())
    }
}
