//! The client of OpenRouter's account endpoints.

use std::time::Duration;

use reqwest::{
    Client, Response, StatusCode, Url,
    header::{ACCEPT, AUTHORIZATION, HeaderValue, RETRY_AFTER},
};
use secrecy::{ExposeSecret, SecretString};
use serde_json::value::RawValue;
use tokio::{sync::Semaphore, time::timeout};

use crate::query::Query;

/// The maximum number of concurrent queries.
const MAX_QUERIES: u32 = 64;

/// Why a client cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The key has characters that are invalid in a header.
    #[error("openrouter.api_key: invalid characters; check for stray line breaks")]
    Key,
    /// The HTTP client cannot set up TLS.
    #[error("cannot create the HTTP client: {0}")]
    Client(#[source] reqwest::Error),
}

/// Why a query failed. The messages are for the caller of the tool, and contain no external text.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamError {
    /// OpenRouter rejected the query.
    #[error("OpenRouter returned {status}: {}", reason(*.status))]
    Refused {
        /// The HTTP status.
        status: StatusCode,
    },
    /// The rate limit is exceeded.
    #[error(
        "OpenRouter returned 429: too many requests; try again {}",
        retry_after.map_or_else(|| "later".to_owned(), |seconds| format!("in {seconds} s"))
    )]
    TooManyRequests {
        /// The requested delay in seconds, if there is one.
        retry_after: Option<u32>,
    },
    /// The response is too large.
    #[error("OpenRouter's response exceeds the limit of {limit} bytes")]
    TooLarge {
        /// The limit, in bytes.
        limit: usize,
    },
    /// The response is not JSON.
    #[error("OpenRouter's response is not JSON")]
    NotJson,
    /// The response was not complete in time.
    #[error("OpenRouter did not respond within {} s", .0.as_secs_f64())]
    TimedOut(Duration),
    /// The connection failed or broke.
    #[error("OpenRouter cannot be reached")]
    Unreachable(#[source] reqwest::Error),
    /// Too many concurrent queries.
    #[error("too many calls at once; try again later")]
    Busy,
}

fn reason(status: StatusCode) -> &'static str {
    match status.as_u16() {
        401 => "the key is not accepted",
        402 => "the account has no credits left",
        403 => "the key lacks the permission; use a management key",
        404 => "not found in this account",
        300..=399 => "redirects are not followed; openrouter.base_url is not the final address",
        400..=499 => "the request is not accepted",
        _ => "OpenRouter failed; try again later",
    }
}

/// A client for OpenRouter's account endpoints, with the account's key.
#[derive(Debug)]
pub struct OpenRouter {
    client: Client,
    base_url: Url,
    key: SecretString,
    authorization: HeaderValue,
    timeout: Duration,
    max_response_bytes: usize,
    permits: Semaphore,
}

impl OpenRouter {
    /// Creates a client; nothing is sent. The process must have installed a rustls provider.
    ///
    /// `timeout` limits a complete response, `max_response_bytes` its body.
    ///
    /// # Errors
    /// When the key is invalid, or TLS is unavailable.
    #[expect(clippy::disallowed_methods, reason = "the operator configures its one host")]
    pub fn new(
        base_url: Url,
        key: SecretString,
        timeout: Duration,
        max_response_bytes: usize,
    ) -> Result<Self, ClientError> {
        let bearer = format!("Bearer {}", key.expose_secret());
        let mut authorization = HeaderValue::try_from(bearer).map_err(|_| ClientError::Key)?;
        authorization.set_sensitive(true);
        let mut client = Client::builder()
            .user_agent(concat!("rockbot/", env!("CARGO_PKG_VERSION")))
            // Limits on responses are limits on received bytes.
            .no_gzip()
            // The key is for this host and no other.
            .redirect(reqwest::redirect::Policy::none());
        if is_loopback(&base_url) {
            client = client.no_proxy();
        }
        let client = client.build().map_err(ClientError::Client)?;
        let permits = Semaphore::new(MAX_QUERIES as usize);
        Ok(Self { client, base_url, key, authorization, timeout, max_response_bytes, permits })
    }

    /// Sends a query and returns the response, which is JSON. Dropping the future cancels the query.
    ///
    /// # Errors
    /// See [`UpstreamError`].
    pub async fn get(&self, query: &Query) -> Result<String, UpstreamError> {
        let _permit = self.permits.try_acquire().map_err(|_| UpstreamError::Busy)?;
        timeout(self.timeout, self.send(query))
            .await
            .map_err(|_| UpstreamError::TimedOut(self.timeout))?
    }

    /// Rejects further queries, and returns when the running ones have finished.
    pub(crate) async fn drained(&self) {
        // Acquires all permits, ahead of later queries, and never returns them.
        if let Ok(permits) = self.permits.acquire_many(MAX_QUERIES).await {
            permits.forget();
        }
    }

    async fn send(&self, query: &Query) -> Result<String, UpstreamError> {
        let response = self
            .client
            .get(query.url(&self.base_url))
            .header(AUTHORIZATION, self.authorization.clone())
            .header(ACCEPT, "application/json")
            .send()
            .await
            .map_err(unreachable)?;
        let status = response.status();
        if status == StatusCode::TOO_MANY_REQUESTS {
            return Err(UpstreamError::TooManyRequests { retry_after: retry_after(&response) });
        }
        if !status.is_success() {
            // The body is not passed on: it may repeat what was sent.
            return Err(UpstreamError::Refused { status });
        }
        let body = self.read(response).await?;
        let json: &RawValue = serde_json::from_slice(&body).map_err(|_| UpstreamError::NotJson)?;
        Ok(json.get().replace(self.key.expose_secret(), "[the key]"))
    }

    async fn read(&self, mut response: Response) -> Result<Vec<u8>, UpstreamError> {
        let limit = self.max_response_bytes;
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(unreachable)? {
            if chunk.len() > limit - body.len() {
                return Err(UpstreamError::TooLarge { limit });
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }
}

fn unreachable(error: reqwest::Error) -> UpstreamError {
    UpstreamError::Unreachable(error.without_url())
}

fn retry_after(response: &Response) -> Option<u32> {
    response.headers().get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()
}

/// Returns whether the host of a URL is this machine, judged by its name or address.
pub(crate) fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    let address = host.parse::<std::net::IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}
