//! The clipboard of the user's terminal.

use base64::{Engine, engine::general_purpose::STANDARD};

use crate::render;

/// Maximum length of a copied text, in characters. Terminals drop long ones.
const MAX_CHARS: usize = 256;

/// Returns the sequence that makes a terminal copy a text, if it permits this (OSC 52). Control characters are removed
/// from the text, and the end of a long one.
pub(super) fn copy_sequence(text: &str) -> String {
    let text: String = render::clean(text).lines().collect::<String>();
    let text: String = text.chars().take(MAX_CHARS).collect();
    format!("\u{1b}]52;c;{}\u{7}", STANDARD.encode(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copied(text: &str) -> String {
        let sequence = copy_sequence(text);
        let content =
            sequence.strip_prefix("\u{1b}]52;c;").and_then(|rest| rest.strip_suffix('\u{7}'));
        String::from_utf8(STANDARD.decode(content.unwrap()).unwrap()).unwrap()
    }

    #[test]
    fn copied_text_is_bounded_and_without_control_characters() {
        assert_eq!(copied("018f3c1e"), "018f3c1e");
        assert_eq!(copied("a\u{1b}[31m\u{202e}b\u{7}\nrm -rf\r\n"), "abrm -rf");
        assert_eq!(copied(&"ü".repeat(10_000)), "ü".repeat(MAX_CHARS));
    }
}
