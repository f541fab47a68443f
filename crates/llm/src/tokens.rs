//! How many tokens a text is, as well as can be known before a model reads it.

use std::{
    fmt,
    sync::atomic::{AtomicU32, Ordering},
};

use tiktoken_rs::{bpe_for_tokenizer, tokenizer::Tokenizer, tokenizer::get_tokenizer};
use tokio::task::spawn_blocking;

/// Characters of a token, where the vocabulary is not known.
const CHARS_PER_TOKEN: usize = 4;
/// A text is counted in slices of so many bytes, so that an odd one takes no longer than another.
/// Each cut counts one token too many at most: a third of a percent, measured on prose.
const SLICE_BYTES: usize = 1024;
/// Corrections are kept in thousandths, ...
const ONE: u32 = 1000;
/// ... and within what a tokenizer can differ by: a request of very few or very odd words is no
/// reason to mistrust all later counts.
const LEAST: u32 = ONE / 2;
const MOST: u32 = 4 * ONE;

/// Counts tokens for one model.
///
/// With the vocabulary of OpenAI's models it counts; for others it takes four characters for a
/// token. What a provider reports corrects both.
pub struct TokenCounter {
    vocabulary: Option<Tokenizer>,
    /// What a provider counts for a thousand tokens of ours.
    correction: AtomicU32,
}

impl TokenCounter {
    /// The counter for a model, by its name, with or without the provider before a slash. Reads no
    /// vocabulary yet.
    #[must_use]
    pub fn of(model: &str) -> Self {
        let own = model.rsplit('/').next().unwrap_or(model);
        Self { vocabulary: get_tokenizer(own), correction: AtomicU32::new(ONE) }
    }

    /// Whether it knows the model's vocabulary.
    #[must_use]
    pub fn knows_vocabulary(&self) -> bool {
        self.vocabulary.is_some()
    }

    /// The tokens of a text, before any correction. With a vocabulary it takes one to two
    /// milliseconds for 1,000 tokens, on a thread for such work, and up to a second once to read the
    /// vocabulary; both were measured on a busy machine.
    ///
    /// # Cancellation
    /// Dropping the future leaves the thread to finish its count.
    pub async fn count(&self, text: &str) -> usize {
        let Some(vocabulary) = self.vocabulary.filter(|_| !text.is_empty()) else {
            return Self::estimate(text);
        };
        let counted = text.to_owned();
        let counting = spawn_blocking(move || exactly(vocabulary, &counted)).await;
        counting.unwrap_or_else(|_| Self::estimate(text))
    }

    /// The tokens of a text by its length alone, before any correction.
    #[must_use]
    pub fn estimate(text: &str) -> usize {
        text.chars().count().div_ceil(CHARS_PER_TOKEN)
    }

    /// What a provider will count where this counter counts `tokens`.
    #[must_use]
    pub fn corrected(&self, tokens: usize) -> usize {
        tokens.saturating_mul(self.correction() as usize).div_ceil(ONE as usize)
    }

    /// How many tokens of this counter a provider counts as `tokens` at most.
    #[must_use]
    pub fn uncorrected(&self, tokens: usize) -> usize {
        tokens.saturating_mul(ONE as usize) / self.correction() as usize
    }

    /// Learns that a provider counted `reported` tokens where this counter counted `counted`. A
    /// count that was too low is believed at once, one that was too high little by little.
    pub fn learn(&self, counted: usize, reported: u64) {
        if counted == 0 || reported == 0 {
            return;
        }
        let ratio = reported.saturating_mul(ONE.into()) / counted as u64;
        let ratio = u32::try_from(ratio).unwrap_or(MOST).clamp(LEAST, MOST);
        let change = |known: u32| Some(if ratio > known { ratio } else { (known * 3 + ratio) / 4 });
        let _ = self.correction.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change);
    }

    /// Learns that a provider counted more than fits where this counter saw room: by at least a
    /// tenth more from now on.
    pub fn learn_overflow(&self) {
        let more = |known: u32| Some((known + known / 10).min(MOST));
        let _ = self.correction.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
    }

    fn correction(&self) -> u32 {
        self.correction.load(Ordering::Relaxed)
    }
}

fn exactly(vocabulary: Tokenizer, text: &str) -> usize {
    let Ok(encoding) = bpe_for_tokenizer(vocabulary) else { return TokenCounter::estimate(text) };
    let (mut tokens, mut rest) = (0, text);
    while !rest.is_empty() {
        let end = rest.floor_char_boundary(SLICE_BYTES);
        // Between two words, if the slice has any.
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
            .field("correction", &(f64::from(self.correction()) / f64::from(ONE)))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_known_vocabulary_is_counted_and_an_unknown_one_estimated() {
        let known = TokenCounter::of("openai/gpt-4o-mini");
        assert!(known.knows_vocabulary());
        assert_eq!(known.count("hello world").await, 2);
        assert_eq!(known.count("").await, 0);
        let unknown = TokenCounter::of("qwen3:8b");
        assert!(!unknown.knows_vocabulary());
        assert_eq!(unknown.count("ü".repeat(9).as_str()).await, 3);
    }

    #[tokio::test]
    async fn counting_in_slices_is_counting_and_no_text_takes_long() {
        let counter = TokenCounter::of("gpt-4o");
        let text = "The quick brown fox jumps over the lazy dog. ".repeat(500);
        let whole = bpe_for_tokenizer(counter.vocabulary.unwrap()).unwrap().count_ordinary(&text);
        let sliced = counter.count(&text).await;
        assert!(whole.abs_diff(sliced) * 100 <= whole, "{whole} and {sliced}");
        let began = std::time::Instant::now();
        for hostile in ["a", " ", "ü", "\n", "1"] {
            assert!(counter.count(&hostile.repeat(100_000)).await > 0);
        }
        assert!(began.elapsed().as_secs() < 20, "{:?}", began.elapsed());
    }

    #[test]
    fn a_providers_count_corrects_upwards_at_once_and_downwards_slowly() {
        let counter = TokenCounter::of("unknown");
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
