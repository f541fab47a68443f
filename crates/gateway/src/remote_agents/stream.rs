//! The stream of a remote task.

use bytes::Bytes;
use rockbot_sse::{EventData, EventDecoder};

use super::{
    rpc::{CallError, MAX_BODY_BYTES, read_rpc},
    wire::Event,
};

/// Largest stream, in bytes.
const MAX_STREAM_BYTES: usize = 16 * 1024 * 1024;

/// The events of a remote task. Dropping it closes the connection; the task goes on.
#[derive(Debug)]
pub(super) struct TaskStream {
    response: reqwest::Response,
    decoder: EventDecoder,
    chunk: Bytes,
    received: usize,
}

impl TaskStream {
    pub(super) fn new(response: reqwest::Response) -> Self {
        let decoder = EventDecoder::new(MAX_BODY_BYTES);
        Self { response, decoder, chunk: Bytes::new(), received: 0 }
    }

    /// Returns the next event; `None` at the end of the stream.
    ///
    /// # Errors
    /// [`CallError::Invalid`] for a stream or an event above the limit, or one that is no event of A2A.
    ///
    /// # Cancellation
    /// No event is lost.
    pub(super) async fn next(&mut self) -> Result<Option<Event>, CallError> {
        loop {
            while let Some(event) = self.decoder.decode(&mut self.chunk) {
                match event.data {
                    EventData::Complete(data) if data.trim_ascii().is_empty() => {}
                    EventData::Complete(data) => return read_rpc(&data).map(Some),
                    EventData::TooLarge(_) => {
                        return Err(CallError::Invalid(
                            "an event of the stream exceeds 2 MiB".to_owned(),
                        ));
                    }
                }
            }
            let chunk = self.response.chunk().await;
            let chunk = chunk.map_err(|error| CallError::from_egress(&error.into()))?;
            let Some(chunk) = chunk else { return Ok(None) };
            self.received = self.received.saturating_add(chunk.len());
            if self.received > MAX_STREAM_BYTES {
                return Err(CallError::Invalid("the stream exceeds 16 MiB".to_owned()));
            }
            self.chunk = chunk;
        }
    }
}
