//! Spans of requests.

use axum::{
    extract::Request,
    http::{HeaderMap, StatusCode},
};
use rockbot_contracts::{TraceContext, trace};
use tracing::{Span, field::Empty, info_span};

use crate::identity::{FaceName, Identity};

/// Returns the span of a request to a route. It continues the trace that the request names, if its sender has signed
/// in: others must not choose the spans that are recorded.
pub(super) fn request_span(request: &Request, path: &'static str, face: FaceName) -> Span {
    let method = request.method().as_str();
    let span = info_span!(
        target: trace::TARGET,
        "request",
        otel.name = format!("{method} {path}"),
        otel.kind = "server",
        http.request.method = method,
        http.route = path,
        rockbot.gateway.face = face.as_str(),
        http.response.status_code = Empty,
    );
    if request.extensions().get::<Identity>().is_some() {
        trace::continue_from(&span, &carried(request.headers()));
    }
    span
}

/// Records the outcome of a request.
pub(super) fn answered(span: &Span, status: StatusCode) {
    span.record("http.response.status_code", status.as_u16());
    if status.is_server_error() {
        trace::fail(span, status.as_str());
    }
}

fn carried(headers: &HeaderMap) -> TraceContext {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(Into::into);
    TraceContext { parent: text("traceparent"), state: text("tracestate") }
}
