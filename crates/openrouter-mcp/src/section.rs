//! The sections `[server]` and `[openrouter]` of a configuration.

use std::{net::SocketAddr, time::Duration};

use reqwest::Url;
use rockbot_contracts::period::duration;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;

use crate::openrouter::{OpenRouter, is_this_machine};

/// `[server]`: how clients reach the tools.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ServerSection {
    /// Over what. Default `http`.
    pub transport: Transport,
    /// Where to listen with `http`. Default 127.0.0.1:8931.
    pub address: SocketAddr,
    /// Names in the `Host` header under which clients may come. Default: those of this machine.
    pub allowed_hosts: Vec<String>,
    /// Web pages that may call, each with scheme and port. Default: none.
    pub allowed_origins: Vec<String>,
}

/// How clients reach the tools.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// Streamable HTTP, for any number of clients.
    #[default]
    Http,
    /// Standard input and output, for the program that started this one.
    Stdio,
}

impl Default for ServerSection {
    fn default() -> Self {
        Self {
            transport: Transport::Http,
            address: SocketAddr::from(([127, 0, 0, 1], 8931)),
            allowed_hosts: ["localhost", "127.0.0.1", "::1"].map(str::to_owned).into(),
            allowed_origins: Vec::new(),
        }
    }
}

impl ServerSection {
    /// Everything that is wrong with the values.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.allowed_hosts.iter().all(|host| host.trim().is_empty()) {
            problems.push(
                "server.allowed_hosts: name at least one host, as clients write it in the URL"
                    .to_owned(),
            );
        }
        for origin in &self.allowed_origins {
            let has_port = |rest: &str| {
                rest.rsplit_once(':').is_some_and(|(host, port)| {
                    !host.is_empty() && (port == "*" || port.parse::<u16>().is_ok())
                })
            };
            if !origin.split_once("://").is_some_and(|(_, rest)| has_port(rest)) {
                problems.push(format!(
                    "server.allowed_origins: {origin:?} is not like https://example.com:443 or \
                     http://localhost:*"
                ));
            }
        }
        problems
    }
}

/// `[openrouter]`: whom to ask, and with which key.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OpenRouterSection {
    /// Up to what precedes `/credits`. `https`, or `http` on this machine.
    pub base_url: String,
    /// The key. Default: the variable `OPENROUTER_API_KEY`.
    pub api_key: Option<SecretString>,
    /// For a whole answer, 1 s to 5 min. Default 20 s.
    #[serde(deserialize_with = "duration")]
    pub timeout: Duration,
    /// The largest answer, in bytes, 1 KiB to 64 MiB. Default 8 MiB.
    pub max_response_bytes: usize,
}

impl Default for OpenRouterSection {
    fn default() -> Self {
        Self {
            base_url: "https://openrouter.ai/api/v1".to_owned(),
            api_key: None,
            timeout: Duration::from_secs(20),
            max_response_bytes: 8 * 1024 * 1024,
        }
    }
}

impl OpenRouterSection {
    /// Takes the key from the environment's `OPENROUTER_API_KEY` where the section has none.
    #[must_use]
    pub fn or_key(mut self, key: Option<String>) -> Self {
        let is_key = |key: &SecretString| !key.expose_secret().trim().is_empty();
        self.api_key = self
            .api_key
            .filter(is_key)
            .or_else(|| key.map(|key| SecretString::from(key.trim())).filter(is_key));
        self
    }

    /// The time for a whole answer.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Makes the client. The process must have installed a rustls provider.
    ///
    /// # Errors
    /// Everything that is wrong with the values, in words for an operator; the key is in none.
    pub fn client(&self) -> Result<OpenRouter, Vec<String>> {
        let mut problems = Vec::new();
        let base_url = self.base_url().map_err(|problem| problems.push(problem.to_owned()));
        if self.api_key.is_none() {
            problems.push(
                "openrouter.api_key: there is no key; set OPENROUTER_API_KEY, or \
                 ROCKBOT_OPENROUTER__API_KEY_FILE to a file with it"
                    .to_owned(),
            );
        }
        if !(Duration::from_secs(1)..=Duration::from_secs(300)).contains(&self.timeout) {
            problems.push("openrouter.timeout: must be from 1s to 5m".to_owned());
        }
        if !(1024..=64 * 1024 * 1024).contains(&self.max_response_bytes) {
            problems
                .push("openrouter.max_response_bytes: must be from 1024 to 67108864".to_owned());
        }
        match (base_url, &self.api_key) {
            (Ok(base_url), Some(key)) if problems.is_empty() => {
                OpenRouter::new(base_url, key.clone(), self.timeout(), self.max_response_bytes)
                    .map_err(|error| vec![error.to_string()])
            }
            _ => Err(problems),
        }
    }

    fn base_url(&self) -> Result<Url, &'static str> {
        let url = Url::parse(&self.base_url).map_err(|_| "openrouter.base_url: is not a URL")?;
        let is_plain = url.username().is_empty()
            && url.password().is_none()
            && url.query().is_none()
            && url.fragment().is_none();
        match url.scheme() {
            _ if !is_plain => Err("openrouter.base_url: must end with its path, and hold no user"),
            "https" => Ok(url),
            "http" if is_this_machine(&url) => Ok(url),
            _ => Err("openrouter.base_url: must be https, or http on this machine: the key would \
                      cross the network in clear"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(section: &OpenRouterSection) -> String {
        rockbot_service::tls::install_tls_provider();
        section.client().map_or_else(|problems| problems.join("\n"), |_| String::new())
    }

    #[test]
    fn all_problems_are_told_at_once_and_none_shows_the_key() {
        let section = OpenRouterSection {
            base_url: "http://example.com/v1".to_owned(),
            api_key: None,
            timeout: Duration::ZERO,
            max_response_bytes: 1,
        };
        let told = problems(&section);
        assert_eq!(told.lines().count(), 4, "{told}");
        let told = problems(&OpenRouterSection::default().or_key(Some("sk-or\nsecret".to_owned())));
        assert!(told.contains("openrouter.api_key") && !told.contains("secret"), "{told}");
    }

    #[test]
    fn the_key_crosses_the_network_encrypted_only() {
        for (url, fits) in [
            ("https://openrouter.ai/api/v1", true),
            ("http://127.0.0.1:1/v1", true),
            ("http://[::1]:1", true),
            ("http://localhost:1", true),
            ("http://localhost.example.com", false),
            ("ftp://127.0.0.1", false),
            ("https://user@example.com", false),
            ("https://example.com/?a=b", false),
            ("example.com", false),
        ] {
            let section = OpenRouterSection { base_url: url.to_owned(), ..Default::default() };
            let told = problems(&section.or_key(Some("sk-or-1".to_owned())));
            assert_eq!(told.is_empty(), fits, "{url}: {told}");
        }
    }

    #[test]
    fn the_sections_key_wins_and_an_empty_one_is_none() {
        let with = |key: &str| OpenRouterSection {
            api_key: Some(SecretString::from(key)),
            ..Default::default()
        };
        let key = |section: OpenRouterSection| {
            let section = section.or_key(Some(" from-environment\n".to_owned()));
            section.api_key.map(|key| key.expose_secret().to_owned())
        };
        assert_eq!(key(with("own")).as_deref(), Some("own"));
        assert_eq!(key(with(" ")).as_deref(), Some("from-environment"));
        assert_eq!(key(OpenRouterSection::default()).as_deref(), Some("from-environment"));
    }

    #[test]
    fn an_origin_has_a_scheme_and_a_port() {
        let section = |origin: &str| ServerSection {
            allowed_origins: vec![origin.to_owned()],
            ..Default::default()
        };
        for origin in ["http://localhost:*", "https://example.com:443", "http://[::1]:80"] {
            assert_eq!(section(origin).problems(), [""; 0], "{origin}");
        }
        for origin in ["*", "example.com", "https://example.com", "https://:1", "null"] {
            assert_eq!(section(origin).problems().len(), 1, "{origin}");
        }
    }
}
