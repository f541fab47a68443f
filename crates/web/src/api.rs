//! Requests to the APIs of search providers and of GitHub.
//!
//! [`ApiTransport`] is the port; the base URLs behind it are chosen by the operator, never by a model.

mod bounded;
mod guarded;
#[cfg(test)]
pub(crate) mod recorded;

use std::{error::Error, fmt, time::Duration};

use futures_util::future::BoxFuture;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use tokio::time::Instant;
use url::Url;

pub(crate) use bounded::{BoundedList, BoundedMap};
pub use guarded::GuardedTransport;

/// Sends requests and reads bounded responses.
pub trait ApiTransport: Send + Sync + 'static {
    /// Sends a request and reads the whole response. Redirects are returned, not followed.
    ///
    /// # Errors
    /// See [`ApiError`]. Any status is a response.
    ///
    /// # Cancellation
    /// Dropping the future closes the connection.
    fn send(&self, request: ApiRequest) -> BoxFuture<'_, Result<ApiResponse, ApiError>>;
}

/// A request.
#[derive(Clone)]
pub struct ApiRequest {
    /// Method: GET or POST.
    pub method: Method,
    /// Absolute URL.
    pub url: Url,
    /// Headers, besides those that every request has.
    pub headers: HeaderMap,
    /// Body of a POST.
    pub body: Vec<u8>,
    /// Limit of the response body, in bytes, after decompression.
    pub max_bytes: usize,
    /// Treatment of a longer body.
    pub oversize: Oversize,
    /// Time by which the response must be complete.
    pub deadline: Instant,
}

/// Treatment of a response body over its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Oversize {
    /// The request fails with [`ApiError::TooLarge`].
    Refuse,
    /// The rest is not read, and [`ApiResponse::truncated`] is set.
    Truncate,
}

/// A response.
#[derive(Clone)]
pub struct ApiResponse {
    /// Status.
    pub status: StatusCode,
    /// Headers.
    pub headers: HeaderMap,
    /// Body, decompressed.
    pub body: Vec<u8>,
    /// `true` if the body was longer than the limit.
    pub truncated: bool,
}

/// Error of a request.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// The connection failed or broke, or its address is not dialed.
    #[error("the request failed")]
    Failed(#[source] Box<dyn Error + Send + Sync>),
    /// The response was not complete by the deadline.
    #[error("no complete response in time")]
    TimedOut,
    /// The body is longer than the limit.
    #[error("the response exceeds the limit of {limit} bytes")]
    TooLarge {
        /// The limit, in bytes.
        limit: usize,
    },
}

impl ApiRequest {
    /// Creates a GET request.
    #[must_use]
    pub fn get(url: Url, max_bytes: usize, deadline: Instant) -> Self {
        Self {
            method: Method::GET,
            url,
            headers: HeaderMap::new(),
            body: Vec::new(),
            max_bytes,
            oversize: Oversize::Refuse,
            deadline,
        }
    }

    /// Adds a header.
    #[must_use]
    pub fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }
}

/// Omits headers and body: they may hold secrets, and the query of a URL holds text of a model.
impl fmt::Debug for ApiRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiRequest")
            .field("method", &self.method)
            .field("host", &self.url.host_str())
            .field("path", &self.url.path())
            .finish_non_exhaustive()
    }
}

impl ApiResponse {
    /// Returns the text of a header, if it is valid and at most 1 KiB long.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        const MAX_BYTES: usize = 1024;
        self.headers.get(name)?.to_str().ok().filter(|value| value.len() <= MAX_BYTES)
    }

    /// Returns the delay of the header `Retry-After`, if it is a number of seconds.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        let seconds: u32 = self.header("retry-after")?.trim().parse().ok()?;
        Some(Duration::from_secs(seconds.into()))
    }
}

impl fmt::Debug for ApiResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiResponse")
            .field("status", &self.status)
            .field("bytes", &self.body.len())
            .field("truncated", &self.truncated)
            .finish_non_exhaustive()
    }
}

/// Returns why `text` cannot be the base URL of an API, if so.
///
/// With `sends_secret`, plain `http` is valid only on this machine.
pub(crate) fn base_url(text: &str, sends_secret: bool) -> Result<Url, &'static str> {
    let url = Url::parse(text).map_err(|_| "is not a URL")?;
    let is_plain = url.username().is_empty()
        && url.password().is_none()
        && url.query().is_none()
        && url.fragment().is_none();
    match url.scheme() {
        _ if !is_plain => Err("must have no user, query or fragment"),
        "https" => Ok(url),
        "http" if !sends_secret || is_loopback(&url) => Ok(url),
        "http" => Err("must be https, or http on this machine: the key would be sent unencrypted"),
        _ => Err("must be an http or https URL"),
    }
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(url::Host::Domain(name)) => name == "localhost",
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

/// Returns `base` with these path segments appended, each percent-encoded.
pub(crate) fn endpoint<'a>(base: &Url, segments: impl IntoIterator<Item = &'a str>) -> Url {
    let mut url = base.clone();
    if let Ok(mut path) = url.path_segments_mut() {
        path.pop_if_empty().extend(segments);
    }
    url
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_sent_encrypted_or_locally() {
        for (url, with_secret, without) in [
            ("https://api.example.com/v1", true, true),
            ("http://127.0.0.1:1", true, true),
            ("http://[::1]:1/", true, true),
            ("http://localhost:1", true, true),
            ("http://localhost.example.com", false, true),
            ("http://10.0.0.1:8080", false, true),
            ("ftp://127.0.0.1", false, false),
            ("https://user@example.com", false, false),
            ("https://example.com/?a=b", false, false),
            ("example.com", false, false),
        ] {
            assert_eq!(base_url(url, true).is_ok(), with_secret, "{url}");
            assert_eq!(base_url(url, false).is_ok(), without, "{url}");
        }
    }

    #[test]
    fn segments_cannot_leave_their_place() {
        let base = Url::parse("https://api.example.com/v3/").expect("a URL");
        let url = endpoint(&base, ["repos", "a/b", "c?d", "ü"]);
        assert_eq!(url.as_str(), "https://api.example.com/v3/repos/a%2Fb/c%3Fd/%C3%BC");
    }

    #[test]
    fn debug_output_has_no_secret() {
        let url = Url::parse("https://api.example.com/search?q=secret").expect("a URL");
        let request = ApiRequest::get(url, 1, Instant::now())
            .with_header(http::header::AUTHORIZATION, HeaderValue::from_static("secret"));
        assert!(!format!("{request:?}").contains("secret"));
    }
}
