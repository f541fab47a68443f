//! Responses with server-sent events.

use std::{convert::Infallible, time::Duration};

use axum::{
    body::Body,
    http::{HeaderName, HeaderValue, header},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use serde_json::Value;

/// Time after which a stream without events sends a comment.
pub(crate) const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// A comment that keeps connections open, and is ignored by clients.
pub(crate) const KEEP_ALIVE: &[u8] = b": keep-alive\n\n";

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
