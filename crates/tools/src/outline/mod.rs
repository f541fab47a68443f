//! Outlines of long texts, from which a model decides what to read.

mod json;
mod markdown;
mod plain;

use serde::{Deserialize, Serialize};

pub use self::markdown::document_outline;
use crate::chunk::sections;

/// Format of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TextKind {
    /// Text with headings outside of code fences.
    Markdown,
    /// One JSON value.
    Json,
    /// Any other text: a log, a table, a program.
    Plain,
}

/// Outline of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outline {
    /// Detected format.
    pub kind: TextKind,
    /// Outline.
    pub text: String,
}

impl Outline {
    /// Creates an outline of at most `max_bytes`: headings with their lines, keys of JSON with their
    /// values' types, or the first and the last lines. Reads the text up to two times.
    #[must_use]
    pub fn new(text: &str, max_bytes: usize) -> Self {
        if let Some(text) = json::outline(text, max_bytes) {
            return Self { kind: TextKind::Json, text };
        }
        let sections = sections(text);
        if sections.is_empty() {
            return Self { kind: TextKind::Plain, text: plain::first_and_last(text, max_bytes) };
        }
        let location = |section: &crate::chunk::Section| format!("line {}", section.line);
        Self { kind: TextKind::Markdown, text: document_outline(&sections, location, max_bytes) }
    }
}

/// Truncates a text to at most `max_bytes`, with an ellipsis if something is omitted.
pub(crate) fn truncate(text: &str, max_bytes: usize) -> String {
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
    fn text_kinds_are_detected() {
        for (text, kind) in [
            ("# A\ntext", TextKind::Markdown),
            (r#" {"a": [1, 2]} "#, TextKind::Json),
            (r#"{"a": [1, 2"#, TextKind::Plain),
            ("2026-01-01 started\n2026-01-01 ended\n", TextKind::Plain),
            ("", TextKind::Plain),
        ] {
            assert_eq!(Outline::new(text, 1000).kind, kind, "{text}");
        }
    }

    proptest! {
        #[test]
        fn outline_respects_size_limit(
            lines in prop::collection::vec("(# |## )?[a-zü\"{}\\[\\]:,]{0,60}", 0..60),
            max in 64_usize..2000,
        ) {
            prop_assert!(Outline::new(&lines.join("\n"), max).text.len() <= max);
            let json = serde_json::to_string(&lines).unwrap();
            let outline = Outline::new(&json, max);
            prop_assert_eq!(outline.kind, TextKind::Json);
            prop_assert!(outline.text.len() <= max);
        }
    }
}
