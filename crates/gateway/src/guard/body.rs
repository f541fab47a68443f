//! Bodies of requests and responses.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    Error,
    body::{Body, HttpBody, to_bytes},
    http::{HeaderMap, header},
};
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use metrics::gauge;
use rockbot_service::connections::InUse;
use tokio::time::timeout;

use super::refusal::Refusal;

/// Metric of the open requests.
const OPEN_REQUESTS: &str = "rockbot_gateway_open_requests";

/// Time limit for the body of a request.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// Reads the body of a request within the limits of size and time.
pub(super) async fn read(headers: &HeaderMap, body: Body, limit: usize) -> Result<Bytes, Refusal> {
    let refused = Refusal::BodySize { limit };
    let announced = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok());
    if announced
        .and_then(|length| length.parse::<u64>().ok())
        .is_some_and(|length| length > limit as u64)
    {
        return Err(refused);
    }
    let upper = body.size_hint().upper();
    match timeout(BODY_TIMEOUT, to_bytes(body, limit)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        // A body of a known length that fits can only have ended early.
        Ok(Err(_)) if upper.is_some_and(|upper| upper <= limit as u64) => Err(Refusal::BodyBroken),
        Ok(Err(_)) => Err(refused),
        Err(_) => Err(Refusal::BodyTimeout),
    }
}

/// An open request, until its response has ended. It keeps its connection in use.
pub(super) struct OpenRequest {
    _in_use: InUse,
}

impl OpenRequest {
    pub(super) fn new(in_use: InUse) -> Self {
        gauge!(OPEN_REQUESTS).increment(1);
        Self { _in_use: in_use }
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        gauge!(OPEN_REQUESTS).decrement(1);
    }
}

/// The body of a response, whose end is the end of its request.
pub(super) struct TrackedBody {
    inner: Body,
    _request: OpenRequest,
}

impl TrackedBody {
    pub(super) fn new(inner: Body, request: OpenRequest) -> Self {
        Self { inner, _request: request }
    }
}

impl HttpBody for TrackedBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        Pin::new(&mut self.inner).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
