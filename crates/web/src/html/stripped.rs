//! The text of markup that is not parsed.

use super::{
    hidden,
    markup::{Piece, Scanner, Tag, is_one_of},
};

/// Elements that do not end a line of text.
const INLINE: [&str; 22] = [
    "a", "abbr", "b", "bdi", "bdo", "cite", "code", "em", "font", "i", "kbd", "mark", "q", "s",
    "small", "span", "strong", "sub", "sup", "u", "var", "wbr",
];
/// Elements without content.
const VOID: [&str; 14] = [
    "area", "base", "br", "col", "embed", "frame", "hr", "img", "input", "link", "meta", "source",
    "track", "wbr",
];

/// Returns the text between the tags, without scripts, styles and the elements that people do not see: all
/// that can be read of a page that is not parsed.
///
/// A hidden element ends at its end tag, although a parser may end it earlier: rather less is read.
pub(crate) fn stripped(html: &str) -> String {
    let mut scanner = Scanner::new(html);
    let mut text = String::with_capacity(html.len() / 2);
    let mut hidden = None;
    while let Some(piece) = scanner.next() {
        match piece {
            Piece::Text(_) if hidden.is_some() => {}
            Piece::Text(range) => push_text(&mut text, &html[range]),
            Piece::Tag(tag) => {
                let name = &html[tag.name.clone()];
                hidden = match hidden {
                    Some(element) => HiddenElement::after(element, &tag, name),
                    None => HiddenElement::begun(&scanner, &tag, name),
                };
                if !is_one_of(name, &INLINE) {
                    push_line_break(&mut text);
                }
            }
            Piece::Hidden => {}
        }
    }
    text.truncate(text.trim_end().len());
    text
}

/// An element whose content is not shown.
struct HiddenElement<'a> {
    name: &'a str,
    /// Number of open elements of this name.
    depth: usize,
}

impl<'a> HiddenElement<'a> {
    /// Returns the hidden element that a tag begins.
    fn begun(scanner: &Scanner<'_>, tag: &Tag, name: &'a str) -> Option<Self> {
        let is_hidden = tag.is_start && !is_one_of(name, &VOID) && is_hidden(scanner, tag, name);
        is_hidden.then_some(Self { name, depth: 1 })
    }

    /// Returns the element as it is after a tag in it, unless the tag ends it.
    fn after(self, tag: &Tag, name: &str) -> Option<Self> {
        let depth = match (name.eq_ignore_ascii_case(self.name), tag.is_start) {
            (false, _) => self.depth,
            (true, true) => self.depth + 1,
            (true, false) => self.depth - 1,
        };
        (depth > 0).then_some(Self { depth, ..self })
    }
}

fn is_hidden(scanner: &Scanner<'_>, tag: &Tag, name: &str) -> bool {
    hidden::hides(&name.to_ascii_lowercase(), |attribute| {
        let value = scanner.attribute_of(tag, attribute)?;
        let mut decoded = String::new();
        push_word(&mut decoded, &String::from_utf8_lossy(value));
        Some(decoded)
    })
}

/// Appends text with single spaces, and the character references that occur in plain text.
fn push_text(text: &mut String, piece: &str) {
    for (index, word) in piece.split(char::is_whitespace).enumerate() {
        if index > 0 && !text.is_empty() && !text.ends_with([' ', '\n']) {
            text.push(' ');
        }
        push_word(text, word);
    }
}

fn push_word(text: &mut String, word: &str) {
    let mut rest = word;
    while let Some((before, after)) = rest.split_once('&') {
        text.push_str(before);
        // The longest reference that is known has nine bytes.
        let reference = after.char_indices().take(10).find(|(_, c)| *c == ';');
        let character = reference.and_then(|(end, _)| Some((end, character(&after[..end])?)));
        match character {
            Some((end, character)) => {
                text.push(character);
                rest = &after[end + 1..];
            }
            None => {
                text.push('&');
                rest = after;
            }
        }
    }
    text.push_str(rest);
}

/// Returns the character of a reference without `&` and `;`.
fn character(reference: &str) -> Option<char> {
    let code = match reference.strip_prefix('#') {
        Some(code) => match code.strip_prefix(['x', 'X']) {
            Some(hex) => u32::from_str_radix(hex, 16).ok(),
            None => code.parse().ok(),
        },
        None => None,
    };
    match reference {
        "amp" => Some('&'),
        "lt" => Some('<'),
        "gt" => Some('>'),
        "quot" => Some('"'),
        "apos" => Some('\''),
        "nbsp" => Some(' '),
        _ => char::from_u32(code?),
    }
}

fn push_line_break(text: &mut String) {
    text.truncate(text.trim_end_matches(' ').len());
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::html::hidden_ways;

    #[test]
    fn stripped_text_has_lines_and_no_scripts() {
        let html = "<title>T</title><style>p{}</style><h1>One &amp; two</h1><!-- no --><p>a <b>b</b>\n\
                    c&#33;<script>var x = '<p>no</p>';</script><p>1 < 2 &unknown; &";
        assert_eq!(stripped(html), "T\nOne & two\na b c!\n1 < 2 &unknown; &");
    }

    #[test]
    fn hidden_elements_are_left_out() {
        for way in hidden_ways::WAYS {
            let text = stripped(&format!("<p>before</p>{way}<p>after</p>"));
            assert_eq!(text, "before\nafter", "{way}");
        }
        for (html, expected) in [
            ("a<div hidden>x<div>y</div>z</div>b", "a\nb"),
            ("a<DIV STYLE=\"display&#58;none\">x</div>b", "a\nb"),
            ("a<br hidden>b<input hidden>c", "a\nb\nc"),
            ("a<div hidden id=S:1>late</div>", "a\nlate"),
            ("a<div hidden>x", "a"),
        ] {
            assert_eq!(stripped(html), expected, "{html}");
        }
    }

    proptest! {
        #[test]
        fn any_markup_is_stripped(
            html in "(<|>|</|<!--|-->|\"|'|=|/| |a|hidden|<template|</template|<p|ü|&|;|#){0,60}",
        ) {
            stripped(&html);
        }
    }
}
