//! Text from models, tools, servers and peers.
//!
//! Characters that are not visible can control a terminal, and can hide text from the person who reads
//! it. What happens to them depends on the reader:
//!
//! | reader | function | effect |
//! |---|---|---|
//! | a model, and a terminal that shows running text | [`stripped`], [`plain`] | they are removed |
//! | a terminal where exact text matters: approvals, dead letters | [`escaped`], [`escaped_line`] | they are shown as escapes |
//!
//! Line breaks and tabs stay in running text. Joiners stay as well, because scripts and emoji need
//! them; an escaped text shows them.

use std::borrow::Cow;

/// Returns `text` without terminal sequences and hidden characters.
///
/// Removes escape sequences, control characters other than line breaks and tabs, text direction marks,
/// and invisible characters.
#[must_use]
pub fn stripped(text: &str) -> Cow<'_, str> {
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\n' | b'\t')) {
        return Cow::Borrowed(text);
    }
    let mut stripped = String::with_capacity(text.len());
    stripped.extend(Stripped { characters: text.chars().peekable() });
    Cow::Owned(stripped)
}

/// Returns `text` as [`stripped`] does, at most `max_chars` characters. A truncated text ends in `…`.
#[must_use]
pub fn plain(text: &str, max_chars: usize) -> String {
    let mut plain = String::with_capacity(text.len().min(max_chars));
    for (count, character) in (Stripped { characters: text.chars().peekable() }).enumerate() {
        if count == max_chars {
            plain.pop();
            plain.truncate(plain.trim_end_matches('\r').len());
            plain.push('…');
            break;
        }
        plain.push(character);
    }
    plain
}

/// Escapes control and hidden characters. Line breaks stay.
#[must_use]
pub fn escaped(text: &str) -> String {
    text.split('\n').map(escaped_line).collect::<Vec<_>>().join("\n")
}

/// Escapes control and hidden characters, including line breaks.
#[must_use]
pub fn escaped_line(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        if is_escaped(character) {
            escaped.extend(character.escape_default());
        } else {
            escaped.push(character);
        }
    }
    escaped
}

/// Returns `true` if [`escaped_line`] escapes the character.
#[must_use]
pub fn is_escaped(character: char) -> bool {
    character.is_control() || is_hidden(character) || is_joiner(character)
}

/// Returns `true` if `name` is valid for a server or a tool: 1 to 128 bytes, and only visible characters.
#[must_use]
pub fn is_name(name: &str) -> bool {
    const MAX_BYTES: usize = 128;
    let is_visible = |c: char| !c.is_control() && !is_hidden(c);
    (1..=MAX_BYTES).contains(&name.len()) && name.chars().all(is_visible)
}

/// Returns `true` for joiners between letters or emoji.
fn is_joiner(character: char) -> bool {
    matches!(character, '\u{200c}' | '\u{200d}')
}

/// Returns `true` for characters that are invisible or change the text direction.
fn is_hidden(character: char) -> bool {
    matches!(
        character,
        // Direction marks, overrides and isolates.
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        // Zero-width characters, and separators that some terminals treat as line breaks.
        | '\u{ad}' | '\u{34f}' | '\u{180b}'..='\u{180f}' | '\u{200b}' | '\u{2028}' | '\u{2029}'
        | '\u{2060}'..='\u{2065}' | '\u{206a}'..='\u{206f}' | '\u{feff}' | '\u{fff0}'..='\u{fffb}'
        | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
        // Letters without a shape.
        | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{3164}' | '\u{ffa0}'
        // Variants, except those of emoji, and tags: both can encode whole sentences.
        | '\u{fe00}'..='\u{fe0d}' | '\u{e0000}'..='\u{e0fff}'
    )
}

/// The characters of a text that stay.
struct Stripped<'a> {
    characters: Characters<'a>,
}

type Characters<'a> = std::iter::Peekable<std::str::Chars<'a>>;

impl Iterator for Stripped<'_> {
    type Item = char;

    fn next(&mut self) -> Option<char> {
        while let Some(character) = self.characters.next() {
            match character {
                '\u{1b}' => skip_escape(&mut self.characters),
                '\u{9b}' => skip_control_sequence(&mut self.characters),
                '\u{90}' | '\u{98}' | '\u{9d}'..='\u{9f}' => skip_string(&mut self.characters),
                '\n' | '\t' => return Some(character),
                // Part of a line break.
                '\r' if self.characters.peek() == Some(&'\n') => return Some(character),
                other if !other.is_control() && !is_hidden(other) => return Some(other),
                _ => {}
            }
        }
        None
    }
}

/// Skips the sequence after an escape character.
fn skip_escape(characters: &mut Characters<'_>) {
    match characters.next_if(|next| !next.is_control()) {
        Some('[') => skip_control_sequence(characters),
        Some(']' | 'P' | 'X' | '^' | '_') => skip_string(characters),
        // Sequences such as the choice of a character set end with another character.
        Some(' '..='/') => {
            while characters.next_if(|next| matches!(next, ' '..='/')).is_some() {}
            characters.next_if(|next| matches!(next, '0'..='~'));
        }
        _ => {}
    }
}

/// Skips a string for the terminal, such as its title. It ends with a bell or an escape character, at
/// the latest with the line, so that an unfinished one does not swallow the text.
fn skip_string(characters: &mut Characters<'_>) {
    while let Some(next) = characters.next_if(|next| *next != '\n') {
        match next {
            '\u{7}' | '\u{9c}' => break,
            '\u{1b}' => {
                characters.next_if_eq(&'\\');
                break;
            }
            _ => {}
        }
    }
}

/// Skips parameters and the final letter.
fn skip_control_sequence(characters: &mut Characters<'_>) {
    while characters.next_if(|next| matches!(next, ' '..='?')).is_some() {}
    characters.next_if(|next| matches!(next, '@'..='~'));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Text, the same for a model or a running terminal, and escaped.
    const CASES: [(&str, &str, &str); 13] = [
        ("plain text", "plain text", "plain text"),
        ("a \u{1b}[31;1mred\u{1b}[0m word", "a red word", "a \\u{1b}[31;1mred\\u{1b}[0m word"),
        ("\u{1b}]0;a title\u{7}text", "text", "\\u{1b}]0;a title\\u{7}text"),
        ("\u{1b}]8;;http://x\u{1b}\\link", "link", "\\u{1b}]8;;http://x\\u{1b}\\link"),
        ("\u{9b}2Jgone\u{1b}c\r\u{8}", "gone", "\\u{9b}2Jgone\\u{1b}c\\r\\u{8}"),
        ("\u{1b}(0text\u{9d}0;title\u{9c}", "text", "\\u{1b}(0text\\u{9d}0;title\\u{9c}"),
        ("two\nlines\tand", "two\nlines\tand", "two\nlines\\tand"),
        ("two\r\nlines", "two\r\nlines", "two\\r\nlines"),
        ("unfinished \u{1b}]0;x\nrest", "unfinished \nrest", "unfinished \\u{1b}]0;x\nrest"),
        ("safe\u{202e}txt.exe\u{2069}", "safetxt.exe", "safe\\u{202e}txt.exe\\u{2069}"),
        (
            "a\u{200b}b\u{feff}c\u{e0041}d\u{fe00}\u{3164}\u{e0100}",
            "abcd",
            "a\\u{200b}b\\u{feff}c\\u{e0041}d\\u{fe00}\\u{3164}\\u{e0100}",
        ),
        ("naïve — «ok» ❤\u{fe0f}", "naïve — «ok» ❤\u{fe0f}", "naïve — «ok» ❤\u{fe0f}"),
        ("👩\u{200d}🔬", "👩\u{200d}🔬", "👩\\u{200d}🔬"),
    ];

    #[test]
    fn hidden_text_is_stripped_or_escaped() {
        for (text, expected, expected_escaped) in CASES {
            assert_eq!(stripped(text), expected, "{text:?}");
            assert_eq!(plain(text, 100), expected, "{text:?}");
            assert_eq!(escaped(text), expected_escaped, "{text:?}");
            assert!(!escaped_line(text).chars().any(is_escaped), "{text:?}");
        }
    }

    #[test]
    fn long_text_ends_in_ellipsis() {
        assert_eq!(plain("abcdef", 4), "abc…");
        assert_eq!(plain("abcd\u{200b}", 4), "abcd");
    }

    #[test]
    fn names_have_only_visible_characters() {
        assert!(is_name("GitHub") && is_name("my server") && is_name("größe"));
        for bad in ["", "a\nb", "a\u{202e}b", "a\u{200b}b", "\u{1b}[0m", &"x".repeat(129)] {
            assert!(!is_name(bad), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_becomes_harmless(
            text in "\\PC{0,100}|.{0,100}|[\\x00-\u{9f}a\u{200b}\u{202e}\n]{0,60}",
            max_chars in 1_usize..120,
        ) {
            let is_harmless = |c: char| {
                matches!(c, '\n' | '\t' | '\r') || !c.is_control() && !is_hidden(c)
            };
            for once in [plain(&text, max_chars), stripped(&text).into_owned()] {
                prop_assert!(once.chars().all(is_harmless), "{:?}", once);
                prop_assert!(!once.replace("\r\n", "").contains('\r'), "{:?}", once);
                prop_assert_eq!(stripped(&once), once.as_str());
            }
            prop_assert!(plain(&text, max_chars).chars().count() <= max_chars);
            prop_assert!(!escaped_line(&text).chars().any(is_escaped));
        }
    }
}
