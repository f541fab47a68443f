//! Settings by model.

use std::collections::BTreeMap;

use rockbot_llm::{ModelCapabilities, ToolCallMode};
use rockbot_tools::names::{DEFAULT_NAME_BYTES, MAX_NAME_BYTES};
use serde::Deserialize;

/// Default threshold for long tool results, in characters: about 16,000 tokens.
pub const DEFAULT_CHUNKING_THRESHOLD: usize = 64_000;

/// Longest additional prompt, in bytes.
const MAX_PROMPT_BYTES: usize = 16 * 1024;

/// `[models."<prefix>"]`: settings of the models whose names start with the prefix.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ModelBehavior {
    /// Tokens of a request and its answer together, at least 1,024. [`ModelBehaviors::for_model`] sets that
    /// of the model's family by default. When absent, only the limit of the model server applies.
    pub context_window: Option<u32>,
    /// Form of the model's tool calls. Default: by the model's family.
    pub tool_calls: Option<ToolCallMode>,
    /// The model reads images. Default: by the model's family.
    pub images: Option<bool>,
    /// The model reads audio. Default: by the model's family.
    pub audio: Option<bool>,
    /// A tool result with more characters, or with more than a quarter of the context window, is shown in
    /// parts. At least 1,000. Default 64,000.
    pub tool_result_chunking_threshold: usize,
    /// Longest tool name that the provider accepts, in bytes, from 16 to 128. Default 64.
    pub tool_name_bytes: usize,
    /// Additional instructions for these models, after the rules. At most 16 KiB.
    pub prompt: Option<String>,
    /// Price of a million input tokens, in US dollars. Without both prices, costs are reported only if the
    /// provider reports them.
    pub input_price: Option<f64>,
    /// Price of a million output tokens, in US dollars.
    pub output_price: Option<f64>,
}

impl Default for ModelBehavior {
    fn default() -> Self {
        Self {
            context_window: None,
            tool_calls: None,
            images: None,
            audio: None,
            tool_result_chunking_threshold: DEFAULT_CHUNKING_THRESHOLD,
            tool_name_bytes: DEFAULT_NAME_BYTES,
            prompt: None,
            input_price: None,
            output_price: None,
        }
    }
}

impl ModelBehavior {
    /// Returns the capabilities of the model with this name: the known ones of its family, unless set here.
    #[must_use]
    pub fn capabilities(&self, model: &str) -> ModelCapabilities {
        let known = ModelCapabilities::for_model(model);
        ModelCapabilities {
            context_window: self.context_window.unwrap_or(known.context_window),
            tool_calls: self.tool_calls.unwrap_or(known.tool_calls),
            images: self.images.unwrap_or(known.images),
            audio: self.audio.unwrap_or(known.audio),
        }
    }

    /// Returns the longest tool result that is shown whole, in characters: the threshold, but at most about
    /// a quarter of the context window.
    #[must_use]
    pub fn max_shown_chars(&self) -> usize {
        // About four characters per token.
        let quarter = self.context_window.map_or(usize::MAX, |tokens| tokens as usize);
        self.tool_result_chunking_threshold.min(quarter)
    }
}

/// `[models]`: settings by the prefix of a model name. The longest matching prefix applies.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(transparent)]
pub struct ModelBehaviors(pub BTreeMap<String, ModelBehavior>);

impl ModelBehaviors {
    /// Returns the settings of a model, with the context window of its family unless one is configured.
    #[must_use]
    pub fn for_model(&self, model: &str) -> ModelBehavior {
        let matching = self.0.iter().filter(|(prefix, _)| model.starts_with(prefix.as_str()));
        let configured = matching.max_by_key(|(prefix, _)| prefix.len());
        let behavior = configured.map(|(_, behavior)| behavior.clone()).unwrap_or_default();
        let context_window = Some(behavior.capabilities(model).context_window);
        ModelBehavior { context_window, ..behavior }
    }

    /// Returns all problems of the sections.
    #[must_use]
    pub fn validate(&self) -> Vec<String> {
        let mut problems = Vec::new();
        for (prefix, behavior) in &self.0 {
            let mut report = |key: &str, what: &str| {
                problems.push(format!("models.{prefix:?}.{key}: {what}"));
            };
            if behavior.context_window.is_some_and(|tokens| tokens < 1024) {
                report("context_window", "must be at least 1024 tokens");
            }
            if behavior.tool_result_chunking_threshold < 1000 {
                report("tool_result_chunking_threshold", "must be at least 1000 characters");
            }
            if !(16..=MAX_NAME_BYTES).contains(&behavior.tool_name_bytes) {
                report("tool_name_bytes", "must be 16 to 128");
            }
            if behavior.prompt.as_ref().is_some_and(|prompt| prompt.len() > MAX_PROMPT_BYTES) {
                report("prompt", "may have at most 16384 bytes");
            }
            let prices =
                [("input_price", behavior.input_price), ("output_price", behavior.output_price)];
            for (key, price) in prices {
                if price.is_some_and(|price| !price.is_finite() || !(0.0..=1e6).contains(&price)) {
                    report(key, "must be US dollars for a million tokens, 0 to 1000000");
                }
            }
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longest_matching_prefix_applies() {
        let with = |threshold| ModelBehavior {
            tool_result_chunking_threshold: threshold,
            ..ModelBehavior::default()
        };
        let named = [("gpt", with(1000)), ("gpt-5-mini", with(2000)), ("", with(3000))];
        let behaviors =
            ModelBehaviors(named.map(|(prefix, behavior)| (prefix.to_owned(), behavior)).into());
        let threshold = |model| behaviors.for_model(model).tool_result_chunking_threshold;
        assert_eq!(threshold("gpt-5-mini-2026"), 2000);
        assert_eq!(threshold("gpt-5"), 1000);
        assert_eq!(threshold("qwen3:8b"), 3000);
    }

    #[test]
    fn configured_capabilities_override_known_ones() {
        let known = ModelBehaviors::default().for_model("openai/gpt-4o");
        assert_eq!(known.context_window, Some(128_000));
        assert_eq!(known.capabilities("openai/gpt-4o"), ModelCapabilities::for_model("gpt-4o"));

        let models: ModelBehaviors = toml::from_str(
            "[\"openai/gpt-4o\"]\ncontext_window = 32000\ntool_calls = \"text\"\nimages = false",
        )
        .unwrap();
        let behavior = models.for_model("openai/gpt-4o-mini");
        assert_eq!(behavior.context_window, Some(32_000));
        let capabilities = behavior.capabilities("openai/gpt-4o-mini");
        assert_eq!(capabilities.tool_calls, ToolCallMode::Text);
        assert_eq!((capabilities.images, capabilities.audio), (false, false));
        assert_eq!(models.for_model("unknown").context_window, Some(128_000));
    }

    #[test]
    fn small_window_limits_shown_results() {
        let with = |window| ModelBehavior { context_window: window, ..Default::default() };
        let shown =
            [None, Some(128_000), Some(16_000)].map(|window| with(window).max_shown_chars());
        assert_eq!(shown, [64_000, 64_000, 16_000]);
    }

    #[test]
    fn invalid_settings_are_reported() {
        let invalid = ModelBehavior {
            context_window: Some(100),
            tool_name_bytes: 200,
            input_price: Some(f64::NAN),
            ..ModelBehavior::default()
        };
        let problems = ModelBehaviors([("m".to_owned(), invalid)].into()).validate();
        assert_eq!(problems.len(), 3, "{problems:?}");
        assert!(problems[0].starts_with("models.\"m\".context_window"), "{problems:?}");
    }
}
