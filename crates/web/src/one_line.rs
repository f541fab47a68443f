//! Outside text on a single line.

use rockbot_contracts::outside_text;

/// Returns the visible characters of `text` on one line, with single spaces between words, at most
/// `max_chars` characters. A truncated text ends in `…`.
pub(crate) fn one_line(text: &str, max_chars: usize) -> String {
    // Four bytes a character, and white space that collapses.
    let bound = text.floor_char_boundary(max_chars.saturating_mul(16).saturating_add(256));
    let visible = outside_text::stripped(&text[..bound]);
    let mut line = String::with_capacity(visible.len().min(max_chars));
    for word in visible.split_whitespace() {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    match line.char_indices().nth(max_chars) {
        None => line,
        Some(_) => {
            let cut = line.char_indices().nth(max_chars.saturating_sub(1)).map_or(0, |(at, _)| at);
            line.truncate(cut);
            line.truncate(line.trim_end().len());
            line.push('…');
            line
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_becomes_one_visible_line() {
        for (text, max_chars, expected) in [
            ("  a\n\nb\tc\u{a0}d ", 100, "a b c d"),
            ("safe\u{202e}txt\u{200b}.exe\u{2028}x", 100, "safetxt.exex"),
            ("\u{1b}[31mred\u{1b}[0m", 100, "red"),
            ("abcdef", 4, "abc…"),
            ("ab cdef", 4, "ab…"),
            ("äöüß", 4, "äöüß"),
        ] {
            assert_eq!(one_line(text, max_chars), expected, "{text:?}");
        }
        assert_eq!(one_line(&"x".repeat(10_000_000), 50).chars().count(), 50);
    }
}
