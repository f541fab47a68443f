//! Titles and snippets as plain text: search services send fragments of HTML.

use crate::one_line::one_line;

/// Longest text that is read, in bytes.
const MAX_BYTES: usize = 16 * 1024;
/// Elements that separate words.
const BLOCKS: [&str; 10] = ["br", "p", "div", "li", "ul", "ol", "td", "tr", "h", "hr"];

/// Returns the text of an HTML fragment on one line, without tags and with entities decoded, at most
/// `max_chars` characters.
pub(super) fn plain_text(html: &str, max_chars: usize) -> String {
    let html = &html[..html.floor_char_boundary(MAX_BYTES)];
    let text = without_tags(html);
    one_line(&html_escape::decode_html_entities(&text), max_chars)
}

/// Escapes what could end a link or begin markup in a line of Markdown.
pub(super) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len() + 8);
    for character in text.chars() {
        if matches!(character, '\\' | '[' | ']' | ')' | '`' | '<') {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}

fn without_tags(html: &str) -> String {
    let mut text = String::with_capacity(html.len());
    let mut rest = html;
    while let Some(start) = rest.find('<') {
        let (before, tag) = rest.split_at(start);
        text.push_str(before);
        let end = if is_tag(tag) { tag.find('>') } else { None };
        let Some(end) = end else {
            text.push('<');
            rest = &tag[1..];
            continue;
        };
        if separates(&tag[1..end]) {
            text.push(' ');
        }
        rest = &tag[end + 1..];
    }
    text.push_str(rest);
    text
}

fn is_tag(text: &str) -> bool {
    let next = text.as_bytes().get(1);
    next.is_some_and(|next| next.is_ascii_alphabetic() || matches!(next, b'/' | b'!' | b'?'))
}

fn separates(tag: &str) -> bool {
    let name = tag.trim_start_matches('/');
    let name = name.trim_end_matches('/').split(|c: char| !c.is_ascii_alphabetic()).next();
    let name = name.unwrap_or_default().to_ascii_lowercase();
    BLOCKS.contains(&name.as_str())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn markup_and_entities_become_text() {
        for (html, expected) in [
            ("a <strong>bold</strong> word", "a bold word"),
            ("line<br>break<br/>and<p>block", "line break and block"),
            ("Tom &amp; Jerry&#39;s &lt;b&gt;", "Tom & Jerry's <b>"),
            ("&amp;lt;script&amp;gt;", "&lt;script&gt;"),
            ("1 < 2 and 3 > 2", "1 < 2 and 3 > 2"),
            ("open <img src=x onerror", "open <img src=x onerror"),
            ("a<!-- hidden -->b<script>x</script>", "abx"),
            ("two\r\nlines\u{2028}and&#10;three", "two linesand three"),
            ("safe&#x202e;txt.exe", "safetxt.exe"),
            ("&#0;&#x1b;[31mred &nosuch;", "&#0;&#x1b;[31mred &nosuch;"),
            ("<<<b>>>", "<<>>"),
        ] {
            assert_eq!(plain_text(html, 200), expected, "{html}");
        }
    }

    #[test]
    fn link_cannot_be_ended_by_its_text() {
        assert_eq!(escaped(r"a](http://evil)"), r"a\](http://evil\)");
        assert_eq!(escaped(r"a\](x) `<b>`"), r"a\\\](x\) \`\<b>\`");
    }

    proptest! {
        #[test]
        fn any_fragment_is_one_bounded_line(html in "(<|>|&|#|;|/|a|b|\\PC|.|\n){0,80}") {
            let text = plain_text(&html, 40);
            prop_assert!(text.chars().count() <= 40);
            prop_assert!(!text.chars().any(char::is_control), "{:?}", text);
        }
    }
}
