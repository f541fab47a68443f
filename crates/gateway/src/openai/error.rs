//! Errors in the form of the OpenAI API.

use axum::{
    Json,
    http::{HeaderName, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use rockbot_agent::{ReplyError, SendError};
use rockbot_bus::PublishError;
use serde_json::{Value, json};

/// Header by which OpenAI's clients decide whether to repeat a request by themselves.
const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// A failed request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ApiError {
    status: StatusCode,
    code: &'static str,
    message: String,
    /// The parameter at fault.
    param: Option<&'static str>,
    /// Set if clients may repeat the request by themselves, or must not. `None` leaves it to the status.
    retry: Option<bool>,
    /// Effect of the message or decision: `no` or `unknown`; `None` after a turn.
    executed: Option<&'static str>,
}

impl ApiError {
    fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self {
            status,
            code,
            message: message.into(),
            param: None,
            retry: None,
            executed: Some("no"),
        }
    }

    /// A request that is invalid because of one parameter.
    pub(super) fn invalid(param: &'static str, message: impl Into<String>) -> Self {
        let error = Self::new(StatusCode::BAD_REQUEST, "invalid_value", message);
        Self { param: Some(param), ..error }
    }

    /// A request that is no valid JSON of its form.
    pub(super) fn malformed(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_request", message)
    }

    /// A model that is no agent, or one that the identity may not use.
    pub(super) fn unknown_model() -> Self {
        let message = "no such model, or no access to it; GET /v1/models lists the agents";
        let error = Self::new(StatusCode::NOT_FOUND, "model_not_found", message);
        Self { param: Some("model"), ..error }
    }

    /// An approval that is not open.
    pub(super) fn unknown_approval() -> Self {
        let message = "no open approval request of this id in a turn that this token started";
        Self::new(StatusCode::NOT_FOUND, "not_found", message)
    }

    /// A repeated key with another request.
    pub(super) fn key_conflict() -> Self {
        let message =
            "the Idempotency-Key was used for another request; use a new key for each request";
        Self::new(StatusCode::CONFLICT, "idempotency_key_reused", message)
    }

    /// A store that cannot be used.
    pub(super) fn store() -> Self {
        let message = "the gateway's store is unavailable; this request was not sent; try again";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", message)
    }

    /// An identity with too many open completions.
    pub(super) fn too_many_completions() -> Self {
        let message = "too many open completions of this identity; wait for one to end";
        Self::new(StatusCode::TOO_MANY_REQUESTS, "overloaded", message)
    }

    /// A response that is not recorded, or belongs to others.
    pub(super) fn unknown_response() -> Self {
        let message = "no such response, or no access to it; responses are kept for 30 days unless store is false";
        Self::new(StatusCode::NOT_FOUND, "not_found", message).without_effect()
    }

    /// A previous response that is not recorded, or belongs to others.
    pub(super) fn unknown_previous_response() -> Self {
        let message = "no previous response of this id; send the whole conversation as input";
        let error = Self::new(StatusCode::BAD_REQUEST, "previous_response_not_found", message);
        Self { param: Some("previous_response_id"), ..error }
    }

    /// A response of an agent that this build does not expect.
    pub(super) fn agent_failed(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_GATEWAY, "agent_failed", message).without_effect()
    }

    /// A model that failed. The outcome is recorded, so a repeated request would only return it again.
    pub(super) fn model_failed(message: &str) -> Self {
        let error = Self::new(StatusCode::BAD_GATEWAY, "model_failed", message);
        Self { retry: Some(false), executed: None, ..error }
    }

    /// An agent that took no message.
    pub(super) fn overloaded(message: &str) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "overloaded", message)
    }

    /// A message that is too large for the broker, however often it is sent.
    fn too_large(message: impl Into<String>) -> Self {
        let error = Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message);
        Self { retry: Some(false), ..error }
    }

    /// Sets that the message may have been sent, by an earlier request of the same identity.
    pub(super) fn maybe_executed(self) -> Self {
        Self { executed: Some("unknown"), ..self }
    }

    /// Sets that the request sends no message.
    pub(super) fn without_effect(self) -> Self {
        Self { executed: None, ..self }
    }

    /// Returns whether the message certainly did not arrive.
    pub(super) fn is_unsent(&self) -> bool {
        self.executed == Some("no")
    }

    /// Returns the failure of a response.
    pub(super) fn to_failure(&self) -> Value {
        let mut failure = json!({"code": self.code, "message": self.message});
        if let Some(executed) = self.executed {
            failure["executed"] = json!(executed);
        }
        failure
    }

    /// Returns the error for the form of errors in a body or a stream.
    pub(super) fn to_json(&self) -> Value {
        let kind = match self.status {
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            status if status.is_server_error() => "server_error",
            _ => "invalid_request_error",
        };
        let Self { code, message, param, executed, .. } = self;
        let mut error = json!({"message": message, "type": kind, "param": param, "code": code});
        if let Some(executed) = executed {
            error["executed"] = json!(executed);
        }
        json!({"error": error})
    }
}

impl From<SendError> for ApiError {
    fn from(error: SendError) -> Self {
        let (status, code) = match &error {
            SendError::AgentUnavailable { .. } => {
                (StatusCode::SERVICE_UNAVAILABLE, "agent_unavailable")
            }
            SendError::TooManyPending => (StatusCode::TOO_MANY_REQUESTS, "overloaded"),
            SendError::OtherText { .. } => (StatusCode::CONFLICT, "idempotency_key_reused"),
            SendError::Publish(PublishError::TooLarge { .. }) => {
                return Self::too_large(format!("{error}; send less"));
            }
            SendError::Publish(_) => (StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
        };
        let executed = if error.may_have_arrived() { "unknown" } else { "no" };
        let failed = Self::new(status, code, error.to_string());
        Self { executed: Some(executed), ..failed }
    }
}

impl From<ReplyError> for ApiError {
    fn from(error: ReplyError) -> Self {
        let (status, code) = match &error {
            ReplyError::Silent { .. } => (StatusCode::GATEWAY_TIMEOUT, "agent_silent"),
            ReplyError::Closed => (StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
        };
        // The message was sent, and its turn may go on.
        Self { executed: Some("unknown"), ..Self::new(status, code, error.to_string()) }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.to_json())).into_response();
        let headers = response.headers_mut();
        if let Some(retry) = self.retry {
            let value = if retry { "true" } else { "false" };
            headers.insert(SHOULD_RETRY, HeaderValue::from_static(value));
        }
        if matches!(self.code, "overloaded" | "unavailable") {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}
