//! Encoding of entries, bounded in size.

use bytes::Bytes;
use rockbot_store::MAX_LOG_ENTRY_BYTES;
use serde::Deserialize;

use super::{
    entry::{ConversationEntry, RecordedEntry, VERSION},
    error::EntryProblem,
};

/// Note at the end of a text that was too large for an entry.
const CUT_NOTE: &str = "\n(truncated: too large to be recorded)";

/// Encodes an entry. The text of a result or an answer that does not fit is truncated in `entry`, so that
/// the caller uses what is recorded.
///
/// # Errors
/// When another entry exceeds 1 MiB.
pub(crate) fn encode(entry: &mut ConversationEntry) -> Result<Bytes, EntryProblem> {
    loop {
        let recorded = RecordedEntry::now(entry.clone());
        let bytes = serde_json::to_vec(&recorded).map_err(|_| EntryProblem::Damaged)?;
        if bytes.len() <= MAX_LOG_ENTRY_BYTES {
            return Ok(bytes.into());
        }
        let text = match entry {
            ConversationEntry::Result(result) => &mut result.text,
            ConversationEntry::Answer(answer) => {
                answer.history =
                    answer.history.take().map(|text| cut(text, MAX_LOG_ENTRY_BYTES / 16));
                &mut answer.text
            }
            _ => return Err(EntryProblem::TooLarge { bytes: bytes.len() }),
        };
        if text.len() <= CUT_NOTE.len() * 2 {
            return Err(EntryProblem::TooLarge { bytes: bytes.len() });
        }
        // Escapes may make the encoded text larger than the text.
        let kept = (text.len() / 2).min(MAX_LOG_ENTRY_BYTES * 7 / 8);
        *text = cut(std::mem::take(text), kept);
    }
}

fn cut(mut text: String, bytes: usize) -> String {
    if text.len() > bytes {
        text.truncate(text.floor_char_boundary(bytes));
        text.push_str(CUT_NOTE);
    }
    text
}

/// Decodes an entry.
///
/// # Errors
/// When it is of a newer version, or damaged.
pub(crate) fn decode(value: &[u8]) -> Result<RecordedEntry, EntryProblem> {
    #[derive(Deserialize)]
    struct Header {
        v: u32,
    }
    match serde_json::from_slice::<RecordedEntry>(value) {
        Ok(recorded) if recorded.v <= VERSION => Ok(recorded),
        Ok(recorded) => Err(EntryProblem::Newer { version: recorded.v }),
        Err(_) => match serde_json::from_slice::<Header>(value) {
            Ok(Header { v }) if v > VERSION => Err(EntryProblem::Newer { version: v }),
            _ => Err(EntryProblem::Damaged),
        },
    }
}
