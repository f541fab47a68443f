//! The hint of a tool on how its text is split.

use std::time::Duration;

use rockbot_contracts::outside_text::plain;
use serde_json::{Value, json};

/// Bounds of a hint.
const MIN_THRESHOLD: usize = 1_000;
const CHUNK_CHARS: std::ops::RangeInclusive<usize> = 500..=64_000;
const MAX_STEM_BYTES: usize = 80;
const MAX_TTL: Duration = Duration::from_secs(7 * 24 * 60 * 60);
const MAX_TITLE_CHARS: usize = 120;
const MAX_FRAGMENT_BYTES: usize = 200;

/// How an agent should split the text of a result that is too long: in the result's details under
/// [`ChunkHint::KEY`].
///
/// A tool that returns the same document again names it by the same stem, so that its chunks replace the
/// earlier ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkHint {
    /// Longest text that is shown whole, in characters; at least 1,000. A model with a lower limit gets its
    /// own.
    pub threshold: usize,
    /// Size of a chunk, in characters; 500 to 64,000.
    pub chunk_chars: usize,
    /// Beginning of the keys: 1 to 80 letters, digits, `.`, `_` and `-`.
    pub stem: String,
    /// Lifetime of the chunks; 1 second to 7 days.
    pub ttl: Duration,
    /// Title of the document; may be empty.
    pub title: String,
    /// Heading that the reader asked for, as in the fragment of a URL.
    pub fragment: Option<String>,
}

impl ChunkHint {
    /// Key of the hint in the details of a result.
    pub const KEY: &'static str = "chunking";

    /// Returns the JSON for the details.
    #[must_use]
    pub fn to_value(&self) -> Value {
        let mut value = json!({
            "threshold": self.threshold,
            "max": self.chunk_chars,
            "stem": self.stem,
            "ttlSeconds": self.ttl.as_secs(),
            "title": self.title,
        });
        if let Some(fragment) = &self.fragment {
            value["fragment"] = json!(fragment);
        }
        value
    }

    /// Reads the hint in the details of a result. Numbers out of range become the nearest in range; a
    /// hint without a valid stem is ignored.
    #[must_use]
    pub fn from_details(details: &Value) -> Option<Self> {
        let hint = details.get(Self::KEY)?;
        let number = |key: &str| hint.get(key)?.as_u64();
        let size = |key: &str| Some(usize::try_from(number(key)?).unwrap_or(usize::MAX));
        let text = |key: &str| hint.get(key)?.as_str();
        let stem = text("stem").filter(|stem| is_stem(stem))?;
        let fragment = text("fragment").filter(|text| text.len() <= MAX_FRAGMENT_BYTES);
        let ttl = Duration::from_secs(number("ttlSeconds")?);
        Some(Self {
            threshold: size("threshold")?.max(MIN_THRESHOLD),
            chunk_chars: size("max")?.clamp(*CHUNK_CHARS.start(), *CHUNK_CHARS.end()),
            stem: stem.to_owned(),
            ttl: ttl.clamp(Duration::from_secs(1), MAX_TTL),
            title: plain(text("title").unwrap_or_default(), MAX_TITLE_CHARS)
                .replace(['\n', '\r'], " "),
            fragment: fragment.map(str::to_owned),
        })
    }
}

fn is_stem(stem: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    (1..=MAX_STEM_BYTES).contains(&stem.len()) && stem.chars().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hint() -> ChunkHint {
        ChunkHint {
            threshold: 8000,
            chunk_chars: 4000,
            stem: "web-example.com_docs_a".to_owned(),
            ttl: Duration::from_secs(1800),
            title: "A page".to_owned(),
            fragment: None,
        }
    }

    #[test]
    fn hint_is_read_as_it_was_written() {
        let fragment = Some("part-2".to_owned());
        for hint in [hint(), ChunkHint { fragment, ..hint() }] {
            let details = json!({"url": "https://example.com/", ChunkHint::KEY: hint.to_value()});
            assert_eq!(ChunkHint::from_details(&details), Some(hint));
        }
        let expected = json!({"threshold": 8000, "max": 4000, "stem": "web-example.com_docs_a",
            "ttlSeconds": 1800, "title": "A page"});
        assert_eq!(hint().to_value(), expected);
    }

    #[test]
    fn hints_are_bounded() {
        let read = |key: &str, value: Value| {
            let mut hint = hint().to_value();
            hint[key] = value;
            ChunkHint::from_details(&json!({ChunkHint::KEY: hint}))
        };
        assert_eq!(read("threshold", json!(1)).unwrap().threshold, 1000);
        assert_eq!(read("max", json!(0)).unwrap().chunk_chars, 500);
        assert_eq!(read("max", json!(u64::MAX)).unwrap().chunk_chars, 64_000);
        assert_eq!(read("ttlSeconds", json!(0)).unwrap().ttl, Duration::from_secs(1));
        assert_eq!(read("ttlSeconds", json!(u64::MAX)).unwrap().ttl, MAX_TTL);
        assert_eq!(
            read("title", json!("x\u{202e}\ny".repeat(100))).unwrap().title.lines().count(),
            1
        );
        assert_eq!(read("fragment", json!("x".repeat(201))).unwrap().fragment, None);
        for stem in ["", "a/b", "../x", "ä", &"x".repeat(81)] {
            assert_eq!(read("stem", json!(stem)), None, "{stem}");
        }
        for (key, value) in
            [("threshold", json!("8000")), ("max", json!(-1)), ("ttlSeconds", json!(null))]
        {
            assert_eq!(read(key, value), None, "{key}");
        }
        assert_eq!(ChunkHint::from_details(&json!(null)), None);
    }
}
