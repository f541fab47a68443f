//! One HTTP server: requests to it, with its token, and answers that are read within bounds.

use std::sync::Arc;

use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, WWW_AUTHENTICATE};
use reqwest::{Client, RequestBuilder, Response, StatusCode, Url};
use secrecy::SecretString;

use super::dial::{DialPolicy, Patience, http_client};
use super::failure::ConnectError;
use super::remote_server::{RemoteServer, TokenSource, bearer};

/// The longest challenge that is handed on.
const MAX_CHALLENGE_BYTES: usize = 8 * 1024;

/// A server that is asked over HTTP.
#[derive(Clone)]
pub(crate) struct Peer {
    client: Client,
    policy: Arc<DialPolicy>,
    tokens: Option<Arc<dyn TokenSource>>,
}

impl Peer {
    pub(crate) fn new(server: &RemoteServer, patience: Patience) -> Result<Self, ConnectError> {
        Ok(Self {
            client: http_client(&server.policy, server.header_map()?, patience)?,
            policy: server.policy.clone(),
            tokens: server.token_source(),
        })
    }

    /// Sends what `request` builds; once more with another token when the first one is refused.
    ///
    /// # Errors
    /// When the server can't be dialled or does not answer. Any status is an answer.
    pub(crate) async fn send(
        &self,
        url: &Url,
        request: impl Fn(&Client) -> RequestBuilder,
    ) -> Result<Response, ConnectError> {
        self.policy.check(url)?;
        let response = self.send_with_token(request).await?;
        let is_refusal =
            matches!(response.status(), StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
        if let Some(tokens) = self.tokens.as_ref().filter(|_| is_refusal) {
            tokens.refused(challenge(&response).as_deref());
        }
        Ok(response)
    }

    async fn send_with_token(
        &self,
        request: impl Fn(&Client) -> RequestBuilder,
    ) -> Result<Response, ConnectError> {
        let token = match &self.tokens {
            Some(tokens) => tokens.token().await?,
            None => None,
        };
        let response = send(request(&self.client), token.as_ref()).await?;
        let (Some(tokens), Some(token)) = (&self.tokens, &token) else { return Ok(response) };
        if response.status() != StatusCode::UNAUTHORIZED {
            return Ok(response);
        }
        match tokens.renewed(token).await? {
            Some(token) => send(request(&self.client), Some(&token)).await,
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

/// The kinds of answer that a server of tools gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Json,
    Events,
    Other,
}

pub(crate) fn kind(response: &Response) -> Kind {
    let kind = response.headers().get(CONTENT_TYPE).map_or(&b""[..], |kind| kind.as_bytes());
    let essence = kind.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    if essence.eq_ignore_ascii_case(b"application/json") {
        Kind::Json
    } else if essence.eq_ignore_ascii_case(b"text/event-stream") {
        Kind::Events
    } else {
        Kind::Other
    }
}

/// What the server says about the authorisation that it wants.
pub(crate) fn challenge(response: &Response) -> Option<String> {
    let challenge = response.headers().get(WWW_AUTHENTICATE)?.to_str().ok()?;
    (challenge.len() <= MAX_CHALLENGE_BYTES).then(|| challenge.to_owned())
}

/// The failure that an answer is, by its status.
pub(crate) fn failure_of(response: &Response) -> ConnectError {
    ConnectError::of_status(response.status().as_u16(), challenge(response))
}

/// Reads an answer to its end, or says that it has more bytes than that.
///
/// # Errors
/// When the connection breaks or says nothing for too long.
pub(crate) async fn read_body(
    mut response: Response,
    at_most: usize,
) -> Result<Option<Vec<u8>>, ConnectError> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        if chunk.len() > at_most - body.len() {
            return Ok(None);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Some(body))
}
