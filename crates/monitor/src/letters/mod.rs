//! Dead letters of work queues: inspected, sent again, and deleted.

mod dead_letters;
mod error;
mod inspect;
mod purge;
mod replay;
mod sender;

pub use self::{
    dead_letters::{MAX_HELD, MAX_LETTERS, Selection, count},
    error::LetterError,
    inspect::{Inspection, inspect},
    purge::{Purged, purge},
    replay::{Replayed, replay},
    sender::SenderCheck,
};
