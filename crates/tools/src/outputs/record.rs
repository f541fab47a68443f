//! Metadata of stored outputs.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{
    chunk::newlines,
    outline::{Outline, TextKind},
};

/// Maximum size of a piece, which is one entry of the store. A read fetches whole pieces, so they are
/// small.
const PIECE_BYTES: usize = 512 * 1024;
/// Maximum size of an outline.
pub(super) const OUTLINE_BYTES: usize = 3 * 1024;
/// Estimated characters per token.
const CHARS_PER_TOKEN: usize = 4;

/// Size of a text or of a piece.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Extent {
    pub(super) bytes: usize,
    pub(super) chars: usize,
    /// Number of newlines.
    pub(super) newlines: usize,
}

impl Extent {
    fn from_text(text: &str) -> Self {
        Self { bytes: text.len(), chars: text.chars().count(), newlines: newlines(text) }
    }

    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            bytes: self.bytes + other.bytes,
            chars: self.chars + other.chars,
            newlines: self.newlines + other.newlines,
        }
    }
}

/// Metadata of an output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) kind: TextKind,
    pub(super) outline: String,
    pub(super) pieces: Vec<Extent>,
    /// `true` if the text does not end with a newline.
    open_end: bool,
}

impl Record {
    /// Creates the metadata of a text and its pieces. Reads the text several times.
    pub(super) fn from_text(text: String) -> (Self, Vec<Bytes>) {
        let Outline { kind, text: outline } = Outline::new(&text, OUTLINE_BYTES);
        let ranges = pieces(&text);
        let extents = ranges.iter().map(|range| Extent::from_text(&text[range.clone()])).collect();
        let open_end = !text.is_empty() && !text.ends_with('\n');
        let text = Bytes::from(text);
        let pieces = ranges.into_iter().map(|range| text.slice(range)).collect();
        (Self { kind, outline, pieces: extents, open_end }, pieces)
    }

    pub(super) fn extent(&self) -> Extent {
        self.pieces.iter().copied().fold(Extent::default(), Extent::plus)
    }

    pub(super) fn lines(&self) -> usize {
        self.extent().newlines + usize::from(self.open_end)
    }

    /// Estimates the number of tokens.
    pub(super) fn tokens(&self) -> usize {
        self.extent().chars.div_ceil(CHARS_PER_TOKEN)
    }
}

/// Returns the ranges of the pieces. Each ends at a newline, unless the line is longer than a piece.
fn pieces(text: &str) -> Vec<std::ops::Range<usize>> {
    let (mut ranges, mut start) = (Vec::new(), 0);
    while start < text.len() {
        let limit = text.floor_char_boundary(start + PIECE_BYTES);
        let end = match text[start..limit].rfind('\n') {
            Some(line_end) if limit < text.len() => start + line_end + 1,
            _ => limit,
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
    fn pieces_are_lossless_and_end_at_newlines() {
        let lines = "a line of some length, ü\n".repeat(50_000);
        let (record, pieces) = Record::from_text(lines.clone());
        assert!(pieces.len() > 2 && pieces.iter().all(|piece| piece.ends_with(b"\n")));
        assert_eq!(pieces.concat(), lines.as_bytes());
        assert_eq!((record.lines(), record.extent().bytes), (50_000, lines.len()));
        let (record, pieces) = Record::from_text("ü".repeat(PIECE_BYTES));
        assert_eq!((pieces.len(), record.lines()), (2, 1));
        assert!(pieces.iter().all(|piece| std::str::from_utf8(piece).is_ok()));
    }
}
