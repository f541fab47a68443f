//! The configuration of a remote agent.

use std::{path::PathBuf, time::Duration};

use axum::http::HeaderValue;
use rockbot_contracts::period::duration;
use rockbot_egress::{DialPolicy, PrivateTarget};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use url::Url;

use crate::identity::NamePatterns;

/// Maximum number of tasks at a remote agent that can be configured.
const MAX_CONCURRENCY: usize = 256;
/// Longest time limit of a request that can be configured.
const MAX_TIMEOUT: Duration = Duration::from_secs(300);
/// Longest pattern of callers, in bytes.
const MAX_PATTERN_BYTES: usize = 128;

/// `[gateway.remote_agents.<name>]`: an agent of others that speaks A2A. Agents of the bus know it as `<name>`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RemoteAgentSection {
    /// URL of the agent, below which its card is at `/.well-known/agent-card.json`. Required.
    pub url: String,
    /// Bearer token for its requests. Default: none.
    pub token: Option<SecretString>,
    /// URL of the broker for the user of the agent. Default: the connection of `[bus]`.
    pub bus_url: Option<SecretString>,
    /// File of the public keys of which one must have signed the card: ECDSA of the curve P-256, in PEM; at most 8. Default:
    /// none; then signatures are not read.
    pub card_keys_file: Option<PathBuf>,
    /// Names of the callers that may delegate tasks to it; `*` matches any text. Default: all.
    pub callers: NamePatterns,
    /// The agent treats a message that it receives again as the same. Default `false`.
    pub idempotent: bool,
    /// Time limit of each request; 1 s to 5 min. Default 30 s.
    #[serde(deserialize_with = "duration")]
    pub timeout: Duration,
    /// Maximum number of tasks that it does at a time; 1 to 256. Further ones wait. Default 16.
    pub concurrency: usize,
    /// Allows `http://`. Default `false`.
    pub allow_plain_http: bool,
    /// Private addresses, networks and hosts that may be dialed. Default: none.
    pub allow_private: Vec<String>,
}

impl Default for RemoteAgentSection {
    fn default() -> Self {
        Self {
            url: String::new(),
            token: None,
            bus_url: None,
            card_keys_file: None,
            callers: NamePatterns::all(),
            idempotent: false,
            timeout: Duration::from_secs(30),
            concurrency: 16,
            allow_plain_http: false,
            allow_private: Vec::new(),
        }
    }
}

impl RemoteAgentSection {
    /// Returns all invalid values, for an operator. `key` is that of the section.
    #[must_use]
    pub fn validate(&self, key: &str) -> Vec<String> {
        let mut problems = Vec::new();
        match self.parsed_url() {
            None => problems
                .push(format!("{key}.url: an http:// or https:// URL without a query is required")),
            Some(url) => {
                let refused = self.dial_policy().check(&url).err();
                problems.extend(refused.map(|error| format!("{key}.url: {error}")));
            }
        }
        if self.token.is_some() && self.authorization().is_none() {
            problems.push(format!("{key}.token: it has characters that no header may have"));
        }
        let is_valid = |pattern: &str| (1..=MAX_PATTERN_BYTES).contains(&pattern.len());
        if self.callers.iter().count() > NamePatterns::MAX || !self.callers.iter().all(is_valid) {
            problems.push(format!(
                "{key}.callers: name at most {} patterns of 1 to {MAX_PATTERN_BYTES} bytes",
                NamePatterns::MAX
            ));
        }
        if !(Duration::from_secs(1)..=MAX_TIMEOUT).contains(&self.timeout) {
            problems.push(format!("{key}.timeout: must be 1s to 5m"));
        }
        if !(1..=MAX_CONCURRENCY).contains(&self.concurrency) {
            problems.push(format!("{key}.concurrency: must be 1 to {MAX_CONCURRENCY}"));
        }
        for target in &self.allow_private {
            if let Err(error) = target.parse::<PrivateTarget>() {
                problems.push(format!("{key}.allow_private: {error}"));
            }
        }
        problems
    }

    /// Returns the URL without a trailing slash.
    pub(super) fn parsed_url(&self) -> Option<Url> {
        let mut url: Url = self.url.parse().ok()?;
        let is_http = matches!(url.scheme(), "http" | "https");
        if !is_http || url.query().is_some() || url.fragment().is_some() {
            return None;
        }
        let path = url.path().trim_end_matches('/').to_owned();
        url.set_path(&path);
        Some(url)
    }

    /// Returns the header with the token.
    pub(super) fn authorization(&self) -> Option<HeaderValue> {
        let token = self.token.as_ref()?;
        let mut value = HeaderValue::try_from(format!("Bearer {}", token.expose_secret())).ok()?;
        value.set_sensitive(true);
        Some(value)
    }

    pub(super) fn dial_policy(&self) -> DialPolicy {
        DialPolicy {
            allow_plain_http: self.allow_plain_http,
            // `validate` reports invalid ones.
            allow_private: self.allow_private.iter().filter_map(|text| text.parse().ok()).collect(),
            ..DialPolicy::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(text: &str) -> Vec<String> {
        let section: RemoteAgentSection = toml::from_str(text).unwrap();
        section.validate("gateway.remote_agents.x")
    }

    #[test]
    fn invalid_values_are_reported_by_key() {
        assert!(problems("url = \"https://a.example/agents/b/\"").is_empty());
        for (text, key) in [
            ("", "url"),
            ("url = \"ftp://a.example\"", "url"),
            ("url = \"https://a.example?x=y\"", "url"),
            ("url = \"http://a.example\"", "url"),
            ("url = \"https://169.254.169.254\"", "url"),
            ("url = \"https://u:p@a.example\"", "url"),
            ("url = \"https://a.example\"\ntoken = \"a\\nb\"", "token"),
            ("url = \"https://a.example\"\ntimeout = \"6m\"", "timeout"),
            ("url = \"https://a.example\"\ncallers = [\"a\", \"\"]", "callers"),
            ("url = \"https://a.example\"\nconcurrency = 0", "concurrency"),
            ("url = \"https://a.example\"\nallow_private = [\"a b\"]", "allow_private"),
        ] {
            let problems = problems(text);
            let prefix = format!("gateway.remote_agents.x.{key}: ");
            assert_eq!(problems.len(), 1, "{text}: {problems:?}");
            assert!(problems[0].starts_with(&prefix), "{text}: {problems:?}");
        }
    }

    #[test]
    fn path_has_no_trailing_slash() {
        let section = RemoteAgentSection {
            url: "https://a.example/agents/b/".to_owned(),
            ..RemoteAgentSection::default()
        };
        assert_eq!(section.parsed_url().unwrap().path(), "/agents/b");
    }
}
