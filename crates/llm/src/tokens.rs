//! Token counts of texts, estimated before a model reads them.

use std::{
    fmt,
    sync::atomic::{AtomicU32, Ordering},
};

use tiktoken_rs::{bpe_for_tokenizer, tokenizer::Tokenizer, tokenizer::get_tokenizer};
use tokio::task::spawn_blocking;

/// Characters per token, if the vocabulary is unknown.
const CHARS_PER_TOKEN: usize = 4;
/// Texts are counted in slices of this size, so that the time does not depend on the text. Each cut
/// adds at most one token: a third of a percent, measured on prose.
const SLICE_BYTES: usize = 1024;
/// The neutral correction; corrections are in thousandths.
const UNCORRECTED: u32 = 1000;
/// Bounds of the correction, about the range by which tokenizers differ: one request with few or
/// unusual words must not distort later counts.
const MIN_CORRECTION: u32 = UNCORRECTED / 2;
const MAX_CORRECTION: u32 = 4 * UNCORRECTED;

/// Counts tokens for one model.
///
/// It counts with the vocabulary of OpenAI's models, and estimates four characters per token for others.
/// The usage that a provider reports corrects both.
pub struct TokenCounter {
    vocabulary: Option<Tokenizer>,
    /// The provider's count for a thousand tokens of this counter.
    correction: AtomicU32,
}

impl TokenCounter {
    /// Creates a counter for a model, by its name with or without a provider prefix. The vocabulary is
    /// loaded on first use.
    #[must_use]
    pub fn new(model: &str) -> Self {
        let name = model.rsplit('/').next().unwrap_or(model);
        Self { vocabulary: get_tokenizer(name), correction: AtomicU32::new(UNCORRECTED) }
    }

    /// Returns whether the model's vocabulary is known.
    #[must_use]
    pub fn knows_vocabulary(&self) -> bool {
        self.vocabulary.is_some()
    }

    /// Counts the tokens of a text, before any correction. With a vocabulary this takes one to two
    /// milliseconds per 1,000 tokens on a blocking thread, and up to a second once to load the vocabulary;
    /// both were measured on a busy machine.
    ///
    /// # Cancellation
    /// The blocking thread finishes its count.
    pub async fn count(&self, text: &str) -> usize {
        let Some(vocabulary) = self.vocabulary.filter(|_| !text.is_empty()) else {
            return Self::estimate(text);
        };
        let counted = text.to_owned();
        let counting = spawn_blocking(move || count_exactly(vocabulary, &counted)).await;
        counting.unwrap_or_else(|_| Self::estimate(text))
    }

    /// Estimates the tokens of a text from its length, before any correction.
    #[must_use]
    pub fn estimate(text: &str) -> usize {
        text.chars().count().div_ceil(CHARS_PER_TOKEN)
    }

    /// Returns the provider's expected count for `tokens` of this counter.
    #[must_use]
    pub fn corrected(&self, tokens: usize) -> usize {
        tokens.saturating_mul(self.correction() as usize).div_ceil(UNCORRECTED as usize)
    }

    /// Returns the largest count of this counter that a provider counts as at most `tokens`.
    #[must_use]
    pub fn uncorrected(&self, tokens: usize) -> usize {
        tokens.saturating_mul(UNCORRECTED as usize) / self.correction() as usize
    }

    /// Records that a provider counted `reported` tokens where this counter counted `counted`. An
    /// underestimate is corrected at once, an overestimate gradually.
    pub fn learn(&self, counted: usize, reported: u64) {
        if counted == 0 || reported == 0 {
            return;
        }
        let ratio = reported.saturating_mul(UNCORRECTED.into()) / counted as u64;
        let ratio =
            u32::try_from(ratio).unwrap_or(MAX_CORRECTION).clamp(MIN_CORRECTION, MAX_CORRECTION);
        let change = |known: u32| Some(if ratio > known { ratio } else { (known * 3 + ratio) / 4 });
        let _ = self.correction.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change);
    }

    /// Records a context overflow at the provider although the count was within the limit: raises the correction by a
    /// tenth.
    pub fn learn_overflow(&self) {
        let more = |known: u32| Some((known + known / 10).min(MAX_CORRECTION));
        let _ = self.correction.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
    }

    fn correction(&self) -> u32 {
        self.correction.load(Ordering::Relaxed)
    }
}

fn count_exactly(vocabulary: Tokenizer, text: &str) -> usize {
    let Ok(encoding) = bpe_for_tokenizer(vocabulary) else { return TokenCounter::estimate(text) };
    let (mut tokens, mut rest) = (0, text);
    while !rest.is_empty() {
        let end = rest.floor_char_boundary(SLICE_BYTES);
        // Cut between words, if there are any.
        let end = match rest[..end].rfind(' ') {
            Some(space) if end < rest.len() && space > 0 => space,
            _ => end,
        };
        tokens += encoding.count_ordinary(&rest[..end]);
        rest = &rest[end..];
    }
    tokens
}

impl fmt::Debug for TokenCounter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenCounter")
            .field("vocabulary", &self.vocabulary)
            .field("correction", &(f64::from(self.correction()) / f64::from(UNCORRECTED)))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn known_vocabulary_is_counted_and_unknown_is_estimated() {
        let known = TokenCounter::new("openai/gpt-4o-mini");
        assert!(known.knows_vocabulary());
        assert_eq!(known.count("hello world").await, 2);
        assert_eq!(known.count("").await, 0);
        let unknown = TokenCounter::new("qwen3:8b");
        assert!(!unknown.knows_vocabulary());
        assert_eq!(unknown.count("ü".repeat(9).as_str()).await, 3);
    }

    #[tokio::test]
    async fn sliced_count_is_accurate_and_bounded_in_time() {
        let counter = TokenCounter::new("gpt-4o");
        let text = "The quick brown fox jumps over the lazy dog. ".repeat(500);
        let whole = bpe_for_tokenizer(counter.vocabulary.unwrap()).unwrap().count_ordinary(&text);
        let sliced = counter.count(&text).await;
        assert!(whole.abs_diff(sliced) * 100 <= whole, "{whole} and {sliced}");
        let start = std::time::Instant::now();
        for worst_case in ["a", " ", "ü", "\n", "1"] {
            assert!(counter.count(&worst_case.repeat(100_000)).await > 0);
        }
        assert!(start.elapsed().as_secs() < 20, "{:?}", start.elapsed());
    }

    #[test]
    fn reported_usage_raises_correction_at_once_and_lowers_it_slowly() {
        let counter = TokenCounter::new("unknown");
        assert_eq!(counter.corrected(100), 100);
        counter.learn(100, 150);
        assert_eq!((counter.corrected(100), counter.uncorrected(150)), (150, 100));
        counter.learn(100, 110);
        assert_eq!(counter.corrected(100), 140);
        counter.learn(1, 1_000_000);
        assert_eq!(counter.corrected(100), 400);
        counter.learn_overflow();
        assert_eq!(counter.corrected(100), 400);
        counter.learn(0, 5);
        counter.learn(5, 0);
        assert_eq!(counter.corrected(100), 400);
    }
}
