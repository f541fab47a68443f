//! Access tokens of OAuth clients.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use http::{
    HeaderValue, Method, StatusCode,
    header::{ACCEPT, AUTHORIZATION},
};
use parking_lot::Mutex;
use rockbot_egress::{EgressError, GuardedClient, read_body};
use rockbot_tools::{Executed, ToolFailure};
use secrecy::ExposeSecret;
use serde::Deserialize;
use tokio::time::Instant;
use tracing::warn;
use url::form_urlencoded;

use crate::{request::ClientCredentials, secrets::Secrets};

/// Maximum size of a response with a token, in bytes.
const MAX_RESPONSE_BYTES: usize = 64 * 1024;
/// Time limit of a token request. The deadline of the call applies as well.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Time before its expiry from which a token is not used any more.
const MARGIN: Duration = Duration::from_secs(30);
/// Lifetime of a token whose expiry the server does not state.
const DEFAULT_LIFETIME: Duration = Duration::from_secs(300);
/// Maximum lifetime of a token, whatever the server states.
const MAX_LIFETIME: Duration = Duration::from_secs(24 * 3600);
/// Maximum number of OAuth clients whose tokens are kept.
const MAX_CLIENTS: usize = 256;

/// An access token.
pub(super) struct Token {
    /// `Authorization`, marked as sensitive.
    pub(super) header: HeaderValue,
    /// Redaction of the token.
    pub(super) secrets: Secrets,
    expires: Instant,
}

/// Tokens by OAuth client. One request at a time obtains a client's token.
pub(super) struct Tokens {
    http: GuardedClient,
    slots: Mutex<BTreeMap<String, Slot>>,
}

type Slot = Arc<tokio::sync::Mutex<Option<Arc<Token>>>>;

#[derive(Deserialize)]
struct TokenResponse {
    access_token: String,
    expires_in: Option<u64>,
}

impl Tokens {
    pub(super) fn new(http: GuardedClient) -> Self {
        Self { http, slots: Mutex::default() }
    }

    /// Returns a token that is valid for at least 30 s, and is not `rejected`, which the API refused.
    ///
    /// # Errors
    /// When no token can be obtained; the tool was not executed.
    pub(super) async fn token(
        &self,
        client: &ClientCredentials,
        rejected: Option<&Arc<Token>>,
    ) -> Result<Arc<Token>, ToolFailure> {
        let slot = self.slot(client);
        let mut kept = slot.lock().await;
        if let Some(token) = &*kept
            && token.expires > Instant::now()
            && rejected.is_none_or(|rejected| !Arc::ptr_eq(rejected, token))
        {
            return Ok(token.clone());
        }
        *kept = None;
        let token = Arc::new(self.obtain(client).await?);
        *kept = Some(token.clone());
        Ok(token)
    }

    fn slot(&self, client: &ClientCredentials) -> Slot {
        let secret = client.client_secret.expose_secret();
        let scopes = client.scopes.join(" ");
        let key = [client.token_url.as_str(), &client.client_id, secret, &scopes].join("\n");
        let mut slots = self.slots.lock();
        if slots.len() >= MAX_CLIENTS && !slots.contains_key(&key) {
            slots.clear();
        }
        slots.entry(key).or_default().clone()
    }

    async fn obtain(&self, client: &ClientCredentials) -> Result<Token, ToolFailure> {
        let mut refused = None;
        // Servers accept the client's secret in a header or in the body; the standard prefers the first.
        for in_header in [true, false] {
            let requested = tokio::time::timeout(TIMEOUT, self.request(client, in_header)).await;
            match requested.unwrap_or(Err(EgressError::TimedOut)) {
                Ok(Ok(response)) => return token(response),
                Ok(Err(status)) => refused = Some(status),
                Err(error) => {
                    let host = client.token_url.host_str().unwrap_or_default();
                    warn!(%error, host, "token request failed");
                    return Err(unavailable("the API's token endpoint cannot be reached"));
                }
            }
            if !matches!(refused, Some(StatusCode::BAD_REQUEST | StatusCode::UNAUTHORIZED)) {
                break;
            }
        }
        let status = refused.map_or_else(String::new, |status| format!(" ({})", status.as_u16()));
        Err(unavailable(&format!("the API's token endpoint refused the OAuth client{status}")))
    }

    /// Requests a token. Returns the status if the server refused.
    async fn request(
        &self,
        client: &ClientCredentials,
        in_header: bool,
    ) -> Result<Result<TokenResponse, StatusCode>, EgressError> {
        let secret = client.client_secret.expose_secret();
        let mut form = vec![("grant_type", "client_credentials")];
        let scopes = client.scopes.join(" ");
        if !scopes.is_empty() {
            form.push(("scope", &scopes));
        }
        let mut request = self.http.request(Method::POST, client.token_url.clone())?;
        if in_header {
            let encode = |text: &str| -> String {
                form_urlencoded::byte_serialize(text.as_bytes()).collect()
            };
            request = request.basic_auth(encode(&client.client_id), Some(encode(secret)));
        } else {
            form.extend([("client_id", client.client_id.as_str()), ("client_secret", secret)]);
        }
        let response = request.header(ACCEPT, "application/json").form(&form).send().await?;
        let status = response.status();
        if !status.is_success() {
            return Ok(Err(status));
        }
        let body = read_body(response, MAX_RESPONSE_BYTES, None).await?;
        Ok(serde_json::from_slice(&body).map_err(|_| status))
    }
}

fn token(response: TokenResponse) -> Result<Token, ToolFailure> {
    let TokenResponse { access_token, expires_in } = response;
    let mut header = HeaderValue::from_str(&format!("Bearer {access_token}"))
        .map_err(|_| unavailable("the API's token endpoint returned an invalid token"))?;
    header.set_sensitive(true);
    let lifetime = expires_in.map_or(DEFAULT_LIFETIME, Duration::from_secs).min(MAX_LIFETIME);
    Ok(Token {
        header,
        secrets: Secrets::new([access_token]),
        expires: Instant::now() + lifetime.saturating_sub(MARGIN),
    })
}

fn unavailable(what: &str) -> ToolFailure {
    let message = format!("{what}; notify an operator");
    ToolFailure::Unavailable { message, executed: Executed::No }
}

impl Token {
    /// Returns the header that carries the token.
    pub(super) fn header(&self) -> (http::HeaderName, HeaderValue) {
        (AUTHORIZATION, self.header.clone())
    }
}
