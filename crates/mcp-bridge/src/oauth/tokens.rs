//! Tokens for requests to a server: stored, refreshed or newly obtained.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use oauth2::TokenResponse;
use parking_lot::MutexGuard;
use rmcp::transport::auth::{AuthError, OAuthClientConfig, OAuthTokenResponse};
use rmcp::transport::{AuthorizationManager, ClientCredentialsConfig, CredentialStore};
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::{Grant, Login, OAuthError, OAuthSettings};
use crate::transport::{ConnectError, TokenSource};

/// The time limit for discovering the authorization server and obtaining a token.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// The tokens of one server.
///
/// Concurrent calls share one token request. It continues when a call is cancelled: the server may
/// have rotated the refresh token, and only its response contains the new one.
#[derive(Clone)]
pub struct OAuthTokens(Arc<Tokens>);

struct Tokens {
    settings: OAuthSettings,
    state: Mutex<State>,
    /// The challenge of the last rejected request; empty when it had none.
    challenge: parking_lot::Mutex<Option<String>>,
}

#[derive(Default)]
struct State {
    manager: Option<AuthorizationManager>,
    /// The manager's client id at the authorization server, once a user has logged in.
    client_id: Option<String>,
    /// The authorization server is known, so tokens can be refreshed.
    can_refresh: bool,
}

impl OAuthTokens {
    /// Creates a token source. Nothing is read or requested before a token is needed.
    pub fn new(settings: OAuthSettings) -> Self {
        let (state, challenge) = Default::default();
        Self(Arc::new(Tokens { settings, state, challenge }))
    }

    /// Starts an interactive login with the scopes of the last rejected request, and with `scopes` in
    /// addition. Returns `None` when no request was rejected since the last login, and `scopes` is empty.
    ///
    /// # Errors
    /// See [`Login::start`].
    pub async fn log_in(&self, scopes: &[String]) -> Result<Option<Login>, OAuthError> {
        let challenge = self.challenge().take();
        if challenge.is_none() && scopes.is_empty() {
            return Ok(None);
        }
        let settings = &self.0.settings;
        Login::start_with_scopes(settings, challenge.as_deref(), scopes).await.map(Some)
    }

    fn challenge(&self) -> MutexGuard<'_, Option<String>> {
        self.0.challenge.lock()
    }

    /// Returns a token, or a replacement for `refused`.
    async fn request_token(
        &self,
        refused: Option<SecretString>,
    ) -> Result<Option<SecretString>, ConnectError> {
        let tokens = self.0.clone();
        let request = async move {
            let mut state = tokens.state.lock().await;
            tokens.prepare(&mut state).await?;
            match refused {
                None => tokens.current(&mut state).await,
                Some(refused) => tokens.replace(&mut state, &refused).await,
            }
        };
        let token = tokio::spawn(timeout(REQUEST_TIMEOUT, request)).await;
        let token = token.map_err(|error| ConnectError::Token(error.into()))?;
        Ok(token.map_err(|_| ConnectError::TimedOut)??)
    }
}

impl Tokens {
    async fn current(&self, state: &mut State) -> Result<Option<SecretString>, OAuthError> {
        match self.stored(state).await {
            Err(AuthError::AuthorizationRequired) => self.obtain(state).await,
            token => Ok(Some(token?)),
        }
    }

    /// Returns the stored token, refreshed if it is about to expire.
    async fn stored(&self, state: &mut State) -> Result<SecretString, AuthError> {
        let Some(manager) = &mut state.manager else {
            return Err(AuthError::InternalError("no manager".into()));
        };
        match manager.get_access_token().await {
            // It must be refreshed, which requires discovery first.
            Err(AuthError::InternalError(_)) if !state.can_refresh => {
                self.discover(state).await?;
                let Some(manager) = &state.manager else {
                    return Err(AuthError::AuthorizationRequired);
                };
                manager.get_access_token().await.map(SecretString::from)
            }
            token => token.map(SecretString::from),
        }
    }

    /// Obtains the first token: only possible with client credentials.
    async fn obtain(&self, state: &mut State) -> Result<Option<SecretString>, OAuthError> {
        let Grant::Machine { client_id, client_secret } = &self.settings.grant else {
            return Ok(None);
        };
        let Some(manager) = &mut state.manager else { return Ok(None) };
        let credentials = ClientCredentialsConfig::ClientSecret {
            client_id: client_id.clone(),
            client_secret: client_secret.expose_secret().to_owned(),
            scopes: self.settings.scopes.clone(),
            resource: Some(self.settings.resource.to_string()),
        };
        let found = manager.resolve_metadata().await?;
        manager.set_metadata(found.metadata);
        manager.validate_client_credentials_metadata(&credentials)?;
        manager.configure_client_credentials(&credentials)?;
        let issued = manager.exchange_client_credentials(&credentials).await?;
        state.can_refresh = true;
        Ok(Some(access_token(&issued)))
    }

    /// Discovers the authorization server for the stored tokens.
    async fn discover(&self, state: &mut State) -> Result<(), AuthError> {
        let Some(manager) = &mut state.manager else {
            return Err(AuthError::AuthorizationRequired);
        };
        if !manager.initialize_from_store().await? {
            return Err(AuthError::AuthorizationRequired);
        }
        if let Grant::User { client_id: Some(id), client_secret: Some(secret) } =
            &self.settings.grant
        {
            // The file has no secret. The redirect URL plays no part in refreshing.
            let config = OAuthClientConfig::new(id, "http://127.0.0.1/callback");
            manager.configure_client(config.with_client_secret(secret.expose_secret()))?;
        }
        state.can_refresh = true;
        Ok(())
    }

    async fn replace(
        &self,
        state: &mut State,
        refused: &SecretString,
    ) -> Result<Option<SecretString>, OAuthError> {
        let is_new = |token: &SecretString| token.expose_secret() != refused.expose_secret();
        match self.stored(state).await {
            Ok(token) if is_new(&token) => return Ok(Some(token)),
            Ok(_) | Err(AuthError::AuthorizationRequired) => {}
            Err(error) => return Err(error.into()),
        }
        if let Grant::Machine { .. } = self.settings.grant {
            return Ok(self.obtain(state).await?.filter(is_new));
        }
        match self.refresh(state).await {
            Ok(token) => Ok(Some(token).filter(is_new)),
            // The user has to consent again.
            Err(AuthError::AuthorizationRequired | AuthError::TokenRefreshRejected(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    async fn refresh(&self, state: &mut State) -> Result<SecretString, AuthError> {
        if !state.can_refresh {
            self.discover(state).await?;
        }
        let Some(manager) = &state.manager else {
            return Err(AuthError::AuthorizationRequired);
        };
        manager.refresh_token().await.map(|issued| access_token(&issued))
    }

    async fn prepare(&self, state: &mut State) -> Result<(), OAuthError> {
        let client_id = match self.settings.grant {
            Grant::User { .. } => self.settings.file().load().await?.map(|stored| stored.client_id),
            Grant::Machine { .. } => None,
        };
        if state.manager.is_none() || state.client_id != client_id {
            // Each login may register another client, also one in another process.
            let manager = Some(self.settings.manager().await?);
            *state = State { manager, client_id, can_refresh: false };
        }
        Ok(())
    }
}

/// Returns the access token of a response, however soon it expires.
fn access_token(issued: &OAuthTokenResponse) -> SecretString {
    issued.access_token().secret().clone().into()
}

impl TokenSource for OAuthTokens {
    fn token(&self) -> BoxFuture<'_, Result<Option<SecretString>, ConnectError>> {
        self.request_token(None).boxed()
    }

    fn renew<'a>(
        &'a self,
        refused: &'a SecretString,
    ) -> BoxFuture<'a, Result<Option<SecretString>, ConnectError>> {
        self.request_token(Some(refused.clone())).boxed()
    }

    fn record_challenge(&self, challenge: Option<&str>) {
        *self.challenge() = Some(challenge.unwrap_or_default().to_owned());
    }
}
