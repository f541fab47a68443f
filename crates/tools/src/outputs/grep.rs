//! The lines of an output that a pattern matches.

use std::ops::Range;

use regex::{Regex, RegexBuilder};

use crate::outline::cut;

/// The most memory of a compiled pattern, in bytes.
const REGEX_BYTES: usize = 1024 * 1024;
/// What is shown of a long line before the match, and in all, in bytes.
const BEFORE_MATCH: usize = 100;
const SHOWN_OF_LINE: usize = 400;

/// A search that goes over a text piece by piece.
///
/// A line that is longer than a piece is searched as several, and context ends with a piece.
#[derive(Debug)]
pub(super) struct Search {
    regex: Regex,
    context: usize,
    skip: usize,
    most: usize,
    /// What is shown so far.
    text: String,
    /// Matches so far, those left out included.
    matches: usize,
    /// The last line that is shown.
    last: usize,
    is_full: bool,
}

impl Search {
    /// Looks for a pattern and shows `most` bytes: the matches after the first `skip`, with so many
    /// lines around each.
    ///
    /// # Errors
    /// What is wrong with the pattern.
    pub(super) fn new(
        pattern: &str,
        ignore_case: bool,
        context: usize,
        skip: usize,
        most: usize,
    ) -> Result<Self, String> {
        let regex = RegexBuilder::new(pattern)
            .case_insensitive(ignore_case)
            .size_limit(REGEX_BYTES)
            .dfa_size_limit(REGEX_BYTES)
            .build()
            .map_err(|error| format!("pattern: {error}"))?;
        let text = String::new();
        Ok(Self { regex, context, skip, most, text, matches: 0, last: 0, is_full: false })
    }

    pub(super) fn is_full(&self) -> bool {
        self.is_full
    }

    /// Goes over the next piece, which begins in line `first`, from 1.
    pub(super) fn over(mut self, piece: &str, first: usize) -> Self {
        let piece = Piece { lines: piece.lines().collect(), first };
        // The next line of this piece that is not shown. Its first may have the number of the one
        // before it, and be the rest of that.
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
            if self.text.len() + shown.len() > self.most {
                self.is_full = true;
                if !self.text.is_empty() {
                    break;
                }
                // Whoever goes on has to get on: the match without what is around it.
                shown = cut(&self.block(&piece, index..index + 1), self.most);
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

    /// These lines with their numbers, those that match marked.
    fn block(&self, piece: &Piece<'_>, lines: Range<usize>) -> String {
        let mut block = String::new();
        let begins = piece.first + lines.start;
        if !lines.is_empty() && begins > self.last + 1 && !self.text.is_empty() && self.context > 0
        {
            block.push_str("--\n");
        }
        for (offset, line) in piece.lines[lines].iter().enumerate() {
            let found = self.regex.find(line).map(|found| found.start());
            let mark = if found.is_some() { ':' } else { '-' };
            let shown = excerpt(line, found.unwrap_or(0));
            block.push_str(&format!("{}{mark} {shown}\n", begins + offset));
        }
        block
    }

    /// What was found.
    pub(super) fn told(self) -> String {
        let Self { skip, text, matches, is_full, .. } = self;
        match matches {
            0 if !is_full => "[no line matches]".to_owned(),
            _ if is_full => {
                format!("[matches {} to {matches}; go on with skip = {matches}]\n{text}", skip + 1)
            }
            _ if matches <= skip => format!("[no more: {matches} lines match]"),
            _ => format!("[matches {} to {matches}; there are no more]\n{text}", skip + 1),
        }
    }
}

/// A part of a text.
struct Piece<'a> {
    lines: Vec<&'a str>,
    /// The line of the text that its first one is, or is the rest of.
    first: usize,
}

/// The part of a line around a match.
fn excerpt(line: &str, at: usize) -> String {
    if line.len() <= SHOWN_OF_LINE {
        return line.to_owned();
    }
    let start = line.floor_char_boundary(at.saturating_sub(BEFORE_MATCH));
    let shown = cut(&line[start..], SHOWN_OF_LINE);
    if start == 0 { shown } else { format!("…{shown}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search(pattern: &str, context: usize, skip: usize, most: usize) -> String {
        let text = "one\ntwo\nthree\nfour\nfive\nsix\n";
        Search::new(pattern, false, context, skip, most).unwrap().over(text, 1).told()
    }

    #[test]
    fn matches_are_shown_with_numbers_and_lines_around_them_once() {
        assert_eq!(
            search("^t", 0, 0, 999),
            "[matches 1 to 2; there are no more]\n2: two\n3: three\n"
        );
        assert_eq!(
            search("one|six", 1, 0, 999),
            "[matches 1 to 2; there are no more]\n1: one\n2- two\n--\n5- five\n6: six\n"
        );
        assert_eq!(search("zero", 0, 0, 999), "[no line matches]");
        assert_eq!(search("o", 0, 9, 999), "[no more: 3 lines match]");
    }

    #[test]
    fn a_search_that_is_full_says_how_to_go_on() {
        let first = search("o", 0, 0, 16);
        assert_eq!(first, "[matches 1 to 2; go on with skip = 2]\n1: one\n2: two\n");
        assert_eq!(search("o", 0, 2, 16), "[matches 3 to 3; there are no more]\n4: four\n");
    }

    #[test]
    fn a_match_that_does_not_fit_is_cut_so_that_a_search_gets_on() {
        let first = search("o", 2, 0, 8);
        assert_eq!(first, "[matches 1 to 1; go on with skip = 1]\n1: one\n");
        assert_eq!(search("three", 0, 0, 7), "[matches 1 to 1; go on with skip = 1]\n3: t…");
        let (mut skip, mut seen) = (0, String::new());
        loop {
            let told = search("o", 2, skip, 8);
            let (header, text) = told.split_once('\n').unwrap_or((&told, ""));
            seen.push_str(text);
            let Some((_, next)) = header.split_once("skip = ") else { break };
            let next = next.trim_end_matches(']').parse().unwrap();
            assert!(next > skip, "{told}");
            skip = next;
        }
        assert_eq!(seen, "1: one\n2: two\n4: four\n");
    }

    #[test]
    fn the_rest_of_a_long_line_is_shown_as_well_and_so_is_a_match_beside_another() {
        let pieces = ["x needle y", "z needle", " needle end\nneedle\n"];
        for context in [0, 1] {
            let search = Search::new("needle", false, context, 0, 999).unwrap();
            let told = pieces.iter().fold(search, |search, piece| search.over(piece, 1)).told();
            assert_eq!(
                told,
                "[matches 1 to 4; there are no more]\n\
                 1: x needle y\n1: z needle\n1:  needle end\n2: needle\n"
            );
        }
        let long = format!("needle\n{}needle\n", "x".repeat(5000));
        let search = Search::new("needle", false, 1, 0, 999).unwrap();
        assert_eq!(search.over(&long, 1).told().matches("needle").count(), 2);
    }

    #[test]
    fn a_long_line_is_shown_around_the_match_and_a_large_pattern_is_refused() {
        let line = format!("{}needle{}", "ü".repeat(10_000), "ä".repeat(10_000));
        let found = Search::new("NEEDLE", true, 0, 0, 999).unwrap().over(&line, 7).told();
        assert!(found.contains("7: …") && found.contains("needle") && found.len() < 600);
        assert!(Search::new("(a{1000}){1000}", false, 0, 0, 999).is_err());
        assert!(Search::new("(", false, 0, 0, 999).unwrap_err().starts_with("pattern: "));
    }
}
