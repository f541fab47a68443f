//! Sanitizing of texts from MCP servers.

/// Returns `text` without terminal control and hidden characters, at most `max_chars` characters.
///
/// Removes escape sequences, control characters other than line breaks and tabs, text direction marks,
/// and invisible characters. A truncated text ends in `…`.
#[must_use]
pub fn plain(text: &str, max_chars: usize) -> String {
    let mut plain = String::with_capacity(text.len().min(max_chars));
    let mut left = max_chars;
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\u{1b}' => skip_escape(&mut characters),
            '\u{9b}' => skip_control_sequence(&mut characters),
            shown if is_shown(shown) => {
                if left == 0 {
                    plain.pop();
                    plain.push('…');
                    return plain;
                }
                left -= 1;
                plain.push(shown);
            }
            _ => {}
        }
    }
    plain
}

/// Returns whether `name` is valid for a server or a tool: 1 to 128 bytes, and only visible characters.
#[must_use]
pub fn is_name(name: &str) -> bool {
    const MAX_BYTES: usize = 128;
    let is_visible = |c: char| is_shown(c) && !matches!(c, '\n' | '\t');
    (1..=MAX_BYTES).contains(&name.len()) && name.chars().all(is_visible)
}

fn is_shown(character: char) -> bool {
    match character {
        '\n' | '\t' => true,
        // Direction marks, overrides and isolates.
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
            false
        }
        // Zero-width characters, and tag characters, which can hide whole sentences.
        '\u{ad}'
        | '\u{180e}'
        | '\u{200b}'
        | '\u{2028}'
        | '\u{2029}'
        | '\u{2060}'..='\u{2064}'
        | '\u{206a}'..='\u{206f}'
        | '\u{feff}'
        | '\u{fff9}'..='\u{fffb}'
        | '\u{e0000}'..='\u{e007f}' => false,
        other => !other.is_control(),
    }
}

type Characters<'a> = std::iter::Peekable<std::str::Chars<'a>>;

/// Skips the sequence after an escape character.
fn skip_escape(characters: &mut Characters<'_>) {
    match characters.next_if(|next| !next.is_control()) {
        Some('[') => skip_control_sequence(characters),
        // Strings for the terminal, such as its title, end with a bell or an escape character.
        Some(']' | 'P' | 'X' | '^' | '_') => {
            while let Some(next) = characters.next() {
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
        _ => {}
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

    #[track_caller]
    fn check(text: &str, expected: &str) {
        assert_eq!(plain(text, 100), expected, "{text:?}");
    }

    #[test]
    fn terminal_sequences_are_removed() {
        check("a \u{1b}[31;1mred\u{1b}[0m word", "a red word");
        check("\u{1b}]0;a title\u{7}text", "text");
        check("\u{1b}]8;;http://x\u{1b}\\link", "link");
        check("\u{9b}2Jgone\u{1b}c\r\u{8}", "gone");
        check("two\nlines\tand a tab", "two\nlines\tand a tab");
        check("unfinished \u{1b}[", "unfinished ");
    }

    #[test]
    fn hidden_characters_are_removed() {
        check("safe\u{202e}txt.exe\u{2069}", "safetxt.exe");
        check("a\u{200b}b\u{feff}c\u{e0041}", "abc");
        check("naïve — «ok» 👩\u{200d}🔬", "naïve — «ok» 👩\u{200d}🔬");
    }

    #[test]
    fn long_text_ends_in_ellipsis() {
        assert_eq!(plain("abcdef", 4), "abc…");
        assert_eq!(plain("abcd", 4), "abcd");
    }

    #[test]
    fn names_have_only_visible_characters() {
        assert!(is_name("GitHub") && is_name("my server") && is_name("größe"));
        for bad in ["", "a\nb", "a\u{202e}b", "\u{1b}[0m", &"x".repeat(129)] {
            assert!(!is_name(bad), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_becomes_plain(text in "\\PC{0,100}|.{0,100}", max_chars in 1_usize..120) {
            let once = plain(&text, max_chars);
            prop_assert!(once.chars().count() <= max_chars && once.chars().all(is_shown));
            prop_assert_eq!(plain(&once, max_chars), once);
        }
    }
}
