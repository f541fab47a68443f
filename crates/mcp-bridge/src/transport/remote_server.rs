//! A server to connect to.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use reqwest::Url;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use secrecy::{ExposeSecret, SecretString};

use tokio::time::timeout;

use super::dial::{CONNECT_TIMEOUT, DialPolicy};
use super::failure::ConnectError;

/// What is needed to connect to a remote server.
#[derive(Clone)]
pub struct RemoteServer {
    /// Where it is; `http` and `https`, or `ws` and `wss` for a WebSocket.
    pub url: Url,
    /// Sent with every request, expanded already. Their values are never logged.
    pub headers: BTreeMap<String, SecretString>,
    /// What may be dialled.
    pub policy: Arc<DialPolicy>,
    /// Where its tokens come from, if it wants any. A header `Authorization` takes precedence.
    pub tokens: Option<Arc<dyn TokenSource>>,
}

/// Where the bearer tokens of one server come from.
pub trait TokenSource: Send + Sync {
    /// A token to send; none when there is none yet, so that the server can say what it wants.
    ///
    /// # Errors
    /// [`ConnectError::Token`] when there should be one and it can't be had.
    fn token(&self) -> BoxFuture<'_, Result<Option<SecretString>, ConnectError>>;

    /// A token in place of one that the server refused; none when there is no other.
    ///
    /// # Errors
    /// As [`TokenSource::token`].
    fn renewed<'a>(
        &'a self,
        refused: &'a SecretString,
    ) -> BoxFuture<'a, Result<Option<SecretString>, ConnectError>>;

    /// Takes note that the server refused a request, with or without a token, and what it said
    /// about the authorisation that it wants.
    fn refused(&self, challenge: Option<&str>) {
        let _ = challenge;
    }
}

impl RemoteServer {
    /// A server without headers and tokens.
    pub fn new(url: Url, policy: Arc<DialPolicy>) -> Self {
        Self { url, headers: BTreeMap::new(), policy, tokens: None }
    }

    /// Whether it may be dialled and its name leads somewhere: looked at before anything is sent,
    /// so that the failure has its name.
    ///
    /// # Errors
    /// [`ConnectError::Refused`], [`ConnectError::Dns`], or [`ConnectError::TimedOut`].
    pub(crate) async fn find(&self) -> Result<Vec<SocketAddr>, ConnectError> {
        self.policy.check(&self.url)?;
        let host = self.url.host_str().unwrap_or_default().trim_matches(['[', ']']);
        let port = self.url.port_or_known_default().unwrap_or(443);
        let found = timeout(CONNECT_TIMEOUT, self.policy.resolve(host, port)).await;
        found.unwrap_or(Err(ConnectError::TimedOut))
    }

    /// The configured headers as they are sent, marked so that nobody prints them.
    ///
    /// # Errors
    /// [`ConnectError::BadHeader`] with the name of the first that can't be sent.
    pub(crate) fn header_map(&self) -> Result<HeaderMap, ConnectError> {
        let mut map = HeaderMap::new();
        for (name, value) in &self.headers {
            let bad = || ConnectError::BadHeader(name.clone());
            let header = HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad())?;
            map.insert(header, secret_value(value).ok_or_else(bad)?);
        }
        Ok(map)
    }

    /// The tokens to use, unless the operator configured a header in their place.
    pub(crate) fn token_source(&self) -> Option<Arc<dyn TokenSource>> {
        let configured =
            self.headers.keys().any(|name| name.eq_ignore_ascii_case(AUTHORIZATION.as_str()));
        self.tokens.clone().filter(|_| !configured)
    }
}

/// `Bearer` and a token, marked as secret.
///
/// # Errors
/// [`ConnectError::BadHeader`] when the token has characters that a header can't carry.
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
            // Not the query: some servers take their key there.
            .field(
                "url",
                &format_args!("{}{}", self.url.origin().ascii_serialization(), self.url.path()),
            )
            .field("headers", &self.headers.keys())
            .field("tokens", &self.tokens.is_some())
            .finish_non_exhaustive()
    }
}
