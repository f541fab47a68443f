//! The dial policy.
//!
//! An address is checked when it is dialed, after name resolution: a name that was public a moment ago
//! may point to a private network now. Literal addresses do not pass a resolver and are checked in the
//! URL: callers run [`DialPolicy::check`] before they send a request.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ipnet::IpNet;
use reqwest::Url;
use rustls::pki_types::CertificateDer;

use super::address::{AddressClass, canonical, classify};
use super::dial_error::{AddressRefused, DnsFailed};
use super::failure::ConnectError;

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
        let failed = |source| DnsFailed::new(host, source);
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

/// Normalizes a host name for comparison: lower case, without the root dot.
fn normalize_host(host: &str) -> String {
    host.trim_end_matches('.').to_ascii_lowercase()
}

#[cfg(test)]
mod tests;
