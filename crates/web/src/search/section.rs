//! The configuration section `[web.search]`.

use http::{HeaderName, HeaderValue, header::AUTHORIZATION};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;

use crate::{
    api::base_url,
    secret::{header, key},
};

/// The section `[web.search]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SearchSection {
    /// Providers in the order in which they are tried. Default: all configured ones, in the order
    /// `brave`, `tavily`, `searxng`.
    pub providers: Vec<ProviderName>,
    /// Number of results when a call sets none, 1 to 20. Default 5.
    pub max_results: u8,
    /// Country of the results for Brave, a code of two letters, or `ALL`. Default: the service's.
    pub country: Option<String>,
    /// Language of the results for Brave and SearXNG, such as `en` or `pt-BR`. Default: the service's.
    pub language: Option<String>,
    /// Filter of adult content for Brave and SearXNG. Default `moderate`.
    pub safesearch: SafeSearch,
    /// Brave Search.
    pub brave: BraveSection,
    /// A SearXNG server.
    pub searxng: SearxngSection,
    /// Tavily.
    pub tavily: TavilySection,
}

impl Default for SearchSection {
    fn default() -> Self {
        Self {
            providers: Vec::new(),
            max_results: 5,
            country: None,
            language: None,
            safesearch: SafeSearch::default(),
            brave: BraveSection::default(),
            searxng: SearxngSection::default(),
            tavily: TavilySection::default(),
        }
    }
}

/// Names of providers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProviderName {
    /// Brave Search.
    Brave,
    /// Tavily.
    Tavily,
    /// A SearXNG server.
    Searxng,
}

impl ProviderName {
    /// Returns the name in the configuration.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Brave => "brave",
            Self::Tavily => "tavily",
            Self::Searxng => "searxng",
        }
    }
}

/// Filters of adult content.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SafeSearch {
    /// No filter.
    Off,
    /// Omits explicit pictures.
    #[default]
    Moderate,
    /// Omits explicit pages.
    Strict,
}

impl SafeSearch {
    /// Returns the name in the configuration, which is also Brave's.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Moderate => "moderate",
            Self::Strict => "strict",
        }
    }
}

/// The section `[web.search.brave]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BraveSection {
    /// The subscription token. Default: the variable `api_key_env`.
    pub api_key: Option<SecretString>,
    /// Name of the environment variable with the token. Default `BRAVE_API_KEY`.
    pub api_key_env: String,
    /// The base URL. Default `https://api.search.brave.com`.
    pub base_url: String,
}

impl Default for BraveSection {
    fn default() -> Self {
        Self {
            api_key: None,
            api_key_env: "BRAVE_API_KEY".to_owned(),
            base_url: "https://api.search.brave.com".to_owned(),
        }
    }
}

/// The section `[web.search.searxng]`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SearxngSection {
    /// The URL of the server, `http` or `https`. Its `settings.yml` must permit the format `json`.
    /// Default: none.
    pub url: Option<String>,
}

/// The section `[web.search.tavily]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TavilySection {
    /// The API key. Default: the variable `api_key_env`.
    pub api_key: Option<SecretString>,
    /// Name of the environment variable with the key. Default `TAVILY_API_KEY`.
    pub api_key_env: String,
    /// Uses the service without a key, within its limits, if no key is set. Default false.
    pub keyless: bool,
    /// The base URL. Default `https://api.tavily.com`.
    pub base_url: String,
}

impl Default for TavilySection {
    fn default() -> Self {
        Self {
            api_key: None,
            api_key_env: "TAVILY_API_KEY".to_owned(),
            keyless: false,
            base_url: "https://api.tavily.com".to_owned(),
        }
    }
}

impl SearchSection {
    /// Returns all invalid values, each with its key. `environment` returns the value of a variable.
    /// No message contains a secret.
    #[must_use]
    pub fn validate(&self, environment: impl Fn(&str) -> Option<String>) -> Vec<String> {
        let mut problems = Vec::new();
        let mut problem =
            |key: &str, what: &str| problems.push(format!("web.search.{key}: {what}"));
        if !(1..=20).contains(&self.max_results) {
            problem("max_results", "must be 1 to 20");
        }
        if self.country.as_deref().is_some_and(|country| !is_country(country)) {
            problem("country", "must be a code of two letters such as DE, or ALL");
        }
        if self.language.as_deref().is_some_and(|language| !is_language(language)) {
            problem("language", "must be a language code such as en or pt-BR");
        }
        for (section, url) in [("brave", &self.brave.base_url), ("tavily", &self.tavily.base_url)] {
            if let Err(what) = base_url(url, true) {
                problem(&format!("{section}.base_url"), what);
            }
        }
        if let Some(Err(what)) = self.searxng.url.as_deref().map(|url| base_url(url, false)) {
            problem("searxng.url", what);
        }
        let keys =
            [("brave", self.brave_key(&environment)), ("tavily", self.tavily_key(&environment))];
        for (section, key) in keys {
            if key.is_some_and(|key| header(key.expose_secret()).is_none()) {
                let what = "has invalid characters; check for stray line breaks";
                problem(&format!("{section}.api_key"), what);
            }
        }
        for (index, name) in self.providers.iter().enumerate() {
            if self.providers[..index].contains(name) {
                problem("providers", &format!("names {} twice", name.name()));
            } else if let Err(what) = self.configured(*name, &environment) {
                problem("providers", what);
            }
        }
        problems
    }

    /// Fails with the missing part of a provider's configuration.
    fn configured(
        &self,
        name: ProviderName,
        environment: &impl Fn(&str) -> Option<String>,
    ) -> Result<(), &'static str> {
        let (is_configured, what) = match name {
            ProviderName::Brave => (
                self.brave_key(environment).is_some(),
                "brave has no key; set BRAVE_API_KEY or web.search.brave.api_key",
            ),
            ProviderName::Tavily => (
                self.tavily.keyless || self.tavily_key(environment).is_some(),
                "tavily has no key; set TAVILY_API_KEY, web.search.tavily.api_key or keyless = true",
            ),
            ProviderName::Searxng => {
                (self.searxng.url.is_some(), "searxng has no URL; set web.search.searxng.url")
            }
        };
        if is_configured { Ok(()) } else { Err(what) }
    }

    /// Returns the token of Brave, if one is set.
    pub(super) fn brave_key(
        &self,
        environment: &impl Fn(&str) -> Option<String>,
    ) -> Option<SecretString> {
        key(self.brave.api_key.as_ref(), &self.brave.api_key_env, environment)
    }

    fn tavily_key(&self, environment: &impl Fn(&str) -> Option<String>) -> Option<SecretString> {
        key(self.tavily.api_key.as_ref(), &self.tavily.api_key_env, environment)
    }

    /// Returns the header that permits requests to Tavily: a key, or the keyless mode.
    pub(super) fn tavily_access(
        &self,
        environment: &impl Fn(&str) -> Option<String>,
    ) -> Option<(HeaderName, HeaderValue)> {
        match self.tavily_key(environment) {
            Some(key) => Some((AUTHORIZATION, header(&format!("Bearer {}", key.expose_secret()))?)),
            None => self.tavily.keyless.then(|| {
                let name = HeaderName::from_static("x-tavily-access-mode");
                (name, HeaderValue::from_static("keyless"))
            }),
        }
    }
}

fn is_country(text: &str) -> bool {
    text == "ALL" || text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_alphabetic())
}

fn is_language(text: &str) -> bool {
    let mut parts = text.split('-');
    let is_part = |part: &str, lengths: std::ops::RangeInclusive<usize>| {
        lengths.contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_alphabetic())
    };
    let language = parts.next().is_some_and(|part| is_part(part, 2..=3));
    let region = parts.next().is_none_or(|part| is_part(part, 2..=4));
    language && region && parts.next().is_none()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn section(value: serde_json::Value) -> SearchSection {
        serde_json::from_value(value).expect("a section")
    }

    #[test]
    fn defaults_are_valid_and_configure_nothing() {
        let section = section(json!({}));
        assert_eq!(section.validate(|_| None), [""; 0]);
        assert!(!section.tavily.keyless && section.searxng.url.is_none());
    }

    #[test]
    fn all_problems_are_reported_without_secrets() {
        let section = section(json!({
            "providers": ["brave", "brave", "tavily", "searxng"],
            "max_results": 21,
            "country": "Germany",
            "language": "german!",
            "brave": {"base_url": "http://example.com", "api_key": "secret\u{7}1"},
            "tavily": {"base_url": "x"},
            "searxng": {"url": "ftp://localhost"},
        }));
        let problems = section.validate(|_| None);
        let message = problems.join("\n");
        for key in [
            "max_results",
            "country",
            "language",
            "brave.base_url",
            "tavily.base_url",
            "searxng.url",
            "brave.api_key",
            "names brave twice",
            "tavily has no key",
        ] {
            assert!(message.contains(key), "{key}: {message}");
        }
        assert_eq!((problems.len(), message.contains("secret")), (9, false), "{message}");
    }

    #[test]
    fn unknown_keys_and_providers_are_rejected() {
        for value in [
            json!({"provider": "brave"}),
            json!({"providers": ["google"]}),
            json!({"brave": {"key": "x"}}),
            json!({"safesearch": "on"}),
        ] {
            assert!(serde_json::from_value::<SearchSection>(value.clone()).is_err(), "{value}");
        }
    }

    #[test]
    fn configured_key_precedes_environment() {
        let section = section(json!({"brave": {"api_key": " own "}, "tavily": {"api_key": " "}}));
        let environment = |name: &str| Some(format!("{name}-value\n"));
        let shown = |key: Option<SecretString>| key.map(|key| key.expose_secret().to_owned());
        assert_eq!(shown(section.brave_key(&environment)).as_deref(), Some("own"));
        let tavily = shown(section.tavily_key(&environment));
        assert_eq!(tavily.as_deref(), Some("TAVILY_API_KEY-value"));
        assert!(!format!("{section:?}").contains("own"));
    }

    #[test]
    fn language_and_country_have_the_form_of_codes() {
        for (language, valid) in
            [("en", true), ("pt-BR", true), ("zh-hans", true), ("e", false), ("en-", false)]
        {
            assert_eq!(is_language(language), valid, "{language}");
        }
        for (country, valid) in [("DE", true), ("ALL", true), ("D", false), ("DEU", false)] {
            assert_eq!(is_country(country), valid, "{country}");
        }
    }
}
