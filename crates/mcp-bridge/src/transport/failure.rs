//! Failures of connections and sessions.

use std::error::Error;
use std::io;
use std::time::Duration;

use reqwest::StatusCode;
use rmcp::ServiceError;
use rmcp::model::ErrorData;
use rmcp::service::ClientInitializeError;
use rmcp::transport::auth::AuthError;
use rmcp::transport::streamable_http_client::{
    AuthRequiredError, HttpStatusError, InsufficientScopeError, StreamableHttpError,
};

use rockbot_egress::{AddressRefused, EgressError, RedirectRefused, ResolveError, causes};

use crate::frame::Unreadable;

/// The longest wait that a server can ask for.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(3600);
/// The longest scope that is reported, in bytes.
const MAX_SCOPE_BYTES: usize = 200;

/// A failed connection, request or session.
///
/// Messages never contain text from the server, except for its challenge.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The policy forbids dialing it. Nothing was sent.
    #[error("the server is not dialed")]
    Refused(#[from] AddressRefused),
    /// A configured header is invalid. Nothing was sent.
    #[error("the header `{0}` is invalid; check its name and value")]
    BadHeader(String),
    /// Name resolution failed. Nothing was sent.
    #[error("the server's name does not resolve")]
    Dns(#[from] ResolveError),
    /// The server's certificate is not trusted, or the TLS handshake failed. Nothing was sent.
    #[error("no trusted TLS connection to the server")]
    Tls(#[from] rustls::Error),
    /// The server redirects, and the redirect was not followed.
    #[error("the server redirects")]
    Redirect(#[from] RedirectRefused),
    /// The server requires a token, or another one.
    #[error("the server requires authorization")]
    Unauthorized {
        /// Its `WWW-Authenticate` header.
        challenge: Option<String>,
    },
    /// The endpoint or the session does not exist.
    #[error("the server returned {status}: no such endpoint or session")]
    Gone {
        /// 404 or 410.
        status: u16,
    },
    /// The response does not follow the protocol.
    #[error("the server violates the protocol: {0}")]
    Malformed(&'static str),
    /// A timeout elapsed.
    #[error("the server did not respond in time")]
    TimedOut,
    /// Any other HTTP status.
    #[error("the server returned {}", status_text(*status))]
    Status {
        /// The status.
        status: u16,
        /// Its `Retry-After` header.
        retry_after: Option<String>,
    },
    /// The token could not be obtained.
    #[error("no token for the server")]
    Token(#[source] Box<dyn Error + Send + Sync>),
    /// No connection was established. Nothing was sent.
    #[error("the server cannot be reached")]
    Unreachable(#[source] Box<dyn Error + Send + Sync>),
    /// The connection broke.
    #[error("the connection failed")]
    Connection(#[source] Box<dyn Error + Send + Sync>),
    /// The session was closed before the message was sent.
    #[error("the session is closed")]
    Closed,
}

/// Returns an HTTP status with its name and, for failures of the server, with what to check.
pub(crate) fn status_text(status: u16) -> String {
    let name = StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason());
    let name = name.map(|name| format!(" {name}")).unwrap_or_default();
    let remedy = match status {
        502..=504 => "; check that the server behind the address runs, and the log of its proxy",
        500..=599 => "; see the server's log",
        _ => "",
    };
    format!("HTTP {status}{name}{remedy}")
}

/// Classes of failures that callers distinguish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureClass {
    /// Not dialed: configuration or policy.
    Refused,
    /// The name does not resolve.
    Dns,
    /// No trusted TLS.
    Tls,
    /// A redirect that is not followed.
    Redirect,
    /// Authorization is missing or insufficient.
    Unauthorized,
    /// The endpoint or the session does not exist.
    Gone,
    /// The response does not follow the protocol.
    Malformed,
    /// A timeout elapsed.
    TimedOut,
    /// No connection was established.
    Unreachable,
    /// The server accepts no requests now, and did not process this one.
    Overloaded {
        /// The time after which it may accept requests again, if known.
        retry_after: Option<Duration>,
    },
    /// The server rejected the form or the size of the request, and did not process it.
    Rejected {
        /// The HTTP status.
        status: u16,
    },
    /// The server, or a proxy before it, reported a failure of its own. It may have processed the request.
    Failed {
        /// The HTTP status, 500 to 599.
        status: u16,
    },
    /// Everything else: broken connections, other statuses.
    Other,
}

impl FailureClass {
    /// Returns whether an endpoint of the revision of 2024-11-05 may reply so to a request of a later one.
    pub(crate) fn is_other_endpoint(self) -> bool {
        matches!(self, Self::Gone | Self::Rejected { .. })
    }

    /// Returns the class of an HTTP status.
    fn from_status(status: u16, retry_after: Option<&str>) -> Self {
        // A delay in seconds. A date is ignored: clocks differ.
        let delay = retry_after.and_then(|value| value.trim().parse().ok());
        let delay = delay.map(|seconds| Duration::from_secs(seconds).min(MAX_RETRY_AFTER));
        match status {
            429 => Self::Overloaded { retry_after: delay },
            // Without the header, a proxy may have lost the server after it had forwarded the request.
            503 if retry_after.is_some() => Self::Overloaded { retry_after: delay },
            400 | 405 | 406 | 411 | 413 | 414 | 415 | 422 | 431 => Self::Rejected { status },
            404 | 410 => Self::Gone,
            500..=599 => Self::Failed { status },
            _ => Self::Other,
        }
    }
}

impl ConnectError {
    /// Returns the class of the failure.
    pub fn class(&self) -> FailureClass {
        match self {
            Self::Refused(_) | Self::BadHeader(_) => FailureClass::Refused,
            Self::Dns(_) => FailureClass::Dns,
            Self::Tls(_) => FailureClass::Tls,
            Self::Redirect(_) => FailureClass::Redirect,
            Self::Unauthorized { .. } | Self::Token(_) => FailureClass::Unauthorized,
            Self::Gone { .. } => FailureClass::Gone,
            Self::Malformed(_) => FailureClass::Malformed,
            Self::TimedOut => FailureClass::TimedOut,
            Self::Unreachable(_) => FailureClass::Unreachable,
            Self::Status { status, retry_after } => {
                FailureClass::from_status(*status, retry_after.as_deref())
            }
            Self::Connection(_) | Self::Closed => FailureClass::Other,
        }
    }

    /// Returns the failure for an HTTP status.
    pub(crate) fn from_status(
        status: u16,
        challenge: Option<String>,
        retry_after: Option<String>,
    ) -> Self {
        match status {
            401 | 403 => Self::Unauthorized { challenge },
            404 | 410 => Self::Gone { status },
            300..=399 => Self::Redirect(RedirectRefused::DropsMessage(status)),
            _ => Self::Status { status, retry_after },
        }
    }
}

impl From<EgressError> for ConnectError {
    fn from(error: EgressError) -> Self {
        match error {
            EgressError::Refused(refused) => refused.into(),
            EgressError::Resolve(failed) => failed.into(),
            EgressError::Connect(cause) => Self::Unreachable(cause),
            EgressError::Tls(error) => error.into(),
            EgressError::Redirect(refused) => refused.into(),
            EgressError::AfterRedirect(cause) => Self::Connection(cause),
            EgressError::TimedOut => Self::TimedOut,
            EgressError::NotHttp => Self::Malformed("its response is not HTTP"),
            EgressError::TooLarge { .. } => Self::Malformed("its response is too large"),
            EgressError::Invalid(cause) | EgressError::Connection(cause) => Self::Connection(cause),
        }
    }
}

impl From<reqwest::Error> for ConnectError {
    fn from(error: reqwest::Error) -> Self {
        EgressError::from(error).into()
    }
}

impl From<io::Error> for ConnectError {
    fn from(error: io::Error) -> Self {
        if let Some(tls) = causes(&error).find_map(|cause| cause.downcast_ref::<rustls::Error>()) {
            Self::Tls(tls.clone())
        } else if error.kind() == io::ErrorKind::ConnectionRefused {
            Self::Unreachable(error.into())
        } else {
            Self::Connection(error.into())
        }
    }
}

/// Returns the class of a failed handshake.
pub fn failure_class(error: &ClientInitializeError) -> FailureClass {
    match error {
        ClientInitializeError::TransportError { error, .. } => error_class(error.error.as_ref()),
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => failure_class(fallback),
        ClientInitializeError::ExpectedInitResponse(_)
        | ClientInitializeError::ExpectedInitResult(_)
        | ClientInitializeError::ConflictInitResponseId(..)
        | ClientInitializeError::UncorrelatedErrorResponse { .. } => FailureClass::Malformed,
        // The error reply that replaces an unreadable response.
        ClientInitializeError::JsonRpcError(error) if is_unreadable(error) => {
            FailureClass::Malformed
        }
        _ => FailureClass::Other,
    }
}

fn is_unreadable(error: &ErrorData) -> bool {
    [Unreadable::TooLarge, Unreadable::Invalid, Unreadable::TooManyRequests]
        .iter()
        .any(|reason| error.message == reason.to_string())
}

/// Returns the class of a failed call, or `None` if the transport did not fail.
pub fn call_failure_class(error: &ServiceError) -> Option<FailureClass> {
    match error {
        ServiceError::TransportSend(error) => Some(error_class(error.error.as_ref())),
        ServiceError::TransportClosed => Some(FailureClass::Other),
        _ => None,
    }
}

fn error_class(error: &(dyn Error + 'static)) -> FailureClass {
    causes(error).find_map(known_class).unwrap_or(FailureClass::Other)
}

fn known_class(error: &(dyn Error + 'static)) -> Option<FailureClass> {
    if let Some(error) = error.downcast_ref::<ConnectError>() {
        return Some(error.class());
    }
    if let Some(error) = error.downcast_ref::<StreamableHttpError<ConnectError>>() {
        return match error {
            // rmcp does not report these as sources.
            StreamableHttpError::Client(error) => Some(error.class()),
            StreamableHttpError::HttpStatus(error) => Some(status_class(error)),
            StreamableHttpError::SessionExpired => Some(FailureClass::Gone),
            StreamableHttpError::UnexpectedContentType(_)
            | StreamableHttpError::UnexpectedServerResponse(_)
            | StreamableHttpError::UnexpectedEndOfStream
            | StreamableHttpError::ResponseBodyTooLarge { .. }
            | StreamableHttpError::Deserialize(_) => Some(FailureClass::Malformed),
            StreamableHttpError::ControlRequestTimeout => Some(FailureClass::TimedOut),
            _ => None,
        };
    }
    let is_unauthorized = error.is::<AuthRequiredError>()
        || error.is::<InsufficientScopeError>()
        || error.is::<AuthError>();
    if is_unauthorized {
        return Some(FailureClass::Unauthorized);
    }
    error.downcast_ref::<HttpStatusError>().map(status_class)
}

fn status_class(error: &HttpStatusError) -> FailureClass {
    FailureClass::from_status(error.status, error.retry_after.as_deref())
}

/// Returns the scope that a rejected call requires, if the server names it.
pub(crate) fn missing_scope(error: &ServiceError) -> Option<String> {
    let ServiceError::TransportSend(error) = error else { return None };
    let challenge = causes(error.error.as_ref()).find_map(insufficient_scope)?;
    let scope = challenge.split("scope=\"").nth(1)?.split('"').next()?;
    // Untrusted: only the characters of scopes reach people and models.
    let is_scope = |c: char| c.is_ascii_graphic() && !matches!(c, '"' | '\\' | '`' | '$' | '\'');
    let is_valid = !scope.is_empty() && scope.len() <= MAX_SCOPE_BYTES;
    (is_valid && scope.chars().all(|c| c == ' ' || is_scope(c))).then(|| scope.to_owned())
}

fn insufficient_scope<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a str> {
    if let Some(StreamableHttpError::InsufficientScope(error)) =
        error.downcast_ref::<StreamableHttpError<ConnectError>>()
    {
        return Some(&error.www_authenticate_header);
    }
    match error.downcast_ref::<ConnectError>()? {
        ConnectError::Unauthorized { challenge } => {
            challenge.as_deref().filter(|challenge| challenge.contains("insufficient_scope"))
        }
        _ => None,
    }
}
