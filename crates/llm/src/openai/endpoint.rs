//! Validated base URLs.

use std::net::IpAddr;

use reqwest::Url;

use crate::config::LlmConfigError;

/// A base URL that is safe to display: without user, password, query and fragment.
#[derive(Debug, Clone)]
pub(crate) struct Endpoint(Url);

impl Endpoint {
    /// Parses a base URL, without `/chat/completions`.
    pub(crate) fn parse(base_url: &str) -> Result<Self, LlmConfigError> {
        let invalid = |problem: &str| {
            LlmConfigError::invalid(format!(
                "the model's base_url {problem}; use a URL such as http://localhost:11434/v1"
            ))
        };
        let url = Url::parse(base_url.trim())
            .map_err(|error| invalid(&format!("is not a URL: {error}")))?;
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            return Err(invalid("must begin with http:// or https:// and a host"));
        }
        let has_user = !url.username().is_empty() || url.password().is_some();
        if has_user || url.query().is_some() || url.fragment().is_some() {
            // Not displayed, because it may hold a secret.
            return Err(invalid("must have no user, password, query or fragment"));
        }
        Ok(Self(url))
    }

    /// Returns the URL for requests.
    pub(crate) fn chat_completions(&self) -> Url {
        let mut url = self.0.clone();
        url.set_path(&format!("{}/chat/completions", self.0.path().trim_end_matches('/')));
        url
    }

    pub(crate) fn is_openai(&self) -> bool {
        self.0.host_str() == Some("api.openai.com")
    }

    pub(crate) fn is_openrouter(&self) -> bool {
        self.0.host_str() == Some("openrouter.ai")
    }

    /// Returns whether the server is on this machine, where no proxy can reach it.
    pub(crate) fn is_loopback(&self) -> bool {
        self.0.host_str().is_some_and(|host| {
            let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
            host == "localhost" || address.is_ok_and(|address| address.is_loopback())
        })
    }

    /// Returns whether both have the same origin, so that a key may be sent to either.
    pub(crate) fn is_same_server(&self, other: &Self) -> bool {
        self.0.origin() == other.0.origin()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_url_extends_base_url_path() {
        for (base_url, expected) in [
            ("http://localhost:11434/v1", "http://localhost:11434/v1/chat/completions"),
            ("http://localhost:11434/v1/", "http://localhost:11434/v1/chat/completions"),
            ("https://h", "https://h/chat/completions"),
            (" https://openrouter.ai/api/v1 ", "https://openrouter.ai/api/v1/chat/completions"),
        ] {
            let endpoint = Endpoint::parse(base_url).unwrap();
            assert_eq!(endpoint.chat_completions().as_str(), expected);
        }
    }

    #[test]
    fn base_url_with_secret_is_rejected_and_not_displayed() {
        for base_url in ["http://u:secret@h/v1", "http://h/v1?key=secret", "http://h/#secret"] {
            let error = Endpoint::parse(base_url).unwrap_err().to_string();
            assert!(!error.contains("secret"), "{error}");
        }
        for base_url in ["", "localhost:11434", "ftp://h/v1", "file:///v1"] {
            assert!(Endpoint::parse(base_url).is_err(), "{base_url}");
        }
    }

    #[test]
    fn loopback_servers_are_detected() {
        for (base_url, expected) in [
            ("http://localhost/v1", true),
            ("http://127.0.0.2:1/v1", true),
            ("http://[::1]:1/v1", true),
            ("http://10.0.0.1/v1", false),
            ("http://localhost.example.com/v1", false),
        ] {
            assert_eq!(Endpoint::parse(base_url).unwrap().is_loopback(), expected, "{base_url}");
        }
    }
}
