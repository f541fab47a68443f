//! Remote servers and their token sources.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use reqwest::Url;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use rockbot_egress::DialPolicy;
use secrecy::{ExposeSecret, SecretString};
use tokio::time::timeout;

use super::failure::ConnectError;

/// The time limit for establishing a connection, including TLS.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The default of [`RemoteServer::idle_timeout`].
const IDLE_TIMEOUT: Duration = Duration::from_secs(300);

/// The connection settings of a remote server.
#[derive(Clone)]
pub struct RemoteServer {
    /// Its URL: `http` or `https`, or `ws` or `wss` for a WebSocket.
    pub url: Url,
    /// Headers of every request, already expanded. The values are never logged.
    pub headers: BTreeMap<String, SecretString>,
    /// Addresses that may be dialed.
    pub policy: Arc<DialPolicy>,
    /// The idle timeout while a response is expected. Default: 5 minutes.
    pub idle_timeout: Duration,
    /// Its token source, if it uses OAuth. An `Authorization` header takes precedence.
    pub tokens: Option<Arc<dyn TokenSource>>,
}

/// A source of bearer tokens for one server.
pub trait TokenSource: Send + Sync {
    /// Returns a token to send. Returns `None` when no token exists yet; the server then sends its
    /// challenge.
    ///
    /// # Errors
    /// [`ConnectError::Token`] when a token is required and cannot be obtained.
    fn token(&self) -> BoxFuture<'_, Result<Option<SecretString>, ConnectError>>;

    /// Returns a replacement for a rejected token, or `None` when no other token is available.
    ///
    /// # Errors
    /// See [`TokenSource::token`].
    fn renew<'a>(
        &'a self,
        refused: &'a SecretString,
    ) -> BoxFuture<'a, Result<Option<SecretString>, ConnectError>>;

    /// Records that the server rejected a request, with or without a token, and its challenge.
    fn record_challenge(&self, challenge: Option<&str>) {
        let _ = challenge;
    }
}

impl RemoteServer {
    /// Creates a server without headers and tokens.
    pub fn new(url: Url, policy: Arc<DialPolicy>) -> Self {
        Self { url, headers: BTreeMap::new(), policy, idle_timeout: IDLE_TIMEOUT, tokens: None }
    }

    /// Checks the policy and resolves the name before anything is sent, so that these failures are
    /// reported as such.
    ///
    /// # Errors
    /// [`ConnectError::Refused`], [`ConnectError::Dns`], or [`ConnectError::TimedOut`].
    pub(crate) async fn resolve(&self) -> Result<Vec<SocketAddr>, ConnectError> {
        self.policy.check(&self.url)?;
        let host = self.url.host_str().unwrap_or_default().trim_matches(['[', ']']);
        let port = self.url.port_or_known_default().unwrap_or(443);
        let found = timeout(CONNECT_TIMEOUT, self.policy.resolve(host, port)).await;
        Ok(found.map_err(|_| ConnectError::TimedOut)??)
    }

    /// Returns the configured headers, marked as sensitive.
    ///
    /// # Errors
    /// [`ConnectError::BadHeader`] with the name of the first invalid one.
    pub(crate) fn header_map(&self) -> Result<HeaderMap, ConnectError> {
        let mut map = HeaderMap::new();
        for (name, value) in &self.headers {
            let bad = || ConnectError::BadHeader(name.clone());
            let header = HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad())?;
            map.insert(header, secret_value(value).ok_or_else(bad)?);
        }
        Ok(map)
    }

    /// Returns the token source, unless an `Authorization` header is configured.
    pub(crate) fn token_source(&self) -> Option<Arc<dyn TokenSource>> {
        let configured =
            self.headers.keys().any(|name| name.eq_ignore_ascii_case(AUTHORIZATION.as_str()));
        self.tokens.clone().filter(|_| !configured)
    }
}

/// Returns the `Authorization` value for a token, marked as sensitive.
///
/// # Errors
/// [`ConnectError::BadHeader`] when the token has characters that are invalid in a header.
pub(crate) fn bearer(token: &SecretString) -> Result<HeaderValue, ConnectError> {
    let value = SecretString::from(format!("Bearer {}", token.expose_secret()));
    secret_value(&value).ok_or_else(|| ConnectError::BadHeader(AUTHORIZATION.to_string()))
}

fn secret_value(value: &SecretString) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(value.expose_secret()).ok()?;
    value.set_sensitive(true);
    Some(value)
}

impl std::fmt::Debug for RemoteServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RemoteServer")
            // Without the query, where some servers take their key.
            .field(
                "url",
                &format_args!("{}{}", self.url.origin().ascii_serialization(), self.url.path()),
            )
            .field("headers", &self.headers.keys())
            .field("tokens", &self.tokens.is_some())
            .finish_non_exhaustive()
    }
}
