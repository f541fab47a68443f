//! Requests about dead letters.

use std::sync::Arc;

use axum::{
    Extension, Json,
    extract::{Path, State},
};
use serde::Deserialize;
use utoipa::ToSchema;

use super::view::{
    LetterDetails, LetterPage, LetterQueues, PurgeView, RefusalView, ReplayResultView,
};
use crate::{
    api::{
        Api,
        body::{JsonBody, QueryMap},
        problem::{Problem, ProblemBody},
    },
    guard::{AuditAction, audit},
    identity::{Identity, Right},
};

/// Default and largest number of letters in a page.
const PAGE: (u32, u32) = (50, 200);
/// Largest number of letters in a request.
const MAX_IDS: usize = 200;

/// Letters to send again.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ReplayRequest {
    /// Their message ids, 1 to 200.
    ids: Vec<String>,
    /// Changes nothing, and reports what a replay would do.
    #[serde(default)]
    dry_run: bool,
}

/// Letters to delete.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct PurgeRequest {
    /// Their message ids, 1 to 200.
    ids: Vec<String>,
    /// Changes nothing, and reports what a purge would do.
    #[serde(default)]
    dry_run: bool,
    /// The name of the queue, as a confirmation; not needed for a dry run.
    confirm: Option<String>,
}

/// Returns the numbers of dead letters.
#[utoipa::path(get, path = "/api/v1/letters", tag = "letters",
    responses((status = 200, body = LetterQueues), (status = "default", body = ProblemBody)))]
pub(crate) async fn list_queues(
    State(api): State<Arc<Api>>,
) -> Result<Json<LetterQueues>, Problem> {
    let queues = api.letters()?.queues(&api.catalog().await).await?;
    Ok(Json((*queues).clone()))
}

/// Returns the oldest dead letters of a work queue.
#[utoipa::path(get, path = "/api/v1/letters/{queue}", tag = "letters",
    params(("queue" = String, Path, description = "The work queue"),
        ("limit" = Option<u32>, Query, description = "1 to 200, by default 50")),
    responses((status = 200, body = LetterPage), (status = "default", body = ProblemBody)))]
pub(crate) async fn list(
    State(api): State<Arc<Api>>,
    Path(queue): Path<String>,
    query: QueryMap,
) -> Result<Json<LetterPage>, Problem> {
    let letters = api.letters()?;
    let limit = query.number("limit", PAGE.0, PAGE.1)?;
    let queue = letters.parse(&queue)?;
    Ok(Json(letters.page(&queue, limit, &api.catalog().await).await?))
}

/// Returns one dead letter with its body.
#[utoipa::path(get, path = "/api/v1/letters/{queue}/{messageId}", tag = "letters",
    params(("queue" = String, Path, description = "The work queue"),
        ("messageId" = String, Path, description = "The letter")),
    responses((status = 200, body = LetterDetails), (status = "default", body = ProblemBody)))]
pub(crate) async fn read(
    State(api): State<Arc<Api>>,
    Extension(identity): Extension<Identity>,
    Path((queue, id)): Path<(String, String)>,
) -> Result<Json<LetterDetails>, Problem> {
    let letters = api.letters()?;
    if !identity.has(Right::Content) {
        return Err(Problem::forbidden("reading the body of a letter needs the right content"));
    }
    let queue = letters.parse(&queue)?;
    let found = letters.find(&queue, &id, &api.catalog().await).await;
    let outcome = if found.is_ok() { "shown" } else { "failed" };
    audit(&identity, AuditAction::Content, &format!("dead letter {id} of {queue}"), outcome);
    Ok(Json(found?))
}

/// Sends dead letters to their work queue again.
#[utoipa::path(post, path = "/api/v1/letters/{queue}/replay", tag = "letters",
    request_body = ReplayRequest,
    params(("queue" = String, Path, description = "The work queue")),
    responses((status = 200, body = ReplayResultView), (status = "default", body = ProblemBody)))]
pub(crate) async fn replay(
    State(api): State<Arc<Api>>,
    Extension(identity): Extension<Identity>,
    Path(queue): Path<String>,
    JsonBody(request): JsonBody<ReplayRequest>,
) -> Result<Json<ReplayResultView>, Problem> {
    let letters = api.letters()?;
    let ReplayRequest { ids, dry_run } = request;
    check_ids(&ids)?;
    let queue = letters.parse(&queue)?;
    let replayed = letters.replay(&queue, &ids, dry_run).await;
    if !dry_run {
        let number = replayed.as_ref().map_or(0, |replayed| replayed.sent.len());
        let outcome = format!("{number} of {} resent", ids.len());
        audit(&identity, AuditAction::Replay, &format!("{queue}: {}", ids.join(" ")), &outcome);
    }
    let replayed = replayed?;
    let refused = replayed
        .refused
        .into_iter()
        .map(|(letter, reason)| RefusalView { message_id: letter.message_id.to_string(), reason });
    Ok(Json(ReplayResultView {
        dry_run,
        replayed: replayed.sent.iter().map(|(letter, _)| letter.message_id.to_string()).collect(),
        refused: refused.collect(),
        left: replayed.left,
        failure: replayed.failure.map(|error| error.to_string()),
    }))
}

/// Deletes dead letters permanently.
#[utoipa::path(post, path = "/api/v1/letters/{queue}/purge", tag = "letters",
    request_body = PurgeRequest,
    params(("queue" = String, Path, description = "The work queue")),
    responses((status = 200, body = PurgeView), (status = "default", body = ProblemBody)))]
pub(crate) async fn purge(
    State(api): State<Arc<Api>>,
    Extension(identity): Extension<Identity>,
    Path(queue): Path<String>,
    JsonBody(request): JsonBody<PurgeRequest>,
) -> Result<Json<PurgeView>, Problem> {
    let letters = api.letters()?;
    let PurgeRequest { ids, dry_run, confirm } = request;
    check_ids(&ids)?;
    let queue = letters.parse(&queue)?;
    if !dry_run && confirm.as_deref() != Some(queue.as_str()) {
        let detail = format!("repeat the name of the queue, {queue}, in confirm");
        return Err(Problem::invalid(detail).not_executed());
    }
    let purged = letters.purge(&queue, &ids, dry_run).await;
    if !dry_run {
        let number = purged.as_ref().map_or(0, |purged| purged.deleted.len());
        let outcome = format!("{number} of {} deleted", ids.len());
        audit(&identity, AuditAction::Purge, &format!("{queue}: {}", ids.join(" ")), &outcome);
    }
    let purged = purged?;
    Ok(Json(PurgeView {
        dry_run,
        deleted: purged.deleted,
        left: purged.left,
        failure: purged.failure.map(|error| error.to_string()),
    }))
}

fn check_ids(ids: &[String]) -> Result<(), Problem> {
    if ids.is_empty() || ids.len() > MAX_IDS {
        let detail = format!("ids must name 1 to {MAX_IDS} letters");
        return Err(Problem::invalid(detail).not_executed());
    }
    Ok(())
}
