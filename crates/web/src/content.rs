//! Content of responses as text for a model.

mod charset;
mod feed;
mod kind;

use std::sync::Arc;

use rockbot_contracts::outside_text;
use serde::de::IgnoredAny;
use url::Url;

pub(crate) use self::{charset::decode, kind::ContentKind};
use crate::html::{Extractor, HtmlPage};

/// JSON up to this size is indented.
const MAX_PRETTY_BYTES: usize = 256 * 1024;
/// Factor by which indentation may increase the size.
const MAX_GROWTH: usize = 4;

/// Text of a page.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PageText {
    /// Title on one line; empty if there is none.
    pub(crate) title: String,
    pub(crate) markdown: String,
    /// Name of the part of the page that was read.
    pub(crate) part: &'static str,
    /// Remarks for the model.
    pub(crate) notes: Vec<String>,
}

/// Decoded content to convert.
pub(crate) struct Source {
    pub(crate) kind: ContentKind,
    pub(crate) text: String,
    pub(crate) url: Url,
    /// Everything that is visible is wanted, not only the main content.
    pub(crate) whole: bool,
    /// Maximum size of the result, in bytes.
    pub(crate) max_bytes: usize,
    pub(crate) extractor: Arc<dyn Extractor>,
}

/// Converts content to Markdown. Takes up to seconds, and a deep stack for HTML.
pub(crate) fn convert(source: Source) -> PageText {
    let Source { kind, text, url, whole, max_bytes, extractor } = source;
    let mut page = match kind {
        ContentKind::Html => {
            let extract = extractor.extract(HtmlPage { html: &text, url: &url, whole });
            html_page(extract)
        }
        ContentKind::Json => fenced("json", &pretty_json(text)),
        ContentKind::Xml => match feed::convert(&text, &url) {
            Some(feed::Feed { title, markdown }) => {
                PageText { title, markdown, part: "feed", ..PageText::default() }
            }
            None => fenced("xml", &text),
        },
        _ => PageText { markdown: text, part: "text", ..PageText::default() },
    };
    page.markdown = outside_text::stripped(&page.markdown).trim().to_owned();
    page.cut(max_bytes);
    page
}

fn html_page(extract: crate::html::Extract) -> PageText {
    let mut notes = Vec::new();
    if extract.needs_scripts {
        let chars = extract.markdown.chars().count();
        notes.push(format!(
            "this page builds its content with JavaScript, which is not run here; {chars} characters could \
             be read"
        ));
    }
    if extract.part == crate::html::Part::Stripped {
        notes.push("the markup of this page is too complex; only its text was read".to_owned());
    }
    let part = extract.part.as_str();
    PageText { title: extract.title, markdown: extract.markdown, part, notes }
}

impl PageText {
    /// Cuts the text to `max_bytes`, before a line if possible.
    fn cut(&mut self, max_bytes: usize) {
        if self.markdown.len() <= max_bytes {
            return;
        }
        let total = self.markdown.len();
        self.markdown.truncate(self.markdown.floor_char_boundary(max_bytes));
        if let Some(end) = self.markdown.rfind('\n').filter(|end| *end > max_bytes / 2) {
            self.markdown.truncate(end);
        }
        let kept = self.markdown.len();
        self.notes.push(format!("only the first {kept} of {total} bytes of this page are shown"));
    }
}

/// Returns text in a code fence that it cannot end.
fn fenced(language: &str, text: &str) -> PageText {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat((longest + 1).max(3));
    let markdown = format!("{fence}{language}\n{}\n{fence}", text.trim());
    PageText { markdown, part: "text", ..PageText::default() }
}

/// Indents JSON. Anything else, and JSON that would grow too much, stays as it is.
fn pretty_json(text: String) -> String {
    if text.len() > MAX_PRETTY_BYTES || serde_json::from_str::<IgnoredAny>(&text).is_err() {
        return text;
    }
    indented(&text).unwrap_or(text)
}

/// Indents valid JSON and keeps the order of its keys. Returns `None` if it grows too much.
fn indented(json: &str) -> Option<String> {
    let mut pretty = String::with_capacity(json.len() * 2);
    let (mut depth, mut in_string, mut is_escaped) = (0_usize, false, false);
    let mut characters = json.chars().peekable();
    while let Some(character) = characters.next() {
        if pretty.len() > json.len() * MAX_GROWTH + 1000 {
            return None;
        }
        if in_string {
            pretty.push(character);
            in_string = is_escaped || character != '"';
            is_escaped = !is_escaped && character == '\\';
            continue;
        }
        match character {
            '{' | '[' => {
                pretty.push(character);
                while characters.next_if(char::is_ascii_whitespace).is_some() {}
                if let Some(end) = characters.next_if(|next| matches!(next, '}' | ']')) {
                    pretty.push(end);
                } else {
                    depth += 1;
                    new_line(&mut pretty, depth);
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                new_line(&mut pretty, depth);
                pretty.push(character);
            }
            ',' => {
                pretty.push(',');
                new_line(&mut pretty, depth);
            }
            ':' => pretty.push_str(": "),
            space if space.is_ascii_whitespace() => {}
            other => {
                in_string = other == '"';
                pretty.push(other);
            }
        }
    }
    Some(pretty)
}

fn new_line(text: &mut String, depth: usize) {
    text.push('\n');
    text.extend(std::iter::repeat_n("  ", depth));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::html::TwoCandidates;

    fn converted(kind: ContentKind, text: &str, max_bytes: usize) -> PageText {
        let url = Url::parse("https://example.com/").unwrap();
        let text = text.to_owned();
        convert(Source {
            kind,
            text,
            url,
            whole: false,
            max_bytes,
            extractor: Arc::new(TwoCandidates),
        })
    }

    #[test]
    fn json_and_xml_are_fenced() {
        let page = converted(ContentKind::Json, r#"{"b":[1, 2],"a":"x:\",{","c":[ ]}"#, 1000);
        let expected = r#"{
  "b": [
    1,
    2
  ],
  "a": "x:\",{",
  "c": []
}"#;
        assert_eq!(page.markdown, format!("```json\n{expected}\n```"));
        let deep = format!("{}{}1{}", "[".repeat(100), "1,".repeat(5000), "]".repeat(100));
        assert_eq!(converted(ContentKind::Json, &deep, 100_000).markdown.lines().count(), 3);
        assert_eq!(converted(ContentKind::Json, "{a", 1000).markdown, "```json\n{a\n```");
        let page = converted(ContentKind::Xml, "<x>````</x>", 1000);
        assert_eq!(page.markdown, "`````xml\n<x>````</x>\n`````");
    }

    #[test]
    fn text_loses_hidden_characters() {
        let page = converted(ContentKind::Text, "a\u{200b}b\u{202e}c\u{e0041}", 1000);
        assert_eq!(page.markdown, "abc");
    }

    #[test]
    fn long_text_is_cut_with_a_note() {
        let page = converted(ContentKind::Markdown, &"zeile\n".repeat(100), 100);
        assert_eq!(page.markdown.lines().count(), 16);
        assert_eq!(page.notes, ["only the first 95 of 599 bytes of this page are shown"]);
    }

    #[test]
    fn script_page_has_a_note() {
        let page = converted(ContentKind::Html, "<noscript>JavaScript!</noscript>", 1000);
        assert!(page.notes[0].contains("JavaScript"), "{page:?}");
    }
}
