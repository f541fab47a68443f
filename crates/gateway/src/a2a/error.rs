//! Errors of the protocol, in the forms of both bindings.

use axum::http::StatusCode;
use rockbot_agent::{ConversationRequestError, ReplyError, SendError};
use rockbot_bus::PublishError;
use rockbot_contracts::conversation::ConversationErrorCode;
use serde_json::{Value, json};

/// A failed request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct A2aError {
    /// Code of JSON-RPC.
    code: i32,
    /// Status of HTTP.
    status: StatusCode,
    reason: &'static str,
    message: String,
    /// Effect of the message, decision or cancel: `no` or `unknown`; `None` for a request that has no effect.
    executed: Option<&'static str>,
}

impl A2aError {
    fn new(
        code: i32,
        status: StatusCode,
        reason: &'static str,
        message: impl Into<String>,
    ) -> Self {
        Self { code, status, reason, message: message.into(), executed: None }
    }

    /// An error of the request: nothing was done.
    fn refused(code: i32, reason: &'static str, message: impl Into<String>) -> Self {
        Self::new(code, StatusCode::BAD_REQUEST, reason, message).not_executed()
    }

    /// A body that is not JSON.
    pub(super) fn parse_error(message: impl Into<String>) -> Self {
        Self::refused(-32700, "INVALID_REQUEST", message)
    }

    /// JSON that is not a request.
    pub(super) fn invalid_request(message: impl Into<String>) -> Self {
        Self::refused(-32600, "INVALID_REQUEST", message)
    }

    pub(super) fn unknown_method() -> Self {
        let message = "no such method; send SendMessage, SendStreamingMessage, GetTask, ListTasks, \
                       CancelTask, SubscribeToTask or a method of push notifications";
        Self::new(-32601, StatusCode::NOT_FOUND, "METHOD_NOT_FOUND", message).not_executed()
    }

    /// Parameters at fault.
    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::refused(-32602, "INVALID_PARAMS", message)
    }

    /// A failure on this side. The message says what to do.
    pub(super) fn internal(message: impl Into<String>) -> Self {
        Self::failed(StatusCode::INTERNAL_SERVER_ERROR, message)
    }

    fn failed(status: StatusCode, message: impl Into<String>) -> Self {
        Self::new(-32603, status, "INTERNAL_ERROR", message)
    }

    /// A store that cannot be used.
    pub(super) fn store() -> Self {
        let message = "the gateway's store is unavailable; this request sent nothing; try again";
        Self::failed(StatusCode::SERVICE_UNAVAILABLE, message).not_executed()
    }

    /// An identity with too many open responses or running tasks.
    pub(super) fn overloaded() -> Self {
        let message = "too many running tasks; this request sent nothing; wait for one to end";
        Self::failed(StatusCode::TOO_MANY_REQUESTS, message).not_executed()
    }

    /// An identity with too many targets of push notifications.
    pub(super) fn too_many_targets(max: usize) -> Self {
        let message = format!(
            "{max} targets of push notifications at this agent have events that are not delivered; nothing was \
             registered; wait until one is delivered, or delete one"
        );
        Self::failed(StatusCode::TOO_MANY_REQUESTS, message).not_executed()
    }

    /// An identity with too many open lists of tasks.
    pub(super) fn too_many_lists() -> Self {
        let message = "too many open lists of this identity; wait for one to end";
        Self::failed(StatusCode::TOO_MANY_REQUESTS, message)
    }

    /// A list that takes too long.
    pub(super) fn slow_list() -> Self {
        let message =
            "the states of the tasks did not arrive in time; ask for a contextId, or try again";
        Self::failed(StatusCode::GATEWAY_TIMEOUT, message)
    }

    /// A task that does not exist, or that another identity or agent has.
    pub(super) fn unknown_task() -> Self {
        let message = "no such task; it may have expired, or belong to another agent or caller";
        Self::new(-32001, StatusCode::NOT_FOUND, "TASK_NOT_FOUND", message).not_executed()
    }

    /// A task that has ended, or has not begun.
    pub(super) fn not_cancelable(message: impl Into<String>) -> Self {
        Self::refused(-32002, "TASK_NOT_CANCELABLE", message)
    }

    /// A configuration of push notifications that the task does not have.
    pub(super) fn unknown_push_target() -> Self {
        let message =
            "the task has no such configuration of push notifications; it may have been deleted";
        Self::new(-32001, StatusCode::NOT_FOUND, "TASK_NOT_FOUND", message).not_executed()
    }

    pub(super) fn no_push_notifications() -> Self {
        let message = "push notifications are not supported; poll GetTask, or stream the task";
        Self::refused(-32003, "PUSH_NOTIFICATION_NOT_SUPPORTED", message)
    }

    pub(super) fn no_extended_card() -> Self {
        Self::unsupported("the agent has one card; see its well-known address")
    }

    /// An operation that the agent or the task does not permit.
    pub(super) fn unsupported(message: impl Into<String>) -> Self {
        Self::refused(-32004, "UNSUPPORTED_OPERATION", message)
    }

    /// A part or a media type that an agent does not accept.
    pub(super) fn content_type(message: impl Into<String>) -> Self {
        Self::refused(-32005, "CONTENT_TYPE_NOT_SUPPORTED", message)
    }

    /// A body whose content type is not JSON.
    pub(super) fn media_type() -> Self {
        let message = "the body is not JSON; send it with Content-Type: application/a2a+json or application/json";
        let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        Self::new(-32005, status, "CONTENT_TYPE_NOT_SUPPORTED", message).not_executed()
    }

    /// Another version of the protocol.
    pub(super) fn version() -> Self {
        let message = "unsupported version of the protocol; send the header A2A-Version: 1.0";
        Self::refused(-32009, "VERSION_NOT_SUPPORTED", message)
    }

    /// States that nothing took effect.
    pub(super) fn not_executed(self) -> Self {
        Self { executed: Some("no"), ..self }
    }

    /// States that it is unknown whether it took effect.
    pub(super) fn maybe_executed(self) -> Self {
        Self { executed: Some("unknown"), ..self }
    }

    /// Returns whether the message, decision or cancel may have taken effect.
    pub(super) fn may_have_arrived(&self) -> bool {
        self.executed == Some("unknown")
    }

    /// Returns whether the caller has no such task.
    pub(super) fn is_unknown_task(&self) -> bool {
        *self == Self::unknown_task()
    }

    /// Returns the status of a response over HTTP+JSON.
    pub(super) fn status(&self) -> StatusCode {
        self.status
    }

    /// Returns the seconds after which the same request may succeed.
    pub(super) fn retry_after(&self) -> Option<u64> {
        let is_temporary = [StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE];
        is_temporary.contains(&self.status).then_some(1)
    }

    /// Returns the error of a response over JSON-RPC.
    pub(super) fn to_json(&self) -> Value {
        json!({"code": self.code, "message": self.message, "data": self.details()})
    }

    /// Returns the body of a response over HTTP+JSON.
    pub(super) fn to_rest_json(&self) -> Value {
        json!({"error": {
            "code": self.status.as_u16(),
            "status": self.status_name(),
            "message": self.message,
            "details": self.details(),
        }})
    }

    fn details(&self) -> Value {
        let mut info = json!({
            "@type": "type.googleapis.com/google.rpc.ErrorInfo",
            "reason": self.reason,
            "domain": "a2a-protocol.org",
        });
        if let Some(executed) = self.executed {
            info["metadata"] = json!({"executed": executed});
        }
        json!([info])
    }

    /// Returns the name of the status in `google.rpc.Code`.
    fn status_name(&self) -> &'static str {
        match self.status {
            StatusCode::NOT_FOUND => "NOT_FOUND",
            StatusCode::TOO_MANY_REQUESTS => "RESOURCE_EXHAUSTED",
            StatusCode::SERVICE_UNAVAILABLE => "UNAVAILABLE",
            StatusCode::GATEWAY_TIMEOUT => "DEADLINE_EXCEEDED",
            status if status.is_server_error() => "INTERNAL",
            // The request is valid, but not in the state of the task or the agent.
            _ if matches!(self.code, -32004..=-32002 | -32009) => "FAILED_PRECONDITION",
            _ => "INVALID_ARGUMENT",
        }
    }
}

impl From<SendError> for A2aError {
    fn from(error: SendError) -> Self {
        let status = match &error {
            SendError::TooManyPending => StatusCode::TOO_MANY_REQUESTS,
            SendError::Publish(PublishError::TooLarge { .. }) => {
                return Self::invalid(format!("{error}; send less"));
            }
            SendError::OtherText { .. } => return Self::invalid(error.to_string()),
            SendError::AgentUnavailable { .. } | SendError::Publish(_) => {
                StatusCode::SERVICE_UNAVAILABLE
            }
        };
        let failed = Self::failed(status, error.to_string());
        if error.may_have_arrived() { failed.maybe_executed() } else { failed.not_executed() }
    }
}

impl From<ReplyError> for A2aError {
    fn from(error: ReplyError) -> Self {
        let status = match &error {
            ReplyError::Silent { .. } => StatusCode::GATEWAY_TIMEOUT,
            ReplyError::Closed => StatusCode::SERVICE_UNAVAILABLE,
        };
        // The message was sent, and its turn may go on.
        Self::failed(status, error.to_string()).maybe_executed()
    }
}

/// Returns the error of a request to an agent; `None` if the agent does not have the message.
pub(super) fn unless_not_found(error: ConversationRequestError) -> Option<A2aError> {
    match error {
        ConversationRequestError::Refused { code: ConversationErrorCode::NotFound, .. } => None,
        ConversationRequestError::Send(error) => Some(error.into()),
        error => Some(A2aError::internal(error.to_string())),
    }
}
