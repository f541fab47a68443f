//! Requests for a stream.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    Extension,
    extract::State,
    http::{HeaderMap, HeaderName, HeaderValue},
    response::{
        IntoResponse, Response, Sse,
        sse::{Event, KeepAlive},
    },
};
use futures_util::stream::unfold;

use super::{topics::Topics, viewer::Viewer};
use crate::{
    api::{
        Api,
        body::QueryMap,
        problem::{Problem, ProblemBody},
    },
    identity::Identity,
};

/// Interval of comments on a stream without events.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Header that makes proxies pass events on at once.
const NO_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// Server-sent events: `hello`, `conversation`, `reset`, `calls`, `fleet`, `letters` and `lost`.
#[derive(utoipa::ToSchema)]
#[expect(dead_code, reason = "describes a stream of text")]
pub(crate) struct StreamBody(String);

/// Opens an event stream. `Last-Event-ID` or `after` names the last event of a conversation that was seen.
#[utoipa::path(get, path = "/api/v1/stream", tag = "stream",
    params(("topics" = String, Query, description = "conversation:ID, shared:ID, calls, fleet, letters; with commas"),
        ("filter" = Option<String>, Query, description = "Filter of the calls"),
        ("after" = Option<String>, Query, description = "Id of the last event that was seen"),
        ("Last-Event-ID" = Option<String>, Header, description = "The same; it has priority")),
    responses((status = 200, body = StreamBody, content_type = "text/event-stream"),
        (status = "default", body = ProblemBody)))]
pub(crate) async fn open(
    State(api): State<Arc<Api>>,
    Extension(identity): Extension<Identity>,
    headers: HeaderMap,
    query: QueryMap,
) -> Result<Response, Problem> {
    let topics = Topics::read(&api, &identity, &query).await?;
    let permit = api.streams.admit(&identity.subject)?;
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok());
    let after = last.filter(|id| !id.is_empty()).or_else(|| query.get("after"));
    let viewer = Viewer::new(api, topics, after, permit);
    let events = unfold(viewer, async |mut viewer| {
        let event = viewer.next().await?;
        Some((Ok::<Event, Infallible>(event), viewer))
    });
    let keep_alive = KeepAlive::new().interval(KEEP_ALIVE).text("keep-alive");
    let mut response = Sse::new(events).keep_alive(keep_alive).into_response();
    response.headers_mut().insert(NO_BUFFERING, HeaderValue::from_static("no"));
    Ok(response)
}
