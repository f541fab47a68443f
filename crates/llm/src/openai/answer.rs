//! Chat events from an open response.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::{
    FutureExt, StreamExt,
    stream::{self, Stream},
};
use reqwest::Response;
use rockbot_sse::{Event, EventData, EventDecoder};
use tokio::time;

use super::{OpenAiSettings, chunk::ChunkContent, error_response::RequestContext};
use crate::{
    chat::{ChatEvent, ChatStream, FinishReason},
    error::{ChatError, TimeoutPhase},
};

/// The timeout for the usage after the finish reason: some servers never close the stream.
const TRAILER_TIMEOUT: Duration = Duration::from_secs(5);
/// The largest event, in bytes of data.
const MAX_EVENT_BYTES: usize = 1024 * 1024;

/// An answer while it is streamed.
pub(super) struct Answer {
    response: Response,
    decoder: EventDecoder,
    /// Received bytes that are not decoded yet.
    chunk: Bytes,
    pieces: VecDeque<ChatEvent>,
    /// Held back until the end of the stream, because the usage arrives after it.
    finish: Option<FinishReason>,
    ended: bool,
    model: String,
    settings: Arc<OpenAiSettings>,
}

impl Answer {
    pub(super) fn new(response: Response, model: String, settings: Arc<OpenAiSettings>) -> Self {
        Self {
            response,
            // Older llama.cpp servers send failures in a field `error`.
            decoder: EventDecoder::new(MAX_EVENT_BYTES).with_data_alias("error"),
            chunk: Bytes::new(),
            pieces: VecDeque::new(),
            finish: None,
            ended: false,
            model,
            settings,
        }
    }

    /// Returns the next event, or `None` after [`ChatEvent::Finished`] or an error.
    pub(super) async fn next(&mut self) -> Option<Result<ChatEvent, ChatError>> {
        loop {
            if let Some(piece) = self.pieces.pop_front() {
                return Some(Ok(piece));
            }
            if self.ended {
                return None;
            }
            if let Err(error) = self.advance().await {
                self.ended = true;
                return Some(Err(error));
            }
        }
    }

    /// Returns a stream of the answer that starts with `first`.
    pub(super) fn into_stream(self, first: Option<Result<ChatEvent, ChatError>>) -> ChatStream {
        stream::iter(first).chain(self.rest()).boxed()
    }

    fn rest(self) -> impl Stream<Item = Result<ChatEvent, ChatError>> {
        stream::unfold(self, |mut answer| async move {
            answer.next().await.map(|event| (event, answer))
        })
    }

    async fn advance(&mut self) -> Result<(), ChatError> {
        if let Some(event) = self.decoder.decode(&mut self.chunk) {
            return match event_text(&event)? {
                // Keep-alive events have no data.
                "" => Ok(()),
                text => self.read_event(text),
            };
        }
        let idle = self.settings.idle_timeout;
        let idle_limit = if self.finish.is_some() { idle.min(TRAILER_TIMEOUT) } else { idle };
        let interruption = match time::timeout(idle_limit, self.response.chunk()).await {
            Ok(Ok(Some(chunk))) => {
                self.chunk = chunk;
                return Ok(());
            }
            Ok(Ok(None)) => ChatError::Interrupted { source: None },
            Ok(Err(error)) => ChatError::Interrupted { source: Some(error.without_url().into()) },
            Err(_) => ChatError::TimedOut { phase: TimeoutPhase::Idle, after: idle },
        };
        // After the finish reason only the trailer can be missing.
        match self.finish.take() {
            Some(reason) => {
                self.end(reason);
                Ok(())
            }
            None => Err(interruption),
        }
    }

    fn read_event(&mut self, data: &str) -> Result<(), ChatError> {
        if data.trim() == "[DONE]" {
            let reason = self.finish.take().unwrap_or(FinishReason::Stop);
            self.end(reason);
            // The end of the body has usually arrived; once it is read, the connection can be reused.
            let _ = self.response.chunk().now_or_never();
            return Ok(());
        }
        match ChunkContent::parse(data)? {
            ChunkContent::Pieces(pieces, finish) => {
                self.pieces.extend(pieces);
                self.finish = finish.or(self.finish.take());
                Ok(())
            }
            ChunkContent::Failure(response) => Err(response.into_error(&RequestContext {
                status: None,
                retry_after: None,
                model: &self.model,
                settings: &self.settings,
            })),
        }
    }

    fn end(&mut self, reason: FinishReason) {
        self.pieces.push_back(ChatEvent::Finished(reason));
        self.ended = true;
    }
}

fn event_text(event: &Event) -> Result<&str, ChatError> {
    match &event.data {
        EventData::Complete(data) => std::str::from_utf8(data)
            .map_err(|_| ChatError::malformed("the event stream is not UTF-8")),
        EventData::TooLarge(_) => Err(ChatError::TooLarge {
            what: "bytes in one event of the stream",
            limit: MAX_EVENT_BYTES,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(data: EventData) -> Event {
        Event { data, ..Event::default() }
    }

    #[test]
    fn unreadable_events_are_errors() {
        let data = event(EventData::Complete(b"\xFF\xFE".to_vec()));
        assert!(matches!(event_text(&data), Err(ChatError::Malformed { .. })));
        let data = event(EventData::TooLarge(b"{".to_vec()));
        assert!(matches!(event_text(&data), Err(ChatError::TooLarge { .. })));
        let data = event(EventData::Complete("gr\u{fc}\u{df}e".into()));
        assert_eq!(event_text(&data).unwrap(), "gr\u{fc}\u{df}e");
    }
}
