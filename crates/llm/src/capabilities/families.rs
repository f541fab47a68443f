//! The known model families, from the model cards and API references of their publishers.

use super::{ModelCapabilities, ToolCallMode};

/// Models whose normalized names begin with the prefix. The longest prefix applies.
pub(super) struct Family {
    prefix: &'static str,
    pub(super) capabilities: ModelCapabilities,
}

impl Family {
    const fn new(prefix: &'static str, context_window: u32) -> Self {
        let tool_calls = ToolCallMode::Native;
        let capabilities =
            ModelCapabilities { context_window, tool_calls, images: false, audio: false };
        Self { prefix, capabilities }
    }

    /// The models read images.
    const fn images(mut self) -> Self {
        self.capabilities.images = true;
        self
    }

    /// The models read audio.
    const fn audio(mut self) -> Self {
        self.capabilities.audio = true;
        self
    }

    /// The models have no native tool calls, or only at some servers.
    const fn text_calls(mut self) -> Self {
        self.capabilities.tool_calls = ToolCallMode::Text;
        self
    }
}

/// Returns the family of a model.
pub(super) fn find(model: &str) -> Option<&'static Family> {
    let name = normalized(model);
    let matching = FAMILIES.iter().filter(|family| name.starts_with(family.prefix));
    matching.max_by_key(|family| family.prefix.len())
}

/// Removes names of provider and publisher, case and separators, which differ between servers.
/// `meta-llama/Meta-Llama-3.1-8B` becomes `llama3.18b`.
fn normalized(model: &str) -> String {
    let mut name = model.rsplit('/').next().unwrap_or(model);
    while let Some((publisher, rest)) = name.split_once('.') {
        if publisher.is_empty() || !publisher.bytes().all(|byte| byte.is_ascii_alphabetic()) {
            break;
        }
        name = rest;
    }
    let name: String =
        name.chars().filter(|c| !matches!(c, '-' | '_')).flat_map(char::to_lowercase).collect();
    match name.strip_prefix("meta") {
        Some(rest) if rest.starts_with("llama") => rest.to_owned(),
        _ => name,
    }
}

/// The known families. If versions differ and the name does not tell them apart, the smaller value is listed.
static FAMILIES: &[Family] = &[
    // OpenAI.
    Family::new("gpt3.5", 16_385),
    Family::new("gpt4", 8192),
    Family::new("gpt432k", 32_768),
    Family::new("gpt41106", 128_000),
    Family::new("gpt40125", 128_000),
    Family::new("gpt4turbo", 128_000).images(),
    Family::new("gpt4o", 128_000).images(),
    Family::new("gpt4oaudio", 128_000).audio(),
    Family::new("gpt4ominiaudio", 128_000).audio(),
    Family::new("gpt4.1", 1_047_576).images(),
    Family::new("gpt4.5", 128_000).images(),
    Family::new("gpt5", 400_000).images(),
    Family::new("gpt5chat", 128_000).images(),
    Family::new("gptaudio", 128_000).audio(),
    Family::new("gptoss", 131_072),
    Family::new("chatgpt4o", 128_000).images(),
    Family::new("codexmini", 200_000).images(),
    Family::new("o1", 200_000).images(),
    Family::new("o1mini", 128_000),
    Family::new("o1preview", 128_000),
    Family::new("o3", 200_000).images(),
    Family::new("o3mini", 200_000),
    Family::new("o4mini", 200_000).images(),
    // Anthropic.
    Family::new("claude", 200_000).images(),
    Family::new("claude2", 100_000).text_calls(),
    Family::new("claudeinstant", 100_000).text_calls(),
    // Google.
    Family::new("gemini", 1_048_576).images().audio(),
    Family::new("gemini1.0", 32_760),
    Family::new("gemma", 8192).text_calls(),
    Family::new("gemma3", 131_072).text_calls().images(),
    Family::new("gemma31b", 32_768).text_calls(),
    Family::new("gemma3:1b", 32_768).text_calls(),
    Family::new("gemma3:270m", 32_768).text_calls(),
    Family::new("gemma3n", 32_768).text_calls(),
    Family::new("gemma4", 131_072).images(),
    // Meta.
    Family::new("llama2", 4096).text_calls(),
    Family::new("llama3", 8192).text_calls(),
    Family::new("llama3.1", 131_072),
    Family::new("llama3.2", 131_072),
    Family::new("llama3.2vision", 131_072).text_calls().images(),
    Family::new("llama3.211bvision", 131_072).text_calls().images(),
    Family::new("llama3.290bvision", 131_072).text_calls().images(),
    Family::new("llama3.3", 131_072),
    Family::new("llama4", 1_048_576).images(),
    Family::new("codellama", 16_384).text_calls(),
    // Mistral.
    Family::new("mistral", 32_768),
    Family::new("mistralsmall3.1", 131_072).images(),
    Family::new("mistralsmall3.2", 131_072).images(),
    Family::new("mistralsmalllatest", 131_072).images(),
    Family::new("mistralmedium", 131_072).images(),
    Family::new("mistrallarge", 131_072),
    Family::new("mistralnemo", 131_072),
    Family::new("ministral", 131_072),
    Family::new("pixtral", 131_072).images(),
    Family::new("mixtral", 32_768).text_calls(),
    Family::new("mixtral8x22b", 65_536),
    Family::new("mixtral:8x22b", 65_536),
    Family::new("codestral", 32_768),
    Family::new("devstral", 131_072),
    Family::new("magistral", 40_960),
    // Qwen.
    Family::new("qwen", 32_768),
    Family::new("qwen1.5", 32_768).text_calls(),
    Family::new("qwen2vl", 32_768).text_calls().images(),
    Family::new("qwen2.5vl", 128_000).text_calls().images(),
    Family::new("qwen2.5omni", 32_768).text_calls().images().audio(),
    Family::new("qwenplus", 131_072),
    Family::new("qwenvl", 32_768).text_calls().images(),
    Family::new("qwen3", 40_960),
    Family::new("qwen3coder", 262_144),
    Family::new("qwen3max", 262_144),
    Family::new("qwen3next", 262_144),
    Family::new("qwen3vl", 262_144).images(),
    Family::new("qwq", 40_960),
    // DeepSeek.
    Family::new("deepseek", 65_536),
    Family::new("deepseekchat", 128_000),
    Family::new("deepseekreasoner", 128_000),
    Family::new("deepseekv3.1", 131_072),
    Family::new("deepseekv3.2", 131_072),
    Family::new("deepseekr1", 65_536).text_calls(),
    Family::new("deepseekcoder", 16_384).text_calls(),
    Family::new("deepseekcoderv2", 131_072).text_calls(),
    Family::new("deepseekllm", 4096).text_calls(),
    // xAI, Cohere, Amazon, Moonshot, Z.ai, MiniMax, AI21, NVIDIA, IBM.
    Family::new("grok", 131_072),
    Family::new("grok4", 256_000).images(),
    Family::new("grok4fast", 2_000_000).images(),
    Family::new("grokcode", 256_000),
    Family::new("command", 4096).text_calls(),
    Family::new("commandr", 128_000),
    Family::new("commanda", 256_000),
    Family::new("novamicro", 128_000),
    Family::new("novalite", 300_000).images(),
    Family::new("novapro", 300_000).images(),
    Family::new("kimik2", 131_072),
    Family::new("glm4", 131_072),
    Family::new("glm4.5v", 65_536).images(),
    Family::new("glm4.6", 202_752),
    Family::new("minimaxm1", 1_000_000),
    Family::new("minimaxm2", 196_608),
    Family::new("jamba", 256_000),
    Family::new("nemotron", 131_072),
    Family::new("granite3", 4096),
    Family::new("granite3.1", 131_072),
    Family::new("granite3.2", 131_072),
    Family::new("granite3.3", 131_072),
    Family::new("granite4", 131_072),
    // Microsoft.
    Family::new("phi", 2048).text_calls(),
    Family::new("phi3", 4096).text_calls(),
    Family::new("phi3mini128k", 131_072).text_calls(),
    Family::new("phi3medium128k", 131_072).text_calls(),
    Family::new("phi3.5", 131_072).text_calls(),
    Family::new("phi4", 16_384).text_calls(),
    Family::new("phi4mini", 131_072),
    // Other local models.
    Family::new("bakllava", 32_768).text_calls().images(),
    Family::new("falcon", 2048).text_calls(),
    Family::new("llava", 4096).text_calls().images(),
    Family::new("moondream", 2048).text_calls().images(),
    Family::new("neuralchat", 8192).text_calls(),
    Family::new("noushermes", 4096).text_calls(),
    Family::new("noushermes2", 32_768).text_calls(),
    Family::new("hermes3", 131_072),
    Family::new("olmo", 4096).text_calls(),
    Family::new("openchat", 8192).text_calls(),
    Family::new("orca", 4096).text_calls(),
    Family::new("smollm2", 8192),
    Family::new("solar", 4096).text_calls(),
    Family::new("starcoder", 16_384).text_calls(),
    Family::new("tinyllama", 2048).text_calls(),
    Family::new("vicuna", 2048).text_calls(),
    Family::new("yi", 4096).text_calls(),
    Family::new("zephyr", 32_768).text_calls(),
];

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn prefixes_are_normalized_and_unique() {
        let mut seen = HashSet::new();
        for family in FAMILIES {
            assert_eq!(normalized(family.prefix), family.prefix);
            assert!(seen.insert(family.prefix), "{} is listed twice", family.prefix);
            assert!(family.capabilities.context_window >= 1024);
        }
    }
}
