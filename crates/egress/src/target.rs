//! Private targets that an operator allows.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::address::canonical;

/// A private target that may be dialed, parsed from a CIDR, an address or a host name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PrivateTarget {
    /// Every address of a network.
    Network(IpNet),
    /// Any private address of this host name, in lower case.
    Host(String),
}

impl PrivateTarget {
    /// Returns whether the address, which the name `host` resolved to, belongs to the target.
    pub(crate) fn contains(&self, host: &str, address: IpAddr) -> bool {
        match self {
            Self::Network(network) => {
                network.contains(&canonical(address)) || network.contains(&address)
            }
            Self::Host(name) => *name == normalize_host(host),
        }
    }
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

/// Normalizes a host name for comparison: lower case, without the root dot.
fn normalize_host(host: &str) -> String {
    host.trim_end_matches('.').to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_target_is_rejected() {
        for text in ["", "10.0.0.0/99", "https://x/", "a b", "*.internal"] {
            assert!(text.parse::<PrivateTarget>().is_err(), "{text}");
        }
    }
}
