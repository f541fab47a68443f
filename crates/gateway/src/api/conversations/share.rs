//! Read-only shares of conversations.

use std::sync::Arc;

use axum::{
    Extension, Json,
    extract::{Path, State},
    http::StatusCode,
};
use serde::Serialize;
use utoipa::ToSchema;

use super::records::{Record, Share};
use crate::{
    api::{
        Api,
        problem::{Problem, ProblemBody},
    },
    clock::now_ms,
    hex::hex,
    identity::Identity,
};

/// A read-only share, for signed-in people.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ShareView {
    /// Its id.
    share_id: String,
    /// Time of its creation in Unix milliseconds.
    created_ms: u64,
}

/// Shares a conversation, or returns its present share.
#[utoipa::path(post, path = "/api/v1/conversations/{id}/share", tag = "conversations",
    params(("id" = String, Path, description = "The conversation")),
    responses((status = 200, body = ShareView), (status = "default", body = ProblemBody)))]
pub(crate) async fn share(
    State(api): State<Arc<Api>>,
    Extension(identity): Extension<Identity>,
    Path(id): Path<String>,
) -> Result<Json<ShareView>, Problem> {
    let (conversation, _) = api.conversation(&identity, &id).await?;
    let (owner, session) = (&conversation.owner, &conversation.session);
    let new = Share { id: random_id()?, created_ms: now_ms() };
    let share = |record: &mut Record| {
        record.share.get_or_insert_with(|| new.clone());
    };
    let shared = api.records.update(owner, session, share).await?;
    let share = shared.and_then(|record| record.share).ok_or_else(crate::api::no_conversation)?;
    api.records.insert_share(&share.id, owner, session).await?;
    Ok(Json(ShareView { share_id: share.id, created_ms: share.created_ms }))
}

/// Ends the share of a conversation.
#[utoipa::path(delete, path = "/api/v1/conversations/{id}/share", tag = "conversations",
    params(("id" = String, Path, description = "The conversation")),
    responses((status = 204), (status = "default", body = ProblemBody)))]
pub(crate) async fn unshare(
    State(api): State<Arc<Api>>,
    Extension(identity): Extension<Identity>,
    Path(id): Path<String>,
) -> Result<StatusCode, Problem> {
    let (conversation, record) = api.conversation(&identity, &id).await?;
    let (owner, session) = (&conversation.owner, &conversation.session);
    api.records.update(owner, session, |record| record.share = None).await?;
    if let Some(share) = &record.share {
        end_share(&api, share).await?;
    }
    Ok(StatusCode::NO_CONTENT)
}

/// Removes a share, and ends its streams.
pub(super) async fn end_share(api: &Api, share: &Share) -> Result<(), Problem> {
    api.records.remove_share(&share.id).await?;
    api.hub.end_share(&share.id);
    Ok(())
}

/// Returns an id of 128 random bits.
fn random_id() -> Result<String, Problem> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)
        .map_err(|error| Problem::unavailable(format!("no random numbers: {error}")))?;
    Ok(hex(&bytes))
}
