//! Servers of the operator at a loopback address.

use std::sync::Arc;

use reqwest::Url;
use rockbot_egress::DialPolicy;

use crate::config::ServerConfig;

/// The addresses of this machine.
const LOOPBACK: [&str; 2] = ["127.0.0.0/8", "::1/128"];

/// Returns the dial policy of a server. One that the operator wrote into the servers file with a loopback
/// address may be dialed there without TLS.
pub(crate) fn dial_policy(config: &ServerConfig, policy: &Arc<DialPolicy>) -> Arc<DialPolicy> {
    let remote = config.transport.remote().filter(|_| !config.added_by_caller);
    let url = remote.and_then(|remote| Url::parse(&remote.url).ok());
    let Some(url) = url.filter(is_loopback) else { return policy.clone() };
    let mut policy = DialPolicy::clone(policy);
    policy.allow_plain_http = true;
    policy.allow_private.extend(LOOPBACK.iter().filter_map(|network| network.parse().ok()));
    // A redirect of the server leads nowhere else.
    if policy.allowed_ports.is_none() {
        policy.allowed_ports = url.port_or_known_default().map(|port| [port].into());
    }
    Arc::new(policy)
}

/// Returns whether the host is a loopback address or a name of this machine.
fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    match host.parse::<std::net::IpAddr>() {
        Ok(address) => address.is_loopback(),
        Err(_) => host == "localhost" || host.ends_with(".localhost"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Remote, ServersFile, Transport};

    fn policy_of(url: &str) -> Arc<DialPolicy> {
        let text = serde_json::json!({"mcpServers": {"a": {"url": url}}}).to_string();
        let file = ServersFile::parse(text.as_bytes(), |_| None).unwrap();
        dial_policy(&file.servers["a"], &Arc::default())
    }

    fn is_permitted(policy: &DialPolicy, url: &str) -> bool {
        policy.check(&url.parse().unwrap()).is_ok()
    }

    #[test]
    fn loopback_url_of_the_file_needs_no_tls() {
        for url in ["http://127.0.0.1:8000/mcp", "http://localhost:8000/mcp", "ws://[::1]:8000/"] {
            assert!(is_permitted(&policy_of(url), url), "{url}");
        }
        let policy = policy_of("http://127.0.0.1:8000/mcp");
        for other in ["http://127.0.0.1:22/", "http://10.0.0.1:8000/", "http://example.com/"] {
            assert!(!is_permitted(&policy, other), "{other}");
        }
    }

    #[test]
    fn other_servers_have_the_configured_policy() {
        let url = "http://10.0.0.1:8000/mcp";
        assert!(!is_permitted(&policy_of(url), url));
        let url = "http://127.0.0.1.example.com/";
        assert!(!is_permitted(&policy_of(url), url));
        let url = "http://127.0.0.1:8000/mcp".to_owned();
        let (headers, oauth) = Default::default();
        let remote = Transport::for_url(Remote { url: url.clone(), headers, oauth });
        let added = ServerConfig::added_at_run_time("a", remote).unwrap();
        assert!(!is_permitted(&dial_policy(&added, &Arc::default()), &url));
    }
}
