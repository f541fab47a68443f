//! The part of a text that tells best why it was found.

use crate::ranker::words;

/// Words of the query that are looked for.
const MOST_WORDS: usize = 16;

/// At most `most` characters of `text` on one line, from a little before the first place where a
/// word of the query stands; from the beginning when none does. `…` stands for what is left out.
#[must_use]
pub fn excerpt(text: &str, query: &str, most: usize) -> String {
    let lower = text.to_lowercase();
    // Places in the lower-case text are places in the text only while both have one length.
    let place = |word: String| lower.find(&word).filter(|_| lower.len() == text.len());
    let first = words(query).take(MOST_WORDS).filter_map(place).min().unwrap_or(0);
    let before = most / 4;
    let from = text[..text.floor_char_boundary(first)].char_indices().rev().nth(before);
    let from = from.map_or(0, |(at, _)| at);
    let rest = &text[from..];
    let to = rest.char_indices().nth(most).map_or(rest.len(), |(at, _)| at);
    let line = rest[..to].split_whitespace().collect::<Vec<_>>().join(" ");
    let (left, right) = (if from > 0 { "…" } else { "" }, if to < rest.len() { "…" } else { "" });
    format!("{left}{line}{right}")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_excerpt_stands_around_the_first_word_that_was_asked_for() {
        let text = format!("{} the bus\ncarries calls {}", "a ".repeat(500), "z ".repeat(500));
        let found = excerpt(&text, "Calls of the BUS", 40);
        assert!(found.contains("the bus carries calls"), "{found}");
        assert!(found.starts_with('…') && found.ends_with('…'), "{found}");
        assert_eq!(excerpt("short", "nothing", 40), "short");
    }

    proptest! {
        #[test]
        fn any_text_has_an_excerpt_within_its_bound(text in ".{0,80}", query in ".{0,20}") {
            prop_assert!(excerpt(&text, &query, 20).chars().count() <= 22);
        }
    }
}
