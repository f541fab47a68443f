//! Regular expression search in stored outputs.

use std::ops::Range;

use regex::{Regex, RegexBuilder};

use crate::outline::truncate;

/// Maximum memory of a compiled pattern, in bytes.
const REGEX_BYTES: usize = 1024 * 1024;
/// Maximum length of a long line that is shown before the match, and in total, in bytes.
const MAX_BYTES_BEFORE_MATCH: usize = 100;
const MAX_LINE_BYTES: usize = 400;

/// A search through a text, piece by piece.
///
/// A line longer than a piece is searched as several lines, and context does not cross pieces.
#[derive(Debug)]
pub(super) struct Search {
    regex: Regex,
    context: usize,
    skip: usize,
    max_bytes: usize,
    /// Output so far.
    text: String,
    /// Matches so far, including skipped ones.
    matches: usize,
    /// Last line in the output.
    last: usize,
    is_full: bool,
}

impl Search {
    /// Creates a search with an output of at most `max_bytes`. It skips the first `skip` matches and
    /// shows `context` lines around each match.
    ///
    /// # Errors
    /// A description of the error in the pattern.
    pub(super) fn new(
        pattern: &str,
        ignore_case: bool,
        context: usize,
        skip: usize,
        max_bytes: usize,
    ) -> Result<Self, String> {
        let regex = RegexBuilder::new(pattern)
            .case_insensitive(ignore_case)
            .size_limit(REGEX_BYTES)
            .dfa_size_limit(REGEX_BYTES)
            .build()
            .map_err(|error| format!("pattern: {error}"))?;
        let text = String::new();
        Ok(Self { regex, context, skip, max_bytes, text, matches: 0, last: 0, is_full: false })
    }

    pub(super) fn is_full(&self) -> bool {
        self.is_full
    }

    /// Searches the next piece, which starts in line `first`, counted from 1.
    pub(super) fn search(mut self, piece: &str, first: usize) -> Self {
        let piece = Piece { lines: piece.lines().collect(), first };
        // Next line of this piece that is not shown. The first line of a piece may be the rest of the
        // last line before it, and then has the same number.
        let mut next = 0;
        for (index, line) in piece.lines.iter().enumerate() {
            if !self.regex.is_match(line) {
                continue;
            }
            if self.matches < self.skip {
                self.matches += 1;
                continue;
            }
            let from = index.saturating_sub(self.context).max(next);
            let to = (index + self.context + 1).min(piece.lines.len());
            let mut shown = self.block(&piece, from..to);
            next = next.max(to);
            if self.text.len() + shown.len() > self.max_bytes {
                self.is_full = true;
                if !self.text.is_empty() {
                    break;
                }
                // Show at least the match without its context, so that the next search makes progress.
                shown = truncate(&self.block(&piece, index..index + 1), self.max_bytes);
            }
            self.text.push_str(&shown);
            self.matches += 1;
            self.last = piece.first + next - 1;
            if self.is_full {
                break;
            }
        }
        self
    }

    /// Formats these lines with their numbers; a colon marks matching lines.
    fn block(&self, piece: &Piece<'_>, lines: Range<usize>) -> String {
        let mut block = String::new();
        let first_number = piece.first + lines.start;
        if !lines.is_empty()
            && first_number > self.last + 1
            && !self.text.is_empty()
            && self.context > 0
        {
            block.push_str("--\n");
        }
        for (offset, line) in piece.lines[lines].iter().enumerate() {
            let found = self.regex.find(line).map(|found| found.start());
            let mark = if found.is_some() { ':' } else { '-' };
            let shown = excerpt(line, found.unwrap_or(0));
            block.push_str(&format!("{}{mark} {shown}\n", first_number + offset));
        }
        block
    }

    /// Returns the output with a header.
    pub(super) fn into_output(self) -> String {
        let Self { skip, text, matches, is_full, .. } = self;
        match matches {
            0 if !is_full => "[no line matches]".to_owned(),
            _ if is_full => {
                format!(
                    "[matches {} to {matches}; continue with skip = {matches}]\n{text}",
                    skip + 1
                )
            }
            _ if matches <= skip => format!("[no more matches: {matches} lines match]"),
            _ => format!("[matches {} to {matches}; no more matches]\n{text}", skip + 1),
        }
    }
}

/// A part of a text.
struct Piece<'a> {
    lines: Vec<&'a str>,
    /// Number of the first line in the text. It may be a part of that line.
    first: usize,
}

/// Returns the part of a line around a match.
fn excerpt(line: &str, at: usize) -> String {
    if line.len() <= MAX_LINE_BYTES {
        return line.to_owned();
    }
    let start = line.floor_char_boundary(at.saturating_sub(MAX_BYTES_BEFORE_MATCH));
    let shown = truncate(&line[start..], MAX_LINE_BYTES);
    if start == 0 { shown } else { format!("…{shown}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search(pattern: &str, context: usize, skip: usize, max_bytes: usize) -> String {
        let text = "one\ntwo\nthree\nfour\nfive\nsix\n";
        Search::new(pattern, false, context, skip, max_bytes).unwrap().search(text, 1).into_output()
    }

    #[test]
    fn matches_have_numbers_and_context() {
        assert_eq!(
            search("^t", 0, 0, 999),
            "[matches 1 to 2; no more matches]\n2: two\n3: three\n"
        );
        assert_eq!(
            search("one|six", 1, 0, 999),
            "[matches 1 to 2; no more matches]\n1: one\n2- two\n--\n5- five\n6: six\n"
        );
        assert_eq!(search("zero", 0, 0, 999), "[no line matches]");
        assert_eq!(search("o", 0, 9, 999), "[no more matches: 3 lines match]");
    }

    #[test]
    fn full_search_reports_next_skip() {
        let first = search("o", 0, 0, 16);
        assert_eq!(first, "[matches 1 to 2; continue with skip = 2]\n1: one\n2: two\n");
        assert_eq!(search("o", 0, 2, 16), "[matches 3 to 3; no more matches]\n4: four\n");
    }

    #[test]
    fn oversized_match_is_truncated() {
        let first = search("o", 2, 0, 8);
        assert_eq!(first, "[matches 1 to 1; continue with skip = 1]\n1: one\n");
        assert_eq!(search("three", 0, 0, 7), "[matches 1 to 1; continue with skip = 1]\n3: t…");
        let (mut skip, mut seen) = (0, String::new());
        loop {
            let output = search("o", 2, skip, 8);
            let (header, text) = output.split_once('\n').unwrap_or((&output, ""));
            seen.push_str(text);
            let Some((_, next)) = header.split_once("skip = ") else { break };
            let next = next.trim_end_matches(']').parse().unwrap();
            assert!(next > skip, "{output}");
            skip = next;
        }
        assert_eq!(seen, "1: one\n2: two\n4: four\n");
    }

    #[test]
    fn rest_of_long_line_is_searched() {
        let pieces = ["x needle y", "z needle", " needle end\nneedle\n"];
        for context in [0, 1] {
            let search = Search::new("needle", false, context, 0, 999).unwrap();
            let output =
                pieces.iter().fold(search, |search, piece| search.search(piece, 1)).into_output();
            assert_eq!(
                output,
                "[matches 1 to 4; no more matches]\n\
                 1: x needle y\n1: z needle\n1:  needle end\n2: needle\n"
            );
        }
        let long = format!("needle\n{}needle\n", "x".repeat(5000));
        let search = Search::new("needle", false, 1, 0, 999).unwrap();
        assert_eq!(search.search(&long, 1).into_output().matches("needle").count(), 2);
    }

    #[test]
    fn long_line_is_excerpted_and_large_pattern_is_rejected() {
        let line = format!("{}needle{}", "ü".repeat(10_000), "ä".repeat(10_000));
        let found = Search::new("NEEDLE", true, 0, 0, 999).unwrap().search(&line, 7).into_output();
        assert!(found.contains("7: …") && found.contains("needle") && found.len() < 600);
        assert!(Search::new("(a{1000}){1000}", false, 0, 0, 999).is_err());
        assert!(Search::new("(", false, 0, 0, 999).unwrap_err().starts_with("pattern: "));
    }
}
