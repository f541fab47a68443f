//! OAuth 2.1 for remote servers: who authorises, and the tokens that come of it.
//!
//! A token belongs to one server, by its URL (the resource of the protocol), and is sent to no
//! other. It is kept in a file of that server that only this user reads. The servers that
//! authorise are found by what the server of tools says, so they are dialled by the same
//! [`DialPolicy`] as the server itself.
//!
//! A process without a browser gets tokens with the credentials of a machine
//! ([`Grant::Machine`]). Where a person has to agree, [`Login`] does that once, from a terminal, and
//! the process refreshes what came of it.

mod file;
mod login;
mod policed;
mod tokens;

use std::path::PathBuf;
use std::sync::Arc;

use reqwest::Url;
use rmcp::transport::AuthorizationManager;
use rmcp::transport::auth::AuthError;
use secrecy::SecretString;

use crate::transport::{ConnectError, DialPolicy};

pub use login::Login;
pub use tokens::OAuthTokens;

use file::TokenFile;

/// How the tokens of a server are had.
#[derive(Debug, Clone)]
pub struct OAuthSettings {
    /// The server that the tokens are for.
    pub resource: Url,
    /// Who asks for them.
    pub grant: Grant,
    /// What they should allow; what the server says it needs, if empty.
    pub scopes: Vec<String>,
    /// What may be dialled.
    pub policy: Arc<DialPolicy>,
    /// The folder in which the file of each server is kept. It is made when it is needed.
    pub folder: PathBuf,
}

/// Who asks for tokens.
#[derive(Debug, Clone)]
pub enum Grant {
    /// This process, by itself (`client_credentials`).
    Machine {
        /// Its name at the server that authorises.
        client_id: String,
        /// What proves it, usually from the environment.
        client_secret: SecretString,
    },
    /// A person, once, in a browser (`authorization_code` with PKCE).
    Person {
        /// The name of this program at the server that authorises; it registers itself if none.
        /// One that begins with `https://` is the URL of a client ID metadata document, and is used
        /// at servers that know those.
        client_id: Option<String>,
        /// What proves it, if it was given something.
        client_secret: Option<SecretString>,
    },
}

/// Why there is no token.
#[derive(Debug, thiserror::Error)]
pub enum OAuthError {
    /// The server that authorises can't be found, can't be asked, or does not give a token.
    #[error("no token was given; look at the client's id, its secret and its scopes")]
    Authorisation(#[source] Box<AuthError>),
    /// It can't be dialled with this policy, or with these certificates.
    #[error("the server that authorises can't be asked")]
    Connect(#[from] ConnectError),
    /// There is a person to ask, so nobody logs in here.
    #[error("only a person logs in; this server is configured with a machine's credentials")]
    NotAPerson,
    /// This machine does not listen for the browser's return.
    #[error("can't listen on this machine for the return of the browser")]
    Listen(#[source] std::io::Error),
    /// The person, or the server that authorises, said no.
    #[error("the login was refused: {0}")]
    Refused(String),
    /// The server refuses what was agreed to already, so agreeing again does not help.
    #[error("the server wants what it was given already; its own permissions have to change")]
    InVain,
    /// Nobody came back from the browser.
    #[error("nobody came back from the browser in time; start the login again")]
    TimedOut,
}

impl From<AuthError> for OAuthError {
    fn from(error: AuthError) -> Self {
        Self::Authorisation(Box::new(error))
    }
}

impl From<OAuthError> for ConnectError {
    fn from(error: OAuthError) -> Self {
        Self::Token(error.into())
    }
}

impl OAuthSettings {
    /// What asks for tokens in rmcp, over our client and with our file.
    async fn manager(&self) -> Result<AuthorizationManager, OAuthError> {
        self.policy.check(&self.resource).map_err(ConnectError::from)?;
        let client = Arc::new(policed::PolicedClient::new(&self.policy)?);
        let resource = self.resource.clone();
        let mut manager =
            AuthorizationManager::new_with_oauth_http_client(resource, client).await?;
        manager.set_credential_store(self.file());
        Ok(manager)
    }

    fn file(&self) -> TokenFile {
        let client_id = match &self.grant {
            Grant::Machine { client_id, .. } => client_id,
            Grant::Person { client_id, .. } => client_id.as_deref().unwrap_or_default(),
        };
        TokenFile::new(&self.folder, &self.resource, client_id)
    }
}
