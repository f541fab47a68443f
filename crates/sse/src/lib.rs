//! A bounded decoder for server-sent events.
//!
//! The decoder does no I/O: the caller feeds it the chunks of a response body and takes the events.
//! It follows the event stream format of the HTML standard, with a limit on everything it buffers,
//! because the server at the other end may send anything.

mod decoder;
mod event;

pub use decoder::{EventDecoder, MAX_FIELD_BYTES, PREFIX_BYTES};
pub use event::{Event, EventData};
