//! In which words calls are asked for and answered.

use rockbot_contracts::{
    Envelope, RoutingKey, ToolInvokeRequest, ToolInvokeResponse,
    json::Limits,
    message::DecodeError,
    topology::{is_tool_reply, tool_result_default},
};

/// The words of requests and results, and where results go. Failures are
/// [`ToolError`](rockbot_contracts::ToolError)s in every conversation.
pub trait CallProtocol: Send + Sync {
    /// Reads a request. Must not block.
    ///
    /// # Errors
    /// When it is none of this conversation.
    fn read(&self, request: &Envelope) -> Result<ToolInvokeRequest, DecodeError>;

    /// Writes a result.
    fn write(&self, result: ToolInvokeResponse) -> Envelope;

    /// Whether answers may go to `key`. Answering elsewhere would let a caller make this process
    /// publish requests.
    fn accepts_reply_key(&self, key: &RoutingKey) -> bool;

    /// Where the answer to a request without a reply-to goes; none when there must be one.
    fn default_reply_key(&self) -> Option<RoutingKey>;
}

/// That of `tool.invoke`: what is asked for is a tool, by name.
#[derive(Debug, Clone, Copy)]
pub(super) struct ToolCalls;

impl CallProtocol for ToolCalls {
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
