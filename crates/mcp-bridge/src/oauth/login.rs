//! Interactive logins: the user consents in a browser, which redirects to this machine.

use std::collections::BTreeSet;
use std::time::Duration;

use reqwest::Url;
use rmcp::transport::auth::{AuthorizationCallback, WWWAuthenticateParams};
use rmcp::transport::{AuthorizationRequest, AuthorizationSession, CredentialStore};
use secrecy::ExposeSecret;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::{Grant, OAuthError, OAuthSettings};

/// The largest browser request, in bytes.
const MAX_REQUEST_BYTES: usize = 32 * 1024;
/// The time limit for one browser request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest reported refusal reason, in characters.
const MAX_REASON_CHARS: usize = 100;

/// A login that waits for the user.
pub struct Login {
    session: Box<AuthorizationSession>,
    listener: TcpListener,
    /// The `state` parameter that the redirect must carry.
    state: String,
}

impl Login {
    /// Discovers the authorization server and listens for the redirect. `challenge` is the server's
    /// `WWW-Authenticate` header, if it rejected a request.
    ///
    /// # Errors
    /// When the authorization server cannot be found, or does not know this client and does not allow
    /// registration.
    pub async fn start(
        settings: &OAuthSettings,
        challenge: Option<&str>,
    ) -> Result<Self, OAuthError> {
        Self::start_with_scopes(settings, challenge, &[]).await
    }

    /// Starts a login like [`Login::start`], for `wanted` scopes in addition to those that are granted.
    ///
    /// # Errors
    /// See [`Login::start`].
    pub async fn start_with_scopes(
        settings: &OAuthSettings,
        challenge: Option<&str>,
        wanted: &[String],
    ) -> Result<Self, OAuthError> {
        let Grant::User { client_id, client_secret } = &settings.grant else {
            return Err(OAuthError::NotInteractive);
        };
        let mut manager = settings.manager().await?;
        let found = Box::pin(manager.resolve_metadata_from_challenge(challenge)).await?;
        manager.set_metadata(found.metadata);
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(OAuthError::Listen)?;
        let address = listener.local_addr().map_err(OAuthError::Listen)?;
        let mut request = AuthorizationRequest::new(format!("http://{address}/callback"))
            .with_client_name("RockBot")
            .with_scopes(scopes(settings, challenge, wanted).await?)
            .with_initial_scope_selection();
        request = match client_id {
            Some(url) if url.starts_with("https://") => request.with_client_metadata_url(url),
            Some(id) => request.with_preregistered_client(id),
            None => request,
        };
        if let Some(secret) = client_secret {
            request = request.with_client_secret(secret.expose_secret());
        }
        let session = Box::pin(AuthorizationSession::new(manager, request)).await;
        let session = Box::new(session.map_err(|(_, error)| error)?);
        let state = state_parameter(session.get_authorization_url()).unwrap_or_default();
        Ok(Self { session, listener, state })
    }

    /// Returns the URL that the user opens in a browser on this machine.
    pub fn url(&self) -> &str {
        self.session.get_authorization_url()
    }

    /// Waits for the redirect and stores the tokens. Dropping the future cancels the login.
    ///
    /// # Errors
    /// When no redirect arrives within `time_limit`, or the tokens are refused or cannot be stored.
    pub async fn finish(self, time_limit: Duration) -> Result<(), OAuthError> {
        let callback = timeout(time_limit, self.callback()).await;
        let callback = callback.map_err(|_| OAuthError::TimedOut)??;
        let issuer = callback.issuer.as_deref();
        let session = &self.session;
        let (code, state) = (&callback.code, &callback.csrf_token);
        Box::pin(session.handle_callback_with_issuer(code, state, issuer)).await?;
        Ok(())
    }

    async fn callback(&self) -> Result<AuthorizationCallback, OAuthError> {
        loop {
            let (mut stream, _) = self.listener.accept().await.map_err(OAuthError::Listen)?;
            let redirect = timeout(REQUEST_TIMEOUT, self.read(&mut stream)).await.ok().flatten();
            let (status, text) = match redirect {
                Some(_) => ("200 OK", "You can close this window and go back to the terminal."),
                None => ("404 Not Found", "Not found."),
            };
            let response = format!(
                "HTTP/1.1 {status}\r\ncontent-type: text/plain\r\ncontent-length: {}\r\n\
                 connection: close\r\n\r\n{text}",
                text.len()
            );
            // The login does not depend on the page in the browser.
            let _ = timeout(REQUEST_TIMEOUT, stream.write_all(response.as_bytes())).await;
            if let Some(url) = redirect {
                return parse_callback(&url);
            }
        }
    }

    /// Reads the request URL, or `None` if it is not the redirect of this login.
    async fn read(&self, stream: &mut TcpStream) -> Option<Url> {
        let mut request = Vec::new();
        let mut piece = [0; 4096];
        while !request.windows(2).any(|pair| pair == b"\r\n") {
            let size = stream.read(&mut piece).await.ok().filter(|size| *size > 0)?;
            request.extend_from_slice(&piece[..size]);
            if request.len() > MAX_REQUEST_BYTES {
                return None;
            }
        }
        let line = std::str::from_utf8(&request).ok()?.lines().next()?;
        let target = line.strip_prefix("GET ")?.split(' ').next()?;
        let url = Url::parse("http://127.0.0.1").ok()?.join(target).ok()?;
        let matches = state_parameter(url.as_str()).is_some_and(|state| state == self.state);
        (url.path() == "/callback" && matches).then_some(url)
    }
}

/// Returns the scopes to request; empty means those that the server names. With `wanted` scopes, or after
/// an `insufficient_scope` challenge, these are the granted and the missing ones, so that a login never
/// reduces what an earlier one granted.
async fn scopes(
    settings: &OAuthSettings,
    challenge: Option<&str>,
    wanted: &[String],
) -> Result<Vec<String>, OAuthError> {
    let mut scopes = settings.scopes.clone();
    let challenge = challenge.map(|text| WWWAuthenticateParams::parse(text, &settings.resource));
    let challenge = challenge.filter(WWWAuthenticateParams::is_insufficient_scope);
    if challenge.is_some() || !wanted.is_empty() {
        let stored = settings.file().load().await?;
        let granted = stored.map(|stored| stored.granted_scopes).unwrap_or_default();
        let required = challenge.and_then(|challenge| challenge.scope).unwrap_or_default();
        let mut missing = wanted.to_vec();
        missing.extend(required.split_whitespace().map(str::to_owned));
        if !missing.is_empty() && missing.iter().all(|scope| granted.contains(scope)) {
            return Err(OAuthError::ScopesAlreadyGranted);
        }
        scopes.extend(granted);
        scopes.extend(missing);
    }
    let mut seen = BTreeSet::new();
    scopes.retain(|scope| seen.insert(scope.clone()));
    Ok(scopes)
}

fn parse_callback(url: &Url) -> Result<AuthorizationCallback, OAuthError> {
    if let Some((_, reason)) = url.query_pairs().find(|(name, _)| name == "error") {
        // Untrusted text: only plain characters may reach the terminal.
        let plain = reason.chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | ' '));
        return Err(OAuthError::Refused(plain.take(MAX_REASON_CHARS).collect()));
    }
    Ok(AuthorizationCallback::from_redirect_url(url.as_str())?)
}

fn state_parameter(url: &str) -> Option<String> {
    let url = Url::parse(url).ok()?;
    let state = url.query_pairs().find(|(name, _)| name == "state")?.1.into_owned();
    (!state.is_empty()).then_some(state)
}
