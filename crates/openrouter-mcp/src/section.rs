//! The configuration sections `[server]` and `[openrouter]`.

use std::{net::SocketAddr, time::Duration};

use reqwest::Url;
use rockbot_contracts::period::duration;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;

use crate::openrouter::{OpenRouter, is_loopback};

/// The section `[server]`: the transport and its access control.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ServerSection {
    /// The transport. Default: `http`.
    pub transport: Transport,
    /// The listen address for `http`. Default: 127.0.0.1:8931.
    pub address: SocketAddr,
    /// Accepted `Host` headers. Default: those of this machine.
    pub allowed_hosts: Vec<String>,
    /// Accepted web origins, each with scheme and port. Default: none.
    pub allowed_origins: Vec<String>,
}

/// Transports.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// Streamable HTTP, for any number of clients.
    #[default]
    Http,
    /// Standard input and output, for the parent process.
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
    /// Returns all invalid values.
    #[must_use]
    pub fn validate(&self) -> Vec<String> {
        let mut errors = Vec::new();
        if self.allowed_hosts.iter().all(|host| host.trim().is_empty()) {
            errors.push(
                "server.allowed_hosts: set at least one host, as clients write it in the URL"
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
                errors.push(format!(
                    "server.allowed_origins: {origin:?} is not like https://example.com:443 or \
                     http://localhost:*"
                ));
            }
        }
        errors
    }
}

/// The section `[openrouter]`: the API and its key.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OpenRouterSection {
    /// The base URL, up to `/credits`: `https`, or `http` on this machine.
    pub base_url: String,
    /// The API key. Default: the environment variable `OPENROUTER_API_KEY`.
    pub api_key: Option<SecretString>,
    /// The time limit of a response, 1 s to 5 min. Default: 20 s.
    #[serde(deserialize_with = "duration")]
    pub timeout: Duration,
    /// The largest response, in bytes, 1 KiB to 64 MiB. Default: 8 MiB.
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
    /// Uses `key`, from the environment's `OPENROUTER_API_KEY`, if the section has none.
    #[must_use]
    pub fn with_default_key(mut self, key: Option<String>) -> Self {
        let is_key = |key: &SecretString| !key.expose_secret().trim().is_empty();
        self.api_key = self
            .api_key
            .filter(is_key)
            .or_else(|| key.map(|key| SecretString::from(key.trim())).filter(is_key));
        self
    }

    /// Returns the time limit of a response.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Creates the client. The process must have installed a rustls provider.
    ///
    /// # Errors
    /// All invalid values, as messages for the operator; none contains the key.
    pub fn client(&self) -> Result<OpenRouter, Vec<String>> {
        let mut errors = Vec::new();
        let base_url = self.base_url().map_err(|problem| errors.push(problem.to_owned()));
        if self.api_key.is_none() {
            errors.push(
                "openrouter.api_key: missing; set OPENROUTER_API_KEY, or \
                 ROCKBOT_OPENROUTER__API_KEY_FILE to a file with it"
                    .to_owned(),
            );
        }
        if !(Duration::from_secs(1)..=Duration::from_secs(300)).contains(&self.timeout) {
            errors.push("openrouter.timeout: must be from 1s to 5m".to_owned());
        }
        if !(1024..=64 * 1024 * 1024).contains(&self.max_response_bytes) {
            errors.push("openrouter.max_response_bytes: must be from 1024 to 67108864".to_owned());
        }
        match (base_url, &self.api_key) {
            (Ok(base_url), Some(key)) if errors.is_empty() => {
                OpenRouter::new(base_url, key.clone(), self.timeout(), self.max_response_bytes)
                    .map_err(|error| vec![error.to_string()])
            }
            _ => Err(errors),
        }
    }

    fn base_url(&self) -> Result<Url, &'static str> {
        let url = Url::parse(&self.base_url).map_err(|_| "openrouter.base_url: is not a URL")?;
        let is_plain = url.username().is_empty()
            && url.password().is_none()
            && url.query().is_none()
            && url.fragment().is_none();
        match url.scheme() {
            _ if !is_plain => Err("openrouter.base_url: must have no user, query or fragment"),
            "https" => Ok(url),
            "http" if is_loopback(&url) => Ok(url),
            _ => Err(
                "openrouter.base_url: must be https, or http on this machine, because the key would \
                      be sent unencrypted",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(section: &OpenRouterSection) -> String {
        rockbot_service::tls::install_tls_provider();
        section.client().map_or_else(|errors| errors.join("\n"), |_| String::new())
    }

    #[test]
    fn all_errors_are_reported_at_once_without_the_key() {
        let section = OpenRouterSection {
            base_url: "http://example.com/v1".to_owned(),
            api_key: None,
            timeout: Duration::ZERO,
            max_response_bytes: 1,
        };
        let message = errors(&section);
        assert_eq!(message.lines().count(), 4, "{message}");
        let message = errors(
            &OpenRouterSection::default().with_default_key(Some("sk-or\nsecret".to_owned())),
        );
        assert!(message.contains("openrouter.api_key") && !message.contains("secret"), "{message}");
    }

    #[test]
    fn key_is_sent_encrypted_only() {
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
            let message = errors(&section.with_default_key(Some("sk-or-1".to_owned())));
            assert_eq!(message.is_empty(), fits, "{url}: {message}");
        }
    }

    #[test]
    fn section_key_takes_precedence_unless_empty() {
        let with = |key: &str| OpenRouterSection {
            api_key: Some(SecretString::from(key)),
            ..Default::default()
        };
        let key = |section: OpenRouterSection| {
            let section = section.with_default_key(Some(" from-environment\n".to_owned()));
            section.api_key.map(|key| key.expose_secret().to_owned())
        };
        assert_eq!(key(with("own")).as_deref(), Some("own"));
        assert_eq!(key(with(" ")).as_deref(), Some("from-environment"));
        assert_eq!(key(OpenRouterSection::default()).as_deref(), Some("from-environment"));
    }

    #[test]
    fn origin_requires_scheme_and_port() {
        let section = |origin: &str| ServerSection {
            allowed_origins: vec![origin.to_owned()],
            ..Default::default()
        };
        for origin in ["http://localhost:*", "https://example.com:443", "http://[::1]:80"] {
            assert_eq!(section(origin).validate(), [""; 0], "{origin}");
        }
        for origin in ["*", "example.com", "https://example.com", "https://:1", "null"] {
            assert_eq!(section(origin).validate().len(), 1, "{origin}");
        }
    }
}
