//! What differs from model to model, and is known before it is asked.

use std::collections::BTreeMap;

use rockbot_tools::names::{DEFAULT_NAME_BYTES, MAX_NAME_BYTES};
use serde::Deserialize;

/// The longest tool result that is shown whole, in characters: about 16,000 tokens.
pub const DEFAULT_CHUNKING_THRESHOLD: usize = 64_000;

/// The longest addition to the prompt, in bytes.
const MAX_PROMPT_BYTES: usize = 16 * 1024;

/// `[models."<prefix>"]`: how to work with the models whose names begin like this.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ModelBehaviour {
    /// Most tokens of a request and its answer together. Unknown when absent: then only the
    /// model server's own word bounds a conversation. At least 1,024.
    pub context_window: Option<u32>,
    /// A tool result of more characters, or of more than a quarter of the context window, is shown
    /// in parts. At least 1,000. Default 64,000.
    pub tool_result_chunking_threshold: usize,
    /// The longest name of a tool that the provider takes, in bytes, from 16 to 128. Default 64.
    pub tool_name_bytes: usize,
    /// Said to these models in addition, after the rules. At most 16 KiB.
    pub prompt: Option<String>,
    /// What a million tokens of requests cost, in US dollars. Without it, and
    /// `output_price`, a cost is told only where the provider tells it.
    pub input_price: Option<f64>,
    /// What a million tokens of answers cost, in US dollars.
    pub output_price: Option<f64>,
}

impl Default for ModelBehaviour {
    fn default() -> Self {
        Self {
            context_window: None,
            tool_result_chunking_threshold: DEFAULT_CHUNKING_THRESHOLD,
            tool_name_bytes: DEFAULT_NAME_BYTES,
            prompt: None,
            input_price: None,
            output_price: None,
        }
    }
}

impl ModelBehaviour {
    /// The longest tool result that is shown whole, in characters: the threshold, and no more than
    /// about a quarter of the context window.
    #[must_use]
    pub fn shown_chars(&self) -> usize {
        // Four characters a token.
        let quarter = self.context_window.map_or(usize::MAX, |tokens| tokens as usize);
        self.tool_result_chunking_threshold.min(quarter)
    }
}

/// `[models]`: behaviours by the beginning of a model's name; the longest that fits counts.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(transparent)]
pub struct ModelBehaviours(pub BTreeMap<String, ModelBehaviour>);

impl ModelBehaviours {
    /// How to work with this model.
    #[must_use]
    pub fn of(&self, model: &str) -> ModelBehaviour {
        let fits = self.0.iter().filter(|(prefix, _)| model.starts_with(prefix.as_str()));
        fits.max_by_key(|(prefix, _)| prefix.len())
            .map_or_else(ModelBehaviour::default, |(_, behaviour)| behaviour.clone())
    }

    /// What is wrong with them, in words for an operator.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        for (prefix, behaviour) in &self.0 {
            let mut wrong = |key: &str, what: &str| {
                problems.push(format!("models.{prefix:?}.{key}: {what}"));
            };
            if behaviour.context_window.is_some_and(|tokens| tokens < 1024) {
                wrong("context_window", "must be at least 1024 tokens");
            }
            if behaviour.tool_result_chunking_threshold < 1000 {
                wrong("tool_result_chunking_threshold", "must be at least 1000 characters");
            }
            if !(16..=MAX_NAME_BYTES).contains(&behaviour.tool_name_bytes) {
                wrong("tool_name_bytes", "must be 16 to 128");
            }
            if behaviour.prompt.as_ref().is_some_and(|prompt| prompt.len() > MAX_PROMPT_BYTES) {
                wrong("prompt", "may have at most 16384 bytes");
            }
            let prices =
                [("input_price", behaviour.input_price), ("output_price", behaviour.output_price)];
            for (key, price) in prices {
                if price.is_some_and(|price| !price.is_finite() || !(0.0..=1e6).contains(&price)) {
                    wrong(key, "must be US dollars for a million tokens, 0 to 1000000");
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
    fn the_longest_beginning_counts() {
        let with = |threshold| ModelBehaviour {
            tool_result_chunking_threshold: threshold,
            ..ModelBehaviour::default()
        };
        let named = [("gpt", with(1000)), ("gpt-5-mini", with(2000)), ("", with(3000))];
        let behaviours =
            ModelBehaviours(named.map(|(prefix, behaviour)| (prefix.to_owned(), behaviour)).into());
        let threshold = |model| behaviours.of(model).tool_result_chunking_threshold;
        assert_eq!(threshold("gpt-5-mini-2026"), 2000);
        assert_eq!(threshold("gpt-5"), 1000);
        assert_eq!(threshold("qwen3:8b"), 3000);
        assert_eq!(ModelBehaviours::default().of("x"), ModelBehaviour::default());
    }

    #[test]
    fn a_small_window_is_not_filled_by_one_result() {
        let with = |window| ModelBehaviour { context_window: window, ..Default::default() };
        let shown = [None, Some(128_000), Some(16_000)].map(|window| with(window).shown_chars());
        assert_eq!(shown, [64_000, 64_000, 16_000]);
    }

    #[test]
    fn what_no_model_can_have_is_told() {
        let odd = ModelBehaviour {
            context_window: Some(100),
            tool_name_bytes: 200,
            input_price: Some(f64::NAN),
            ..ModelBehaviour::default()
        };
        let problems = ModelBehaviours([("m".to_owned(), odd)].into()).problems();
        assert_eq!(problems.len(), 3, "{problems:?}");
        assert!(problems[0].starts_with("models.\"m\".context_window"), "{problems:?}");
    }
}
