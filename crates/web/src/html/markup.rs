//! Bounds on markup, checked in one pass before it is parsed.
//!
//! A tokenizer compares every attribute of a tag with those before it, so one tag with 100,000 attributes
//! takes minutes. The scanner knows just enough of HTML to find the tags: it is linear for any input.

use std::{borrow::Cow, ops::Range};

/// Maximum number of tags of a page.
const MAX_TAGS: usize = 200_000;
/// Maximum number of attributes of a tag. Further ones are dropped.
const MAX_ATTRIBUTES: usize = 256;
/// Maximum size of a tag, in bytes. Attributes after it are dropped.
const MAX_TAG_BYTES: usize = 64 * 1024;
/// Elements whose content is text for a parser, whatever it contains.
const RAW_TEXT: [&str; 9] =
    ["script", "style", "textarea", "title", "xmp", "iframe", "noembed", "noframes", "noscript"];

/// Maximum cost of writing the texts of a page as HTML: for each text, its bytes times the characters in it
/// that are escaped. The serializer searches the rest of a text after each of them.
const MAX_ESCAPE_COST: usize = 4_000_000_000;

/// Markup that is not parsed, because that would take too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TooComplex {
    /// It has too many tags.
    #[error("the page has more than {MAX_TAGS} tags")]
    Tags,
    /// A long text has too many characters that are escaped in HTML.
    #[error("a text of the page is long and has too many special characters")]
    Escapes,
}

/// A text that a parser may join: end tags that match no element do not divide it.
#[derive(Debug, Default)]
struct JoinedText {
    bytes: usize,
    escapes: usize,
}

impl JoinedText {
    fn push(&mut self, text: &[u8]) {
        const NO_BREAK_SPACE: &[u8] = "\u{a0}".as_bytes();
        let escaped = text.iter().filter(|byte| matches!(**byte, b'&' | b'<' | b'>')).count();
        let spaces = text.windows(2).filter(|pair| *pair == NO_BREAK_SPACE).count();
        self.bytes += text.len();
        self.escapes += escaped + spaces;
    }

    fn cost(&self) -> usize {
        self.bytes.saturating_mul(self.escapes)
    }
}

/// Returns the markup with bounded tags. Allocates only if a tag has to be cut.
pub(crate) fn bounded(html: &str) -> Result<Cow<'_, str>, TooComplex> {
    let mut scanner = Scanner::new(html);
    let (mut kept, mut copied, mut tags) = (String::new(), 0, 0);
    let (mut text, mut cost) = (JoinedText::default(), 0_usize);
    while let Some(piece) = scanner.next() {
        let tag = match piece {
            Piece::Tag(tag) => tag,
            Piece::Text(range) => {
                text.push(&html.as_bytes()[range]);
                if text.cost().saturating_add(cost) > MAX_ESCAPE_COST {
                    return Err(TooComplex::Escapes);
                }
                continue;
            }
            Piece::Hidden => continue,
        };
        tags += 1;
        if tags > MAX_TAGS {
            return Err(TooComplex::Tags);
        }
        if tag.is_start {
            cost = cost.saturating_add(std::mem::take(&mut text).cost());
        }
        if let Some(cut) = tag.cut {
            kept.push_str(&html[copied..cut]);
            kept.push('>');
            copied = tag.bytes.end;
        }
    }
    if copied == 0 {
        return Ok(Cow::Borrowed(html));
    }
    kept.push_str(&html[copied..]);
    Ok(Cow::Owned(kept))
}

/// Part of a page.
#[derive(Debug)]
pub(super) enum Piece {
    /// Text in the markup.
    Text(Range<usize>),
    /// A start or end tag.
    Tag(Tag),
    /// Comments, declarations, and the content of scripts and styles.
    Hidden,
}

#[derive(Debug)]
pub(super) struct Tag {
    bytes: Range<usize>,
    pub(super) name: Range<usize>,
    pub(super) is_start: bool,
    /// Position after the last permitted attribute, if there are more.
    cut: Option<usize>,
}

/// An attribute of a tag.
struct Attribute {
    name: Range<usize>,
    /// Value without quotes.
    value: Range<usize>,
    end: usize,
}

/// Splits markup into pieces. Every byte is visited a bounded number of times.
pub(super) struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Name of the element whose raw text comes next.
    raw: Option<Range<usize>>,
}

impl<'a> Scanner<'a> {
    pub(super) fn new(html: &'a str) -> Self {
        Self { bytes: html.as_bytes(), at: 0, raw: None }
    }

    pub(super) fn next(&mut self) -> Option<Piece> {
        if self.at >= self.bytes.len() {
            return None;
        }
        if let Some(name) = self.raw.take() {
            return Some(self.raw_text(&name));
        }
        let rest = &self.bytes[self.at..];
        Some(match rest {
            [b'<', b'!', b'-', b'-', ..] => self.hidden_until(b"-->"),
            [b'<', b'!' | b'?', ..] => self.hidden_until(b">"),
            [b'<', b'/', letter, ..] if letter.is_ascii_alphabetic() => self.tag(2),
            [b'<', b'/', _, ..] => self.hidden_until(b">"),
            [b'<', letter, ..] if letter.is_ascii_alphabetic() => self.tag(1),
            _ => self.text(),
        })
    }

    fn text(&mut self) -> Piece {
        let start = self.at;
        let rest = &self.bytes[start + 1..];
        let length = rest.iter().position(|byte| *byte == b'<').unwrap_or(rest.len());
        self.at = start + 1 + length;
        Piece::Text(start..self.at)
    }

    fn hidden_until(&mut self, end: &[u8]) -> Piece {
        let rest = &self.bytes[self.at..];
        let length = rest.windows(end.len()).position(|window| window == end);
        self.at = length.map_or(self.bytes.len(), |length| self.at + length + end.len());
        Piece::Hidden
    }

    /// The text of a raw element ends before its end tag.
    fn raw_text(&mut self, name: &Range<usize>) -> Piece {
        let (start, name) = (self.at, &self.bytes[name.clone()]);
        let mut at = start;
        while let Some(found) = self.bytes[at..].iter().position(|byte| *byte == b'<') {
            at += found;
            let after = self.bytes[at..].get(2..2 + name.len());
            let is_end = self.bytes.get(at + 1) == Some(&b'/')
                && after.is_some_and(|after| after.eq_ignore_ascii_case(name));
            if is_end {
                self.at = at;
                return self.raw_piece(name, start..at);
            }
            at += 1;
        }
        self.at = self.bytes.len();
        self.raw_piece(name, start..self.at)
    }

    fn raw_piece(&self, name: &[u8], range: Range<usize>) -> Piece {
        match name.to_ascii_lowercase().as_slice() {
            b"title" | b"textarea" | b"xmp" => Piece::Text(range),
            _ => Piece::Hidden,
        }
    }

    fn tag(&mut self, prefix: usize) -> Piece {
        let start = self.at;
        let name_start = start + prefix;
        let name = name_start..self.skip(name_start, |byte| !is_name_end(byte));
        let (mut at, mut attributes, mut cut) = (name.end, 0, None);
        loop {
            at = self.skip(at, |byte| byte.is_ascii_whitespace() || byte == b'/');
            match self.bytes.get(at) {
                None => break,
                Some(b'>') => {
                    at += 1;
                    break;
                }
                Some(_) => {
                    attributes += 1;
                    let end = self.attribute(at).end;
                    let is_over = attributes > MAX_ATTRIBUTES || end - start > MAX_TAG_BYTES;
                    if is_over && cut.is_none() {
                        cut = Some(at);
                    }
                    at = end;
                }
            }
        }
        self.at = at;
        let is_start = prefix == 1;
        let raw = std::str::from_utf8(&self.bytes[name.clone()]).unwrap_or_default();
        self.raw = (is_start && is_one_of(raw, &RAW_TEXT)).then(|| name.clone());
        Piece::Tag(Tag { bytes: start..at, name, is_start, cut })
    }

    /// Returns the value of an attribute of a tag as it is written: empty if it has none, and `None` without
    /// the attribute. Attributes beyond the limits are not looked at.
    pub(super) fn attribute_of(&self, tag: &Tag, name: &str) -> Option<&'a [u8]> {
        let end = tag.cut.unwrap_or(tag.bytes.end);
        let mut at = tag.name.end;
        loop {
            at = self.skip(at, |byte| byte.is_ascii_whitespace() || byte == b'/');
            if at >= end || self.bytes.get(at) == Some(&b'>') {
                return None;
            }
            let attribute = self.attribute(at);
            if self.bytes[attribute.name].eq_ignore_ascii_case(name.as_bytes()) {
                return Some(&self.bytes[attribute.value]);
            }
            at = attribute.end;
        }
    }

    /// Returns the attribute at `at`.
    fn attribute(&self, start: usize) -> Attribute {
        // A leading `=` is part of the name.
        let at = self.skip(start + 1, |byte| !is_name_end(byte) && byte != b'=');
        let name = start..at;
        let equals = self.skip(at, |byte| byte.is_ascii_whitespace());
        if self.bytes.get(equals) != Some(&b'=') {
            return Attribute { name, value: at..at, end: at };
        }
        let value = self.skip(equals + 1, |byte| byte.is_ascii_whitespace());
        match self.bytes.get(value) {
            Some(quote @ (b'"' | b'\'')) => {
                let end = self.skip(value + 1, |byte| byte != *quote);
                Attribute { name, value: value + 1..end, end: (end + 1).min(self.bytes.len()) }
            }
            _ => {
                let end = self.skip(value, |byte| !byte.is_ascii_whitespace() && byte != b'>');
                Attribute { name, value: value..end, end }
            }
        }
    }

    /// Returns the first position from `at` on whose byte is not accepted.
    fn skip(&self, at: usize, accepts: impl Fn(u8) -> bool) -> usize {
        let Some(rest) = self.bytes.get(at..) else { return self.bytes.len() };
        at + rest.iter().position(|byte| !accepts(*byte)).unwrap_or(rest.len())
    }
}

fn is_name_end(byte: u8) -> bool {
    byte.is_ascii_whitespace() || matches!(byte, b'/' | b'>')
}

pub(super) fn is_one_of(name: &str, names: &[&str]) -> bool {
    names.iter().any(|known| name.eq_ignore_ascii_case(known))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn usual_markup_is_borrowed() {
        let html = "<!doctype html><p class=\"a > b\" id=x>1 < 2</p><script>if(a<b){}</script>";
        assert!(matches!(bounded(html), Ok(Cow::Borrowed(same)) if same == html));
    }

    #[test]
    fn excess_attributes_are_dropped() {
        let attributes: String = (0..100_000).map(|number| format!(" a{number}=1")).collect();
        let html = format!("<p>before<div{attributes}>text</div>");
        let kept = bounded(&html).unwrap();
        assert!(kept.len() < 4000, "{}", kept.len());
        assert!(kept.starts_with("<p>before<div a0=1 a1=1"), "{kept}");
        assert!(kept.ends_with("a255=1 >text</div>"), "{kept}");
    }

    #[test]
    fn long_attribute_is_dropped() {
        let html = format!("<img alt=x src=\"data:{}\">after", "A".repeat(100_000));
        assert_eq!(bounded(&html).unwrap(), "<img alt=x >after");
    }

    #[test]
    fn too_many_tags_are_refused() {
        assert!(bounded(&"<br>".repeat(200_000)).is_ok());
        assert_eq!(bounded(&"<br>".repeat(200_001)), Err(TooComplex::Tags));
    }

    #[test]
    fn long_text_with_many_escapes_is_refused() {
        let entities = |count| "&amp;".repeat(count);
        assert!(bounded(&entities(20_000)).is_ok());
        assert_eq!(bounded(&entities(40_000)), Err(TooComplex::Escapes));
        // End tags may match no element, and comments are dropped.
        let joined = format!("{}</x><!-- c -->", entities(10)).repeat(4000);
        assert_eq!(bounded(&joined), Err(TooComplex::Escapes));
        assert!(bounded(&format!("<p>{}", entities(20)).repeat(20_000)).is_ok());
        assert!(bounded(&"words without special characters ".repeat(150_000)).is_ok());
    }

    proptest! {
        #[test]
        fn any_markup_is_scanned_completely(
            html in "(<|>|</|<!--|-->|<!|\"|'|=|/| |a|<script|</script|<p|ü|&|;|#){0,60}",
        ) {
            let mut scanner = Scanner::new(&html);
            // The text of a raw element may be empty.
            let pieces = std::iter::from_fn(|| scanner.next()).take(2 * html.len() + 1).count();
            prop_assert!(pieces <= 2 * html.len());
            prop_assert_eq!(scanner.at, html.len());
            prop_assert_eq!(bounded(&html).unwrap(), html.as_str());
        }
    }
}
