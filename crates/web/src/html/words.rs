//! Counting words in any script.

/// Counts the words of Markdown without the targets of links. A character of a script without spaces counts
/// as a word.
pub(crate) fn count_words(markdown: &str) -> usize {
    let (mut words, mut is_inside) = (0, false);
    let mut characters = markdown.chars().peekable();
    while let Some(character) = characters.next() {
        if character == ']' && characters.next_if_eq(&'(').is_some() {
            is_inside = false;
            while characters.next_if(|next| !matches!(next, ')' | '\n')).is_some() {}
            continue;
        }
        if is_unspaced(character) {
            words += 1;
            is_inside = false;
        } else if character.is_alphanumeric() {
            words += usize::from(!is_inside);
            is_inside = true;
        } else {
            is_inside = false;
        }
    }
    words
}

/// Returns whether the character belongs to a script that is written without spaces.
fn is_unspaced(character: char) -> bool {
    matches!(
        character,
        '\u{e00}'..='\u{eff}' | '\u{1000}'..='\u{109f}' | '\u{1780}'..='\u{17ff}'
        | '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{9fff}' | '\u{f900}'..='\u{faff}'
        | '\u{20000}'..='\u{3ffff}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_any_script_are_counted() {
        for (text, words) in [
            ("", 0),
            ("one, two — three!", 3),
            ("größer als 3.5", 4),
            ("漢字かな", 4),
            ("한국어 문장", 2),
            ("see [the docs](https://example.com/a/b?c=d) and ![a chart](/x.png)", 6),
            ("an [open](target\nnext line", 4),
        ] {
            assert_eq!(count_words(text), words, "{text}");
        }
    }
}
