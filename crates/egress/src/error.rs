//! Failures of requests.

use std::error::Error;

use crate::causes::causes;
use crate::refused::{AddressRefused, RedirectRefused, ResolveError};

/// A failed request, or a response that cannot be read. Any HTTP status is a response and no error.
#[derive(Debug, thiserror::Error)]
pub enum EgressError {
    /// The policy forbids dialing the URL.
    #[error("the URL is not dialed")]
    Refused(#[from] AddressRefused),
    /// The host name does not resolve.
    #[error("the host name does not resolve")]
    Resolve(#[from] ResolveError),
    /// No connection was established, or not in time.
    #[error("the host cannot be reached")]
    Connect(#[source] Box<dyn Error + Send + Sync>),
    /// The certificate is not trusted, the TLS handshake failed, or the system's certificates cannot be
    /// read.
    #[error("no trusted TLS connection to the host")]
    Tls(#[from] rustls::Error),
    /// The request or the client cannot be built, for example because a header is invalid.
    #[error("the request is invalid")]
    Invalid(#[source] Box<dyn Error + Send + Sync>),
    /// A redirect was not followed.
    #[error("a redirect is not followed")]
    Redirect(#[from] RedirectRefused),
    /// The target of a redirect failed before anything was sent to it.
    #[error("the target of a redirect is not available")]
    AfterRedirect(#[source] Box<EgressError>),
    /// A timeout or the deadline elapsed after the connection was requested.
    #[error("no response in time")]
    TimedOut,
    /// The response is not HTTP, or its head is too large.
    #[error("the response is not HTTP")]
    NotHttp,
    /// The body exceeds the limit.
    #[error("the response exceeds {max_bytes} bytes")]
    TooLarge {
        /// The limit, in bytes.
        max_bytes: usize,
    },
    /// The connection broke.
    #[error("the connection failed")]
    Connection(#[source] Box<dyn Error + Send + Sync>),
}

impl EgressError {
    /// Returns whether a server may have received a request. If not, nothing was executed and a retry is
    /// safe.
    ///
    /// True as well when a later hop failed: the first one was sent.
    #[must_use]
    pub fn was_sent(&self) -> bool {
        match self {
            Self::Refused(_)
            | Self::Resolve(_)
            | Self::Connect(_)
            | Self::Tls(_)
            | Self::Invalid(_) => false,
            Self::Redirect(_)
            | Self::AfterRedirect(_)
            | Self::TimedOut
            | Self::NotHttp
            | Self::TooLarge { .. }
            | Self::Connection(_) => true,
        }
    }

    /// Returns the error of the hop that failed: the cause of [`EgressError::AfterRedirect`], or itself.
    #[must_use]
    pub fn of_hop(&self) -> &Self {
        match self {
            Self::AfterRedirect(cause) => cause.of_hop(),
            error => error,
        }
    }
}

impl From<reqwest::Error> for EgressError {
    fn from(error: reqwest::Error) -> Self {
        if let Some(known) = causes(&error).find_map(known_cause) {
            return known;
        }
        if error.is_connect()
            && let Some(tls) =
                causes(&error).find_map(|cause| cause.downcast_ref::<rustls::Error>())
        {
            return Self::Tls(tls.clone());
        }
        // The URL may hold secrets.
        if error.is_builder() {
            Self::Invalid(error.without_url().into())
        } else if error.is_connect() {
            Self::Connect(error.without_url().into())
        } else if error.is_timeout() {
            Self::TimedOut
        } else {
            Self::Connection(error.without_url().into())
        }
    }
}

/// Converts a cause that has its own variant. Causes cannot be moved out of the error above them.
fn known_cause(cause: &(dyn Error + 'static)) -> Option<EgressError> {
    match cause.downcast_ref::<EgressError>() {
        Some(EgressError::Resolve(failed)) => return Some(failed.duplicate().into()),
        Some(EgressError::Refused(refused)) => return Some(refused.clone().into()),
        _ => {}
    }
    if let Some(refused) = cause.downcast_ref::<RedirectRefused>() {
        return Some(refused.clone().into());
    }
    let not_http = cause.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_parse);
    not_http.then_some(EgressError::NotHttp)
}
