//! The identity that a trusted proxy passes on in headers.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use axum::http::{HeaderMap, HeaderName};

use crate::{
    identity::{Credential, FaceName, Identity, NamePatterns, Right, TOKEN_PREFIX},
    section::GatewaySection,
};

/// Longest name of a person, in bytes.
const MAX_NAME_BYTES: usize = 255;
/// Maximum number of groups of a person that are considered.
const MAX_GROUPS: usize = 256;
/// Name of the group that every person belongs to.
const EVERY_PERSON: &str = "*";

/// The headers of a trusted proxy, and the rights of groups.
#[derive(Debug)]
pub(super) struct TrustedProxy {
    user: HeaderName,
    groups: HeaderName,
    peers: Vec<IpAddr>,
    rights: BTreeMap<String, BTreeSet<Right>>,
}

impl TrustedProxy {
    /// Returns `None` if a name of a header is invalid; the validation of the configuration reports it.
    pub(super) fn new(section: &GatewaySection) -> Option<Self> {
        let proxy = &section.proxy;
        Some(Self {
            user: proxy.user_header.parse().ok()?,
            groups: proxy.groups_header.parse().ok()?,
            peers: proxy.trusted_peers.clone(),
            rights: section.groups.clone(),
        })
    }

    /// Returns the identity in the headers of a request, if it came from the proxy.
    pub(super) fn identify(&self, headers: &HeaderMap, from: Option<IpAddr>) -> Option<Identity> {
        let from = from.map(|address| address.to_canonical())?;
        if !self.peers.iter().any(|peer| peer.to_canonical() == from) {
            return None;
        }
        // A second header may be the client's own.
        let mut names = headers.get_all(&self.user).iter();
        let name = names.next()?.to_str().ok().filter(|_| names.next().is_none())?.trim();
        if name.is_empty() || name.len() > MAX_NAME_BYTES || name.starts_with(TOKEN_PREFIX) {
            return None;
        }
        let mut groups = headers.get_all(&self.groups).iter();
        let groups = groups.next().filter(|_| groups.next().is_none());
        let groups = groups.and_then(|groups| groups.to_str().ok()).unwrap_or_default();
        let groups = groups.split(',').take(MAX_GROUPS).map(str::trim);
        let groups = groups.filter(|group| *group != EVERY_PERSON).chain([EVERY_PERSON]);
        let rights = groups.filter_map(|group| self.rights.get(group)).flatten().copied();
        let rights: BTreeSet<_> = rights.collect();
        // Calls without an agent take the right, or a token.
        let tools = if rights.contains(&Right::Call) {
            NamePatterns::all()
        } else {
            NamePatterns::default()
        };
        Some(Identity {
            subject: Arc::from(name),
            credential: Credential::Proxy,
            rights,
            faces: BTreeSet::from(FaceName::ALL),
            agents: NamePatterns::all(),
            tools,
            requests_per_minute: None,
            address: Some(from),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identify(from: &str, headers: &[(&'static str, &'static str)]) -> Option<Identity> {
        let text = "groups.staff = [\"talk\"]\ngroups.ops = [\"call\"]\ngroups.\"*\" = [\"watch\"]\nproxy.trusted_peers = [\"10.0.0.7\"]";
        let section: GatewaySection = toml::from_str(text).unwrap();
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        TrustedProxy::new(&section).unwrap().identify(&map, Some(from.parse().unwrap()))
    }

    #[test]
    fn groups_give_rights() {
        let email = ("x-forwarded-email", "ada@example.com");
        let ada = identify("10.0.0.7", &[email]).unwrap();
        assert_eq!(&*ada.subject, "ada@example.com");
        assert_eq!(ada.rights, BTreeSet::from([Right::Watch]));
        assert!(!ada.tools.matches("bash"), "calls without an agent take a right");
        let ops = identify("10.0.0.7", &[email, ("x-forwarded-groups", "ops")]).unwrap();
        assert!(ops.has(Right::Call) && ops.tools.matches("bash"));
        let staff = ("x-forwarded-groups", "other, staff");
        let ada = identify("::ffff:10.0.0.7", &[email, staff]).unwrap();
        assert_eq!(ada.rights, BTreeSet::from([Right::Watch, Right::Talk]));
    }

    #[test]
    fn other_peers_and_doubled_headers_are_not_trusted() {
        let email = ("x-forwarded-email", "ada@example.com");
        assert!(identify("10.0.0.8", &[email]).is_none());
        assert!(identify("10.0.0.7", &[]).is_none());
        assert!(identify("10.0.0.7", &[email, ("x-forwarded-email", "eve@example.com")]).is_none());
        assert!(identify("10.0.0.7", &[("x-forwarded-email", " ")]).is_none());
        assert!(identify("10.0.0.7", &[("x-forwarded-email", "token:program")]).is_none());
    }
}
