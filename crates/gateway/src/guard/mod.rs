//! The guard in front of every route: host names, identities, origins, rights, rates and bounds.

mod audit;
mod body;
mod cookie;
mod headers;
mod hosts;
mod proxy;
mod refusal;
mod request;
mod route;
mod secret;
mod sessions;
mod span;
mod token_table;
mod tokens;

use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use axum::http::{HeaderMap, HeaderValue, header};
use tokio::task::JoinHandle;

pub use self::{
    audit::{AuditAction, audit},
    secret::NoRandomness,
    tokens::{Token, TokenError, TokenFile},
};
pub(crate) use self::{
    audit::{OpenRecord, audit_login, sent_outcome},
    refusal::Refusal,
    request::{admit, refuse_method, refuse_path},
    route::{ClientAddress, GuardedRoute, check, is_json},
};
use self::{
    cookie::SessionCookie, hosts::AllowedHosts, proxy::TrustedProxy, sessions::Sessions,
    token_table::TokenTable,
};
use crate::{
    face::Rate,
    identity::{Credential, FaceName, Identity, NamePatterns, Right},
    rates::Rates,
    section::{GatewaySection, SignIn},
};

/// Name of the person who used a login link.
const LOCAL: &str = "local";
/// Logins per minute of one address.
const LOGINS_PER_MINUTE: u32 = 5;

/// Why the guard cannot start.
#[derive(Debug, thiserror::Error)]
pub enum GuardError {
    /// `gateway.public_url` is invalid.
    #[error("{0}")]
    PublicUrl(String),
    /// The tokens cannot be used.
    #[error("gateway.tokens: {0}; create a token with `rockbot gateway token new`")]
    Tokens(#[source] TokenError),
}

/// The guard of a gateway. Dropping it stops the watch of the file of tokens.
#[derive(Debug)]
pub struct Guard {
    public_origin: String,
    hosts: AllowedHosts,
    sign_in: SignIn,
    proxy: Option<TrustedProxy>,
    sessions: Sessions,
    cookie: SessionCookie,
    tokens: Arc<TokenTable>,
    rates: Rates,
    messages_per_minute: u32,
    watch: Option<JoinHandle<()>>,
}

impl Guard {
    /// Creates the guard of a gateway that listens at `address`, and watches the file of tokens.
    ///
    /// # Errors
    /// See [`GuardError`].
    pub fn start(section: &GatewaySection, address: SocketAddr) -> Result<Arc<Self>, GuardError> {
        let bound = GatewaySection { address, ..section.clone() };
        let public_origin = bound.public_origin().map_err(GuardError::PublicUrl)?;
        let tokens = Arc::new(TokenTable::default());
        let watch = match &section.tokens {
            Some(path) => {
                tokens.replace(TokenFile::read(path).map_err(GuardError::Tokens)?);
                Some(tokio::spawn(tokens.clone().watch(path.clone())))
            }
            None => None,
        };
        Ok(Arc::new(Self {
            hosts: AllowedHosts::new(&section.allowed_hosts, public_origin.clone()),
            cookie: SessionCookie::new(public_origin.starts_with("https://")),
            public_origin,
            sign_in: section.sign_in,
            proxy: TrustedProxy::new(section).filter(|_| section.sign_in == SignIn::Proxy),
            sessions: Sessions::default(),
            tokens,
            rates: Rates::default(),
            messages_per_minute: section.messages_per_minute,
            watch,
        }))
    }

    /// Returns the origin under which people reach the gateway.
    #[must_use]
    pub fn public_origin(&self) -> &str {
        &self.public_origin
    }

    /// Returns a new login link, which is valid for 5 min and can be used once; `None` if people sign in at a
    /// proxy. It must not be logged. The secret is in the fragment, which browsers do not send.
    ///
    /// # Errors
    /// When the system has no random numbers.
    pub fn login_link(&self) -> Result<Option<String>, NoRandomness> {
        if self.sign_in != SignIn::Link {
            return Ok(None);
        }
        let code = self.sessions.new_code()?;
        Ok(Some(format!("{}/#login={code}", self.public_origin)))
    }

    /// Uses up the code of a login link, and returns the header that sets the cookie of the session; `None` for
    /// a code that is unknown, was used, or has expired.
    pub(crate) fn log_in(&self, code: &str) -> Result<Option<HeaderValue>, NoRandomness> {
        let value = self.sessions.redeem(code)?;
        Ok(value.map(|value| self.cookie.set(&value, sessions::SESSION_TTL)))
    }

    /// Ends the session of a request, and returns the header that removes its cookie.
    pub(crate) fn log_out(&self, headers: &HeaderMap) -> HeaderValue {
        for value in self.cookie.values(headers) {
            self.sessions.end(value);
        }
        self.cookie.removal()
    }

    /// Returns the identity of a request, or the reason why it has none.
    fn identify(&self, headers: &HeaderMap, from: Option<IpAddr>) -> Result<Identity, Refusal> {
        if let Some(value) = headers.get(header::AUTHORIZATION) {
            let token = value.to_str().ok().and_then(bearer);
            let identity = token.and_then(|token| self.tokens.identify(token, from));
            return identity.ok_or(Refusal::InvalidToken);
        }
        if let Some(proxy) = &self.proxy {
            return proxy.identify(headers, from).ok_or(Refusal::Unauthenticated);
        }
        if self.cookie.values(headers).any(|value| self.sessions.is_open(value)) {
            return Ok(local(from));
        }
        Err(Refusal::Unauthenticated)
    }

    /// Counts a request.
    fn count(
        &self,
        rate: Rate,
        identity: Option<&Identity>,
        from: Option<IpAddr>,
    ) -> Result<(), Refusal> {
        let refused = |retry_after: Duration| Refusal::Rate { retry_after };
        if rate == Rate::Logins {
            let from = from.map(|from| from.to_string()).unwrap_or_default();
            let sender = Arc::from(format!("login {from}"));
            return self.rates.count(&sender, LOGINS_PER_MINUTE).map_err(refused);
        }
        let Some(identity) = identity else { return Ok(()) };
        // The rate of a token holds for all people on whose behalf its program sends messages.
        if let Some(limit) = identity.requests_per_minute {
            return self.rates.count(&identity.subject, limit).map_err(refused);
        }
        if rate == Rate::Messages { self.count_message(identity) } else { Ok(()) }
    }

    /// Counts a message to an agent, for routes that not only send messages. The requests of a token with a rate
    /// were counted already.
    pub(crate) fn count_message(&self, identity: &Identity) -> Result<(), Refusal> {
        if identity.requests_per_minute.is_some() {
            return Ok(());
        }
        let sender = Arc::from(format!("message {}", identity.subject));
        let counted = self.rates.count(&sender, self.messages_per_minute);
        counted.map_err(|retry_after| Refusal::Rate { retry_after })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(watch) = &self.watch {
            watch.abort();
        }
    }
}

/// Returns the token in the value of an `Authorization` header.
fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Returns the identity of the person on this machine, who has all rights.
fn local(from: Option<IpAddr>) -> Identity {
    Identity {
        subject: Arc::from(LOCAL),
        credential: Credential::Session,
        rights: BTreeSet::from(Right::ALL),
        faces: BTreeSet::from(FaceName::ALL),
        agents: NamePatterns::all(),
        tools: NamePatterns::all(),
        requests_per_minute: None,
        address: from,
    }
}
