//! OAuth 2.1 for remote servers.
//!
//! A token belongs to one server, identified by its URL (the resource of the protocol), and is sent to
//! no other. It is stored in a file of that server that only this user can read. Authorization servers
//! are discovered from what the MCP server reports, so they are dialed by the same [`DialPolicy`].
//!
//! A process without a browser obtains tokens with client credentials ([`Grant::Machine`]). Where a
//! user has to consent, [`Login`] does that once, from a terminal; the process refreshes the tokens
//! afterwards.
mod file;
mod http_client;
mod login;
mod tokens;

use std::path::PathBuf;
use std::sync::Arc;

use reqwest::Url;
use rmcp::transport::AuthorizationManager;
use rmcp::transport::auth::AuthError;

use crate::transport::{ConnectError, DialPolicy};

pub use crate::config::Grant;
pub use login::Login;
pub use tokens::OAuthTokens;

use file::TokenFile;

/// OAuth settings of a server.
#[derive(Debug, Clone)]
pub struct OAuthSettings {
    /// The server that the tokens are for.
    pub resource: Url,
    /// The grant that tokens are obtained with.
    pub grant: Grant,
    /// Requested scopes. When empty, the scopes that the server names.
    pub scopes: Vec<String>,
    /// Addresses that may be dialed.
    pub policy: Arc<DialPolicy>,
    /// The folder for token files. It is created when needed.
    pub folder: PathBuf,
}

/// Why no token could be obtained.
#[derive(Debug, thiserror::Error)]
pub enum OAuthError {
    /// The authorization server cannot be found or reached, or does not issue a token.
    #[error("no token was issued; check the client id, its secret and the scopes")]
    Authorization(#[source] Box<AuthError>),
    /// It cannot be dialed with this policy, or with these certificates.
    #[error("the authorization server cannot be reached")]
    Connect(#[from] ConnectError),
    /// The server uses client credentials, so there is no interactive login.
    #[error("this server is configured with client credentials and needs no login")]
    NotInteractive,
    /// Cannot listen for the redirect.
    #[error("cannot listen on this machine for the browser's redirect")]
    Listen(#[source] std::io::Error),
    /// The user or the authorization server refused.
    #[error("the login was refused: {0}")]
    Refused(String),
    /// The server rejects scopes that are granted already, so another login does not help.
    #[error(
        "the requested scopes are granted already; change the account's permissions at the server"
    )]
    ScopesAlreadyGranted,
    /// No redirect arrived in time.
    #[error("the login was not completed in time; start it again")]
    TimedOut,
}

impl From<AuthError> for OAuthError {
    fn from(error: AuthError) -> Self {
        Self::Authorization(Box::new(error))
    }
}

impl From<OAuthError> for ConnectError {
    fn from(error: OAuthError) -> Self {
        Self::Token(error.into())
    }
}

impl OAuthSettings {
    /// Creates rmcp's authorization manager with the policy's HTTP client and the token file.
    async fn manager(&self) -> Result<AuthorizationManager, OAuthError> {
        self.policy.check(&self.resource).map_err(ConnectError::from)?;
        let client = Arc::new(http_client::PolicyHttpClient::new(&self.policy)?);
        let resource = self.resource.clone();
        let mut manager =
            AuthorizationManager::new_with_oauth_http_client(resource, client).await?;
        manager.set_credential_store(self.file());
        Ok(manager)
    }

    fn file(&self) -> TokenFile {
        let client_id = match &self.grant {
            Grant::Machine { client_id, .. } => client_id,
            Grant::User { client_id, .. } => client_id.as_deref().unwrap_or_default(),
        };
        TokenFile::new(&self.folder, &self.resource, client_id)
    }
}
