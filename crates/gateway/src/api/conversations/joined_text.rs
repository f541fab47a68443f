//! Streamed text, joined to fewer events.

use std::{future::Future, time::Duration};

use tokio::time::{Instant, sleep_until};

use super::event::EventBody;

/// Time in which streamed text is joined to one event.
const JOIN_TIME: Duration = Duration::from_millis(50);

/// Streamed text that is joined to fewer events.
#[derive(Default)]
pub(super) struct JoinedText {
    text: String,
    due: Option<Instant>,
}

impl JoinedText {
    /// Size from which text is not joined further, in bytes.
    const MAX_BYTES: usize = 8 * 1024;

    /// Adds text; returns the event once it is large.
    pub(super) fn push(&mut self, more: &str) -> Option<EventBody> {
        self.due.get_or_insert_with(|| Instant::now() + JOIN_TIME);
        self.text.push_str(more);
        if self.text.len() >= Self::MAX_BYTES { self.take() } else { None }
    }

    /// Takes the text as an event.
    pub(super) fn take(&mut self) -> Option<EventBody> {
        self.due = None;
        let text = std::mem::take(&mut self.text);
        (!text.is_empty()).then_some(EventBody::TextDelta { text })
    }

    /// Waits until the text is to be published; forever without text.
    pub(super) fn due(&self) -> impl Future<Output = ()> + use<> {
        let due = self.due;
        async move {
            match due {
                Some(due) => sleep_until(due).await,
                None => std::future::pending().await,
            }
        }
    }
}
