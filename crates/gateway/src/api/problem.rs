//! Errors of the API, as `application/problem+json`.

use axum::{
    Json,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use rockbot_agent::{ConversationRequestError, SendError};
use rockbot_bus::{ConsumeError, PublishError};
use rockbot_contracts::conversation::ConversationErrorCode;
use rockbot_monitor::letters::LetterError;
use rockbot_store::StoreError;
use serde::Serialize;
use tracing::warn;
use utoipa::ToSchema;

/// The body of a failed request.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ProblemBody {
    /// Always `about:blank`.
    #[serde(rename = "type")]
    kind: &'static str,
    /// Name of the status.
    title: &'static str,
    /// Status code.
    status: u16,
    /// Kind of failure, for programs.
    code: &'static str,
    /// The failure and its remedy, for people.
    detail: String,
    /// Effect of the message, decision, call, replay or purge: `no` or `unknown`.
    #[serde(skip_serializing_if = "Option::is_none")]
    executed: Option<&'static str>,
}

/// A failed request.
#[derive(Debug)]
pub(crate) struct Problem {
    status: StatusCode,
    code: &'static str,
    detail: String,
    executed: Option<&'static str>,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        Self { status, code, detail: detail.into(), executed: None }
    }

    pub(crate) fn invalid(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_request", detail)
    }

    pub(crate) fn forbidden(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", detail)
    }

    /// The gateway has no connection for this part; `key` is the missing key of its configuration.
    pub(crate) fn not_connected(key: &str) -> Self {
        let detail = format!("the gateway has no connection for this; set {key}");
        Self::new(StatusCode::FORBIDDEN, "not_connected", detail)
    }

    pub(crate) fn not_found(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", detail)
    }

    pub(crate) fn conflict(code: &'static str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, code, detail)
    }

    pub(crate) fn rate_limited(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, "rate_limited", detail)
    }

    pub(crate) fn overloaded(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "overloaded", detail)
    }

    pub(crate) fn unavailable(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", detail)
    }

    pub(crate) fn agent_silent() -> Self {
        let detail = "the agent did not respond in time; try again";
        Self::new(StatusCode::GATEWAY_TIMEOUT, "agent_silent", detail)
    }

    /// Returns the kind of failure.
    pub(crate) fn code(&self) -> &'static str {
        self.code
    }

    /// Returns whether something does not exist.
    pub(crate) fn is_not_found(&self) -> bool {
        self.status == StatusCode::NOT_FOUND
    }

    /// Returns the outcome for an audit record: `unknown` if it may have taken effect, else `failed`.
    pub(crate) fn audited<'a>(&self, failed: &'a str) -> &'a str {
        if self.executed == Some("unknown") { "unknown" } else { failed }
    }

    /// States that nothing took effect.
    pub(crate) fn not_executed(self) -> Self {
        Self { executed: Some("no"), ..self }
    }

    /// States that it is unknown whether it took effect.
    pub(crate) fn maybe_executed(self) -> Self {
        Self { executed: Some("unknown"), ..self }
    }

    /// The error of a message or a decision that was not sent.
    pub(crate) fn from_send(error: &SendError) -> Self {
        let detail = error.to_string();
        match error {
            SendError::AgentUnavailable { .. } => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "agent_unavailable", detail)
                    .not_executed()
            }
            SendError::TooManyPending => Self::overloaded(detail).not_executed(),
            SendError::OtherText { .. } => Self::conflict("conflict", detail).not_executed(),
            SendError::Publish(PublishError::Unconfirmed { .. }) => {
                let detail = format!("{detail}; send it again with the same Idempotency-Key");
                Self::unavailable(detail).maybe_executed()
            }
            SendError::Publish(PublishError::TooLarge { .. }) => {
                let detail = format!("{detail}; send less");
                Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", detail).not_executed()
            }
            SendError::Publish(_) => Self::unavailable(detail).not_executed(),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let Self { status, code, detail, executed } = self;
        let title = status.canonical_reason().unwrap_or("Error");
        let (kind, number) = ("about:blank", status.as_u16());
        let body = ProblemBody { kind, title, status: number, code, detail, executed };
        let mut response = (status, Json(body)).into_response();
        let headers = response.headers_mut();
        let problem = HeaderValue::from_static("application/problem+json");
        headers.insert(header::CONTENT_TYPE, problem);
        if status == StatusCode::TOO_MANY_REQUESTS {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("10"));
        }
        response
    }
}

impl From<ConversationRequestError> for Problem {
    fn from(error: ConversationRequestError) -> Self {
        let detail = error.to_string();
        match error {
            ConversationRequestError::Refused { code, .. } => match code {
                ConversationErrorCode::NotFound | ConversationErrorCode::NotPermitted => {
                    Self::not_found(detail)
                }
                ConversationErrorCode::Busy => Self::conflict("busy", detail),
                ConversationErrorCode::InvalidRequest => Self::invalid(detail),
                ConversationErrorCode::Unavailable
                | ConversationErrorCode::Unreadable
                | ConversationErrorCode::Other => {
                    Self::new(StatusCode::BAD_GATEWAY, "agent_failed", detail)
                }
            },
            ConversationRequestError::Send(error) => Self::from_send(&error),
            ConversationRequestError::Silent { .. } => Self::agent_silent(),
            ConversationRequestError::UnexpectedResponse => {
                Self::new(StatusCode::BAD_GATEWAY, "agent_failed", detail)
            }
            ConversationRequestError::Closed => Self::unavailable(detail),
        }
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        warn!(%error, "store of the gateway failed");
        Self::unavailable("the store of the gateway is unavailable; try again")
    }
}

impl From<ConsumeError> for Problem {
    fn from(error: ConsumeError) -> Self {
        Self::unavailable(error.to_string())
    }
}

impl From<LetterError> for Problem {
    fn from(error: LetterError) -> Self {
        let detail = error.to_string();
        let problem = match error {
            LetterError::NoSuchQueue { .. } | LetterError::NotFound { .. } => {
                Self::not_found(detail)
            }
            LetterError::NotPermitted { .. } => Self::forbidden(detail),
            LetterError::NoWorkQueue { .. } => Self::invalid(detail),
            LetterError::Bus(_)
            | LetterError::Publish { .. }
            | LetterError::Remains(_)
            | LetterError::Delete { .. } => return Self::unavailable(detail).maybe_executed(),
        };
        problem.not_executed()
    }
}
