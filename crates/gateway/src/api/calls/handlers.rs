//! Requests about calls.

use std::sync::Arc;

use axum::{
    Extension, Json,
    extract::{Path, State},
};
use rockbot_contracts::ToolCallId;
use rockbot_monitor::Filter;
use serde::Serialize;
use utoipa::ToSchema;

use super::{
    board::FRAME_CALLS,
    content::ContentView,
    view::{CallView, CancelView, ProgressView, ReplyView, RequestView, TallyView},
};
use crate::{
    api::{
        Api,
        audit::{AuditAction, audit},
        body::QueryMap,
        problem::{Problem, ProblemBody},
    },
    identity::Identity,
};

/// Calls, newest first.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CallPage {
    /// The gateway watches since then, in Unix milliseconds.
    since_ms: u64,
    /// The newest calls that match.
    calls: Vec<CallView>,
    /// Numbers of all calls.
    tally: TallyView,
    /// Number of kept calls that match.
    matched: usize,
    /// Limits of the watch, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    notice: Option<String>,
}

/// One call with its messages, as observed.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CallDetails {
    /// The call.
    call: CallView,
    /// Its request.
    #[serde(skip_serializing_if = "Option::is_none")]
    request: Option<RequestView>,
    /// Its progress.
    #[serde(skip_serializing_if = "Option::is_none")]
    progress: Option<ProgressView>,
    /// Its cancel.
    #[serde(skip_serializing_if = "Option::is_none")]
    cancel: Option<CancelView>,
    /// Its reply.
    #[serde(skip_serializing_if = "Option::is_none")]
    reply: Option<ReplyView>,
    /// Its content is kept.
    content_kept: bool,
}

/// Lists the newest calls.
#[utoipa::path(get, path = "/api/v1/calls", tag = "calls",
    params(("filter" = Option<String>, Query, description = "`agent:`, `tool:`, `state:` and other words"),
        ("limit" = Option<u32>, Query, description = "At most 500, the default")),
    responses((status = 200, body = CallPage), (status = "default", body = ProblemBody)))]
pub(crate) async fn list(
    State(api): State<Arc<Api>>,
    query: QueryMap,
) -> Result<Json<CallPage>, Problem> {
    let limit = query.number("limit", FRAME_CALLS as u32, FRAME_CALLS as u32)?;
    let filter = parse_filter(query.get("filter").unwrap_or_default())?;
    let page = api.calls()?.view().page(&filter, limit as usize);
    let super::board::Page { since_ms, calls, matched, tally, notice } = page;
    Ok(Json(CallPage { since_ms, calls, tally, matched, notice }))
}

/// Returns one call with its messages.
#[utoipa::path(get, path = "/api/v1/calls/{id}", tag = "calls",
    params(("id" = String, Path, description = "The call")),
    responses((status = 200, body = CallDetails), (status = "default", body = ProblemBody)))]
pub(crate) async fn read(
    State(api): State<Arc<Api>>,
    Path(id): Path<String>,
) -> Result<Json<CallDetails>, Problem> {
    let found = find(&api, &id)?;
    let super::view::Journey { request, progress, cancel, reply } = found.journey;
    let content_kept = found.content.is_some();
    Ok(Json(CallDetails { call: found.call, request, progress, cancel, reply, content_kept }))
}

/// Returns the arguments and the result of a call.
#[utoipa::path(get, path = "/api/v1/calls/{id}/content", tag = "calls",
    params(("id" = String, Path, description = "The call")),
    responses((status = 200, body = ContentView), (status = "default", body = ProblemBody)))]
pub(crate) async fn content(
    State(api): State<Arc<Api>>,
    Extension(identity): Extension<Identity>,
    Path(id): Path<String>,
) -> Result<Json<ContentView>, Problem> {
    let content = find(&api, &id)?.content;
    let outcome = if content.is_some() { "shown" } else { "not kept" };
    audit(&identity, AuditAction::Content, &format!("call {id}"), outcome);
    content.map(Json).ok_or_else(|| Problem::not_found("the content of this call is not kept"))
}

fn find(api: &Api, id: &str) -> Result<super::board::Found, Problem> {
    let board = api.calls()?;
    let found = ToolCallId::new(id).ok().and_then(|id| board.view().find(&id));
    found.ok_or_else(|| {
        Problem::not_found(
            "no such call is kept; the gateway watches calls while a client shows them",
        )
    })
}

/// Parses a filter.
pub(crate) fn parse_filter(line: &str) -> Result<Filter, Problem> {
    let filter = Filter::parse(line);
    match filter.unknown_state() {
        None => Ok(filter),
        Some(state) => {
            let known = Filter::states();
            Err(Problem::invalid(format!("unknown state {state:?}; expected one of {known}")))
        }
    }
}
