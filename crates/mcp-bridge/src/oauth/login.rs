//! A person agrees in a browser, which comes back to this machine.

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

/// The longest request of a browser that is read.
const MAX_REQUEST_BYTES: usize = 32 * 1024;
/// How long one connection may take to say what it wants.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest reason of a refusal that is told.
const MAX_REASON_CHARS: usize = 100;

/// A login that waits for its person.
pub struct Login {
    session: Box<AuthorizationSession>,
    listener: TcpListener,
    /// What the browser brings back if it comes from this login.
    state: String,
}

impl Login {
    /// Finds out who authorises, and listens for the browser. `challenge` is what the server said
    /// when it refused us, if it was asked.
    ///
    /// # Errors
    /// When the server that authorises can't be found, or does not know this program and does not
    /// let it register.
    pub async fn begin(
        settings: &OAuthSettings,
        challenge: Option<&str>,
    ) -> Result<Self, OAuthError> {
        let Grant::Person { client_id, client_secret } = &settings.grant else {
            return Err(OAuthError::NotAPerson);
        };
        let mut manager = settings.manager().await?;
        let found = Box::pin(manager.resolve_metadata_from_challenge(challenge)).await?;
        manager.set_metadata(found.metadata);
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(OAuthError::Listen)?;
        let address = listener.local_addr().map_err(OAuthError::Listen)?;
        let mut request = AuthorizationRequest::new(format!("http://{address}/callback"))
            .with_client_name("RockBot")
            .with_scopes(scopes(settings, challenge).await?)
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
        let state = state_of(session.get_authorization_url()).unwrap_or_default();
        Ok(Self { session, listener, state })
    }

    /// What the person opens in a browser on this machine.
    pub fn url(&self) -> &str {
        self.session.get_authorization_url()
    }

    /// Waits until the browser comes back, and keeps the tokens. Dropping the future gives up.
    ///
    /// # Errors
    /// When nobody agrees within `patience`, or the tokens are not given or can't be kept.
    pub async fn finish(self, patience: Duration) -> Result<(), OAuthError> {
        let callback = timeout(patience, self.callback()).await;
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
            let asked = timeout(REQUEST_TIMEOUT, self.read(&mut stream)).await.ok().flatten();
            let (status, text) = match asked {
                Some(_) => ("200 OK", "You can close this window and go back to the terminal."),
                None => ("404 Not Found", "Nothing is here."),
            };
            let answer = format!(
                "HTTP/1.1 {status}\r\ncontent-type: text/plain\r\ncontent-length: {}\r\n\
                 connection: close\r\n\r\n{text}",
                text.len()
            );
            // The browser's window does not matter to what was agreed.
            let _ = timeout(REQUEST_TIMEOUT, stream.write_all(answer.as_bytes())).await;
            if let Some(url) = asked {
                return callback_of(&url);
            }
        }
    }

    /// What a connection asks for; none if that is not the return of this login.
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
        let ours = state_of(url.as_str()).is_some_and(|state| state == self.state);
        (url.path() == "/callback" && ours).then_some(url)
    }
}

/// What to ask for; whatever the server says it needs, if empty. When what was agreed before is not
/// enough, that and what is missing: a login does not take back what an earlier one gave.
async fn scopes(
    settings: &OAuthSettings,
    challenge: Option<&str>,
) -> Result<Vec<String>, OAuthError> {
    let mut scopes = settings.scopes.clone();
    let challenge = challenge.map(|text| WWWAuthenticateParams::parse(text, &settings.resource));
    if let Some(challenge) = challenge.filter(WWWAuthenticateParams::is_insufficient_scope) {
        let stored = settings.file().load().await?;
        let agreed = stored.map(|stored| stored.granted_scopes).unwrap_or_default();
        let wanted = challenge.scope.unwrap_or_default();
        let wanted: Vec<_> = wanted.split_whitespace().map(str::to_owned).collect();
        if !wanted.is_empty() && wanted.iter().all(|scope| agreed.contains(scope)) {
            return Err(OAuthError::InVain);
        }
        scopes.extend(agreed);
        scopes.extend(wanted);
    }
    let mut seen = BTreeSet::new();
    scopes.retain(|scope| seen.insert(scope.clone()));
    Ok(scopes)
}

fn callback_of(url: &Url) -> Result<AuthorizationCallback, OAuthError> {
    if let Some((_, reason)) = url.query_pairs().find(|(name, _)| name == "error") {
        // It comes from elsewhere: nothing in it may reach the terminal but plain text.
        let plain = reason.chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | ' '));
        return Err(OAuthError::Refused(plain.take(MAX_REASON_CHARS).collect()));
    }
    Ok(AuthorizationCallback::from_redirect_url(url.as_str())?)
}

fn state_of(url: &str) -> Option<String> {
    let url = Url::parse(url).ok()?;
    let state = url.query_pairs().find(|(name, _)| name == "state")?.1.into_owned();
    (!state.is_empty()).then_some(state)
}
