//! Capabilities of models: context window, tool calls, images and audio.

mod families;

use serde::Deserialize;

use crate::media::{Media, MediaKind};

/// The context window of unknown models, in tokens. Many current models have this size. A server with a
/// smaller window rejects the request, and the caller can shorten it.
const DEFAULT_CONTEXT_WINDOW: u32 = 128_000;

/// The capabilities of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModelCapabilities {
    /// Tokens of a request and its answer together.
    pub context_window: u32,
    /// The form of its tool calls.
    pub tool_calls: ToolCallMode,
    /// The model reads images.
    pub images: bool,
    /// The model reads audio.
    pub audio: bool,
}

/// The form of a model's tool calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ToolCallMode {
    /// Through the server, with definitions, calls and results in fields of the protocol.
    #[default]
    Native,
    /// In the text of its answers. Definitions are sent in the system message, results in user messages.
    Text,
}

impl ModelCapabilities {
    /// Returns the known capabilities of a model, by its name with or without the names of provider and
    /// publisher. Unknown models have a context window of 128,000 tokens, use native calls, and read only
    /// text.
    #[must_use]
    pub fn for_model(model: &str) -> Self {
        families::find(model).map_or(
            Self {
                context_window: DEFAULT_CONTEXT_WINDOW,
                tool_calls: ToolCallMode::Native,
                images: false,
                audio: false,
            },
            |family| family.capabilities,
        )
    }

    /// Returns the note that replaces an image or a recording in a request, or `None` if the model reads it.
    #[must_use]
    pub fn unread_note(&self, media: &Media) -> Option<String> {
        let (is_readable, reason) = match media.kind() {
            MediaKind::Image => (self.images, "this model reads no images"),
            MediaKind::Audio => (self.audio, "this model reads no audio"),
        };
        (!is_readable).then(|| media.left_out_note(reason))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_is_found_by_family() {
        for (model, window) in [
            ("gpt-4", 8192),
            ("gpt-4-0613", 8192),
            ("gpt-4-1106-preview", 128_000),
            ("gpt-4.1-mini", 1_047_576),
            ("openai/gpt-4o-mini", 128_000),
            ("gpt-5-mini-2026-01-01", 400_000),
            ("anthropic/claude-sonnet-4.5", 200_000),
            ("us.anthropic.claude-3-5-sonnet-20241022-v2:0", 200_000),
            ("google/gemini-2.5-pro", 1_048_576),
            ("llama3:8b", 8192),
            ("llama3.1", 131_072),
            ("meta-llama/Meta-Llama-3.1-8B-Instruct", 131_072),
            ("hf.co/bartowski/Llama-3.3-70B-Instruct-GGUF:Q4_K_M", 131_072),
            ("qwen3:8b", 40_960),
            ("Qwen/Qwen3-Coder-30B-A3B-Instruct", 262_144),
            ("mistral-nemo", 131_072),
            ("mistral:7b", 32_768),
            ("my-own-model", 128_000),
            ("", 128_000),
        ] {
            assert_eq!(ModelCapabilities::for_model(model).context_window, window, "{model}");
        }
    }

    #[test]
    fn calls_and_media_are_known_by_family() {
        let find = ModelCapabilities::for_model;
        for model in ["gemma3:4b", "phi4", "llama2", "vicuna:13b", "deepseek-r1:8b"] {
            assert_eq!(find(model).tool_calls, ToolCallMode::Text, "{model}");
        }
        for model in ["gpt-4o", "qwen2.5", "llama3.2", "phi4-mini", "claude-3-haiku", "scripted"] {
            assert_eq!(find(model).tool_calls, ToolCallMode::Native, "{model}");
        }
        let media = |model| (find(model).images, find(model).audio);
        assert_eq!(media("gpt-4o-mini"), (true, false));
        assert_eq!(media("gpt-4o-audio-preview"), (false, true));
        assert_eq!(media("gemini-2.5-flash"), (true, true));
        assert_eq!(media("llama3.2-vision"), (true, false));
        assert_eq!(media("llama3.2:3b"), (false, false));
    }
}
