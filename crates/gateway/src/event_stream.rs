//! Responses with server-sent events.

use std::{collections::VecDeque, convert::Infallible, time::Duration};

use axum::{
    body::Body,
    http::{HeaderName, HeaderValue, header},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use serde_json::Value;
use tokio::time::timeout;

/// Time after which a stream without events sends a comment.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// A comment that keeps connections open, and is ignored by clients.
const KEEP_ALIVE: &[u8] = b": keep-alive\n\n";

/// A source of events, such as a turn.
pub(crate) trait EventSource: Send + 'static {
    /// A change from which events are made.
    type Update: Send;

    /// Waits for the next update.
    ///
    /// # Cancellation
    /// Cancel-safe: no update is lost.
    fn next(&mut self) -> impl Future<Output = Self::Update> + Send;

    /// Returns the events of an update.
    fn events(&mut self, update: Self::Update) -> impl Future<Output = ReadyEvents> + Send;
}

/// Events that can be sent at once.
#[derive(Debug, Default)]
pub(crate) struct ReadyEvents {
    pub(crate) queue: VecDeque<Bytes>,
    /// Set if no event follows these.
    pub(crate) is_last: bool,
}

/// Returns an event.
pub(crate) fn event(data: &Value) -> Bytes {
    Bytes::from(format!("data: {data}\n\n"))
}

/// Returns an event with a name.
pub(crate) fn named_event(name: &str, data: &Value) -> Bytes {
    Bytes::from(format!("event: {name}\ndata: {data}\n\n"))
}

/// Returns a response with these events and comments.
pub(crate) fn response(events: impl Stream<Item = Bytes> + Send + 'static) -> Response {
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
        (HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no")),
    ];
    (headers, Body::from_stream(events.map(Ok::<_, Infallible>))).into_response()
}

/// Returns a response with the `first` events and those of a source, and a comment after a while without one. The end
/// of the response, or of its connection, drops the source.
pub(crate) fn stream_response(source: impl EventSource, first: ReadyEvents) -> Response {
    response(stream::unfold((source, first), async |(mut source, mut ready)| {
        loop {
            if let Some(event) = ready.queue.pop_front() {
                return Some((event, (source, ready)));
            }
            if ready.is_last {
                return None;
            }
            // Only the wait has a time limit: it is cancel-safe.
            let Ok(update) = timeout(KEEP_ALIVE_INTERVAL, source.next()).await else {
                return Some((Bytes::from_static(KEEP_ALIVE), (source, ready)));
            };
            ready = source.events(update).await;
        }
    }))
}
