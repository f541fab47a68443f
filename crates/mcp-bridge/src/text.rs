//! Outside text for people's eyes.

/// Outside text that can't move a cursor, colour a line or turn words around: control characters and
/// those that set the direction of writing become `�`, and at most `limit` characters stay.
pub(crate) fn plain(text: &str, limit: usize) -> String {
    let shown = |c: char| if is_harmless(c) { c } else { char::REPLACEMENT_CHARACTER };
    let mut plain: String = text.chars().take(limit).map(shown).collect();
    if text.chars().nth(limit).is_some() {
        plain.push('…');
    }
    plain
}

fn is_harmless(c: char) -> bool {
    let bidi = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let unseen =
        matches!(c, '\u{200b}'..='\u{200d}' | '\u{2060}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}');
    matches!(c, '\n' | '\t') || !(c.is_control() || bidi || unseen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_it_is_an_instruction_to_a_terminal() {
        assert_eq!(plain("a\u{1b}[31mb\u{7}\u{9b}c", 99), "a�[31mb��c");
        assert_eq!(plain("evil\u{202e}txt.exe\u{2066}", 99), "evil�txt.exe�");
        assert_eq!(plain("tag\u{e0041}\u{200b}", 99), "tag��");
        assert_eq!(plain("line\nnext\tÄ 漢", 99), "line\nnext\tÄ 漢");
        assert_eq!(plain("12345", 4), "1234…");
    }
}
