//! Which servers may be dialled, and the HTTP client that dials no other.
//!
//! An address is looked at where it is dialled, after the name was resolved: a name that was
//! harmless a moment ago may lead inside now. Literal addresses never reach a resolver, so they are
//! looked at in the URL; whoever sends a request calls [`DialPolicy::check`] with its URL first.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::HeaderMap;
use reqwest::{Client, ClientBuilder, StatusCode, Url, redirect};
use rustls::pki_types::CertificateDer;

use super::address::{Reach, canonical, reach};
use super::failure::ConnectError;
use super::tls;

/// How long a connection, with its TLS, may take to come about.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How often a redirect is followed before the server is said to send us round.
const MAX_REDIRECTS: usize = 5;
/// Shorter than the five seconds after which many servers close an idle connection: a request that
/// meets the closing fails, and nobody knows whether it ran.
const POOL_IDLE: Duration = Duration::from_secs(4);
/// How soon a peer that vanished without a word is looked for.
const TCP_KEEPALIVE: Duration = Duration::from_secs(30);

/// What an operator says about the servers that may be dialled.
///
/// Without a word only `https` and `wss` servers with public addresses are.
#[derive(Debug, Clone)]
pub struct DialPolicy {
    /// Whether `http` and `ws` are allowed too, to this machine as well as to others. Off by
    /// default.
    pub allow_plain_http: bool,
    /// Private networks and hosts that may be dialled, `127.0.0.0/8` or `mcp.internal`.
    /// None by default.
    pub allow_private: Vec<PrivateTarget>,
    /// How long a server may say nothing while an answer is expected; 5 minutes by default.
    pub idle_timeout: Duration,
    /// Certificates of authorities that are trusted besides those of the system.
    pub authorities: Vec<CertificateDer<'static>>,
}

impl Default for DialPolicy {
    fn default() -> Self {
        Self {
            allow_plain_http: false,
            allow_private: Vec::new(),
            idle_timeout: Duration::from_secs(300),
            authorities: Vec::new(),
        }
    }
}

/// A part of the private network that may be dialled, read from a CIDR, an address or a host name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PrivateTarget {
    /// Every address of a network.
    Network(IpNet),
    /// Whatever private address this name has, in lower case.
    Host(String),
}

impl std::str::FromStr for PrivateTarget {
    type Err = BadTarget;

    fn from_str(text: &str) -> Result<Self, BadTarget> {
        let text = text.trim();
        if let Ok(network) = text.parse::<IpNet>() {
            return Ok(Self::Network(network));
        }
        if let Ok(address) = text.trim_matches(['[', ']']).parse::<IpAddr>() {
            return Ok(Self::Network(address.into()));
        }
        let named = !text.is_empty()
            && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_'));
        named.then(|| Self::Host(plain_name(text))).ok_or_else(|| BadTarget(text.to_owned()))
    }
}

/// What should name a private target and names nothing.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is neither a network like 10.0.0.0/8, an address, nor a host name")]
pub struct BadTarget(String);

/// Why a URL or an address is not dialled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressRefused {
    /// Only `http`, `https`, `ws` and `wss` lead to servers.
    #[error("a server's URL begins with https:// or wss://, not `{0}:`")]
    Scheme(String),
    /// The connection would be readable on its way.
    #[error("the server's URL is not https; allow plain http for it, or give its https URL")]
    Plain,
    /// A URL is logged and shown; a password in it would be too.
    #[error("the server's URL holds a user or password; put them into a header")]
    UserInfo,
    /// There is nobody to dial.
    #[error("the server's URL names no host")]
    NoHost,
    /// The address is private, and the operator did not allow it.
    #[error("`{0}` has a private address; allow the host or its network to dial it")]
    Private(String),
    /// The address belongs to no server of tools.
    #[error("`{0}` has an address that is never dialled")]
    Never(String),
}

/// A name that leads nowhere.
#[derive(Debug, thiserror::Error)]
#[error("the name `{host}` could not be resolved")]
pub struct DnsFailed {
    host: String,
    #[source]
    source: Option<std::io::Error>,
}

impl DnsFailed {
    /// The same failure, to be told in another error.
    pub(crate) fn again(&self) -> Self {
        let source = self.source.as_ref();
        let source = source.map(|error| std::io::Error::new(error.kind(), error.to_string()));
        Self { host: self.host.clone(), source }
    }
}

/// Why a redirect was not followed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RedirectRefused {
    /// Headers, session and arguments were meant for this server and for no other.
    #[error("the server sends us to another origin; give that URL if it is the right one")]
    ForeignOrigin,
    /// The message would be lost on the way: such a redirect turns a POST into a GET.
    #[error("the server sends us on with status {0}, which loses the message")]
    LosesMessage(u16),
    /// Nobody ends up anywhere.
    #[error("the server sends us on more than {MAX_REDIRECTS} times")]
    TooMany,
    /// The place itself is not dialled.
    #[error("the server sends us to a URL that is not dialled")]
    Address(#[from] AddressRefused),
}

impl DialPolicy {
    /// Looks at a URL before it is dialled: its scheme, user-info, and address if it is literal.
    ///
    /// # Errors
    /// Says why it is not dialled.
    pub fn check(&self, url: &Url) -> Result<(), AddressRefused> {
        match url.scheme() {
            "https" | "wss" => {}
            "http" | "ws" if self.allow_plain_http => {}
            "http" | "ws" => return Err(AddressRefused::Plain),
            other => return Err(AddressRefused::Scheme(other.to_owned())),
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(AddressRefused::UserInfo);
        }
        let host = url.host_str().filter(|host| !host.is_empty()).ok_or(AddressRefused::NoHost)?;
        match host.trim_matches(['[', ']']).parse() {
            Ok(address) => self.vet(host, address),
            Err(_) => Ok(()),
        }
    }

    /// Looks at one address of a host.
    ///
    /// # Errors
    /// Says why it is not dialled.
    pub(crate) fn vet(&self, host: &str, address: IpAddr) -> Result<(), AddressRefused> {
        let allowed = || {
            self.allow_private.iter().any(|target| match target {
                PrivateTarget::Network(network) => {
                    network.contains(&canonical(address)) || network.contains(&address)
                }
                PrivateTarget::Host(name) => *name == plain_name(host),
            })
        };
        match reach(address) {
            Reach::Public => Ok(()),
            Reach::Private if allowed() => Ok(()),
            Reach::Private => Err(AddressRefused::Private(host.to_owned())),
            Reach::Never => Err(AddressRefused::Never(host.to_owned())),
        }
    }

    /// The addresses of a host that may be dialled, at least one.
    ///
    /// # Errors
    /// When the name has none at all, or none that may be dialled.
    pub(crate) async fn resolve(
        &self,
        host: &str,
        port: u16,
    ) -> Result<Vec<SocketAddr>, ConnectError> {
        let failed = |source| DnsFailed { host: host.to_owned(), source };
        let found =
            tokio::net::lookup_host((host, port)).await.map_err(|error| failed(Some(error)))?;
        let (mut dialled, mut refused) = (Vec::new(), None);
        for address in found {
            match self.vet(host, address.ip()) {
                Ok(()) => dialled.push(address),
                Err(why) => refused = Some(why),
            }
        }
        match (dialled.is_empty(), refused) {
            (false, _) => Ok(dialled),
            (true, Some(why)) => Err(why.into()),
            (true, None) => Err(failed(None).into()),
        }
    }
}

/// How long the client waits for the next bytes of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    /// As long as [`DialPolicy::idle_timeout`].
    Answer,
    /// As long as it takes: a standing stream may have nothing to say for days. A peer that
    /// vanished is noticed by keep-alive, and by whoever pings the session.
    Standing,
}

/// A client that dials only what the policy allows, straight and never through a proxy.
///
/// It has a connect time-out of 10 seconds and the policy's idle time-out, and no total one, which
/// would cut long streams. It follows at most 5 redirects, and only to the same origin. It unpacks
/// no compression, so what is counted is what is kept.
///
/// # Errors
/// When the trusted certificates can't be read.
pub(crate) fn http_client(
    policy: &Arc<DialPolicy>,
    headers: HeaderMap,
    patience: Patience,
) -> Result<Client, ConnectError> {
    let on_redirect = policy.clone();
    let mut builder = dialling(policy)?
        .redirect(redirect::Policy::custom(move |attempt| follow(&on_redirect, attempt)))
        .default_headers(headers);
    if patience == Patience::Answer {
        builder = builder.read_timeout(policy.idle_timeout);
    }
    builder.build().map_err(ConnectError::from)
}

/// The same, for requests that keep to one URL: a redirect is an answer like any other.
///
/// # Errors
/// As [`http_client`].
pub(crate) fn direct_client(policy: &Arc<DialPolicy>) -> Result<Client, ConnectError> {
    let builder = dialling(policy)?.redirect(redirect::Policy::none());
    builder.read_timeout(policy.idle_timeout).build().map_err(ConnectError::from)
}

fn dialling(policy: &Arc<DialPolicy>) -> Result<ClientBuilder, ConnectError> {
    Ok(Client::builder()
        .no_proxy()
        .no_gzip()
        .no_brotli()
        .no_zstd()
        .no_deflate()
        .tls_backend_preconfigured(tls::client_config(policy)?)
        .dns_resolver(Vetting(policy.clone()))
        .user_agent(concat!("rockbot/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_keepalive(TCP_KEEPALIVE)
        .pool_idle_timeout(POOL_IDLE))
}

fn follow(policy: &DialPolicy, attempt: redirect::Attempt<'_>) -> redirect::Action {
    match may_follow(policy, &attempt) {
        Ok(()) => attempt.follow(),
        Err(why) => attempt.error(ConnectError::from(why)),
    }
}

fn may_follow(policy: &DialPolicy, attempt: &redirect::Attempt<'_>) -> Result<(), RedirectRefused> {
    let keeps_message = [StatusCode::TEMPORARY_REDIRECT, StatusCode::PERMANENT_REDIRECT];
    let to = attempt.url().origin();
    if attempt.previous().iter().any(|from| from.origin() != to) {
        Err(RedirectRefused::ForeignOrigin)
    } else if !keeps_message.contains(&attempt.status()) {
        Err(RedirectRefused::LosesMessage(attempt.status().as_u16()))
    } else if attempt.previous().len() > MAX_REDIRECTS {
        Err(RedirectRefused::TooMany)
    } else {
        Ok(policy.check(attempt.url())?)
    }
}

struct Vetting(Arc<DialPolicy>);

impl Resolve for Vetting {
    fn resolve(&self, name: Name) -> Resolving {
        let policy = self.0.clone();
        Box::pin(async move {
            let addresses = policy.resolve(name.as_str(), 0).await?;
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

/// A host name as names are compared: in lower case, without the dot of the root.
fn plain_name(host: &str) -> String {
    host.trim_end_matches('.').to_ascii_lowercase()
}

#[cfg(test)]
mod tests;
