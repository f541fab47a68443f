//! The configuration section `[gateway]`.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::PathBuf,
};

use axum::http::{HeaderName, Uri, uri::Authority};
use rockbot_contracts::AgentName;
use rockbot_egress::{DialPolicy, PrivateTarget};
use rockbot_store::StoreUrl;
use secrecy::SecretString;
use serde::Deserialize;

use crate::{
    identity::{FaceName, Right},
    remote_agents::RemoteAgentSection,
};

/// Maximum number of agents.
const MAX_AGENTS: usize = 256;
/// Maximum number of remote agents.
const MAX_REMOTE_AGENTS: usize = 64;
/// Maximum number of connections that can be configured.
const MAX_CONNECTIONS: usize = 65_536;

/// `[gateway]`: the address and faces of the gateway, and who may use them.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GatewaySection {
    /// Address to listen on. Default `127.0.0.1:8420`; port 0 selects a free port.
    pub address: SocketAddr,
    /// The faces. Default: `console`, `openai` and `a2a`.
    pub faces: BTreeSet<FaceName>,
    /// The agents that can be used. Default: `assistant`.
    pub agents: Vec<AgentName>,
    /// The way in which people sign in. Default `link`.
    pub sign_in: SignIn,
    /// URL under which people reach the gateway, without a path. Default: `http://` and the address.
    pub public_url: Option<String>,
    /// Accepted host names, with or without a port; without one, any port is accepted. The one of
    /// `public_url` is always accepted. Default: the names of the local host.
    pub allowed_hosts: Vec<String>,
    /// File of the bearer tokens of programs. Default: none, so no program can sign in.
    pub tokens: Option<PathBuf>,
    /// `memory:`, `sqlite:PATH` or `postgres://USER:PASSWORD@HOST:PORT/DATABASE`: where messages and the
    /// owners of conversations are remembered. Replicas must use the same one. Default `memory:`.
    pub store: Option<SecretString>,
    /// Maximum number of connections; 16 to 65536. Default 1024.
    pub max_connections: usize,
    /// Messages per minute of one person; 1 to 6000. Default 30.
    pub messages_per_minute: u32,
    /// Tools can be called by hand, over `calls`. Default `false`.
    pub call_tools: bool,
    /// The headers of a trusted proxy.
    pub proxy: ProxySection,
    /// Rights of the groups that a trusted proxy names; `*` stands for every person.
    pub groups: BTreeMap<String, BTreeSet<Right>>,
    /// The face `a2a`.
    pub a2a: A2aSection,
    /// The connection that receives copies of all calls, as the broker user `monitor`.
    pub watch: ConnectionSection,
    /// The connection that reads and replays dead letters, as the broker user `operator`.
    pub letters: ConnectionSection,
    /// The connection that calls tools, as the broker user of an agent or `cli`.
    pub calls: ConnectionSection,
    /// Agents of others that speak A2A, by their names at the bus. Default: none.
    pub remote_agents: BTreeMap<AgentName, RemoteAgentSection>,
}

impl Default for GatewaySection {
    fn default() -> Self {
        Self {
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, 8420)),
            faces: BTreeSet::from([FaceName::Console, FaceName::Openai, FaceName::A2a]),
            agents: AgentName::new("assistant").into_iter().collect(),
            sign_in: SignIn::default(),
            public_url: None,
            allowed_hosts: ["localhost", "127.0.0.1", "[::1]"].map(str::to_owned).into(),
            tokens: None,
            store: None,
            max_connections: 1024,
            messages_per_minute: 30,
            call_tools: false,
            proxy: ProxySection::default(),
            groups: BTreeMap::new(),
            a2a: A2aSection::default(),
            watch: ConnectionSection::default(),
            letters: ConnectionSection::default(),
            calls: ConnectionSection::default(),
            remote_agents: BTreeMap::new(),
        }
    }
}

/// The way in which people sign in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SignIn {
    /// With a link that is printed at the start and can be used once.
    #[default]
    Link,
    /// At a proxy, which passes the identity on in headers.
    Proxy,
    /// Not at all: only tokens can be used.
    None,
}

/// `[gateway.proxy]`: the headers of a trusted proxy.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ProxySection {
    /// Header with the name of the person. Default `x-forwarded-email`.
    pub user_header: String,
    /// Header with the groups of the person, separated by commas. Default `x-forwarded-groups`.
    pub groups_header: String,
    /// Addresses from which the headers are accepted. Default: the local host.
    pub trusted_peers: Vec<IpAddr>,
}

impl Default for ProxySection {
    fn default() -> Self {
        Self {
            user_header: "x-forwarded-email".to_owned(),
            groups_header: "x-forwarded-groups".to_owned(),
            trusted_peers: vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()],
        }
    }
}

/// `[gateway.a2a]`: the face `a2a`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct A2aSection {
    /// File of the private key that signs the cards of agents: ECDSA of the curve P-256, in PEM. Default: none; then
    /// cards are not signed.
    pub signing_key_file: Option<PathBuf>,
    /// Push notifications.
    pub push: PushSection,
}

/// `[gateway.a2a.push]`: push notifications about tasks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PushSection {
    /// Clients can register URLs to which the gateway posts the events of their tasks. Default false.
    pub enabled: bool,
    /// Allows URLs without TLS. Default false.
    pub allow_plain_http: bool,
    /// Private addresses, networks and hosts that may be notified. Default: none.
    pub allow_private: Vec<String>,
}

impl PushSection {
    /// Returns the policy for the addresses of targets.
    pub(crate) fn dial_policy(&self) -> DialPolicy {
        DialPolicy {
            allow_plain_http: self.allow_plain_http,
            // `validate` reports invalid ones.
            allow_private: self.allow_private.iter().filter_map(|text| text.parse().ok()).collect(),
            ..DialPolicy::default()
        }
    }
}

/// A further connection to the broker, with its own user.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ConnectionSection {
    /// `amqp://` or `amqps://` URL of the broker. Default: none; what needs the connection is off.
    pub url: Option<SecretString>,
}

impl GatewaySection {
    /// Returns all problems of the section. `production` refuses settings that are safe on one machine only.
    #[must_use]
    pub fn validate(&self, production: bool) -> Vec<String> {
        let mut problems = Vec::new();
        if self.faces.is_empty() {
            problems.push("gateway.faces: name at least one face".to_owned());
        }
        if self.agents.is_empty() || self.agents.len() > MAX_AGENTS {
            problems.push(format!("gateway.agents: name 1 to {MAX_AGENTS} agents"));
        }
        if !(16..=MAX_CONNECTIONS).contains(&self.max_connections) {
            problems.push(format!("gateway.max_connections: must be 16 to {MAX_CONNECTIONS}"));
        }
        if !(1..=6000).contains(&self.messages_per_minute) {
            problems.push("gateway.messages_per_minute: must be 1 to 6000".to_owned());
        }
        if self.sign_in == SignIn::None && self.tokens.is_none() {
            problems.push(
                "gateway.tokens: without sign-in and without tokens every request is refused; name a file of \
                 tokens, made with `rockbot gateway token new`, or set gateway.sign_in"
                    .to_owned(),
            );
        }
        problems.extend(self.public_origin().err());
        for host in &self.allowed_hosts {
            let is_valid = host.parse::<Authority>().is_ok_and(|host| !host.as_str().contains('@'));
            if !is_valid {
                problems.push(format!("gateway.allowed_hosts: {host:?} is no host name"));
            }
        }
        let headers = [
            ("user_header", &self.proxy.user_header),
            ("groups_header", &self.proxy.groups_header),
        ];
        for (key, name) in headers {
            if HeaderName::try_from(name.as_str()).is_err() {
                problems.push(format!("gateway.proxy.{key}: {name:?} is no name of a header"));
            }
        }
        for target in &self.a2a.push.allow_private {
            if let Err(error) = target.parse::<PrivateTarget>() {
                problems.push(format!("gateway.a2a.push.allow_private: {error}"));
            }
        }
        if self.remote_agents.len() > MAX_REMOTE_AGENTS {
            problems
                .push(format!("gateway.remote_agents: name at most {MAX_REMOTE_AGENTS} agents"));
        }
        for (name, agent) in &self.remote_agents {
            let key = format!("gateway.remote_agents.{name}");
            if self.agents.contains(name) {
                problems.push(format!(
                    "{key}: gateway.agents names an agent of the fleet like this; choose another name"
                ));
            }
            problems.extend(agent.validate(&key));
        }
        match self.store_url() {
            Ok(url) if production => {
                if self.may_repeat_remote_tasks() {
                    problems.push(
                        "gateway.store: \"memory:\" is not permitted with gateway.remote_agents in production, \
                         because tasks could be sent twice after a restart; set \"sqlite:PATH\" or a postgres:// URL"
                            .to_owned(),
                    );
                }
                problems.extend(url.unsafe_in_production("gateway.store"));
            }
            Ok(_) => {}
            Err(problem) => problems.push(problem),
        }
        if production {
            problems.extend(self.unsafe_in_production());
        }
        problems
    }

    /// Returns what must not be used in production.
    fn unsafe_in_production(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let is_local = self.address.ip().is_loopback();
        if self.sign_in == SignIn::Link && !is_local {
            problems.push(
                "gateway.sign_in: a login link on an address beyond the local host is not permitted in \
                 production; set gateway.sign_in = \"proxy\", or listen on 127.0.0.1"
                    .to_owned(),
            );
        }
        if self.sign_in == SignIn::Proxy && !is_local {
            if self.proxy == ProxySection::default() {
                problems.push(
                    "gateway.proxy.trusted_peers: name the addresses of the proxy, or listen on 127.0.0.1 \
                     in its pod"
                        .to_owned(),
                );
            }
            if self.proxy.trusted_peers.iter().any(IpAddr::is_unspecified) {
                problems.push(
                    "gateway.proxy.trusted_peers: an unspecified address trusts nothing; name the \
                     addresses of the proxy"
                        .to_owned(),
                );
            }
        }
        let is_secure = self.public_origin().is_ok_and(|origin| origin.starts_with("https://"));
        if !is_local && !is_secure {
            problems.push(
                "gateway.public_url: plain http beyond the local host is not permitted in production; \
                 terminate TLS in front of the gateway and set its https:// URL"
                    .to_owned(),
            );
        }
        problems
    }

    /// Returns the origin under which people reach the gateway: scheme, host and port. For the default, a
    /// port of 0 must be replaced by that of the listener.
    ///
    /// # Errors
    /// Returns the problem of an invalid `public_url`.
    pub fn public_origin(&self) -> Result<String, String> {
        let Some(url) = &self.public_url else { return Ok(format!("http://{}", self.address)) };
        let invalid =
            || format!("gateway.public_url: {url:?} is no http:// or https:// URL without a path");
        let parsed: Uri = url.parse().map_err(|_| invalid())?;
        let scheme = parsed.scheme_str().filter(|scheme| ["http", "https"].contains(scheme));
        let authority = parsed.authority().filter(|authority| !authority.as_str().contains('@'));
        let (Some(scheme), Some(authority)) = (scheme, authority) else { return Err(invalid()) };
        if !matches!(parsed.path(), "" | "/") || parsed.query().is_some() {
            return Err(invalid());
        }
        Ok(format!("{scheme}://{}", authority.as_str().to_ascii_lowercase()))
    }

    /// Returns whether a remote agent can get a task again after a restart or from another replica, because the
    /// store is in the memory of the process.
    #[must_use]
    pub fn may_repeat_remote_tasks(&self) -> bool {
        !self.remote_agents.is_empty() && matches!(self.store_url(), Ok(StoreUrl::Memory))
    }

    /// Returns the address of the store.
    ///
    /// # Errors
    /// Returns the problem of an invalid address.
    pub fn store_url(&self) -> Result<StoreUrl, String> {
        match &self.store {
            None => Ok(StoreUrl::Memory),
            Some(url) => StoreUrl::parse(url).map_err(|error| format!("gateway.store: {error}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(text: &str) -> GatewaySection {
        toml::from_str(text).unwrap()
    }

    fn check(text: &str, production: bool, expected: &[&str]) {
        let problems = section(text).validate(production);
        assert_eq!(problems.len(), expected.len(), "{text}: {problems:?}");
        for (problem, key) in problems.iter().zip(expected) {
            assert!(problem.starts_with(key), "{text}: {problem}");
        }
    }

    #[test]
    fn invalid_values_are_reported_by_key() {
        check("", false, &[]);
        check("faces = []", false, &["gateway.faces"]);
        check("agents = []", false, &["gateway.agents"]);
        check("max_connections = 15", false, &["gateway.max_connections"]);
        check("messages_per_minute = 0", false, &["gateway.messages_per_minute"]);
        check("allowed_hosts = [\"a b\"]", false, &["gateway.allowed_hosts"]);
        check("proxy.user_header = \"a b\"", false, &["gateway.proxy.user_header"]);
        check("a2a.push.allow_private = [\"a b\"]", false, &["gateway.a2a.push.allow_private"]);
        check("store = \"redis:\"", false, &["gateway.store"]);
        check("sign_in = \"none\"", false, &["gateway.tokens"]);
        let remote = "[remote_agents.partner]\nurl = \"https://a.example\"";
        check(remote, false, &[]);
        check("[remote_agents.partner]", false, &["gateway.remote_agents.partner.url"]);
        let own = remote.replace("partner", "assistant");
        check(&own, false, &["gateway.remote_agents.assistant"]);
        for url in ["ftp://a", "https://a/b", "https://u@a", "a", "https://a?b=c"] {
            check(&format!("public_url = \"{url}\""), false, &["gateway.public_url"]);
        }
    }

    #[test]
    fn production_refuses_weak_settings() {
        check("", true, &[]);
        let wide = "address = \"0.0.0.0:8420\"";
        check(wide, false, &[]);
        check(wide, true, &["gateway.sign_in", "gateway.public_url"]);
        let proxied = format!("{wide}\nsign_in = \"proxy\"\npublic_url = \"https://bot.example\"");
        check(&proxied, true, &["gateway.proxy.trusted_peers"]);
        check(&format!("{proxied}\nproxy.trusted_peers = [\"10.0.0.7\"]"), true, &[]);
        let tokens_only = format!("{wide}\nsign_in = \"none\"\ntokens = \"tokens.json\"");
        check(&tokens_only, true, &["gateway.public_url"]);
        check(&format!("{tokens_only}\npublic_url = \"https://bot.example\""), true, &[]);
        let database = "store = \"postgres://a:b@db/x\"";
        check(database, false, &[]);
        check(database, true, &["gateway.store"]);
        let remote = "[remote_agents.partner]\nurl = \"https://a.example\"";
        check(remote, true, &["gateway.store"]);
        check(&format!("store = \"memory:\"\n{remote}"), true, &["gateway.store"]);
        check(&format!("store = \"sqlite:gateway.db\"\n{remote}"), true, &[]);
    }

    #[test]
    fn public_origin_has_neither_path_nor_upper_case() {
        assert_eq!(section("").public_origin().unwrap(), "http://127.0.0.1:8420");
        let named = section("public_url = \"https://Bot.Example:8443/\"");
        assert_eq!(named.public_origin().unwrap(), "https://bot.example:8443");
    }
}
