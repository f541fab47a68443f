//! Long lines of approval requests, which would push the rest of the request off the screen.

/// Longest line that is shown whole, in characters.
const MAX_LINE_CHARS: usize = 1_200;
/// Characters of a longer line that are shown from its beginning, and from its end.
const HEAD_CHARS: usize = 800;
const TAIL_CHARS: usize = 300;

/// Returns a line, or the beginning and the end of a long one with the number of characters between them.
/// Hidden characters must be escaped.
pub(super) fn shorten(line: &str) -> String {
    let chars = line.chars().count();
    if chars <= MAX_LINE_CHARS {
        return line.to_owned();
    }
    let at = |position| line.char_indices().nth(position).map_or(line.len(), |(byte, _)| byte);
    let (head, tail) = (&line[..at(HEAD_CHARS)], &line[at(chars - TAIL_CHARS)..]);
    let left_out = chars - HEAD_CHARS - TAIL_CHARS;
    format!("{head} … [{left_out} characters are not shown] … {tail}")
}

/// Returns whether [`shorten`] leaves out a part of a line.
pub(super) fn is_long(line: &str) -> bool {
    line.chars().nth(MAX_LINE_CHARS).is_some()
}

/// Returns the number of rows that a text fills. Terminal sequences count as characters.
pub(super) fn rows(text: &str, columns: usize) -> usize {
    let rows = |line: &str| line.chars().count().div_ceil(columns.max(1)).max(1);
    text.lines().map(rows).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beginning_and_end_of_a_long_line_are_shown() {
        let line = format!("{}ü{}", "a".repeat(800), "b".repeat(1_000));
        assert!(is_long(&line) && !is_long(&line[..1_200]));
        let shown = shorten(&line);
        let expected = [&line[..800], " … [701 characters are not shown] … ", &"b".repeat(300)];
        assert_eq!(shown, expected.concat());
        let limit = "ü".repeat(MAX_LINE_CHARS);
        assert_eq!(shorten(&limit), limit);
        assert!(!is_long(&limit));
    }

    #[test]
    fn wrapped_lines_fill_several_rows() {
        assert_eq!(rows("a\n\nbcdef", 4), 4);
    }
}
