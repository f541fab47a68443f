//! Access to parts of a stored output. Only the pieces that contain them are fetched.

use std::sync::Arc;

use rockbot_store::Store;

use super::{
    error::OutputError,
    handle::{Handle, Owner},
    record::{Extent, Record},
};

/// Position in an output, counted from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Position {
    Byte(usize),
    Char(usize),
    Line(usize),
}

/// A stored output.
pub(super) struct StoredOutput {
    store: Arc<dyn Store>,
    owner: Owner,
    handle: Handle,
    pub(super) record: Record,
}

impl StoredOutput {
    pub(super) fn new(store: Arc<dyn Store>, owner: Owner, handle: Handle, record: Record) -> Self {
        Self { store, owner, handle, record }
    }

    /// Returns the text of a piece, or `None` if it has expired.
    pub(super) async fn piece(&self, number: usize) -> Result<Option<String>, OutputError> {
        let key = self.owner.piece(&self.handle, number)?;
        let Some(entry) = self.store.get(&key).await? else { return Ok(None) };
        let text = String::from_utf8(entry.value.into());
        text.map(Some).map_err(|error| OutputError::Unusable(error.to_string()))
    }

    /// Returns at most `max_bytes` of the text from a position, in whole characters. Returns `None` if a
    /// piece has expired, and empty text behind the end.
    pub(super) async fn text(
        &self,
        from: Position,
        max_bytes: usize,
    ) -> Result<Option<String>, OutputError> {
        let (first, before) = self.find(from);
        let mut text = String::new();
        for number in first..self.record.pieces.len() {
            let Some(piece) = self.piece(number).await? else { return Ok(None) };
            let start = if number == first { offset_in(&piece, from, before) } else { 0 };
            let end = piece.floor_char_boundary(start.saturating_add(max_bytes - text.len()));
            text.push_str(&piece[start..end]);
            if end < piece.len() {
                break;
            }
        }
        Ok(Some(text))
    }

    /// Returns the whole text, or `None` if a piece has expired.
    pub(super) async fn load(&self) -> Result<Option<String>, OutputError> {
        self.text(Position::Byte(0), usize::MAX).await
    }

    /// Returns the piece that contains a position, and the extent of the text before it.
    fn find(&self, position: Position) -> (usize, Extent) {
        let mut before = Extent::default();
        for (number, piece) in self.record.pieces.iter().enumerate() {
            let after = before.plus(*piece);
            let contains = match position {
                Position::Byte(byte) => byte < after.bytes,
                Position::Char(char) => char < after.chars,
                // A line starts after the preceding newline, possibly in the next piece.
                Position::Line(line) => line <= after.newlines,
            };
            if contains {
                return (number, before);
            }
            before = after;
        }
        (self.record.pieces.len(), before)
    }
}

/// Returns the offset of a position in a piece that follows `before`.
fn offset_in(piece: &str, position: Position, before: Extent) -> usize {
    match position {
        // Inside a character it is the next one: the preceding read included that character.
        Position::Byte(byte) => piece.ceil_char_boundary(byte - before.bytes),
        Position::Char(char) => {
            piece.char_indices().nth(char - before.chars).map_or(piece.len(), |(at, _)| at)
        }
        Position::Line(line) => match line - before.newlines {
            0 => 0,
            newlines => {
                piece.match_indices('\n').nth(newlines - 1).map_or(piece.len(), |(at, _)| at + 1)
            }
        },
    }
}
