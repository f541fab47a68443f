//! The section `[llm]` of a configuration file.

use std::{error::Error, fmt, path::PathBuf, time::Duration};

use rockbot_contracts::period::optional_duration;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;

use crate::{openai::OpenAiSettings, scripted::ScriptError};

/// The section `[llm]`. Every key is optional; empty texts count as absent.
///
/// ```toml
/// [llm]
/// base_url = "http://localhost:11434/v1"
/// model = "qwen3"
/// ```
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LlmConfig {
    /// Which implementation. Default: `openai`.
    pub provider: Option<Provider>,
    /// `http` or `https`, up to what precedes `/chat/completions`. Default: OpenAI's.
    pub base_url: Option<String>,
    /// The model's name, as the server knows it. Default: `gpt-4o-mini`.
    pub model: Option<String>,
    /// The key; a local server mostly needs none.
    pub api_key: Option<SecretString>,
    /// A file with the key, for secrets that are mounted; instead of `api_key`.
    pub api_key_file: Option<PathBuf>,
    /// How long a connection may take, from 1 s to 5 min. Default: 10 s.
    #[serde(deserialize_with = "optional_duration")]
    pub connect_timeout: Option<Duration>,
    /// How long the server may be silent, from 1 s to 1 h. Default: 1 min.
    #[serde(deserialize_with = "optional_duration")]
    pub idle_timeout: Option<Duration>,
    /// How often a request is sent at most, from 1 to 10. Default: 3.
    pub max_attempts: Option<u32>,
    /// The longest answer, in tokens. Default: the server's.
    pub max_tokens: Option<u32>,
    /// From 0 to 2. Default: the server's.
    pub temperature: Option<f64>,
    /// The script to play, a TOML file; only with the provider `scripted`.
    pub script: Option<PathBuf>,
}

/// The implementations of a chat model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Provider {
    /// A server that speaks OpenAI's chat completions.
    OpenAi,
    /// A script.
    Scripted,
}

impl LlmConfig {
    /// Everything that is wrong with the values, each with the key it is about.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut check = |is_fine: bool, problem: &str| {
            if !is_fine {
                problems.push(problem.to_owned());
            }
        };
        let within =
            |value: Option<u64>, most| value.is_none_or(|value| (1..=most).contains(&value));
        let lasts = |value: Option<Duration>, most| {
            let bounds = Duration::from_secs(1)..=Duration::from_secs(most);
            value.is_none_or(|value| bounds.contains(&value))
        };
        let is_scripted = self.provider == Some(Provider::Scripted);
        check(is_scripted == self.script.is_some(), "script goes with provider = \"scripted\"");
        check(
            self.api_key().is_none() || self.api_key_file.is_none(),
            "api_key and api_key_file exclude each other",
        );
        check(lasts(self.connect_timeout, 300), "connect_timeout must be from 1s to 5m");
        check(lasts(self.idle_timeout, 3600), "idle_timeout must be from 1s to 1h");
        check(within(self.max_attempts.map(u64::from), 10), "max_attempts must be from 1 to 10");
        check(self.max_tokens != Some(0), "max_tokens must be at least 1");
        check(
            self.temperature.is_none_or(|value| (0.0..=2.0).contains(&value)),
            "temperature must be from 0 to 2",
        );
        problems
    }

    pub(crate) fn api_key(&self) -> Option<&SecretString> {
        self.api_key.as_ref().filter(|key| !key.expose_secret().trim().is_empty())
    }

    /// Puts what the section says about requests into `settings`.
    pub(crate) fn apply_to(&self, settings: &mut OpenAiSettings) {
        if let Some(model) = present(self.model.as_deref()) {
            settings.model = model.to_owned();
        }
        if let Some(timeout) = self.connect_timeout {
            settings.connect_timeout = timeout;
        }
        if let Some(timeout) = self.idle_timeout {
            settings.idle_timeout = timeout;
        }
        if let Some(attempts) = self.max_attempts {
            settings.max_attempts = attempts;
        }
        settings.max_tokens = self.max_tokens;
        settings.temperature = self.temperature;
    }
}

/// A text that says something.
pub(crate) fn present(text: Option<&str>) -> Option<&str> {
    text.map(str::trim).filter(|text| !text.is_empty())
}

/// Why there is no model to ask.
#[derive(Debug, thiserror::Error)]
pub enum LlmConfigError {
    /// Neither the section nor the environment names a model.
    #[error("{}", Ways)]
    NotConfigured,
    /// Values that can't be used.
    #[error("the section [llm] is not valid: {}", problems.join("; "))]
    Invalid {
        /// All of them, each with what to change.
        problems: Vec<String>,
    },
    /// The file with the key.
    #[error("cannot read the API key from {}: {source}; check api_key_file in the section [llm]", path.display())]
    KeyFile {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The script.
    #[error(transparent)]
    Script(#[from] ScriptError),
    /// The process has not chosen its TLS implementation.
    #[error(
        "no TLS provider is installed; call \
         rustls::crypto::aws_lc_rs::default_provider().install_default() first in main"
    )]
    NoTlsProvider,
    /// The HTTP client can't be set up.
    #[error(
        "cannot set up the HTTP client; check that CA certificates are installed: {}",
        Causes(source)
    )]
    Client {
        /// What it said.
        source: reqwest::Error,
    },
}

impl LlmConfigError {
    pub(crate) fn invalid(problem: impl Into<String>) -> Self {
        Self::Invalid { problems: vec![problem.into()] }
    }
}

struct Ways;

impl fmt::Display for Ways {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "no chat model is configured. Do one of these:\n\
             \x20 - OpenAI:         export OPENAI_API_KEY=sk-...\n\
             \x20   a local server: export OPENAI_BASE_URL=http://localhost:11434/v1 OPENAI_MODEL=qwen3\n\
             \x20 - OpenRouter:     export OPENROUTER_API_KEY=sk-or-...\n\
             \x20 - in the configuration file:\n\
             \x20     [llm]\n\
             \x20     base_url = \"http://localhost:11434/v1\"\n\
             \x20     model = \"qwen3\"",
        )
    }
}

struct Causes<'a>(&'a reqwest::Error);

impl fmt::Display for Causes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}
