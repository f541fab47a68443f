//! The tokens that are sent to a server: taken from their file, refreshed, or asked for.

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

/// How long it may take to find who authorises, and to be given a token there.
const ASKING: Duration = Duration::from_secs(60);

/// The tokens of one server.
///
/// Calls wait for each other while a token is being asked for, and get what came of it. A call
/// that is given up meanwhile does not stop that: the server may have replaced what the token is
/// refreshed with, and then only its answer says by what.
#[derive(Clone)]
pub struct OAuthTokens(Arc<Tokens>);

struct Tokens {
    settings: OAuthSettings,
    state: Mutex<State>,
    /// What the server said when it refused a request last; empty when it gave no reason.
    challenge: parking_lot::Mutex<Option<String>>,
}

#[derive(Default)]
struct State {
    manager: Option<AuthorizationManager>,
    /// Who the manager is at the server that authorises, once a person has logged in.
    client_id: Option<String>,
    /// The server that authorises is known, so tokens can be refreshed there.
    can_refresh: bool,
}

impl OAuthTokens {
    /// Tokens by these settings. Nothing is read or asked before a token is wanted.
    pub fn new(settings: OAuthSettings) -> Self {
        let (state, challenge) = Default::default();
        Self(Arc::new(Tokens { settings, state, challenge }))
    }

    /// Begins the login of a person for what the server wanted when it refused a request. None when
    /// it has refused none since the last login.
    ///
    /// # Errors
    /// See [`Login::begin`].
    pub async fn log_in(&self) -> Result<Option<Login>, OAuthError> {
        let Some(challenge) = self.challenge().take() else { return Ok(None) };
        Login::begin(&self.0.settings, Some(&challenge)).await.map(Some)
    }

    fn challenge(&self) -> MutexGuard<'_, Option<String>> {
        self.0.challenge.lock()
    }

    /// A token, or another one in place of the one that was refused.
    async fn ask(
        &self,
        refused: Option<SecretString>,
    ) -> Result<Option<SecretString>, ConnectError> {
        let tokens = self.0.clone();
        let asking = async move {
            let mut state = tokens.state.lock().await;
            tokens.begin(&mut state).await?;
            match refused {
                None => tokens.current(&mut state).await,
                Some(refused) => tokens.another(&mut state, &refused).await,
            }
        };
        let asked = tokio::spawn(timeout(ASKING, asking)).await;
        let asked = asked.map_err(|error| ConnectError::Token(error.into()))?;
        Ok(asked.map_err(|_| ConnectError::TimedOut)??)
    }
}

impl Tokens {
    async fn current(&self, state: &mut State) -> Result<Option<SecretString>, OAuthError> {
        match self.stored(state).await {
            Err(AuthError::AuthorizationRequired) => self.first(state).await,
            token => Ok(Some(token?)),
        }
    }

    /// The token in the file; another one if it is about to expire.
    async fn stored(&self, state: &mut State) -> Result<SecretString, AuthError> {
        let Some(manager) = &mut state.manager else {
            return Err(AuthError::InternalError("no manager".into()));
        };
        match manager.get_access_token().await {
            // It has to be refreshed, and for that the server has to be found first.
            Err(AuthError::InternalError(_)) if !state.can_refresh => {
                self.find(state).await?;
                let Some(manager) = &state.manager else {
                    return Err(AuthError::AuthorizationRequired);
                };
                manager.get_access_token().await.map(SecretString::from)
            }
            token => token.map(SecretString::from),
        }
    }

    /// A token where there is none: only a machine gets one by itself.
    async fn first(&self, state: &mut State) -> Result<Option<SecretString>, OAuthError> {
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
        let given = manager.exchange_client_credentials(&credentials).await?;
        state.can_refresh = true;
        Ok(Some(token_of(&given)))
    }

    /// Finds the server that authorises, for the tokens in the file.
    async fn find(&self, state: &mut State) -> Result<(), AuthError> {
        let Some(manager) = &mut state.manager else {
            return Err(AuthError::AuthorizationRequired);
        };
        if !manager.initialize_from_store().await? {
            return Err(AuthError::AuthorizationRequired);
        }
        if let Grant::Person { client_id: Some(id), client_secret: Some(secret) } =
            &self.settings.grant
        {
            // The file has no secret. Where to return to plays no part in refreshing.
            let config = OAuthClientConfig::new(id, "http://127.0.0.1/callback");
            manager.configure_client(config.with_client_secret(secret.expose_secret()))?;
        }
        state.can_refresh = true;
        Ok(())
    }

    async fn another(
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
            return Ok(self.first(state).await?.filter(is_new));
        }
        match self.refreshed(state).await {
            Ok(token) => Ok(Some(token).filter(is_new)),
            // A person has to agree again.
            Err(AuthError::AuthorizationRequired | AuthError::TokenRefreshRejected(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    async fn refreshed(&self, state: &mut State) -> Result<SecretString, AuthError> {
        if !state.can_refresh {
            self.find(state).await?;
        }
        let Some(manager) = &state.manager else {
            return Err(AuthError::AuthorizationRequired);
        };
        manager.refresh_token().await.map(|given| token_of(&given))
    }

    async fn begin(&self, state: &mut State) -> Result<(), OAuthError> {
        let client_id = match self.settings.grant {
            Grant::Person { .. } => {
                self.settings.file().load().await?.map(|stored| stored.client_id)
            }
            Grant::Machine { .. } => None,
        };
        if state.manager.is_none() || state.client_id != client_id {
            // Each login may register anew, also one in another process.
            let manager = Some(self.settings.manager().await?);
            *state = State { manager, client_id, can_refresh: false };
        }
        Ok(())
    }
}

/// What was given, however soon it expires.
fn token_of(given: &OAuthTokenResponse) -> SecretString {
    given.access_token().secret().clone().into()
}

impl TokenSource for OAuthTokens {
    fn token(&self) -> BoxFuture<'_, Result<Option<SecretString>, ConnectError>> {
        self.ask(None).boxed()
    }

    fn renewed<'a>(
        &'a self,
        refused: &'a SecretString,
    ) -> BoxFuture<'a, Result<Option<SecretString>, ConnectError>> {
        self.ask(Some(refused.clone())).boxed()
    }

    fn refused(&self, challenge: Option<&str>) {
        *self.challenge() = Some(challenge.unwrap_or_default().to_owned());
    }
}
