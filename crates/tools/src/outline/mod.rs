//! What a long text is about, in few words: for a model that decides what of it to read.

mod json;
mod markdown;
mod plain;

use serde::{Deserialize, Serialize};

pub use self::markdown::document_outline;
use crate::chunk::sections;

/// What a text is, as far as its outline goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TextKind {
    /// It has headings outside code fences.
    Markdown,
    /// It is one JSON value.
    Json,
    /// Anything else: a log, a table, a program.
    Plain,
}

/// The outline of a text, and what the text was taken for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outline {
    /// What the text is.
    pub kind: TextKind,
    /// The outline, no longer than it was to be.
    pub text: String,
}

impl Outline {
    /// Outlines a text in at most `max_bytes`: headings with their lines, keys of JSON with what is
    /// below them, or the first and the last lines. Reads the text once or twice, and keeps nothing
    /// of it but the outline.
    #[must_use]
    pub fn of(text: &str, max_bytes: usize) -> Self {
        if let Some(text) = json::sketch(text, max_bytes) {
            return Self { kind: TextKind::Json, text };
        }
        let sections = sections(text);
        if sections.is_empty() {
            return Self { kind: TextKind::Plain, text: plain::first_and_last(text, max_bytes) };
        }
        let place = |section: &crate::chunk::Section| format!("line {}", section.line);
        Self { kind: TextKind::Markdown, text: document_outline(&sections, place, max_bytes) }
    }
}

/// The beginning of a text in at most `max_bytes`, with a mark where something is missing.
pub(crate) fn cut(text: &str, max_bytes: usize) -> String {
    if text.len() <= max_bytes {
        return text.to_owned();
    }
    let keep = text.floor_char_boundary(max_bytes.saturating_sub('…'.len_utf8()));
    format!("{}…", &text[..keep])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_kind_of_text_is_told_from_the_others() {
        for (text, kind) in [
            ("# A\ntext", TextKind::Markdown),
            (r#" {"a": [1, 2]} "#, TextKind::Json),
            (r#"{"a": [1, 2"#, TextKind::Plain),
            ("2026-01-01 started\n2026-01-01 ended\n", TextKind::Plain),
            ("", TextKind::Plain),
        ] {
            assert_eq!(Outline::of(text, 1000).kind, kind, "{text}");
        }
    }

    proptest! {
        #[test]
        fn an_outline_is_never_longer_than_it_may_be(
            lines in prop::collection::vec("(# |## )?[a-zü\"{}\\[\\]:,]{0,60}", 0..60),
            max in 64_usize..2000,
        ) {
            prop_assert!(Outline::of(&lines.join("\n"), max).text.len() <= max);
            let json = serde_json::to_string(&lines).unwrap();
            let outline = Outline::of(&json, max);
            prop_assert_eq!(outline.kind, TextKind::Json);
            prop_assert!(outline.text.len() <= max);
        }
    }
}
