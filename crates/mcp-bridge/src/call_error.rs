//! Failures of calls: rejected before the tool ran, failed, or with an unknown outcome.

use std::time::Duration;

use rmcp::{
    model::{ErrorCode, ErrorData},
    service::ServiceError,
};
use rockbot_contracts::{Executed, mcp::McpToolDefinition};
use rockbot_tools::ToolFailure;
use tracing::debug;

use crate::transport::{
    FailureClass, call_failure_class, missing_scope, status_text, stdio::StdioError,
};

/// The longest error message from a server, in characters.
const MAX_MESSAGE_CHARS: usize = 2000;

/// A call without a result.
pub(crate) enum CallError {
    /// The server rejected the call because its session had expired. The tool did not run.
    SessionExpired,
    /// The session was lost while the server runs the call as a task, which another session can follow.
    TaskDetached,
    /// Any other failure.
    Failed(ToolFailure),
}

impl CallError {
    /// Removes hidden characters from the server's text.
    pub(crate) fn without_hidden_text(self) -> Self {
        match self {
            Self::SessionExpired | Self::TaskDetached => self,
            Self::Failed(failure) => Self::Failed(failure.without_hidden_text()),
        }
    }

    /// Converts the failure of a request after the server has worked on the call: `executed: no` becomes
    /// `unknown`, and the call is not repeated in another session.
    pub(crate) fn into_possibly_executed(self) -> Self {
        match self {
            Self::TaskDetached => self,
            failure => Self::Failed(failure.into_failure().into_possibly_executed()),
        }
    }

    /// Returns the failure for the caller.
    pub(crate) fn into_failure(self) -> ToolFailure {
        match self {
            Self::SessionExpired => ToolFailure::Unavailable {
                message: "the session with the server expired; try again".to_owned(),
                executed: Executed::No,
            },
            Self::TaskDetached => ToolFailure::OutcomeUnknown {
                message: "the connection was lost during a task of the server".to_owned(),
            },
            Self::Failed(failure) => failure,
        }
    }
}

impl From<ToolFailure> for CallError {
    fn from(failure: ToolFailure) -> Self {
        Self::Failed(failure)
    }
}

/// Returns whether the server rejected a request because the session or the endpoint does not exist.
pub(crate) fn is_gone(error: &ServiceError) -> bool {
    call_failure_class(error) == Some(FailureClass::Gone)
}

/// Returns the failure of a call. `after` is its time limit.
pub(crate) fn failure(
    error: ServiceError,
    tool: &McpToolDefinition,
    after: Duration,
) -> ToolFailure {
    match error {
        ServiceError::McpError(error) => protocol_error(&error),
        ServiceError::Timeout { .. } => ToolFailure::TimedOut {
            after,
            executed: Executed::Unknown,
            repeatable: tool.hints.may_retry(),
        },
        ServiceError::Cancelled { .. } => ToolFailure::Cancelled { executed: Executed::Unknown },
        ServiceError::TransportSend(error) if error.error.is::<StdioError>() => {
            not_run("the server does not accept calls")
        }
        ServiceError::TransportSend(_) | ServiceError::TransportClosed => unanswered_call(&error),
        error => {
            ToolFailure::failed_with_source("the server returned an unexpected response", error)
        }
    }
}

fn not_run(message: &str) -> ToolFailure {
    ToolFailure::Unavailable { message: message.to_owned(), executed: Executed::No }
}

/// Classifies a call without a response: rejected by the server, or with an unknown outcome.
fn unanswered_call(error: &ServiceError) -> ToolFailure {
    debug!(%error, "call got no response");
    match call_failure_class(error) {
        Some(FailureClass::Unauthorized) => ToolFailure::NotPermitted {
            reason: match missing_scope(error) {
                Some(scope) => format!(
                    "the server requires the scope \"{scope}\"; ask an operator to log in with `rockbot \
                     mcp login SERVER --scope \"{scope}\"`"
                ),
                None => "the server requires authorization; ask an operator to log in with \
                         `rockbot mcp login`"
                    .to_owned(),
            },
        },
        Some(FailureClass::Overloaded { retry_after }) => ToolFailure::Overloaded {
            message: match retry_after {
                Some(wait) => {
                    format!("the server accepts no calls now; try again in {} s", wait.as_secs())
                }
                None => "the server accepts no calls now; try again later".to_owned(),
            },
        },
        Some(FailureClass::Rejected { status: 413 }) => {
            ToolFailure::invalid("they are too large for the server")
        }
        Some(FailureClass::Rejected { status }) => {
            ToolFailure::invalid(format!("the server rejected the request with HTTP {status}"))
        }
        Some(FailureClass::Unreachable) => not_run("the server cannot be reached"),
        Some(
            FailureClass::Refused
            | FailureClass::Dns
            | FailureClass::Tls
            | FailureClass::Redirect
            | FailureClass::Gone,
        ) => not_run("the server rejected the call"),
        Some(FailureClass::Failed { status }) => ToolFailure::OutcomeUnknown {
            message: format!(
                "the server returned {} to the call, which may have run; check its effect before you repeat it",
                status_text(status)
            ),
        },
        _ => {
            let message = "the connection to the server was lost during the call".to_owned();
            ToolFailure::OutcomeUnknown { message }
        }
    }
}

/// Classifies a protocol error: the tool did not run, or it failed.
fn protocol_error(error: &ErrorData) -> ToolFailure {
    let message: String = error.message.chars().take(MAX_MESSAGE_CHARS).collect();
    match error.code {
        ErrorCode::INVALID_PARAMS | ErrorCode::INVALID_REQUEST | ErrorCode::PARSE_ERROR => {
            ToolFailure::invalid(message)
        }
        ErrorCode::METHOD_NOT_FOUND => ToolFailure::NotFound { name: message },
        _ => ToolFailure::failed(message),
    }
}
