//! HTTP requests to one server, with its token and bounded responses.

use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, RETRY_AFTER, WWW_AUTHENTICATE};
use reqwest::{RequestBuilder, Response, StatusCode};
use rockbot_egress::{
    ClientOptions, ClientRedirects, DialPolicy, EgressError, GuardedClient, read_body,
};
use secrecy::SecretString;

use super::failure::ConnectError;
use super::remote_server::{RemoteServer, TokenSource, bearer};

/// The longest challenge that is stored, in bytes.
const MAX_CHALLENGE_BYTES: usize = 8 * 1024;
/// The longest `Retry-After` header that is stored, in bytes.
const MAX_RETRY_AFTER_BYTES: usize = 64;

/// The maximum number of redirects in a row.
const MAX_REDIRECTS: usize = 5;

/// The read timeout of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadTimeout {
    /// [`RemoteServer::idle_timeout`].
    Idle,
    /// None: a standing stream may be idle for days. A peer that vanished is detected by keep-alive and by
    /// pings of the session.
    Unlimited,
}

/// The HTTP client for one server. It follows redirects to the same origin only, because headers, session
/// and arguments are sent to this server only. It has no total timeout, which would cut long streams.
#[derive(Clone)]
pub(crate) struct Peer {
    client: GuardedClient,
    tokens: Option<Arc<dyn TokenSource>>,
}

impl Peer {
    pub(crate) fn new(
        server: &RemoteServer,
        read_timeout: ReadTimeout,
    ) -> Result<Self, ConnectError> {
        let read_timeout = match read_timeout {
            ReadTimeout::Idle => Some(server.idle_timeout),
            ReadTimeout::Unlimited => None,
        };
        let client = redirecting_client(&server.policy, server.header_map()?, read_timeout)?;
        Ok(Self { client, tokens: server.token_source() })
    }

    /// Sends the request, and a second time with another token when the first one is rejected.
    ///
    /// # Errors
    /// When the server cannot be dialed or does not respond. Any status is a response.
    pub(crate) async fn send(
        &self,
        request: impl Fn(&GuardedClient) -> Result<RequestBuilder, EgressError>,
    ) -> Result<Response, ConnectError> {
        let response = self.send_with_token(request).await?;
        let is_rejected =
            matches!(response.status(), StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
        if let Some(tokens) = self.tokens.as_ref().filter(|_| is_rejected) {
            tokens.record_challenge(challenge(&response).as_deref());
        }
        Ok(response)
    }

    async fn send_with_token(
        &self,
        request: impl Fn(&GuardedClient) -> Result<RequestBuilder, EgressError>,
    ) -> Result<Response, ConnectError> {
        let first = request(&self.client)?;
        let token = match &self.tokens {
            Some(tokens) => tokens.token().await?,
            None => None,
        };
        let response = send(first, token.as_ref()).await?;
        let (Some(tokens), Some(token)) = (&self.tokens, &token) else { return Ok(response) };
        if response.status() != StatusCode::UNAUTHORIZED {
            return Ok(response);
        }
        match tokens.renew(token).await? {
            Some(token) => send(request(&self.client)?, Some(&token)).await,
            None => Ok(response),
        }
    }
}

async fn send(
    request: RequestBuilder,
    token: Option<&SecretString>,
) -> Result<Response, ConnectError> {
    let request = match token {
        Some(token) => request.header(AUTHORIZATION, bearer(token)?),
        None => request,
    };
    Ok(request.send().await?)
}

/// Content types of responses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyKind {
    Json,
    Events,
    Other,
}

pub(crate) fn body_kind(response: &Response) -> BodyKind {
    let kind = response.headers().get(CONTENT_TYPE).map_or(&b""[..], |kind| kind.as_bytes());
    let essence = kind.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    if essence.eq_ignore_ascii_case(b"application/json") {
        BodyKind::Json
    } else if essence.eq_ignore_ascii_case(b"text/event-stream") {
        BodyKind::Events
    } else {
        BodyKind::Other
    }
}

/// Returns the server's challenge, if it is not too long.
pub(crate) fn challenge(response: &Response) -> Option<String> {
    let challenge = response.headers().get(WWW_AUTHENTICATE)?.to_str().ok()?;
    (challenge.len() <= MAX_CHALLENGE_BYTES).then(|| challenge.to_owned())
}

/// Returns the failure for the status of a response.
pub(crate) fn status_error(response: &Response) -> ConnectError {
    let retry_after = retry_after(response.headers());
    ConnectError::from_status(response.status().as_u16(), challenge(response), retry_after)
}

/// Returns the `Retry-After` header, if it is not too long.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?;
    (value.len() <= MAX_RETRY_AFTER_BYTES).then(|| value.to_owned())
}

/// Creates a client that follows redirects to the same origin. It does not decompress, so that limits on
/// received bytes are limits on buffered bytes.
///
/// # Errors
/// When the trusted certificates cannot be read.
pub(crate) fn redirecting_client(
    policy: &Arc<DialPolicy>,
    headers: HeaderMap,
    read_timeout: Option<Duration>,
) -> Result<GuardedClient, ConnectError> {
    let redirects = ClientRedirects::SameOrigin { max: MAX_REDIRECTS };
    let options = ClientOptions { headers, redirects, read_timeout, ..ClientOptions::default() };
    Ok(GuardedClient::new(policy.clone(), options)?)
}

/// Reads a body, or returns `None` if it exceeds `limit` bytes.
///
/// # Errors
/// When the connection breaks or is idle for too long.
pub(crate) async fn read_within(
    response: Response,
    limit: usize,
) -> Result<Option<Vec<u8>>, ConnectError> {
    match read_body(response, limit, None).await {
        Ok(body) => Ok(Some(body)),
        Err(EgressError::TooLarge { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
