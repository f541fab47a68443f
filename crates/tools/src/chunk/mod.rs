//! Splitting of long texts at suitable boundaries.
//!
//! - [`chunks`]: chunks of bounded size, without loss;
//! - [`sections`]: the text below each heading;
//! - [`ChunkHint`]: the wish of a tool on how its result is split.

mod hint;
mod split;
mod structure;

use std::ops::Range;

pub use self::{
    hint::ChunkHint,
    structure::{Section, sections},
};
use self::{split::boundaries, structure::Structure};

/// A chunk of a text, and the headings above it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// Byte range in the text.
    pub bytes: Range<usize>,
    /// Character range in the text.
    pub chars: Range<usize>,
    /// First and last line, counted from 1.
    pub lines: (usize, usize),
    /// Headings above its beginning, outermost first.
    pub headings: Vec<String>,
}

impl Chunk {
    /// Returns the chunk's text, given the text that it was created from.
    #[must_use]
    pub fn slice<'a>(&self, text: &'a str) -> &'a str {
        &text[self.bytes.clone()]
    }

    /// Returns a title for chunk `number`: its headings, or else its number.
    #[must_use]
    pub fn title(&self, number: usize) -> String {
        match self.headings.as_slice() {
            [] => format!("Part {number}"),
            headings => headings.join(" › "),
        }
    }
}

/// Splits a text into chunks of at most `max_chars` characters (at least 1), in order. Their
/// concatenation is the text.
///
/// A chunk ends, in this order of preference, before a heading of the first, second or third level,
/// after a blank line, before or after a code fence, at the end of a line, and only in a line that is
/// too long between two characters. A heading or a blank line inside a code fence is code. A fence is
/// split only if it is longer than a chunk.
#[must_use]
pub fn chunks(text: &str, max_chars: usize) -> Vec<Chunk> {
    let structure = Structure::parse(text);
    let mut chunks = Vec::new();
    let (mut chars, mut line, mut path) = (0, 1, Path::default());
    let mut headings = structure.headings.iter().peekable();
    let mut start = 0;
    for end in boundaries(text, &structure.breaks, max_chars) {
        let piece = &text[start..end];
        while let Some(heading) = headings.next_if(|heading| heading.at <= start) {
            path.enter(heading.level, &heading.title);
        }
        let (piece_chars, breaks) = (piece.chars().count(), newlines(piece));
        let last_line = line + breaks - usize::from(piece.ends_with('\n'));
        chunks.push(Chunk {
            bytes: start..end,
            chars: chars..chars + piece_chars,
            lines: (line, last_line),
            headings: path.titles(),
        });
        // Headings inside the chunk apply to the chunks after it.
        while let Some(heading) = headings.next_if(|heading| heading.at < end) {
            path.enter(heading.level, &heading.title);
        }
        (start, chars, line) = (end, chars + piece_chars, line + breaks);
    }
    chunks
}

/// Headings above a position of the text.
#[derive(Default)]
struct Path<'a>(Vec<(u8, &'a str)>);

impl<'a> Path<'a> {
    fn enter(&mut self, level: u8, title: &'a str) {
        self.0.retain(|(outer, _)| *outer < level);
        self.0.push((level, title));
    }

    fn titles(&self) -> Vec<String> {
        self.0.iter().map(|(_, title)| (*title).to_owned()).collect()
    }
}

pub(crate) fn newlines(text: &str) -> usize {
    text.bytes().filter(|byte| *byte == b'\n').count()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn texts(text: &str, max_chars: usize) -> Vec<&str> {
        chunks(text, max_chars).iter().map(|chunk| chunk.slice(text)).collect()
    }

    #[test]
    fn splits_prefer_headings_then_blank_lines() {
        let text = "# A\nabc\n\n## B\ndef\n# C\nghi\n";
        assert_eq!(texts(text, 18), ["# A\nabc\n\n## B\ndef\n", "# C\nghi\n"]);
        assert_eq!(texts(text, 12), ["# A\nabc\n\n", "## B\ndef\n", "# C\nghi\n"]);
        assert_eq!(texts("one\ntwo\n\nthree\nfour", 10), ["one\ntwo\n\n", "three\nfour"]);
        assert_eq!(texts("one\ntwo\nthree", 8), ["one\ntwo\n", "three"]);
        assert_eq!(texts("üöäü", 3), ["üöä", "ü"]);
        assert_eq!(texts("", 3), [""; 0]);
    }

    #[test]
    fn heading_in_fence_is_code() {
        let fence = "```sh\n# not a heading\n\necho\n```\n";
        let text = format!("# A\n{fence}text\n");
        assert_eq!(texts(&text, 32), ["# A\n", fence, "text\n"]);
        let chunks = chunks(&text, 32);
        assert!(chunks.iter().all(|chunk| chunk.headings == ["A"]), "{chunks:?}");
    }

    #[test]
    fn chunk_has_lines_and_headings() {
        let text = "intro\n# A\n## B\nü\n# C\nlast";
        let chunks = chunks(text, 10);
        let known: Vec<_> = chunks.iter().map(|chunk| (chunk.lines, chunk.title(0))).collect();
        let title = str::to_owned;
        assert_eq!(
            known,
            [
                ((1, 1), title("Part 0")),
                ((2, 2), title("A")),
                ((3, 4), title("A › B")),
                ((5, 6), title("C")),
            ]
        );
        assert_eq!((&chunks[3].chars, &chunks[3].bytes), (&(17..25), &(18..26)));
    }

    /// Lines with and without a meaning for the splitter.
    fn line() -> impl Strategy<Value = String> {
        prop_oneof![
            Just(String::new()),
            Just("```".to_owned()),
            Just("~~~~ rust".to_owned()),
            Just("# One".to_owned()),
            Just("## Two".to_owned()),
            Just("### Three".to_owned()),
            Just("\r".to_owned()),
            "[a-zü𝄞 `#~]{0,30}",
        ]
    }

    proptest! {
        #[test]
        fn chunks_are_lossless_and_bounded(
            lines in prop::collection::vec(line(), 0..40), max in 1_usize..80,
        ) {
            let text = lines.join("\n");
            let chunks = chunks(&text, max);
            let joined: String = chunks.iter().map(|chunk| chunk.slice(&text)).collect();
            prop_assert_eq!(&joined, &text);
            let mut chars = 0;
            for chunk in &chunks {
                let size = chunk.slice(&text).chars().count();
                prop_assert!((1..=max).contains(&size));
                prop_assert_eq!(&chunk.chars, &(chars..chars + size));
                prop_assert_eq!(chunk.lines.0, 1 + newlines(&text[..chunk.bytes.start]));
                chars += size;
            }
        }

        #[test]
        fn fitting_fence_is_not_split(
            before in prop::collection::vec("[a-z ]{0,20}|# H|", 0..8),
            code in prop::collection::vec("[a-z ]{0,8}|# H|", 0..8),
            after in prop::collection::vec("[a-z ]{0,20}|## H|", 0..8),
        ) {
            let fence = format!("```\n{}\n```\n", code.join("\n"));
            let text = format!("{}\n{fence}{}", before.join("\n"), after.join("\n"));
            let whole = chunks(&text, fence.chars().count().max(8));
            prop_assert!(whole.iter().any(|chunk| chunk.slice(&text).contains(&fence)));
        }
    }
}
