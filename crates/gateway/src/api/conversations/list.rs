//! The list of a person's conversations.

use std::sync::Arc;

use axum::{
    Extension, Json,
    extract::{Path, State},
    http::StatusCode,
};
use rockbot_contracts::{ConversationRequest, ConversationResponse, SessionId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    entry::{ConversationView, MAX_TITLE_CHARS, valid_title},
    event::EventBody,
    history,
    records::{MAX_CONVERSATIONS, Owner, Record},
    share::end_share,
};
use crate::{
    api::{
        Api,
        body::{JsonBody, QueryMap},
        problem::{Problem, ProblemBody},
    },
    clock::now_ms,
    identity::Identity,
};

/// The conversations of the person, the last active first.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ConversationList {
    conversations: Vec<ConversationView>,
}

/// A conversation to create.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct NewConversation {
    /// The agent.
    agent: String,
    /// The title; by default the beginning of the first message.
    title: Option<String>,
}

/// A new title.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct NewTitle {
    /// The title, 1 to 200 characters.
    title: String,
}

/// Lists the conversations of the person.
#[utoipa::path(get, path = "/api/v1/conversations", tag = "conversations",
    params(("query" = Option<String>, Query, description = "Words that the title contains")),
    responses((status = 200, body = ConversationList), (status = "default", body = ProblemBody)))]
pub(crate) async fn list(
    State(api): State<Arc<Api>>,
    Extension(identity): Extension<Identity>,
    query: QueryMap,
) -> Result<Json<ConversationList>, Problem> {
    let words = query.get("query").unwrap_or_default().to_lowercase();
    let words: Vec<_> = words.split_whitespace().collect();
    let matches = |record: &Record| {
        let title = record.title.to_lowercase();
        words.iter().all(|word| title.contains(word))
    };
    let owner = Owner::new(&identity.subject);
    let mut found = api.records.list(&owner).await?;
    found.retain(|(_, record)| {
        api.parts.agent_for(&identity, record.agent.as_str()).is_some() && matches(record)
    });
    found.sort_by_key(|(_, record)| std::cmp::Reverse(record.last_active_ms));
    found.truncate(MAX_CONVERSATIONS);
    let view = |(session, record)| ConversationView::new(&session, record, &api.turns);
    Ok(Json(ConversationList { conversations: found.into_iter().map(view).collect() }))
}

/// Creates a conversation. The agent learns of it with its first message.
#[utoipa::path(post, path = "/api/v1/conversations", tag = "conversations", request_body = NewConversation,
    responses((status = 201, body = ConversationView), (status = "default", body = ProblemBody)))]
pub(crate) async fn create(
    State(api): State<Arc<Api>>,
    Extension(identity): Extension<Identity>,
    JsonBody(new): JsonBody<NewConversation>,
) -> Result<(StatusCode, Json<ConversationView>), Problem> {
    let agent = api.parts.agent_for(&identity, &new.agent).ok_or_else(|| {
        Problem::not_found("no such agent; list them with GET /api/v1/agents").not_executed()
    })?;
    let title = new.title.as_deref().map(checked_title).transpose()?.unwrap_or_default();
    let owner = Owner::new(&identity.subject);
    if api.records.list(&owner).await?.len() >= MAX_CONVERSATIONS {
        let detail = format!("{MAX_CONVERSATIONS} conversations exist; delete some of them");
        return Err(Problem::conflict("conflict", detail).not_executed());
    }
    let session = SessionId::generate();
    let record = Record {
        agent: agent.clone(),
        title: title.to_owned(),
        created_ms: now_ms(),
        last_active_ms: now_ms(),
        turns: 0,
        usage: None,
        share: None,
    };
    api.records.insert(&owner, &session, &record).await?;
    let view = ConversationView::new(&session, record, &api.turns);
    Ok((StatusCode::CREATED, Json(view)))
}

/// Gives a conversation another title.
#[utoipa::path(patch, path = "/api/v1/conversations/{id}", tag = "conversations", request_body = NewTitle,
    params(("id" = String, Path, description = "The conversation")),
    responses((status = 200, body = ConversationView), (status = "default", body = ProblemBody)))]
pub(crate) async fn rename(
    State(api): State<Arc<Api>>,
    Extension(identity): Extension<Identity>,
    Path(id): Path<String>,
    JsonBody(new): JsonBody<NewTitle>,
) -> Result<Json<ConversationView>, Problem> {
    let title = checked_title(&new.title)?;
    let (conversation, _) = api.conversation(&identity, &id).await?;
    let (owner, session) = (&conversation.owner, &conversation.session);
    let rename = |record: &mut Record| title.clone_into(&mut record.title);
    let renamed = api.records.update(owner, session, rename).await?;
    let record = renamed.ok_or_else(crate::api::no_conversation)?;
    api.hub.publish(session, None, EventBody::Renamed { title: title.to_owned() });
    Ok(Json(ConversationView::new(session, record, &api.turns)))
}

/// Deletes a conversation, also at its agent.
#[utoipa::path(delete, path = "/api/v1/conversations/{id}", tag = "conversations",
    params(("id" = String, Path, description = "The conversation")),
    responses((status = 204), (status = "default", body = ProblemBody)))]
pub(crate) async fn remove(
    State(api): State<Arc<Api>>,
    Extension(identity): Extension<Identity>,
    Path(id): Path<String>,
) -> Result<StatusCode, Problem> {
    let (conversation, record) = api.conversation(&identity, &id).await?;
    let (owner, session) = (&conversation.owner, &conversation.session);
    if api.turns.is_running(session) {
        let detail = "the conversation has a running turn; cancel the turn or wait for its end, then \
                      delete the conversation";
        return Err(Problem::conflict("busy", detail).not_executed());
    }
    let request = ConversationRequest::Delete { session_id: session.clone() };
    match history::send(&api.parts.client, &conversation, &request).await {
        Ok(ConversationResponse::Deleted {}) => {}
        Ok(_) => return Err(Problem::agent_silent().maybe_executed()),
        // The agent has never had it, or has it no more.
        Err(problem) if problem.is_not_found() => {}
        Err(problem) => return Err(problem),
    }
    if let Some(share) = &record.share {
        end_share(&api, share).await?;
    }
    api.records.remove(owner, session).await?;
    api.hub.publish(session, None, EventBody::Deleted {});
    Ok(StatusCode::NO_CONTENT)
}

fn checked_title(title: &str) -> Result<&str, Problem> {
    valid_title(title).ok_or_else(|| {
        let detail = format!(
            "the title must have 1 to {MAX_TITLE_CHARS} characters and no control characters"
        );
        Problem::invalid(detail).not_executed()
    })
}
