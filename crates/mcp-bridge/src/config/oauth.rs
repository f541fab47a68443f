//! OAuth client settings of a server.

use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;

/// An OAuth client. The default registers itself dynamically when a user logs in.
#[derive(Debug, Clone)]
pub struct OAuthClient {
    /// The grant that tokens are obtained with.
    pub grant: Grant,
    /// Requested scopes. When empty, the scopes that the server names.
    pub scopes: Vec<String>,
}

impl Default for OAuthClient {
    fn default() -> Self {
        let grant = Grant::User { client_id: None, client_secret: None };
        Self { grant, scopes: Vec::new() }
    }
}

/// Ways to obtain tokens.
#[derive(Debug, Clone)]
pub enum Grant {
    /// Client credentials of this process (`client_credentials`).
    Machine {
        /// The client id.
        client_id: String,
        /// The client secret, usually from the environment.
        client_secret: SecretString,
    },
    /// Consent of a user, once, in a browser (`authorization_code` with PKCE).
    User {
        /// The client id; without one, this program registers itself. One that starts with `https://` is
        /// the URL of a client ID metadata document, used at servers that support those.
        client_id: Option<String>,
        /// The client secret, if there is one.
        client_secret: Option<SecretString>,
    },
}

/// A client as written in the file. With an id and a secret it uses client credentials, unless
/// `"login": true` selects an interactive login.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RawOAuth {
    login: bool,
    client_id: Option<String>,
    client_secret: Option<String>,
    scopes: Vec<String>,
}

impl RawOAuth {
    /// Validates it and expands its variables.
    ///
    /// # Errors
    /// A message for the operator.
    pub(super) fn validate(
        self,
        expand: impl Fn(&str) -> Result<String, String>,
    ) -> Result<OAuthClient, String> {
        let Self { login, client_id, client_secret, scopes } = self;
        let client_id = client_id.map(|id| expand(&id)).transpose()?;
        let client_secret =
            client_secret.map(|secret| expand(&secret)).transpose()?.map(SecretString::from);
        let grant = match (login, client_id, client_secret) {
            (_, None, Some(_)) => {
                return Err("oauth.clientSecret requires oauth.clientId".into());
            }
            (false, Some(client_id), Some(client_secret)) => {
                Grant::Machine { client_id, client_secret }
            }
            (_, client_id, client_secret) => Grant::User { client_id, client_secret },
        };
        Ok(OAuthClient { grant, scopes })
    }
}

/// Secrets do not implement `PartialEq`; detecting changes of the file needs a comparison.
impl PartialEq for OAuthClient {
    fn eq(&self, other: &Self) -> bool {
        parts(&self.grant) == parts(&other.grant) && self.scopes == other.scopes
    }
}

/// Returns the comparable parts of a grant.
fn parts(grant: &Grant) -> (bool, Option<&str>, Option<&str>) {
    match grant {
        Grant::Machine { client_id, client_secret } => {
            (false, Some(client_id), Some(client_secret.expose_secret()))
        }
        Grant::User { client_id, client_secret } => {
            (true, client_id.as_deref(), client_secret.as_ref().map(ExposeSecret::expose_secret))
        }
    }
}
