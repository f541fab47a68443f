//! Long lines of approval requests, which would push the rest of the request off the screen.

/// Longest line that is shown whole, in characters.
const MAX_LINE_CHARS: usize = 1_200;
/// Characters of a longer line that are shown from its beginning, and from its end.
const HEAD_CHARS: usize = 800;
const TAIL_CHARS: usize = 300;

/// Leaves out the middle of long lines.
#[derive(Debug, Default)]
pub(super) struct LineShortener {
    /// A part of a line was left out.
    pub(super) has_shortened: bool,
}

impl LineShortener {
    /// Returns a line, or the beginning and the end of a long one with the number of characters between them.
    /// Hidden characters must be escaped.
    pub(super) fn shorten(&mut self, line: &str) -> String {
        let chars = line.chars().count();
        if chars <= MAX_LINE_CHARS {
            return line.to_owned();
        }
        self.has_shortened = true;
        let at = |position| line.char_indices().nth(position).map_or(line.len(), |(byte, _)| byte);
        let (head, tail) = (&line[..at(HEAD_CHARS)], &line[at(chars - TAIL_CHARS)..]);
        let left_out = chars - HEAD_CHARS - TAIL_CHARS;
        format!("{head} … [{left_out} characters are not shown] … {tail}")
    }
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
        let mut shortener = LineShortener::default();
        let line = format!("{}ü{}", "a".repeat(800), "b".repeat(1_000));
        let limit = "ü".repeat(MAX_LINE_CHARS);
        assert_eq!(shortener.shorten(&limit), limit);
        assert!(!shortener.has_shortened);
        let shown = shortener.shorten(&line);
        let expected = [&line[..800], " … [701 characters are not shown] … ", &"b".repeat(300)];
        assert_eq!(shown, expected.concat());
        assert!(shortener.has_shortened);
    }

    #[test]
    fn wrapped_lines_fill_several_rows() {
        assert_eq!(rows("a\n\nbcdef", 4), 4);
    }
}
