//! Token budget of a model's context window.

use rockbot_llm::{ChatMessage, TokenCounter, ToolDefinition};
use serde_json::Value;

use super::narrow_window::NarrowWindow;
use crate::{behavior::ModelBehavior, history::message_text};

/// Replaces a result that does not fit.
pub(super) const BUDGET_EXCEEDED: &str = "(tool failed: context window budget exceeded)";
/// Is added to a result whose images and recordings do not fit.
pub(super) const MEDIA_LEFT_OUT: &str =
    "\n[images and recordings left out: context window budget exceeded]";
/// Size of [`BUDGET_EXCEEDED`] and similar short results, in tokens.
pub(super) const SHORT_TOKENS: usize = 24;

/// Maximum number of tokens reserved for the answer without `max_tokens`; at most a quarter of the window.
const ANSWER_TOKENS: usize = 4096;

/// Counts tokens and divides the context window.
#[derive(Debug)]
pub(super) struct TokenBudget {
    counter: TokenCounter,
    window: Option<usize>,
    answer: usize,
}

impl TokenBudget {
    pub(super) fn new(model: &str, behavior: &ModelBehavior, max_tokens: Option<u32>) -> Self {
        let window = behavior.context_window.map(|tokens| tokens as usize);
        let most = window.unwrap_or(usize::MAX);
        let answer = max_tokens.map_or(ANSWER_TOKENS.min(most / 4), |tokens| tokens as usize);
        Self { counter: TokenCounter::new(model), window, answer: answer.min(most / 2) }
    }

    /// Returns the tokens of a message. Without a known window, this is an estimate.
    pub(super) async fn count(&self, message: &ChatMessage) -> usize {
        self.count_text(&message_text(message)).await
    }

    /// Returns the tokens of a text. Without a known window, this is an estimate.
    pub(super) async fn count_text(&self, text: &str) -> usize {
        match self.window {
            Some(_) => self.counter.count(text).await,
            None => TokenCounter::estimate(text),
        }
    }

    /// Estimates the tokens of tool definitions. There may be too many to count exactly.
    pub(super) fn estimate_tools(tools: &[ToolDefinition]) -> usize {
        let size =
            |tool: &ToolDefinition| estimate_tool(&tool.name, &tool.description, &tool.parameters);
        tools.iter().map(size).sum()
    }

    /// Returns a description of the window if `fixed` tokens and the answer leave little for the conversation.
    pub(super) fn narrow_window(&self, fixed: usize) -> Option<NarrowWindow> {
        NarrowWindow::detect(self.window?, fixed, self.answer)
    }

    /// Returns the tokens available for the conversation beside `fixed` others and the answer, in the units
    /// of this counter. `None` if the window is unknown.
    pub(super) fn history_tokens(&self, fixed: usize) -> Option<usize> {
        let window = self.window?;
        Some(self.counter.uncorrected(window - self.answer).saturating_sub(fixed))
    }

    /// Limits `max_tokens` to the space reserved for the answer.
    pub(super) fn answer_tokens(&self, max_tokens: Option<u32>) -> Option<u32> {
        max_tokens.map(|tokens| tokens.min(u32::try_from(self.answer).unwrap_or(u32::MAX)))
    }

    /// Adjusts the counter: the provider counted `reported` tokens where this counter counted `counted`.
    pub(super) fn calibrate(&self, counted: usize, reported: u64) {
        self.counter.learn(counted, reported);
    }

    /// Adjusts the counter after the provider rejected a request as too long.
    pub(super) fn record_overflow(&self) {
        self.counter.learn_overflow();
    }
}

/// Estimates the tokens of a tool definition.
pub(super) fn estimate_tool(name: &str, description: &str, parameters: &Value) -> usize {
    (name.len() + description.len() + parameters.to_string().len()).div_ceil(4) + 8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_reserves_tokens_for_the_answer() {
        let available = |window, max_tokens| {
            let behavior =
                ModelBehavior { context_window: Some(window), ..ModelBehavior::default() };
            TokenBudget::new("scripted", &behavior, max_tokens).history_tokens(1000).unwrap()
        };
        assert_eq!(available(16_000, None), 11_000);
        assert_eq!(available(128_000, None), 128_000 - 4096 - 1000);
        assert_eq!(available(16_000, Some(2000)), 13_000);
        assert_eq!(available(16_000, Some(100_000)), 7000);
        assert_eq!(available(1024, None), 0);
        assert_eq!(TokenBudget::new("m", &ModelBehavior::default(), None).history_tokens(0), None);
    }

    #[test]
    fn answer_tokens_are_limited_to_the_window() {
        let limit = |context_window, max_tokens| {
            let behavior = ModelBehavior { context_window, ..ModelBehavior::default() };
            TokenBudget::new("scripted", &behavior, max_tokens).answer_tokens(max_tokens)
        };
        assert_eq!(limit(Some(16_000), Some(100_000)), Some(8000));
        assert_eq!(limit(Some(16_000), Some(2000)), Some(2000));
        assert_eq!(limit(Some(16_000), None), None);
        assert_eq!(limit(None, Some(100_000)), Some(100_000));
    }
}
