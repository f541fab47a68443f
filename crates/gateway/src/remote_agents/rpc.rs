//! Responses of JSON-RPC, and failures of requests to a remote agent.

use std::ops::RangeInclusive;

use rockbot_contracts::Executed;
use rockbot_egress::{EgressError, causes};
use serde::de::DeserializeOwned;
use tracing::debug;

use super::wire::{RpcResponse, line};

/// Largest response or event, in bytes.
pub(super) const MAX_BODY_BYTES: usize = 2 * 1024 * 1024;
/// Longest error text of an agent, in characters.
const MAX_ERROR_CHARS: usize = 500;

/// There is no such task.
const TASK_NOT_FOUND: i64 = -32001;
/// The codes of JSON-RPC and A2A for requests that are refused before they run. -32005 and -32006 are no such ones: they may
/// be about what the agent returned.
const REFUSED: [RangeInclusive<i64>; 4] =
    [-32700..=-32700, -32602..=-32600, -32004..=-32001, -32009..=-32007];
/// The HTTP statuses of requests that are refused before they run. The others may follow the work on a request.
const REFUSED_STATUSES: [u16; 16] =
    [307, 308, 400, 401, 403, 404, 405, 411, 413, 414, 421, 425, 426, 428, 429, 431];
/// An internal error of the agent.
const INTERNAL_ERROR: i64 = -32603;

/// A failed request. The texts are for models: they name neither hosts nor addresses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum CallError {
    /// Nothing was sent.
    #[error("the agent cannot be reached: {0}")]
    NotSent(String),
    /// The request may have been received. Repeating it may help.
    #[error("the connection to the agent was cut: {0}")]
    Cut(String),
    /// The agent, or a proxy before it, accepts no request without other credentials.
    #[error("the agent does not accept the credentials")]
    Unauthorized,
    /// A status by which the agent refuses the request.
    #[error("the agent refused the request with HTTP status {0}")]
    Status(u16),
    /// An error of JSON-RPC.
    #[error("the agent returned error {code}: {message}")]
    Rpc {
        /// Its code.
        code: i64,
        /// Its text.
        message: String,
    },
    /// The response is not one of A2A 1.0, or too large. Repeating the request does not help.
    #[error("the response of the agent is refused: {0}")]
    Invalid(String),
}

impl CallError {
    /// Converts an error of the client. The causes, which name hosts, are logged.
    pub(super) fn from_egress(error: &EgressError) -> Self {
        debug!(error = causes_of(error), "request to a remote agent failed");
        match error {
            EgressError::TooLarge { .. } | EgressError::NotHttp | EgressError::Redirect(_) => {
                Self::Invalid(error.to_string())
            }
            _ if error.was_sent() => Self::Cut(error.to_string()),
            _ => Self::NotSent(error.to_string()),
        }
    }

    /// Returns whether the agent may have run a message whose request failed.
    pub(super) fn executed(&self) -> Executed {
        match self {
            Self::NotSent(_) | Self::Unauthorized => Executed::No,
            Self::Status(status) if REFUSED_STATUSES.contains(status) => Executed::No,
            Self::Rpc { code, .. } if REFUSED.iter().any(|codes| codes.contains(code)) => {
                Executed::No
            }
            Self::Cut(_) | Self::Status(_) | Self::Rpc { .. } | Self::Invalid(_) => {
                Executed::Unknown
            }
        }
    }

    /// Returns `true` if the same request may succeed later.
    pub(super) fn is_transient(&self) -> bool {
        matches!(self, Self::NotSent(_) | Self::Cut(_) | Self::Status(408 | 425 | 429))
    }

    /// Returns `true` if a request that changes nothing may succeed later.
    pub(super) fn is_transient_read(&self) -> bool {
        self.is_transient() || matches!(self, Self::Rpc { code: INTERNAL_ERROR, .. })
    }

    /// Returns the error without texts of the agent, for logs.
    pub(super) fn for_log(&self) -> String {
        match self {
            Self::Rpc { code, .. } => format!("the agent returned error {code}"),
            error => error.to_string(),
        }
    }

    /// Returns `true` if the agent does not know the task.
    pub(super) fn is_unknown_task(&self) -> bool {
        matches!(self, Self::Rpc { code: TASK_NOT_FOUND, .. })
    }
}

/// Returns an error with its causes, which name hosts.
pub(super) fn causes_of(error: &EgressError) -> String {
    let causes: Vec<_> = causes(error).map(ToString::to_string).collect();
    causes.join(": ")
}

/// Parses a response.
///
/// # Errors
/// [`CallError::Rpc`] for an error of the agent, [`CallError::Invalid`] if it is no response.
pub(super) fn read_rpc<T: DeserializeOwned>(body: &[u8]) -> Result<T, CallError> {
    let malformed = || CallError::Invalid("it is not a response of A2A 1.0".to_owned());
    let response: RpcResponse<T> = serde_json::from_slice(body).map_err(|_| malformed())?;
    if let Some(error) = response.error {
        let message = line(&error.message, MAX_ERROR_CHARS);
        return Err(CallError::Rpc { code: error.code, message });
    }
    response.result.ok_or_else(malformed)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn only_refusals_are_reported_as_not_executed() {
        let rpc = |code| CallError::Rpc { code, message: String::new() };
        for (error, executed) in [
            (CallError::NotSent(String::new()), Executed::No),
            (CallError::Unauthorized, Executed::No),
            (CallError::Status(404), Executed::No),
            (CallError::Status(307), Executed::No),
            (CallError::Status(303), Executed::Unknown),
            (CallError::Status(429), Executed::No),
            (CallError::Status(431), Executed::No),
            (CallError::Status(402), Executed::Unknown),
            (CallError::Status(409), Executed::Unknown),
            (CallError::Status(422), Executed::Unknown),
            (CallError::Status(408), Executed::Unknown),
            (CallError::Status(499), Executed::Unknown),
            (rpc(-32602), Executed::No),
            (rpc(-32001), Executed::No),
            (rpc(-32004), Executed::No),
            (rpc(-32005), Executed::Unknown),
            (rpc(-32006), Executed::Unknown),
            (rpc(-32009), Executed::No),
            (rpc(-32603), Executed::Unknown),
            (rpc(7), Executed::Unknown),
            (CallError::Cut(String::new()), Executed::Unknown),
            (CallError::Invalid(String::new()), Executed::Unknown),
        ] {
            assert_eq!(error.executed(), executed, "{error}");
        }
    }

    #[test]
    fn log_has_no_text_of_the_agent() {
        let error = CallError::Rpc { code: 7, message: "secret".to_owned() };
        assert!(!error.for_log().contains("secret"));
        assert!(error.to_string().contains("secret"));
    }

    #[test]
    fn body_without_result_is_refused() {
        for body in ["", "[]", "{}", "{\"result\":null}", &"[".repeat(1000)] {
            assert!(
                matches!(read_rpc::<Value>(body.as_bytes()), Err(CallError::Invalid(_))),
                "{body}"
            );
        }
        let error = "{\"error\":{\"code\":-32603,\"message\":\"a\\n\\u001b[31mb\"}}";
        let expected = CallError::Rpc { code: -32603, message: "a b".to_owned() };
        assert_eq!(read_rpc::<Value>(error.as_bytes()), Err(expected));
    }
}
