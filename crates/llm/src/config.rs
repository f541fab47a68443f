//! The configuration section `[llm]`.

use std::{error::Error, fmt, path::PathBuf, time::Duration};

use rockbot_contracts::period::optional_duration;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;

use crate::scripted::ScriptError;

/// The section `[llm]`. Every key is optional; empty strings count as absent.
///
/// ```toml
/// [llm]
/// base_url = "http://localhost:11434/v1"
/// model = "qwen3"
/// ```
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LlmConfig {
    /// The implementation. Default: `openai`.
    pub provider: Option<Provider>,
    /// The base URL, `http` or `https`, without `/chat/completions`. Default: that of OpenAI.
    pub base_url: Option<String>,
    /// The model's name, as the server knows it. Default: `gpt-4o-mini` at OpenAI and OpenRouter; other
    /// servers choose.
    pub model: Option<String>,
    /// The API key; most local servers need none.
    pub api_key: Option<SecretString>,
    /// A file with the API key, for mounted secrets; an alternative to `api_key`.
    pub api_key_file: Option<PathBuf>,
    /// The connect timeout, from 1 s to 5 min. Default: 10 s.
    #[serde(deserialize_with = "optional_duration")]
    pub connect_timeout: Option<Duration>,
    /// The idle timeout, from 1 s to 1 h. Default: 1 min.
    #[serde(deserialize_with = "optional_duration")]
    pub idle_timeout: Option<Duration>,
    /// The maximum number of attempts, from 1 to 10. Default: 3.
    pub max_attempts: Option<u32>,
    /// The limit for an answer, in tokens. Default: the server's.
    pub max_tokens: Option<u32>,
    /// The sampling temperature, from 0 to 2. Default: the server's.
    pub temperature: Option<f64>,
    /// The script to play, a TOML file; requires the provider `scripted`.
    pub script: Option<PathBuf>,
    /// Settings of the low tier, where they differ. Default: the same model.
    pub low: Option<Box<Self>>,
    /// Settings of the high tier, where they differ. Default: the same model.
    pub high: Option<Box<Self>>,
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
    /// Returns all invalid values, each with its key.
    #[must_use]
    pub fn validate(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut check = |is_valid: bool, problem: &str| {
            if !is_valid {
                problems.push(problem.to_owned());
            }
        };
        let within = |value: Option<u64>, max| value.is_none_or(|value| (1..=max).contains(&value));
        let lasts = |value: Option<Duration>, max| {
            let bounds = Duration::from_secs(1)..=Duration::from_secs(max);
            value.is_none_or(|value| bounds.contains(&value))
        };
        let is_scripted = self.provider == Some(Provider::Scripted);
        check(
            is_scripted == self.script.is_some(),
            "script and provider = \"scripted\" require each other",
        );
        check(
            self.api_key().is_none() || self.api_key_file.is_none(),
            "api_key and api_key_file are mutually exclusive",
        );
        check(lasts(self.connect_timeout, 300), "connect_timeout must be from 1s to 5m");
        check(lasts(self.idle_timeout, 3600), "idle_timeout must be from 1s to 1h");
        check(within(self.max_attempts.map(u64::from), 10), "max_attempts must be from 1 to 10");
        check(self.max_tokens != Some(0), "max_tokens must be at least 1");
        check(
            self.temperature.is_none_or(|value| (0.0..=2.0).contains(&value)),
            "temperature must be from 0 to 2",
        );
        problems.extend(self.validate_tiers());
        problems
    }

    /// Returns the API key of the section, unless it is empty.
    pub(crate) fn api_key(&self) -> Option<&SecretString> {
        self.api_key.as_ref().filter(|key| !key.expose_secret().trim().is_empty())
    }
}

/// Returns the trimmed text, or `None` if it is empty.
pub(crate) fn non_empty(text: Option<&str>) -> Option<&str> {
    text.map(str::trim).filter(|text| !text.is_empty())
}

/// Why no model is available.
#[derive(Debug, thiserror::Error)]
pub enum LlmConfigError {
    /// Neither the section nor the environment names a model.
    #[error("{}", ConfigurationHint)]
    NotConfigured,
    /// Values are invalid.
    #[error("the section [llm] is invalid: {}", problems.join("; "))]
    Invalid {
        /// All of them, each with the required change.
        problems: Vec<String>,
    },
    /// The key file cannot be read.
    #[error(
        "cannot read the API key from {}: {source}; check api_key_file in the section [llm]",
        path.display()
    )]
    KeyFile {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The script is invalid.
    #[error(transparent)]
    Script(#[from] ScriptError),
    /// The process has not installed a TLS provider.
    #[error(
        "no TLS provider is installed; call \
         rustls::crypto::aws_lc_rs::default_provider().install_default() first in main"
    )]
    NoTlsProvider,
    /// The HTTP client cannot be created.
    #[error(
        "cannot create the HTTP client: {}; check that CA certificates are installed",
        Causes(source)
    )]
    Client {
        /// The cause.
        source: reqwest::Error,
    },
}

impl LlmConfigError {
    pub(crate) fn invalid(problem: impl Into<String>) -> Self {
        Self::Invalid { problems: vec![problem.into()] }
    }
}

struct ConfigurationHint;

impl fmt::Display for ConfigurationHint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "no chat model is configured; do one of the following:\n\
             \x20 - OpenAI:         export OPENAI_API_KEY=sk-...\n\
             \x20   a local server: export OPENAI_BASE_URL=http://localhost:11434/v1 OPENAI_MODEL=qwen3\n\
             \x20 - OpenRouter:     export OPENROUTER_API_KEY=sk-or-...\n\
             \x20 - in the configuration file:\n\
             \x20     [llm]\n\
             \x20     base_url = \"http://localhost:11434/v1\"\n\
             \x20     model = \"qwen3\"\n\
             \x20 - for a first chat without a key, replay a script; the file is in the repository:\n\
             \x20     export ROCKBOT_LLM__PROVIDER=scripted\n\
             \x20     export ROCKBOT_LLM__SCRIPT=examples/first-chat.toml",
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
