//! The client that all REST tools of a process share.

use std::{sync::Arc, time::Duration};

use rockbot_egress::{ClientOptions, DialPolicy, EgressError, GuardedClient};

use super::tokens::Tokens;

/// Time limit for establishing a connection. Three attempts with their delays fit into the default time
/// of a call.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(8);

/// Sends the requests of REST tools. Clones share connections and access tokens.
#[derive(Clone)]
pub(crate) struct RestClient {
    http: GuardedClient,
    /// Opens a connection for each request: whether there is one decides whether the request was sent, and
    /// none fails because the server was closing it.
    single_use: GuardedClient,
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
        let options = ClientOptions {
            connect_timeout: CONNECT_TIMEOUT,
            read_timeout: Some(idle_timeout),
            gzip: true,
            ..Default::default()
        };
        let single_use = ClientOptions { reuse_connections: false, ..options.clone() };
        let http = GuardedClient::new(policy.clone(), options)?;
        let single_use = GuardedClient::new(policy, single_use)?;
        let tokens = Arc::new(Tokens::new(http.clone()));
        Ok(Self { http, single_use, tokens })
    }

    /// Returns the client for the requests of a tool. `repeatable`: sending one twice does no harm.
    pub(super) fn sender(&self, repeatable: bool) -> &GuardedClient {
        if repeatable { &self.http } else { &self.single_use }
    }

    /// Returns the guarded client.
    pub(crate) fn http(&self) -> &GuardedClient {
        &self.http
    }
}
