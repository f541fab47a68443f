//! Tiers of models: a cheap one for small tasks, and a strong one for hard ones.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{
    chat::ChatModel,
    config::{LlmConfig, non_empty},
    openai::Endpoint,
    resolve::resolve,
};

/// A tier of models.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ModelTier {
    /// The model of `[llm.low]`.
    Low,
    /// The model of `[llm]`.
    #[default]
    Balanced,
    /// The model of `[llm.high]`.
    High,
}

impl fmt::Display for ModelTier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Low => "low",
            Self::Balanced => "balanced",
            Self::High => "high",
        })
    }
}

/// The models of a process by tier. A tier that is not configured has the model of `[llm]`.
#[derive(Clone)]
pub struct ModelTiers {
    balanced: Arc<dyn ChatModel>,
    low: Option<Arc<dyn ChatModel>>,
    high: Option<Arc<dyn ChatModel>>,
}

impl ModelTiers {
    /// Adds the tiers of `config` to the model of `[llm]`. `env` reads an environment variable.
    ///
    /// # Errors
    /// The problem of a tier, for an operator.
    pub fn new(
        balanced: Arc<dyn ChatModel>,
        config: &LlmConfig,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, String> {
        let tier = |tier: ModelTier| {
            let Some(config) = config.for_tier(tier) else { return Ok(None) };
            match resolve(&config, env) {
                Ok(resolved) => Ok(Some(resolved.model)),
                Err(error) => Err(format!("llm.{tier}: {error}")),
            }
        };
        Ok(Self { balanced, low: tier(ModelTier::Low)?, high: tier(ModelTier::High)? })
    }

    /// Returns the model of a tier.
    #[must_use]
    pub fn get(&self, tier: ModelTier) -> &Arc<dyn ChatModel> {
        let own = match tier {
            ModelTier::Low => self.low.as_ref(),
            ModelTier::Balanced => None,
            ModelTier::High => self.high.as_ref(),
        };
        own.unwrap_or(&self.balanced)
    }
}

impl From<Arc<dyn ChatModel>> for ModelTiers {
    fn from(balanced: Arc<dyn ChatModel>) -> Self {
        Self { balanced, low: None, high: None }
    }
}

impl fmt::Debug for ModelTiers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelTiers")
            .field("balanced", &self.balanced.name())
            .field("low", &self.low.as_ref().map(|model| model.name().to_owned()))
            .field("high", &self.high.as_ref().map(|model| model.name().to_owned()))
            .finish()
    }
}

impl LlmConfig {
    /// Returns the settings of a tier; `None` for the balanced one and for one that is not configured.
    ///
    /// A key that the tier's section lacks is that of `[llm]`. A section with a provider or a base URL of its
    /// own has a server of its own: then provider, base URL, model and script are not inherited, and the API
    /// key only if it is for the same server.
    #[must_use]
    pub fn for_tier(&self, tier: ModelTier) -> Option<Self> {
        let own = match tier {
            ModelTier::Low => self.low.as_deref(),
            ModelTier::Balanced => None,
            ModelTier::High => self.high.as_deref(),
        }?;
        let base_url = non_empty(own.base_url.as_deref());
        let has_server = own.provider.is_some() || base_url.is_some();
        let wider = if has_server { &Self::default() } else { self };
        let has_key = own.api_key().is_some() || own.api_key_file.is_some();
        let keys = if has_key {
            own
        } else if !has_server || self.is_same_server(base_url) {
            self
        } else {
            wider
        };
        Some(Self {
            provider: own.provider.or(wider.provider),
            base_url: base_url.map(str::to_owned).or_else(|| wider.base_url.clone()),
            model: own.model.clone().or_else(|| wider.model.clone()),
            api_key: keys.api_key.clone(),
            api_key_file: keys.api_key_file.clone(),
            connect_timeout: own.connect_timeout.or(self.connect_timeout),
            idle_timeout: own.idle_timeout.or(self.idle_timeout),
            max_attempts: own.max_attempts.or(self.max_attempts),
            max_tokens: own.max_tokens.or(self.max_tokens),
            temperature: own.temperature.or(self.temperature),
            script: own.script.clone().or_else(|| wider.script.clone()),
            low: None,
            high: None,
        })
    }

    fn is_same_server(&self, base_url: Option<&str>) -> bool {
        let urls = non_empty(self.base_url.as_deref()).zip(base_url);
        urls.is_some_and(|(one, other)| match (Endpoint::parse(one), Endpoint::parse(other)) {
            (Ok(one), Ok(other)) => one.is_same_server(&other),
            _ => false,
        })
    }

    /// Returns the problems of the tiers' sections, each with its key.
    pub(crate) fn validate_tiers(&self) -> Vec<String> {
        let mut problems = Vec::new();
        for (tier, section) in [(ModelTier::Low, &self.low), (ModelTier::High, &self.high)] {
            if section.as_ref().is_some_and(|own| own.low.is_some() || own.high.is_some()) {
                problems.push(format!("{tier}: a tier has no tiers; remove low and high from it"));
            }
            let own = self.for_tier(tier).map(|config| config.validate()).unwrap_or_default();
            problems.extend(own.into_iter().map(|problem| format!("{tier}: {problem}")));
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret;

    use super::*;

    fn config(toml: &str) -> LlmConfig {
        toml::from_str(toml).unwrap()
    }

    fn low(toml: &str) -> LlmConfig {
        config(toml).for_tier(ModelTier::Low).unwrap()
    }

    fn key(config: &LlmConfig) -> Option<String> {
        config.api_key().map(|key| key.expose_secret().to_owned())
    }

    #[test]
    fn tier_inherits_server_and_key() {
        let tier =
            low("base_url = 'http://one/v1'\nmodel = 'big'\napi_key = 'k'\nmax_attempts = 2\n\
                        temperature = 1\n[low]\nmodel = 'small'\ntemperature = 0.1");
        assert_eq!(tier.base_url.as_deref(), Some("http://one/v1"));
        assert_eq!((tier.model.as_deref(), key(&tier).as_deref()), (Some("small"), Some("k")));
        assert_eq!((tier.max_attempts, tier.temperature), (Some(2), Some(0.1)));
        assert!(config("model = 'big'").for_tier(ModelTier::High).is_none());
    }

    #[test]
    fn key_goes_to_no_other_server() {
        let section = "base_url = 'http://one/v1'\nmodel = 'big'\napi_key = 'k'\n[low]\n";
        let other = low(&format!("{section}base_url = 'http://two/v1'"));
        assert_eq!((key(&other), other.model), (None, None));
        let same = low(&format!("{section}base_url = 'http://one/v2'"));
        assert_eq!(key(&same).as_deref(), Some("k"));
        let own = low(&format!("{section}base_url = 'http://two/v1'\napi_key = 'own'"));
        assert_eq!(key(&own).as_deref(), Some("own"));
        let provider = low(&format!("{section}provider = 'openai'"));
        assert_eq!((key(&provider), provider.base_url), (None, None));
    }

    #[test]
    fn invalid_tiers_are_reported_with_their_names() {
        let invalid = config("[low]\ntemperature = 3\n[high]\nprovider = 'scripted'");
        let problems = invalid.validate();
        assert_eq!(problems.len(), 2, "{problems:?}");
        assert!(problems[0].starts_with("low: temperature"), "{problems:?}");
        assert!(problems[1].starts_with("high: script"), "{problems:?}");
        let nested = config("[low]\nmodel = 'a'\n[low.high]\nmodel = 'b'");
        assert!(nested.validate()[0].starts_with("low: a tier has no tiers"));
    }

    #[test]
    fn unconfigured_tier_has_the_balanced_model() {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let config = config("base_url = 'http://one/v1'\nmodel = 'big'\n[low]\nmodel = 'small'");
        let balanced = resolve(&config, &|_| None).unwrap().model;
        let tiers = ModelTiers::new(balanced, &config, &|_| None).unwrap();
        let names = [ModelTier::Low, ModelTier::Balanced, ModelTier::High]
            .map(|tier| tiers.get(tier).name().to_owned());
        assert_eq!(names, ["small", "big", "big"]);
    }
}
