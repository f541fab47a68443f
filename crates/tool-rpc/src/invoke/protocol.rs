//! Message types of a request and its result.

use rockbot_contracts::{
    Envelope, RoutingKey, ToolInvokeRequest, ToolInvokeResponse,
    json::Limits,
    message::DecodeError,
    topology::{is_tool_reply, tool_result_default},
};

/// Encoding and addresses of requests and results. In every protocol, a failure is a
/// [`ToolError`](rockbot_contracts::ToolError).
pub trait CallProtocol: Send + Sync {
    /// Decodes a request. Must not block.
    ///
    /// # Errors
    /// When the message is not a request of this protocol.
    fn read(&self, request: &Envelope) -> Result<ToolInvokeRequest, DecodeError>;

    /// Encodes a result.
    fn write(&self, result: ToolInvokeResponse) -> Envelope;

    /// Returns whether replies may go to `key`. Any other key would let a caller make this process
    /// publish requests.
    fn accepts_reply_key(&self, key: &RoutingKey) -> bool;

    /// Returns the reply key of a request without a reply-to; `None` when a reply-to is required.
    fn default_reply_key(&self) -> Option<RoutingKey>;
}

/// Protocol of `tool.invoke`: a request names a tool.
#[derive(Debug, Clone, Copy)]
pub(super) struct ToolCallProtocol;

impl CallProtocol for ToolCallProtocol {
    fn read(&self, request: &Envelope) -> Result<ToolInvokeRequest, DecodeError> {
        request.decode(Limits::default())
    }

    fn write(&self, result: ToolInvokeResponse) -> Envelope {
        Envelope::from_payload(&result)
    }

    fn accepts_reply_key(&self, key: &RoutingKey) -> bool {
        is_tool_reply(key)
    }

    fn default_reply_key(&self) -> Option<RoutingKey> {
        Some(tool_result_default())
    }
}
