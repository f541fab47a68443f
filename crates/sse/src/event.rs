//! Decoded events.

use std::time::Duration;

/// One event of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Event {
    /// The last `event` field. `None` and an empty name both mean `message`.
    pub name: Option<String>,
    /// The last `id` field of this event; ids of earlier events are not carried over.
    pub id: Option<String>,
    /// The reconnection time that the server requests, unbounded.
    pub retry: Option<Duration>,
    /// The `data` fields, joined with line feeds.
    pub data: EventData,
}

impl Event {
    /// Returns whether the event has the default type `message`.
    #[must_use]
    pub fn is_message(&self) -> bool {
        matches!(self.name.as_deref(), None | Some("" | "message"))
    }
}

/// The data of an event, not yet decoded as UTF-8.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventData {
    /// All data of the event.
    Complete(Vec<u8>),
    /// The first bytes of data that exceeds the decoder's limit, at most
    /// [`PREFIX_BYTES`](crate::PREFIX_BYTES).
    TooLarge(Vec<u8>),
}

impl EventData {
    /// Returns whether the event has no data, or only ASCII white space.
    #[must_use]
    pub fn is_blank(&self) -> bool {
        matches!(self, Self::Complete(data) if data.trim_ascii().is_empty())
    }
}

impl Default for EventData {
    fn default() -> Self {
        Self::Complete(Vec::new())
    }
}
