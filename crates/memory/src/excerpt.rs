//! Excerpts of search results.

use crate::ranker::words;

/// The maximum number of query words that are located.
const MAX_WORDS: usize = 16;

/// Returns up to `max_chars` characters of `text` on one line, from shortly before the first match of a
/// query word, or from the start without a match. `…` marks omitted text.
#[must_use]
pub fn excerpt(text: &str, query: &str, max_chars: usize) -> String {
    let lower = text.to_lowercase();
    // Offsets in the lower-case text are valid in the text only if both have the same length.
    let offset = |word: String| lower.find(&word).filter(|_| lower.len() == text.len());
    let first = words(query).take(MAX_WORDS).filter_map(offset).min().unwrap_or(0);
    let context = max_chars / 4;
    let before = &text[..text.floor_char_boundary(first)];
    let start = before.char_indices().rev().nth(context).map_or(0, |(index, _)| index);
    let rest = &text[start..];
    let end = rest.char_indices().nth(max_chars).map_or(rest.len(), |(index, _)| index);
    let line = rest[..end].split_whitespace().collect::<Vec<_>>().join(" ");
    let prefix = if start > 0 { "…" } else { "" };
    let suffix = if end < rest.len() { "…" } else { "" };
    format!("{prefix}{line}{suffix}")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn excerpt_surrounds_first_match() {
        let text = format!("{} the bus\ncarries calls {}", "a ".repeat(500), "z ".repeat(500));
        let found = excerpt(&text, "Calls of the BUS", 40);
        assert!(found.contains("the bus carries calls"), "{found}");
        assert!(found.starts_with('…') && found.ends_with('…'), "{found}");
        assert_eq!(excerpt("short", "nothing", 40), "short");
    }

    proptest! {
        #[test]
        fn excerpt_length_is_bounded(text in ".{0,80}", query in ".{0,20}") {
            prop_assert!(excerpt(&text, &query, 20).chars().count() <= 22);
        }
    }
}
