//! Parts of a kept output, by byte, character or line. Only the pieces that hold them are fetched.

use std::sync::Arc;

use rockbot_store::Store;

use super::{
    error::KeepError,
    handle::{Handle, Owner},
    record::{Extent, Record},
};

/// A place in an output, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Byte(usize),
    Char(usize),
    Line(usize),
}

/// An output that was found.
pub(super) struct KeptOutput {
    store: Arc<dyn Store>,
    owner: Owner,
    handle: Handle,
    pub(super) record: Record,
}

impl KeptOutput {
    pub(super) fn new(store: Arc<dyn Store>, owner: Owner, handle: Handle, record: Record) -> Self {
        Self { store, owner, handle, record }
    }

    /// The text of a piece; none when it is gone meanwhile.
    pub(super) async fn piece(&self, number: usize) -> Result<Option<String>, KeepError> {
        let key = self.owner.piece(&self.handle, number)?;
        let Some(entry) = self.store.get(&key).await? else { return Ok(None) };
        let text = String::from_utf8(entry.value.into());
        text.map(Some).map_err(|error| KeepError::Unusable(error.to_string()))
    }

    /// At most `max_bytes` of the text from a place on, whole characters; none when a piece is gone
    /// meanwhile, and nothing behind the end.
    pub(super) async fn text(
        &self,
        from: Place,
        max_bytes: usize,
    ) -> Result<Option<String>, KeepError> {
        let (first, before) = self.find(from);
        let mut text = String::new();
        for number in first..self.record.pieces.len() {
            let Some(piece) = self.piece(number).await? else { return Ok(None) };
            let start = if number == first { start_in(&piece, from, before) } else { 0 };
            let end = piece.floor_char_boundary(start.saturating_add(max_bytes - text.len()));
            text.push_str(&piece[start..end]);
            if end < piece.len() {
                break;
            }
        }
        Ok(Some(text))
    }

    /// The whole text; none when a piece is gone meanwhile.
    pub(super) async fn whole(&self) -> Result<Option<String>, KeepError> {
        self.text(Place::Byte(0), usize::MAX).await
    }

    /// The piece that holds a place, and what comes before that piece.
    fn find(&self, place: Place) -> (usize, Extent) {
        let mut before = Extent::default();
        for (number, piece) in self.record.pieces.iter().enumerate() {
            let after = before.and(*piece);
            let is_here = match place {
                Place::Byte(byte) => byte < after.bytes,
                Place::Char(char) => char < after.chars,
                // It begins behind the line end before it, perhaps with the next piece.
                Place::Line(line) => line <= after.newlines,
            };
            if is_here {
                return (number, before);
            }
            before = after;
        }
        (self.record.pieces.len(), before)
    }
}

/// Where a place is in a piece with so much before it.
fn start_in(piece: &str, place: Place, before: Extent) -> usize {
    match place {
        // In the middle of a character it is the next one: what was read to there had it.
        Place::Byte(byte) => piece.ceil_char_boundary(byte - before.bytes),
        Place::Char(char) => {
            piece.char_indices().nth(char - before.chars).map_or(piece.len(), |(at, _)| at)
        }
        Place::Line(line) => match line - before.newlines {
            0 => 0,
            ends => piece.match_indices('\n').nth(ends - 1).map_or(piece.len(), |(at, _)| at + 1),
        },
    }
}
