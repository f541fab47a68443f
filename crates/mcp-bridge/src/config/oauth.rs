//! Who this bridge is for the server that authorises it at a remote one.

use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;

use crate::oauth::Grant;

/// A client of the server that authorises. The default is a program that registers itself when a
/// person logs in.
#[derive(Debug, Clone)]
pub struct OAuthClient {
    /// Who asks for tokens: this process by itself, or a person once.
    pub grant: Grant,
    /// What it asks for; what the server says it needs when empty.
    pub scopes: Vec<String>,
}

impl Default for OAuthClient {
    fn default() -> Self {
        let grant = Grant::Person { client_id: None, client_secret: None };
        Self { grant, scopes: Vec::new() }
    }
}

/// A client as it is written. With an id and a secret it is a machine, and gets tokens by itself,
/// unless `"login": true` says that they are for a person to log in with.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RawOAuth {
    login: bool,
    client_id: Option<String>,
    client_secret: Option<String>,
    scopes: Vec<String>,
}

impl RawOAuth {
    /// Checks it and fills in its variables.
    ///
    /// # Errors
    /// What is wrong, in words for an operator.
    pub(super) fn check(
        self,
        fill: impl Fn(&str) -> Result<String, String>,
    ) -> Result<OAuthClient, String> {
        let Self { login, client_id, client_secret, scopes } = self;
        let client_id = client_id.map(|id| fill(&id)).transpose()?;
        let client_secret =
            client_secret.map(|secret| fill(&secret)).transpose()?.map(SecretString::from);
        let grant = match (login, client_id, client_secret) {
            (_, None, Some(_)) => {
                return Err("its oauth has a clientSecret without a clientId".into());
            }
            (false, Some(client_id), Some(client_secret)) => {
                Grant::Machine { client_id, client_secret }
            }
            (_, client_id, client_secret) => Grant::Person { client_id, client_secret },
        };
        Ok(OAuthClient { grant, scopes })
    }
}

/// Secrets don't compare; for the difference between two files they must.
impl PartialEq for OAuthClient {
    fn eq(&self, other: &Self) -> bool {
        parts(&self.grant) == parts(&other.grant) && self.scopes == other.scopes
    }
}

fn parts(grant: &Grant) -> (bool, Option<&str>, Option<&str>) {
    match grant {
        Grant::Machine { client_id, client_secret } => {
            (false, Some(client_id), Some(client_secret.expose_secret()))
        }
        Grant::Person { client_id, client_secret } => {
            (true, client_id.as_deref(), client_secret.as_ref().map(ExposeSecret::expose_secret))
        }
    }
}
