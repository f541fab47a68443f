//! The dial policy, and an HTTP client that enforces it.
//!
//! An address is checked when it is dialed, after name resolution: a name that was public a moment ago
//! may point to a private network now. Literal addresses do not pass a resolver and are checked in the
//! URL: callers run [`DialPolicy::check`] before they send a request.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::HeaderMap;
use reqwest::{Client, ClientBuilder, StatusCode, Url, redirect};
use rustls::pki_types::CertificateDer;

use super::address::{AddressClass, canonical, classify};
use super::failure::ConnectError;
use super::tls;

/// The time limit for establishing a connection, including TLS.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum number of redirects.
const MAX_REDIRECTS: usize = 5;
/// The idle timeout of pooled connections. Shorter than the five seconds after which many servers close
/// them: a request that races with the close fails with an unknown outcome.
const POOL_IDLE: Duration = Duration::from_secs(4);
/// The keep-alive interval that detects peers that vanished.
const TCP_KEEPALIVE: Duration = Duration::from_secs(30);

/// The operator's policy for remote servers.
///
/// By default only `https` and `wss` servers with public addresses are dialed.
#[derive(Debug, Clone)]
pub struct DialPolicy {
    /// Allows `http` and `ws`, to this machine as well as to others. Default: false.
    pub allow_plain_http: bool,
    /// Private networks and hosts that may be dialed, such as `127.0.0.0/8` or `mcp.internal`. Default:
    /// none.
    pub allow_private: Vec<PrivateTarget>,
    /// The idle timeout while a response is expected. Default: 5 minutes.
    pub idle_timeout: Duration,
    /// Certificate authorities that are trusted in addition to those of the system.
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

/// A private target that may be dialed, parsed from a CIDR, an address or a host name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PrivateTarget {
    /// Every address of a network.
    Network(IpNet),
    /// Any private address of this host name, in lower case.
    Host(String),
}

impl std::str::FromStr for PrivateTarget {
    type Err = InvalidTarget;

    fn from_str(text: &str) -> Result<Self, InvalidTarget> {
        let text = text.trim();
        if let Ok(network) = text.parse::<IpNet>() {
            return Ok(Self::Network(network));
        }
        if let Ok(address) = text.trim_matches(['[', ']']).parse::<IpAddr>() {
            return Ok(Self::Network(address.into()));
        }
        let is_host_name = !text.is_empty()
            && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_'));
        is_host_name
            .then(|| Self::Host(normalize_host(text)))
            .ok_or_else(|| InvalidTarget(text.to_owned()))
    }
}

/// An invalid private target.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is neither a network such as 10.0.0.0/8, an address, nor a host name")]
pub struct InvalidTarget(String);

/// The reason why a URL or an address is not dialed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressRefused {
    /// The scheme is not `http`, `https`, `ws` or `wss`.
    #[error("the server's URL has the scheme `{0}:`; use https:// or wss://")]
    Scheme(String),
    /// The connection would not be encrypted.
    #[error("the server's URL is not https; use https, or set mcp.allow_plain_http")]
    Plain,
    /// The URL holds credentials, which would be logged and displayed with it.
    #[error("the server's URL holds a user or password; move them into a header")]
    UserInfo,
    /// The URL has no host.
    #[error("the server's URL has no host")]
    NoHost,
    /// The address is private and not allowed.
    #[error(
        "`{0}` has a private address; add the host or its network to mcp.allow_private to dial it"
    )]
    Private(String),
    /// The address is never dialed.
    #[error("`{0}` has an address that is never dialed")]
    Forbidden(String),
}

/// A failed name resolution.
#[derive(Debug, thiserror::Error)]
#[error("cannot resolve the name `{host}`")]
pub struct DnsFailed {
    host: String,
    #[source]
    source: Option<std::io::Error>,
}

impl DnsFailed {
    /// Returns a copy for another error; `io::Error` is not `Clone`.
    pub(crate) fn duplicate(&self) -> Self {
        let source = self.source.as_ref();
        let source = source.map(|error| std::io::Error::new(error.kind(), error.to_string()));
        Self { host: self.host.clone(), source }
    }
}

/// The reason why a redirect was not followed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RedirectRefused {
    /// Headers, session and arguments are sent to this server only.
    #[error("the server redirects to another origin; configure that URL if it is the right one")]
    ForeignOrigin,
    /// The redirect would drop the message: it turns a POST into a GET.
    #[error("the server redirects with status {0}, which drops the message")]
    DropsMessage(u16),
    /// Too many redirects.
    #[error("the server redirects more than {MAX_REDIRECTS} times")]
    TooMany,
    /// The target is not dialed.
    #[error("the server redirects to a URL that is not dialed")]
    Address(#[from] AddressRefused),
}

impl DialPolicy {
    /// Checks a URL before it is dialed: its scheme, user-info, and address if it is literal.
    ///
    /// # Errors
    /// When the policy forbids it.
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
            Ok(address) => self.check_address(host, address),
            Err(_) => Ok(()),
        }
    }

    /// Checks one address of a host.
    ///
    /// # Errors
    /// When the policy forbids it.
    pub(crate) fn check_address(&self, host: &str, address: IpAddr) -> Result<(), AddressRefused> {
        let allowed = || {
            self.allow_private.iter().any(|target| match target {
                PrivateTarget::Network(network) => {
                    network.contains(&canonical(address)) || network.contains(&address)
                }
                PrivateTarget::Host(name) => *name == normalize_host(host),
            })
        };
        match classify(address) {
            AddressClass::Public => Ok(()),
            AddressClass::Private if allowed() => Ok(()),
            AddressClass::Private => Err(AddressRefused::Private(host.to_owned())),
            AddressClass::Forbidden => Err(AddressRefused::Forbidden(host.to_owned())),
        }
    }

    /// Resolves a host to the addresses that may be dialed, at least one.
    ///
    /// # Errors
    /// When the name has no address, or none that may be dialed.
    pub(crate) async fn resolve(
        &self,
        host: &str,
        port: u16,
    ) -> Result<Vec<SocketAddr>, ConnectError> {
        let failed = |source| DnsFailed { host: host.to_owned(), source };
        let found =
            tokio::net::lookup_host((host, port)).await.map_err(|error| failed(Some(error)))?;
        let (mut allowed, mut refused) = (Vec::new(), None);
        for address in found {
            match self.check_address(host, address.ip()) {
                Ok(()) => allowed.push(address),
                Err(reason) => refused = Some(reason),
            }
        }
        match (allowed.is_empty(), refused) {
            (false, _) => Ok(allowed),
            (true, Some(reason)) => Err(reason.into()),
            (true, None) => Err(failed(None).into()),
        }
    }
}

/// The read timeout of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadTimeout {
    /// [`DialPolicy::idle_timeout`].
    Idle,
    /// None: a standing stream may be idle for days. A peer that vanished is detected by keep-alive and by
    /// pings of the session.
    Unlimited,
}

/// Creates a client that dials only what the policy allows, directly and never through a proxy.
///
/// It has a connect timeout of 10 seconds and the policy's idle timeout, and no total timeout, which
/// would cut long streams. It follows at most 5 redirects, only to the same origin. It does not
/// decompress, so that byte limits hold for buffered data.
///
/// # Errors
/// When the trusted certificates cannot be read.
pub(crate) fn http_client(
    policy: &Arc<DialPolicy>,
    headers: HeaderMap,
    read_timeout: ReadTimeout,
) -> Result<Client, ConnectError> {
    let on_redirect = policy.clone();
    let mut builder = client_builder(policy)?
        .redirect(redirect::Policy::custom(move |attempt| follow(&on_redirect, attempt)))
        .default_headers(headers);
    if read_timeout == ReadTimeout::Idle {
        builder = builder.read_timeout(policy.idle_timeout);
    }
    builder.build().map_err(ConnectError::from)
}

/// Creates a client like [`http_client`] that returns redirects as responses.
///
/// # Errors
/// See [`http_client`].
pub(crate) fn direct_client(policy: &Arc<DialPolicy>) -> Result<Client, ConnectError> {
    let builder = client_builder(policy)?.redirect(redirect::Policy::none());
    builder.read_timeout(policy.idle_timeout).build().map_err(ConnectError::from)
}

fn client_builder(policy: &Arc<DialPolicy>) -> Result<ClientBuilder, ConnectError> {
    Ok(Client::builder()
        .no_proxy()
        .no_gzip()
        .no_brotli()
        .no_zstd()
        .no_deflate()
        .tls_backend_preconfigured(tls::client_config(policy)?)
        .dns_resolver(PolicyResolver(policy.clone()))
        .user_agent(concat!("rockbot/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_keepalive(TCP_KEEPALIVE)
        .pool_idle_timeout(POOL_IDLE))
}

fn follow(policy: &DialPolicy, attempt: redirect::Attempt<'_>) -> redirect::Action {
    match may_follow(policy, &attempt) {
        Ok(()) => attempt.follow(),
        Err(reason) => attempt.error(ConnectError::from(reason)),
    }
}

fn may_follow(policy: &DialPolicy, attempt: &redirect::Attempt<'_>) -> Result<(), RedirectRefused> {
    let keeps_message = [StatusCode::TEMPORARY_REDIRECT, StatusCode::PERMANENT_REDIRECT];
    let to = attempt.url().origin();
    if attempt.previous().iter().any(|from| from.origin() != to) {
        Err(RedirectRefused::ForeignOrigin)
    } else if !keeps_message.contains(&attempt.status()) {
        Err(RedirectRefused::DropsMessage(attempt.status().as_u16()))
    } else if attempt.previous().len() > MAX_REDIRECTS {
        Err(RedirectRefused::TooMany)
    } else {
        Ok(policy.check(attempt.url())?)
    }
}

struct PolicyResolver(Arc<DialPolicy>);

impl Resolve for PolicyResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let policy = self.0.clone();
        Box::pin(async move {
            let addresses = policy.resolve(name.as_str(), 0).await?;
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

/// Normalizes a host name for comparison: lower case, without the root dot.
fn normalize_host(host: &str) -> String {
    host.trim_end_matches('.').to_ascii_lowercase()
}

#[cfg(test)]
mod tests;
