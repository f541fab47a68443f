//! Why a server can't be reached, or a session with it not be opened.

use std::error::Error;
use std::io;

use rmcp::ServiceError;
use rmcp::model::ErrorData;
use rmcp::service::ClientInitializeError;
use rmcp::transport::auth::AuthError;
use rmcp::transport::streamable_http_client::{
    AuthRequiredError, HttpStatusError, InsufficientScopeError, StreamableHttpError,
};

use super::dial::{AddressRefused, DnsFailed, RedirectRefused};
use crate::frame::Unreadable;

/// A server that did not answer as a server of tools, or was not even dialled.
///
/// What the server wrote is not in the message, except for its challenge.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The policy does not let us dial it. Nothing was sent.
    #[error("the server is not dialled")]
    Refused(#[from] AddressRefused),
    /// A header can't be sent as it is configured. Nothing was sent.
    #[error("the header `{0}` can't be sent; look at its name and value")]
    BadHeader(String),
    /// The name leads nowhere. Nothing was sent.
    #[error("the server's name does not resolve")]
    Dns(#[from] DnsFailed),
    /// The server did not prove who it is. Nothing was sent.
    #[error("no trusted TLS connection")]
    Tls(#[from] rustls::Error),
    /// The server sends us elsewhere, and we did not follow.
    #[error("the server redirects")]
    Redirect(#[from] RedirectRefused),
    /// The server wants another token, or a token at all.
    #[error("the server wants authorisation")]
    Unauthorised {
        /// Its `WWW-Authenticate`, if it sent one.
        challenge: Option<String>,
    },
    /// There is no such endpoint, or no longer such a session.
    #[error("the server answers {status}: nothing is there")]
    Gone {
        /// 404 or 410.
        status: u16,
    },
    /// What came is not the protocol.
    #[error("the server does not speak the protocol: {0}")]
    Malformed(&'static str),
    /// Nothing came for too long.
    #[error("the server did not answer in time")]
    TimedOut,
    /// The server answered with another status.
    #[error("the server answers {0}")]
    Status(u16),
    /// The token could not be had.
    #[error("no token for the server")]
    Token(#[source] Box<dyn Error + Send + Sync>),
    /// The connection failed, or broke.
    #[error("the connection failed")]
    Connection(#[source] Box<dyn Error + Send + Sync>),
    /// The session was closed before the message was sent.
    #[error("the session is closed")]
    Closed,
}

/// What an owner decides on when a server can't be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureClass {
    /// Not dialled: configuration or policy.
    Refused,
    /// The name does not resolve.
    Dns,
    /// No trusted TLS.
    Tls,
    /// A redirect that is not followed.
    Redirect,
    /// Authorisation is missing, or is not enough.
    Unauthorised,
    /// The endpoint or the session is not there.
    Gone,
    /// The answer is not the protocol.
    Malformed,
    /// No answer in time.
    TimedOut,
    /// Everything else: refused or broken connections, other answers.
    Other,
}

impl FailureClass {
    /// Whether the server's other era of the protocol may be tried. Where the failure has nothing
    /// to do with the era, a second attempt would repeat it, or go where it must not.
    pub fn may_try_other_era(self) -> bool {
        matches!(self, Self::Gone | Self::TimedOut | Self::Other)
    }
}

impl ConnectError {
    /// What an owner decides on.
    pub fn class(&self) -> FailureClass {
        match self {
            Self::Refused(_) | Self::BadHeader(_) => FailureClass::Refused,
            Self::Dns(_) => FailureClass::Dns,
            Self::Tls(_) => FailureClass::Tls,
            Self::Redirect(_) => FailureClass::Redirect,
            Self::Unauthorised { .. } | Self::Token(_) => FailureClass::Unauthorised,
            Self::Gone { .. } => FailureClass::Gone,
            Self::Malformed(_) => FailureClass::Malformed,
            Self::TimedOut => FailureClass::TimedOut,
            Self::Status(_) | Self::Connection(_) | Self::Closed => FailureClass::Other,
        }
    }

    /// The failure that an answer with this status is, whatever else it says.
    pub(crate) fn of_status(status: u16, challenge: Option<String>) -> Self {
        match status {
            401 | 403 => Self::Unauthorised { challenge },
            404 | 410 => Self::Gone { status },
            300..=399 => Self::Redirect(RedirectRefused::LosesMessage(status)),
            _ => Self::Status(status),
        }
    }
}

impl From<reqwest::Error> for ConnectError {
    fn from(error: reqwest::Error) -> Self {
        let known = causes(&error).find_map(known_cause);
        known.unwrap_or_else(|| {
            if error.is_timeout() {
                Self::TimedOut
            } else {
                // Its URL may hold what nobody should read.
                Self::Connection(error.without_url().into())
            }
        })
    }
}

impl From<io::Error> for ConnectError {
    fn from(error: io::Error) -> Self {
        let known = causes(&error).find_map(known_cause);
        known.unwrap_or_else(|| Self::Connection(error.into()))
    }
}

/// A cause that has a name of its own here. Causes can't be taken out of the error above them.
fn known_cause(cause: &(dyn Error + 'static)) -> Option<ConnectError> {
    if let Some(ConnectError::Dns(failed)) = cause.downcast_ref::<ConnectError>() {
        return Some(ConnectError::Dns(failed.again()));
    }
    if let Some(refused) = cause.downcast_ref::<AddressRefused>() {
        return Some(refused.clone().into());
    }
    if let Some(refused) = cause.downcast_ref::<RedirectRefused>() {
        return Some(refused.clone().into());
    }
    if let Some(tls) = cause.downcast_ref::<rustls::Error>() {
        return Some(tls.clone().into());
    }
    let not_http = cause.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_parse);
    not_http.then_some(ConnectError::Malformed("its answer is not HTTP"))
}

/// An error and what it comes from. Unlike `Error::source`, it looks into an `io::Error`.
fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    let cause = |error: &&'a (dyn Error + 'static)| match error.downcast_ref::<io::Error>() {
        Some(error) => error.get_ref().map(|inner| inner as &(dyn Error + 'static)),
        None => (*error).source(),
    };
    std::iter::successors(Some(error), cause)
}

/// Why a session did not come about, for failures that surface in the handshake.
pub fn failure_class(error: &ClientInitializeError) -> FailureClass {
    match error {
        ClientInitializeError::TransportError { error, .. } => class_of(error.error.as_ref()),
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => failure_class(fallback),
        ClientInitializeError::ExpectedInitResponse(_)
        | ClientInitializeError::ExpectedInitResult(_)
        | ClientInitializeError::ConflictInitResponseId(..)
        | ClientInitializeError::UncorrelatedErrorResponse { .. } => FailureClass::Malformed,
        // The error that stands in place of an answer.
        ClientInitializeError::JsonRpcError(error) if is_unreadable(error) => {
            FailureClass::Malformed
        }
        _ => FailureClass::Other,
    }
}

fn is_unreadable(error: &ErrorData) -> bool {
    [Unreadable::TooLarge, Unreadable::Invalid].iter().any(|why| error.message == why.to_string())
}

/// Why a call of an open session failed, if its transport is to blame.
pub fn call_failure_class(error: &ServiceError) -> Option<FailureClass> {
    match error {
        ServiceError::TransportSend(error) => Some(class_of(error.error.as_ref())),
        ServiceError::TransportClosed => Some(FailureClass::Other),
        _ => None,
    }
}

fn class_of(error: &(dyn Error + 'static)) -> FailureClass {
    causes(error).find_map(class_of_one).unwrap_or(FailureClass::Other)
}

fn class_of_one(error: &(dyn Error + 'static)) -> Option<FailureClass> {
    if let Some(error) = error.downcast_ref::<ConnectError>() {
        return Some(error.class());
    }
    if let Some(error) = error.downcast_ref::<StreamableHttpError<ConnectError>>() {
        return match error {
            // Not its source, as rmcp writes it.
            StreamableHttpError::Client(error) => Some(error.class()),
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
    let unauthorised = error.is::<AuthRequiredError>()
        || error.is::<InsufficientScopeError>()
        || error.is::<AuthError>();
    if unauthorised {
        return Some(FailureClass::Unauthorised);
    }
    error.is::<HttpStatusError>().then_some(FailureClass::Other)
}
