//! One attempt to notify a target.

use std::time::Duration;

use axum::http::{HeaderName, Method, header};
use bytes::Bytes;
use rockbot_contracts::{TraceContext, trace};
use rockbot_egress::{AddressRefused, EgressError, GuardedClient};
use tracing::{Instrument, field::Empty, info_span};
use url::Url;

use super::super::push::PushTarget;

/// Time limit of an attempt, from the connection to the status of the response.
const TIMEOUT: Duration = Duration::from_secs(20);
const TOKEN: HeaderName = HeaderName::from_static("x-a2a-notification-token");
const VERSION: HeaderName = HeaderName::from_static("a2a-version");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// The outcome of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Attempt {
    /// The target has the event.
    Delivered,
    /// A later attempt may succeed.
    Failed,
    /// The address is not allowed.
    Refused,
}

/// Sends an event to a target in the trace of its registration. The body of the response is not read.
pub(super) async fn notify(
    client: &GuardedClient,
    target: &PushTarget,
    body: Bytes,
    traceparent: Option<&str>,
) -> Attempt {
    let span = info_span!(
        target: trace::TARGET,
        "push",
        otel.name = "POST",
        otel.kind = "client",
        http.request.method = "POST",
        http.response.status_code = Empty,
    );
    if let Some(parent) = traceparent {
        trace::continue_from(&span, &TraceContext { parent: Some(parent.into()), state: None });
    }
    let sending = send(client, target, body).instrument(span.clone());
    let outcome = tokio::time::timeout(TIMEOUT, sending).await;
    match outcome {
        Ok(Ok(status)) => {
            span.record("http.response.status_code", status);
            if (200..300).contains(&status) {
                return Attempt::Delivered;
            }
            trace::fail(&span, status.to_string());
            Attempt::Failed
        }
        Ok(Err(EgressError::Refused(_))) => {
            trace::fail(&span, "refused");
            Attempt::Refused
        }
        Ok(Err(_)) | Err(_) => {
            trace::fail(&span, "unreachable");
            Attempt::Failed
        }
    }
}

/// Returns the status of the response.
async fn send(
    client: &GuardedClient,
    target: &PushTarget,
    body: Bytes,
) -> Result<u16, EgressError> {
    // It was valid when it was registered.
    let url = Url::parse(&target.url).map_err(|_| AddressRefused::NoHost)?;
    let mut request = client
        .request(Method::POST, url)?
        .header(header::CONTENT_TYPE, "application/a2a+json")
        .header(VERSION, "1.0")
        .body(body);
    if let Some(token) = target.token() {
        request = request.header(TOKEN, token);
    }
    if let Some(authorization) = target.authorization() {
        request = request.header(header::AUTHORIZATION, authorization);
    }
    if let Some(parent) = trace::current().parent {
        request = request.header(TRACEPARENT, &*parent);
    }
    Ok(request.send().await?.status().as_u16())
}
