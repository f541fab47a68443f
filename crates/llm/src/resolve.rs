//! Selection of the model: the section `[llm]` first, then the environment.

use std::{
    fmt,
    fs::File,
    io::Read,
    path::{Path, PathBuf},
    sync::Arc,
};

use secrecy::SecretString;

use crate::{
    chat::ChatModel,
    config::{LlmConfig, LlmConfigError, Provider, non_empty},
    openai::{Endpoint, KeySource, OpenAiModel, OpenAiSettings},
    scripted::ScriptedModel,
};

/// The largest key file, in bytes.
const MAX_KEY_FILE_BYTES: u64 = 16 * 1024;
const OPENROUTER_URL: &str = "https://openrouter.ai/api/v1";
const OPENROUTER_MODEL: &str = "openai/gpt-4o-mini";

/// A selected model, ready for use.
#[derive(Clone)]
pub struct ResolvedModel {
    /// The model.
    pub model: Arc<dyn ChatModel>,
    /// A description of the model and its source, for display. Holds no secret.
    pub origin: String,
}

impl fmt::Debug for ResolvedModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResolvedModel").field("origin", &self.origin).finish_non_exhaustive()
    }
}

/// Selects the model. `env` reads an environment variable.
///
/// 1. A section `[llm]` with `provider = "scripted"`, a `base_url` or a key determines the model. A
///    `base_url` without a key uses the key from the environment only if that key belongs to the same
///    server.
/// 2. `OPENAI_API_KEY` or `OPENAI_BASE_URL` (a local server needs no key), with `OPENAI_MODEL`.
/// 3. `OPENROUTER_API_KEY`, with `OPENROUTER_MODEL`.
///
/// The other keys of the section (`model`, timeouts, …) apply in every case.
///
/// # Errors
/// [`LlmConfigError::NotConfigured`] when no model is configured; the others when the configuration is
/// unusable.
pub fn resolve(
    config: &LlmConfig,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<ResolvedModel, LlmConfigError> {
    match choose(config, env)? {
        Choice::Script(path) => {
            let model = Arc::new(ScriptedModel::from_file(&path)?);
            Ok(ResolvedModel { model, origin: format!("the script {}", path.display()) })
        }
        Choice::Server(settings) => {
            let key = match (settings.api_key.is_some(), settings.key_source) {
                (false, _) => "without a key".to_owned(),
                (true, KeySource::Environment(variable)) => format!("with {variable}"),
                (true, KeySource::Section) => "with the key of the section [llm]".to_owned(),
            };
            let model = settings.model.as_deref().unwrap_or("the model");
            let origin = format!("{model} at {} {key}", settings.base_url);
            Ok(ResolvedModel { model: Arc::new(OpenAiModel::new(settings)?), origin })
        }
    }
}

#[derive(Debug)]
enum Choice {
    Script(PathBuf),
    Server(OpenAiSettings),
}

fn choose(
    config: &LlmConfig,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Choice, LlmConfigError> {
    let problems = config.validate();
    if !problems.is_empty() {
        return Err(LlmConfigError::Invalid { problems });
    }
    if let (Some(Provider::Scripted), Some(script)) = (config.provider, &config.script) {
        return Ok(Choice::Script(script.clone()));
    }
    let mut settings = match (non_empty(config.base_url.as_deref()), section_key(config)?) {
        (Some(base_url), key) => settings_for_base_url(base_url, key, env)?,
        (None, Some(key)) => OpenAiSettings { api_key: Some(key), ..OpenAiSettings::default() },
        (None, None) => from_environment(env).next().ok_or(LlmConfigError::NotConfigured)?,
    };
    apply_section(config, &mut settings);
    Ok(Choice::Server(settings))
}

/// Applies the section's model and request settings.
fn apply_section(config: &LlmConfig, settings: &mut OpenAiSettings) {
    if let Some(model) = non_empty(config.model.as_deref()) {
        settings.model = Some(model.to_owned());
    }
    if let Some(timeout) = config.connect_timeout {
        settings.connect_timeout = timeout;
    }
    if let Some(timeout) = config.idle_timeout {
        settings.idle_timeout = timeout;
    }
    if let Some(attempts) = config.max_attempts {
        settings.max_attempts = attempts;
    }
    settings.max_tokens = config.max_tokens;
    settings.temperature = config.temperature;
}

/// Returns the settings for a base URL, with the key of the environment only if it belongs to that server.
fn settings_for_base_url(
    base_url: &str,
    key: Option<SecretString>,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<OpenAiSettings, LlmConfigError> {
    let endpoint = Endpoint::parse(base_url)?;
    let account = from_environment(env).find(|account| {
        Endpoint::parse(&account.base_url).is_ok_and(|other| other.is_same_server(&endpoint))
    });
    let mut settings = account.unwrap_or_else(|| OpenAiSettings {
        model: default_model(&endpoint),
        ..OpenAiSettings::default()
    });
    settings.base_url = base_url.to_owned();
    if key.is_some() {
        settings.api_key = key;
        settings.key_source = KeySource::Section;
    }
    Ok(settings)
}

/// Returns the default model of a server. Only the server itself knows the models of other servers.
fn default_model(endpoint: &Endpoint) -> Option<String> {
    if endpoint.is_openrouter() {
        Some(OPENROUTER_MODEL.to_owned())
    } else if endpoint.is_openai() {
        OpenAiSettings::default().model
    } else {
        None
    }
}

/// Returns the accounts in the environment, in order of preference.
fn from_environment(env: &dyn Fn(&str) -> Option<String>) -> impl Iterator<Item = OpenAiSettings> {
    let read = |variable| non_empty(env(variable).as_deref()).map(str::to_owned);
    let defaults = OpenAiSettings::default;

    let key = read("OPENAI_API_KEY");
    let base_url = read("OPENAI_BASE_URL");
    let openai = (key.is_some() || base_url.is_some()).then(|| OpenAiSettings {
        model: read("OPENAI_MODEL").or_else(|| match &base_url {
            // An invalid URL is reported later.
            Some(url) => default_model(&Endpoint::parse(url).ok()?),
            None => defaults().model,
        }),
        base_url: base_url.unwrap_or(defaults().base_url),
        api_key: key.map(SecretString::from),
        key_source: KeySource::Environment("OPENAI_API_KEY"),
        ..defaults()
    });
    let openrouter = read("OPENROUTER_API_KEY").map(|key| OpenAiSettings {
        base_url: OPENROUTER_URL.to_owned(),
        model: read("OPENROUTER_MODEL").or_else(|| Some(OPENROUTER_MODEL.to_owned())),
        api_key: Some(key.into()),
        key_source: KeySource::Environment("OPENROUTER_API_KEY"),
        ..defaults()
    });
    openai.into_iter().chain(openrouter)
}

impl LlmConfig {
    /// Returns the keys from the section and its tiers or from their files, for redaction in logs. Omits
    /// those whose files are unreadable; [`resolve`] reports that error.
    #[must_use]
    pub fn keys_to_redact(&self) -> Vec<SecretString> {
        let tiers = [&self.low, &self.high].into_iter().filter_map(Option::as_deref);
        let sections = std::iter::once(self).chain(tiers);
        sections.filter_map(|section| section_key(section).ok().flatten()).collect()
    }
}

fn section_key(config: &LlmConfig) -> Result<Option<SecretString>, LlmConfigError> {
    if let Some(path) = &config.api_key_file {
        return read_key(path).map(Some);
    }
    Ok(config.api_key().cloned())
}

fn read_key(path: &Path) -> Result<SecretString, LlmConfigError> {
    let mut key = String::new();
    File::open(path)
        .and_then(|file| file.take(MAX_KEY_FILE_BYTES).read_to_string(&mut key))
        .map_err(|source| LlmConfigError::KeyFile { path: path.to_owned(), source })?;
    match non_empty(Some(&key)) {
        Some(key) => Ok(key.into()),
        None => Err(LlmConfigError::invalid(format!("api_key_file {} is empty", path.display()))),
    }
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret;

    use super::*;

    fn config(toml: &str) -> LlmConfig {
        toml::from_str(toml).unwrap()
    }

    fn server(toml: &str, variables: &[(&str, &str)]) -> OpenAiSettings {
        match choose(&config(toml), &env(variables)).unwrap() {
            Choice::Server(settings) => settings,
            Choice::Script(path) => panic!("{path:?}"),
        }
    }

    fn env(variables: &[(&str, &str)]) -> impl Fn(&str) -> Option<String> {
        move |name| {
            let found = variables.iter().find(|(variable, _)| *variable == name);
            found.map(|(_, value)| (*value).to_owned())
        }
    }

    fn key(settings: &OpenAiSettings) -> Option<&str> {
        settings.api_key.as_ref().map(ExposeSecret::expose_secret)
    }

    const OPENAI: (&str, &str) = ("OPENAI_API_KEY", "sk-env");
    const OPENROUTER: (&str, &str) = ("OPENROUTER_API_KEY", "sk-or-env");
    const LOCAL: (&str, &str) = ("OPENAI_BASE_URL", "http://localhost:1/v1");

    #[test]
    fn environment_is_read_in_order() {
        let both = server("", &[OPENROUTER, OPENAI]);
        assert_eq!(both.base_url, "https://api.openai.com/v1");
        assert_eq!((both.model.as_deref(), key(&both)), (Some("gpt-4o-mini"), Some("sk-env")));

        let openrouter = server("", &[("OPENAI_API_KEY", ""), OPENROUTER]);
        assert_eq!(openrouter.base_url, OPENROUTER_URL);
        assert_eq!(
            (openrouter.model.as_deref(), key(&openrouter)),
            (Some(OPENROUTER_MODEL), Some("sk-or-env"))
        );

        let local = server("", &[LOCAL, ("OPENAI_MODEL", "qwen3")]);
        assert_eq!((local.base_url.as_str(), local.model.as_deref()), (LOCAL.1, Some("qwen3")));
        assert_eq!(key(&local), None);
    }

    #[test]
    fn section_takes_precedence_over_environment() {
        let settings = server("base_url = 'http://h/v1'\nmodel = 'm'\napi_key = 'k'", &[OPENAI]);
        let used = (settings.base_url.as_str(), settings.model.as_deref());
        assert_eq!(used, ("http://h/v1", Some("m")));
        assert_eq!((key(&settings), settings.key_source), (Some("k"), KeySource::Section));

        let settings = server("model = 'm'\nmax_attempts = 1\nidle_timeout = '5s'", &[OPENROUTER]);
        let used = (settings.base_url.as_str(), settings.model.as_deref());
        assert_eq!(used, (OPENROUTER_URL, Some("m")));
        assert_eq!((settings.max_attempts, settings.idle_timeout.as_secs()), (1, 5));
    }

    #[test]
    fn model_of_another_server_has_no_invented_name() {
        assert_eq!(server("", &[LOCAL]).model, None);
        assert_eq!(server("base_url = 'http://h/v1'", &[OPENAI]).model, None);
        let openai = server("base_url = 'https://api.openai.com/v1'", &[]);
        assert_eq!(openai.model.as_deref(), Some("gpt-4o-mini"));
    }

    #[test]
    fn environment_key_is_not_sent_to_other_servers() {
        let section = "base_url = 'http://elsewhere/v1'";
        assert_eq!(key(&server(section, &[OPENAI, OPENROUTER])), None);
        let section = "base_url = 'https://openrouter.ai/api/v1'";
        assert_eq!(key(&server(section, &[OPENAI, OPENROUTER])), Some("sk-or-env"));
        assert_eq!(key(&server(section, &[OPENAI, LOCAL])), None);
    }

    #[test]
    fn missing_configuration_error_lists_all_options() {
        let error = choose(&config("provider = 'openai'"), &env(&[])).unwrap_err();
        assert!(matches!(error, LlmConfigError::NotConfigured));
        for option in ["OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENROUTER_API_KEY", "[llm]"] {
            assert!(error.to_string().contains(option), "{option}");
        }
    }

    #[test]
    fn all_invalid_values_are_reported_at_once() {
        let section = "script = 'x'\nmax_attempts = 0\ntemperature = 3.0\nidle_timeout = '0s'";
        let error = choose(&config(section), &env(&[OPENAI])).unwrap_err().to_string();
        for key in ["script", "max_attempts", "temperature", "idle_timeout"] {
            assert!(error.contains(key), "{key}: {error}");
        }
        assert!(toml::from_str::<LlmConfig>("modle = 'x'").is_err());
    }

    #[test]
    fn key_file_is_read_without_its_line_end() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "sk-file\n").unwrap();
        let section = format!("api_key_file = '{}'", file.path().display());
        assert_eq!(key(&server(&section, &[OPENAI])), Some("sk-file"));
        let section = format!("{section}\n[low]\napi_key = 'sk-low'");
        let to_redact = config(&section).keys_to_redact();
        let to_redact: Vec<_> = to_redact.iter().map(ExposeSecret::expose_secret).collect();
        assert_eq!(to_redact, ["sk-file", "sk-low"]);
        assert!(config("api_key_file = '/nowhere/key'").keys_to_redact().is_empty());

        let missing = choose(&config("api_key_file = '/nowhere/key'"), &env(&[])).unwrap_err();
        assert!(missing.to_string().contains("/nowhere/key"));
    }

    #[test]
    fn debug_output_has_no_secret() {
        let section = config("api_key = 'sk-section'");
        let settings = server("api_key = 'sk-section'", &[]);
        assert!(!format!("{section:?} {settings:?}").contains("sk-section"));
    }
}
