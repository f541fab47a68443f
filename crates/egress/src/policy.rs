//! The dial policy.
//!
//! An address is checked when it is dialed, after name resolution: a name that was public a moment ago
//! may point to a private network now. Literal addresses do not pass a resolver and are checked in the
//! URL, by [`DialPolicy::check`].

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use reqwest::Url;
use rustls::pki_types::CertificateDer;

use crate::address::{AddressClass, classify};
use crate::error::EgressError;
use crate::names::{NameLookup, SystemNames};
use crate::refused::{AddressRefused, ResolveError};
use crate::target::PrivateTarget;

/// The maximum number of addresses of one name that are considered.
const MAX_ADDRESSES: usize = 32;

/// The operator's policy for outgoing connections.
///
/// By default only `https` and `wss` URLs with public addresses are dialed, on any port.
#[derive(Debug, Clone)]
pub struct DialPolicy {
    /// Allows `http` and `ws`, to this machine as well as to others. Default: false.
    pub allow_plain_http: bool,
    /// Private networks and hosts that may be dialed, such as `127.0.0.0/8` or `api.internal`. Default:
    /// none.
    pub allow_private: Vec<PrivateTarget>,
    /// The ports that may be dialed. Default: all.
    pub allowed_ports: Option<BTreeSet<u16>>,
    /// Certificate authorities that are trusted in addition to those of the system.
    pub authorities: Vec<CertificateDer<'static>>,
    /// The resolver of host names. Default: the operating system's.
    pub names: Arc<dyn NameLookup>,
}

impl Default for DialPolicy {
    fn default() -> Self {
        Self {
            allow_plain_http: false,
            allow_private: Vec::new(),
            allowed_ports: None,
            authorities: Vec::new(),
            names: Arc::new(SystemNames),
        }
    }
}

impl DialPolicy {
    /// Checks a URL before it is dialed: its scheme, user-info, port, and address if it is literal.
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
        let port = url.port_or_known_default().ok_or(AddressRefused::NoHost)?;
        if self.allowed_ports.as_ref().is_some_and(|allowed| !allowed.contains(&port)) {
            return Err(AddressRefused::Port(port));
        }
        match host.trim_matches(['[', ']']).parse() {
            Ok(address) => self.check_address(host, address),
            Err(_) => Ok(()),
        }
    }

    /// Checks one address of a host.
    ///
    /// # Errors
    /// When the policy forbids it.
    fn check_address(&self, host: &str, address: IpAddr) -> Result<(), AddressRefused> {
        match classify(address) {
            AddressClass::Public => Ok(()),
            AddressClass::Private
                if self.allow_private.iter().any(|target| target.contains(host, address)) =>
            {
                Ok(())
            }
            AddressClass::Private => Err(AddressRefused::Private(host.to_owned())),
            AddressClass::Forbidden => Err(AddressRefused::Forbidden(host.to_owned())),
        }
    }

    /// Resolves a host to the addresses that may be dialed, at least one and at most 32.
    ///
    /// Dropping the future cancels the lookup. It has no timeout of its own.
    ///
    /// # Errors
    /// [`EgressError::Resolve`] when the name has no address, [`EgressError::Refused`] when it has none
    /// that may be dialed.
    pub async fn resolve(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, EgressError> {
        let found = self.names.lookup(host, port).await;
        let found = found.map_err(|error| ResolveError::new(host, Some(error)))?;
        let mut allowed = Vec::new();
        let mut refused = None;
        for address in found.into_iter().take(MAX_ADDRESSES) {
            match self.check_address(host, address.ip()) {
                Ok(()) => allowed.push(address),
                Err(reason) => refused = Some(reason),
            }
        }
        match (allowed.is_empty(), refused) {
            (false, _) => Ok(allowed),
            (true, Some(reason)) => Err(reason.into()),
            (true, None) => Err(ResolveError::new(host, None).into()),
        }
    }
}

#[cfg(test)]
mod tests;
