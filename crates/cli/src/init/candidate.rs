//! Model servers that may be used.

use rockbot_llm::OpenAiSettings;
use rockbot_service::exit;
use secrecy::SecretString;

use super::models;
use crate::failure::{Failure, OrExit};

const OPENROUTER_URL: &str = "https://openrouter.ai/api/v1";
const OPENROUTER_MODEL: &str = "openai/gpt-4o-mini";

/// A model server with its models and its key.
#[derive(Debug)]
pub(super) struct Candidate {
    /// For people.
    pub(super) label: String,
    pub(super) base_url: String,
    /// Its models, the preferred one first; empty if they are not known.
    pub(super) models: Vec<String>,
    pub(super) key: Option<FoundKey>,
}

/// A key in the environment.
#[derive(Debug)]
pub(super) struct FoundKey {
    pub(super) variable: &'static str,
    pub(super) secret: SecretString,
}

impl Candidate {
    /// Returns the server at a URL.
    pub(super) fn at(
        base_url: &str,
        environment: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, Failure> {
        let url = url::Url::parse(base_url).or_exit(exit::USAGE)?;
        if !matches!(url.scheme(), "http" | "https") || !url.username().is_empty() {
            return Err(Failure::usage("--base-url: expected http://HOST/… or https://HOST/…"));
        }
        let known = of_environment(environment).into_iter().find(|one| one.base_url == base_url);
        if let Some(known) = known {
            return Ok(known);
        }
        Ok(Self {
            label: base_url.to_owned(),
            base_url: base_url.to_owned(),
            models: Vec::new(),
            key: None,
        })
    }

    /// Asks a server on this machine for its models, if they are not known.
    pub(super) async fn complete(&mut self) {
        let Ok(url) = url::Url::parse(&self.base_url) else { return };
        let is_local = matches!(url.host_str(), Some("127.0.0.1" | "localhost" | "[::1]"));
        if is_local && self.models.is_empty() {
            self.models = models::listed_at(&url).await.unwrap_or_default();
        }
    }
}

/// Returns the servers whose keys are in the environment, in the order in which `rockbot chat` uses them.
pub(super) fn of_environment(environment: &dyn Fn(&str) -> Option<String>) -> Vec<Candidate> {
    let read = |name| environment(name).map(|value| value.trim().to_owned());
    let read = |name| read(name).filter(|value| !value.is_empty());
    let key = |variable| Some(FoundKey { variable, secret: SecretString::from(read(variable)?) });
    let mut found = Vec::new();
    let (openai_key, openai_url) = (key("OPENAI_API_KEY"), read("OPENAI_BASE_URL"));
    if openai_key.is_some() || openai_url.is_some() {
        let defaults = OpenAiSettings::default();
        // Another server does not know the default model.
        let default_model = if openai_url.is_none() { defaults.model } else { None };
        let label = match &openai_url {
            Some(url) => format!("{url} (OPENAI_BASE_URL)"),
            None => "OpenAI (OPENAI_API_KEY)".to_owned(),
        };
        found.push(Candidate {
            label,
            base_url: openai_url.unwrap_or(defaults.base_url),
            models: read("OPENAI_MODEL").or(default_model).into_iter().collect(),
            key: openai_key,
        });
    }
    if let Some(key) = key("OPENROUTER_API_KEY") {
        let model = read("OPENROUTER_MODEL").unwrap_or_else(|| OPENROUTER_MODEL.to_owned());
        found.push(Candidate {
            label: "OpenRouter (OPENROUTER_API_KEY)".to_owned(),
            base_url: OPENROUTER_URL.to_owned(),
            models: vec![model],
            key: Some(key),
        });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_servers_of_the_environment_are_found() {
        let variables = [
            ("OPENAI_BASE_URL", "http://127.0.0.1:1/v1"),
            ("OPENROUTER_API_KEY", "k"),
            ("OPENAI_API_KEY", " "),
        ];
        let read = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let found = of_environment(&read);
        let urls: Vec<_> = found.iter().map(|one| one.base_url.as_str()).collect();
        assert_eq!(urls, ["http://127.0.0.1:1/v1", OPENROUTER_URL]);
        assert!(found[0].models.is_empty() && found[0].key.is_none());
        assert_eq!(found[1].key.as_ref().map(|key| key.variable), Some("OPENROUTER_API_KEY"));
        assert!(of_environment(&|_| None).is_empty());
    }
}
