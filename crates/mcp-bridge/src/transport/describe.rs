//! Descriptions of failures for people: without the types of this program, and sanitized, because servers
//! contribute to them.

use std::error::Error;

use rmcp::ServiceError;
use rmcp::model::ProtocolVersion;
use rmcp::service::ClientInitializeError;
use rmcp::transport::streamable_http_client::StreamableHttpError;
use rockbot_contracts::outside_text::plain;
use rockbot_egress::causes;

use super::failure::{ConnectError, status_text};

/// The longest description, in characters.
const MAX_CHARS: usize = 500;

/// Describes an error and its causes.
pub(crate) fn describe(error: &(dyn Error + 'static)) -> String {
    let mut text = String::new();
    for cause in causes(error) {
        let (cause, is_last) = match cause.downcast_ref::<StreamableHttpError<ConnectError>>() {
            Some(StreamableHttpError::Client(error)) => (describe(error), true),
            Some(StreamableHttpError::HttpStatus(error)) => {
                (format!("the server returned {}", status_text(error.status)), true)
            }
            Some(StreamableHttpError::SessionExpired) => ("the session expired".to_owned(), true),
            // The cause is the server's challenge.
            Some(
                StreamableHttpError::AuthRequired(_) | StreamableHttpError::InsufficientScope(_),
            ) => ("the server requires authorization".to_owned(), true),
            _ => (cause.to_string(), false),
        };
        // Many errors repeat their cause.
        if !text.ends_with(&cause) {
            let separator = if text.is_empty() { "" } else { ": " };
            text.push_str(separator);
            text.push_str(&cause);
        }
        if is_last {
            break;
        }
    }
    plain(&text, MAX_CHARS)
}

/// Describes the failure of a request in a session.
pub(crate) fn describe_request(error: &ServiceError) -> String {
    match error {
        ServiceError::McpError(error) => plain(&error.message, MAX_CHARS),
        ServiceError::TransportSend(error) => describe(error.error.as_ref()),
        ServiceError::TransportClosed => "the server closed the connection".to_owned(),
        ServiceError::UnexpectedResponse => "the server returned an unexpected response".to_owned(),
        ServiceError::Timeout { timeout } => format!("no response within {timeout:?}"),
        error => describe(error),
    }
}

/// Describes a failure to open a session.
pub(crate) fn describe_handshake(error: &ClientInitializeError) -> String {
    match error {
        ClientInitializeError::ConnectionClosed(_) => {
            "the server closed the connection before it replied".to_owned()
        }
        ClientInitializeError::TransportError { error, .. } => describe(error.error.as_ref()),
        ClientInitializeError::JsonRpcError(error) => {
            let message = plain(&error.message, MAX_CHARS);
            format!("the server rejected the session: {message} ({})", error.code.0)
        }
        ClientInitializeError::NoCompatibleProtocolVersion { server_supported, .. } => {
            let versions: Vec<_> = server_supported.iter().map(ProtocolVersion::as_str).collect();
            let versions = plain(&versions.join(", "), MAX_CHARS);
            format!("the server supports no known protocol revision, only: {versions}")
        }
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => {
            describe_handshake(fallback)
        }
        ClientInitializeError::ExpectedInitResponse(_)
        | ClientInitializeError::ExpectedInitResult(_)
        | ClientInitializeError::ConflictInitResponseId(..)
        | ClientInitializeError::UncorrelatedErrorResponse { .. } => {
            "the server replied to the handshake with another message".to_owned()
        }
        error => describe(error),
    }
}
