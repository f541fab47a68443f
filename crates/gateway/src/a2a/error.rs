//! Errors of the protocol, in the form of JSON-RPC.

use rockbot_agent::{ConversationRequestError, ReplyError, SendError};
use rockbot_contracts::conversation::ConversationErrorCode;
use serde_json::{Value, json};

/// A failed request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct A2aError {
    code: i32,
    reason: &'static str,
    message: String,
}

impl A2aError {
    fn new(code: i32, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into() }
    }

    /// A body that is not JSON.
    pub(super) fn parse_error(message: impl Into<String>) -> Self {
        Self::new(-32700, "PARSE_ERROR", message)
    }

    /// JSON that is not a request.
    pub(super) fn invalid_request(message: impl Into<String>) -> Self {
        Self::new(-32600, "INVALID_REQUEST", message)
    }

    pub(super) fn unknown_method() -> Self {
        let message = "no such method; send SendMessage, SendStreamingMessage, GetTask, CancelTask or \
                       SubscribeToTask";
        Self::new(-32601, "METHOD_NOT_FOUND", message)
    }

    /// Parameters at fault.
    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::new(-32602, "INVALID_PARAMS", message)
    }

    /// A failure on this side. The message says what to do.
    pub(super) fn internal(message: impl Into<String>) -> Self {
        Self::new(-32603, "INTERNAL_ERROR", message)
    }

    /// A store that cannot be used.
    pub(super) fn store() -> Self {
        Self::internal("the gateway's store is unavailable; nothing was sent; try again")
    }

    /// An identity with too many open responses or running tasks.
    pub(super) fn overloaded() -> Self {
        Self::internal(
            "too many running tasks of this identity; nothing was sent; wait for one to end",
        )
    }

    /// A task that does not exist, or that another identity or agent has.
    pub(super) fn unknown_task() -> Self {
        let message = "no such task; it may have expired, or belong to another agent or caller";
        Self::new(-32001, "TASK_NOT_FOUND", message)
    }

    /// A task that has ended, or has not begun.
    pub(super) fn not_cancelable(message: impl Into<String>) -> Self {
        Self::new(-32002, "TASK_NOT_CANCELABLE", message)
    }

    pub(super) fn no_push_notifications() -> Self {
        let message = "push notifications are not supported; poll GetTask, or stream the task";
        Self::new(-32003, "PUSH_NOTIFICATION_NOT_SUPPORTED", message)
    }

    /// An operation that the agent or the task does not permit.
    pub(super) fn unsupported(message: impl Into<String>) -> Self {
        Self::new(-32004, "UNSUPPORTED_OPERATION", message)
    }

    /// A part or a media type that an agent does not accept.
    pub(super) fn content_type(message: impl Into<String>) -> Self {
        Self::new(-32005, "CONTENT_TYPE_NOT_SUPPORTED", message)
    }

    /// Another version of the protocol.
    pub(super) fn version() -> Self {
        let message = "unsupported version of the protocol; send the header A2A-Version: 1.0";
        Self::new(-32009, "VERSION_NOT_SUPPORTED", message)
    }

    /// Returns the error of a response.
    pub(super) fn to_json(&self) -> Value {
        let Self { code, reason, message } = self;
        json!({"code": code, "message": message, "data": [{
            "@type": "type.googleapis.com/google.rpc.ErrorInfo",
            "reason": reason,
            "domain": "a2a-protocol.org",
        }]})
    }
}

impl From<SendError> for A2aError {
    fn from(error: SendError) -> Self {
        Self::internal(error.to_string())
    }
}

impl From<ReplyError> for A2aError {
    fn from(error: ReplyError) -> Self {
        Self::internal(error.to_string())
    }
}

/// Returns the error of a request to an agent; `None` if the agent does not have the message.
pub(super) fn unless_not_found(error: ConversationRequestError) -> Option<A2aError> {
    match error {
        ConversationRequestError::Refused { code: ConversationErrorCode::NotFound, .. } => None,
        error => Some(A2aError::internal(error.to_string())),
    }
}
