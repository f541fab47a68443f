//! The client that all REST tools of a process share.

use std::{sync::Arc, time::Duration};

use rockbot_egress::{ClientOptions, DialPolicy, EgressError, GuardedClient};

use super::tokens::Tokens;

/// Sends the requests of REST tools. Clones share connections and access tokens.
#[derive(Clone)]
pub(crate) struct RestClient {
    pub(super) http: GuardedClient,
    pub(super) tokens: Arc<Tokens>,
}

impl RestClient {
    /// Creates a client that dials what `policy` allows and considers a connection lost that is silent
    /// for `idle_timeout`.
    ///
    /// # Errors
    /// When the trusted certificates cannot be read.
    pub(crate) fn new(
        policy: Arc<DialPolicy>,
        idle_timeout: Duration,
    ) -> Result<Self, EgressError> {
        let options =
            ClientOptions { read_timeout: Some(idle_timeout), gzip: true, ..Default::default() };
        let http = GuardedClient::new(policy, options)?;
        Ok(Self { tokens: Arc::new(Tokens::new(http.clone())), http })
    }

    /// Returns the guarded client.
    pub(crate) fn http(&self) -> &GuardedClient {
        &self.http
    }
}
