//! Requests about calls.

use std::sync::Arc;

use axum::{
    Extension, Json,
    extract::{Path, State},
};
use rockbot_contracts::ToolCallId;
use rockbot_monitor::Filter;

use super::{
    board::{FRAME_CALLS, Found},
    content::ContentView,
    view::{CallDetails, CallPage},
};
use crate::{
    api::{
        Api,
        body::QueryMap,
        problem::{Problem, ProblemBody},
    },
    guard::{AuditAction, audit},
    identity::Identity,
};

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
    Ok(Json(api.calls()?.view().page(&filter, limit as usize)))
}

/// Returns one call with its messages.
#[utoipa::path(get, path = "/api/v1/calls/{id}", tag = "calls",
    params(("id" = String, Path, description = "The call")),
    responses((status = 200, body = CallDetails), (status = "default", body = ProblemBody)))]
pub(crate) async fn read(
    State(api): State<Arc<Api>>,
    Path(id): Path<String>,
) -> Result<Json<CallDetails>, Problem> {
    Ok(Json(find(&api, &id)?.details))
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

fn find(api: &Api, id: &str) -> Result<Found, Problem> {
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
