//! How much of a model's context window is left for the conversation.

use rockbot_llm::{ChatMessage, TokenCounter, ToolDefinition};

use crate::{behaviour::ModelBehaviour, history::words};

/// What the model reads in place of a result that does not fit.
pub(super) const BUDGET_EXCEEDED: &str = "(tool failed: context window budget exceeded)";
/// Tokens of that, and of anything else so short.
pub(super) const SHORT_TOKENS: usize = 24;

/// Room for the answer when nobody says how long it may be: a quarter of the window, at most so
/// many tokens.
const ANSWER_TOKENS: usize = 4096;

/// Counts what a model reads, and knows how much it can read.
#[derive(Debug)]
pub(super) struct Room {
    counter: TokenCounter,
    window: Option<usize>,
    answer: usize,
}

impl Room {
    pub(super) fn new(model: &str, behaviour: &ModelBehaviour, max_tokens: Option<u32>) -> Self {
        let window = behaviour.context_window.map(|tokens| tokens as usize);
        let most = window.unwrap_or(usize::MAX);
        let answer = max_tokens.map_or(ANSWER_TOKENS.min(most / 4), |tokens| tokens as usize);
        Self { counter: TokenCounter::new(model), window, answer: answer.min(most / 2) }
    }

    /// The tokens of a message's words. Without a window nobody asks, so it is estimated.
    pub(super) async fn count(&self, message: &ChatMessage) -> usize {
        self.count_text(&words(message)).await
    }

    /// The tokens of a text.
    pub(super) async fn count_text(&self, text: &str) -> usize {
        match self.window {
            Some(_) => self.counter.count(text).await,
            None => TokenCounter::estimate(text),
        }
    }

    /// The tokens of what the model is told of its tools, estimated: there may be many.
    pub(super) fn of_tools(tools: &[ToolDefinition]) -> usize {
        let size = |tool: &ToolDefinition| {
            tool.name.len() + tool.description.len() + tool.parameters.to_string().len()
        };
        tools.iter().map(|tool| size(tool).div_ceil(4) + 8).sum()
    }

    /// The tokens that the conversation may have beside `fixed` others and the answer, as this
    /// counts them. None when the window is not known.
    pub(super) fn beside(&self, fixed: usize) -> Option<usize> {
        let window = self.window?;
        Some(self.counter.uncorrected(window - self.answer).saturating_sub(fixed))
    }

    /// How long the answer may be when a definition says so: no longer than it has room.
    pub(super) fn answer_tokens(&self, max_tokens: Option<u32>) -> Option<u32> {
        max_tokens.map(|tokens| tokens.min(u32::try_from(self.answer).unwrap_or(u32::MAX)))
    }

    /// A provider counted `reported` tokens where there are `counted` for us.
    pub(super) fn learn(&self, counted: usize, reported: u64) {
        self.counter.learn(counted, reported);
    }

    /// A provider says that it was too much.
    pub(super) fn learn_overflow(&self) {
        self.counter.learn_overflow();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_has_room_of_its_own() {
        let of = |window, max_tokens| {
            let behaviour =
                ModelBehaviour { context_window: Some(window), ..ModelBehaviour::default() };
            Room::new("scripted", &behaviour, max_tokens).beside(1000).unwrap()
        };
        assert_eq!(of(16_000, None), 11_000);
        assert_eq!(of(128_000, None), 128_000 - 4096 - 1000);
        assert_eq!(of(16_000, Some(2000)), 13_000);
        assert_eq!(of(16_000, Some(100_000)), 7000);
        assert_eq!(of(1024, None), 0);
        assert_eq!(Room::new("m", &ModelBehaviour::default(), None).beside(0), None);
    }

    #[test]
    fn an_answer_is_asked_for_no_longer_than_it_has_room() {
        let asked = |context_window, max_tokens| {
            let behaviour = ModelBehaviour { context_window, ..ModelBehaviour::default() };
            Room::new("scripted", &behaviour, max_tokens).answer_tokens(max_tokens)
        };
        assert_eq!(asked(Some(16_000), Some(100_000)), Some(8000));
        assert_eq!(asked(Some(16_000), Some(2000)), Some(2000));
        assert_eq!(asked(Some(16_000), None), None);
        assert_eq!(asked(None, Some(100_000)), Some(100_000));
    }
}
