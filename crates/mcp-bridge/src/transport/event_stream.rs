//! Server-sent events of an MCP server.

use std::time::Duration;

use bytes::Bytes;
use rockbot_sse::{Event, EventData, EventDecoder};

use super::failure::ConnectError;
use crate::frame::{MAX_FRAME_BYTES, Unreadable};

/// The longest reconnection time that a server can set.
const MAX_RETRY: Duration = Duration::from_secs(60);

/// The events of a response.
pub(crate) struct EventStream {
    response: reqwest::Response,
    chunk: Bytes,
    decoder: EventDecoder,
}

impl EventStream {
    pub(crate) fn new(response: reqwest::Response) -> Self {
        Self { response, chunk: Bytes::new(), decoder: EventDecoder::new(MAX_FRAME_BYTES) }
    }

    /// Returns the next event, or `None` at the end of the stream. An event that the end cuts off is
    /// dropped.
    ///
    /// Cancel-safe: no event is lost when the future is dropped.
    ///
    /// # Errors
    /// When the connection breaks or is idle for too long.
    pub(crate) async fn next(&mut self) -> Result<Option<Event>, ConnectError> {
        loop {
            if let Some(event) = self.decoder.decode(&mut self.chunk) {
                let retry = event.retry.map(|retry| retry.min(MAX_RETRY));
                return Ok(Some(Event { retry, ..event }));
            }
            match self.response.chunk().await? {
                Some(chunk) => self.chunk = chunk,
                None => return Ok(None),
            }
        }
    }
}

/// Returns whether the event carries a protocol message, rather than something for the transport.
pub(crate) fn has_message(event: &Event) -> bool {
    event.is_message() && !event.data.is_blank()
}

/// Returns the text of an event.
///
/// # Errors
/// The available prefix of the data, and why it is unreadable.
pub(crate) fn event_text(event: &Event) -> Result<&str, (&[u8], Unreadable)> {
    match &event.data {
        EventData::Complete(data) => {
            std::str::from_utf8(data).map_err(|_| (data.as_slice(), Unreadable::Invalid))
        }
        EventData::TooLarge(prefix) => Err((prefix, Unreadable::TooLarge)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn events(body: Vec<u8>) -> Vec<Event> {
        let mut stream = EventStream::new(http::Response::new(body).into());
        let mut events = Vec::new();
        while let Some(event) = stream.next().await.expect("a body in memory") {
            events.push(event);
        }
        events
    }

    #[tokio::test]
    async fn retry_is_bounded() {
        let events = events(b"retry: 99999999999\ndata: a\n\nretry: 5\ndata: b\n\n".to_vec()).await;
        assert_eq!(events[0].retry, Some(MAX_RETRY));
        assert_eq!(events[1].retry, Some(Duration::from_millis(5)));
    }

    #[tokio::test]
    async fn oversized_event_is_unreadable_and_next_one_is_not() {
        let mut body = b"data: {\"id\":7,".to_vec();
        body.extend(std::iter::repeat_n(b'x', MAX_FRAME_BYTES));
        body.extend(b"\ndata: more of it\n\ndata: next\n\n");
        let events = events(body).await;
        let (prefix, reason) = event_text(&events[0]).expect_err("too large");
        assert_eq!((&prefix[..8], reason), (&b"{\"id\":7,"[..], Unreadable::TooLarge));
        assert_eq!(event_text(&events[1]), Ok("next"));
        assert_eq!(events.len(), 2);
    }

    #[tokio::test]
    async fn data_that_is_not_utf8_is_unreadable() {
        let events = events(b"data: \xFF\xFE\n\n".to_vec()).await;
        assert_eq!(event_text(&events[0]), Err((&b"\xFF\xFE"[..], Unreadable::Invalid)));
    }
}
