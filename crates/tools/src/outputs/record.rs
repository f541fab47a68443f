//! What is written down about a kept output, beside its pieces.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{
    chunk::newlines,
    outline::{Outline, TextKind},
};

/// The most of a text in one entry of the store. A range is read by the pieces it touches, so
/// they are not large.
const PIECE_BYTES: usize = 512 * 1024;
/// The longest outline that is kept.
pub(super) const OUTLINE_BYTES: usize = 3 * 1024;
/// Characters of a token, where no tokenizer is at hand.
const CHARS_PER_TOKEN: usize = 4;

/// The sizes of a text or of a piece of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Extent {
    pub(super) bytes: usize,
    pub(super) chars: usize,
    /// Ends of lines.
    pub(super) newlines: usize,
}

impl Extent {
    fn of(text: &str) -> Self {
        Self { bytes: text.len(), chars: text.chars().count(), newlines: newlines(text) }
    }

    pub(super) fn and(self, other: Self) -> Self {
        Self {
            bytes: self.bytes + other.bytes,
            chars: self.chars + other.chars,
            newlines: self.newlines + other.newlines,
        }
    }
}

/// An output but for its text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) kind: TextKind,
    pub(super) outline: String,
    pub(super) pieces: Vec<Extent>,
    /// Whether the last line has no end.
    open_end: bool,
}

impl Record {
    /// The record of a text, and its pieces. Reads the whole text a few times.
    pub(super) fn of(text: String) -> (Self, Vec<Bytes>) {
        let Outline { kind, text: outline } = Outline::of(&text, OUTLINE_BYTES);
        let ranges = pieces(&text);
        let extents = ranges.iter().map(|range| Extent::of(&text[range.clone()])).collect();
        let open_end = !text.is_empty() && !text.ends_with('\n');
        let text = Bytes::from(text);
        let pieces = ranges.into_iter().map(|range| text.slice(range)).collect();
        (Self { kind, outline, pieces: extents, open_end }, pieces)
    }

    pub(super) fn extent(&self) -> Extent {
        self.pieces.iter().copied().fold(Extent::default(), Extent::and)
    }

    pub(super) fn lines(&self) -> usize {
        self.extent().newlines + usize::from(self.open_end)
    }

    /// An estimate.
    pub(super) fn tokens(&self) -> usize {
        self.extent().chars.div_ceil(CHARS_PER_TOKEN)
    }
}

/// Where the pieces are: each ends at the end of a line, unless the line is longer than a piece.
fn pieces(text: &str) -> Vec<std::ops::Range<usize>> {
    let (mut ranges, mut start) = (Vec::new(), 0);
    while start < text.len() {
        let most = text.floor_char_boundary(start + PIECE_BYTES);
        let end = match text[start..most].rfind('\n') {
            Some(line_end) if most < text.len() => start + line_end + 1,
            _ => most,
        };
        ranges.push(start..end);
        start = end;
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_the_text_and_end_at_lines_where_there_are_any() {
        let lines = "a line of some length, ü\n".repeat(50_000);
        let (record, pieces) = Record::of(lines.clone());
        assert!(pieces.len() > 2 && pieces.iter().all(|piece| piece.ends_with(b"\n")));
        assert_eq!(pieces.concat(), lines.as_bytes());
        assert_eq!((record.lines(), record.extent().bytes), (50_000, lines.len()));
        let (record, pieces) = Record::of("ü".repeat(PIECE_BYTES));
        assert_eq!((pieces.len(), record.lines()), (2, 1));
        assert!(pieces.iter().all(|piece| std::str::from_utf8(piece).is_ok()));
    }
}
