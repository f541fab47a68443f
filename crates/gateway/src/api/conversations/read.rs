//! A conversation with its history and recent events.

use std::sync::Arc;

use axum::{
    Extension, Json,
    extract::{Path, State},
};
use serde::Serialize;
use utoipa::ToSchema;

use super::{
    event::ConversationEvent,
    history,
    hub::Missing,
    records::Record,
    snapshot::{self, Snapshot},
    turns::Conversation,
};
use crate::{
    api::{
        Api,
        body::QueryMap,
        problem::{Problem, ProblemBody},
    },
    identity::Identity,
};

/// Largest size of a page of events, in bytes.
const MAX_PAGE_BYTES: usize = 4 * 1024 * 1024;

/// Events of a conversation after a position.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EventPage {
    /// Set if events are missing: `gap`, or `epoch` for a position of another process. Read the conversation
    /// then.
    #[serde(skip_serializing_if = "Option::is_none")]
    reset: Option<&'static str>,
    /// The events, in order.
    events: Vec<ConversationEvent>,
    /// Position after them.
    last_event_id: String,
}

/// Returns a conversation with its history and the events of its running turns.
#[utoipa::path(get, path = "/api/v1/conversations/{id}", tag = "conversations",
    params(("id" = String, Path, description = "The conversation"),
        ("from" = Option<u64>, Query, description = "Number of the first recorded item")),
    responses((status = 200, body = Snapshot), (status = "default", body = ProblemBody)))]
pub(crate) async fn read(
    State(api): State<Arc<Api>>,
    Extension(identity): Extension<Identity>,
    Path(id): Path<String>,
    query: QueryMap,
) -> Result<Json<Snapshot>, Problem> {
    let found = api.conversation(&identity, &id).await?;
    Ok(Json(snapshot_of(&api, found, &query, false).await?))
}

/// Returns a conversation that another person shares.
#[utoipa::path(get, path = "/api/v1/shared/{shareId}", tag = "conversations",
    params(("shareId" = String, Path, description = "The share"),
        ("from" = Option<u64>, Query, description = "Number of the first recorded item")),
    responses((status = 200, body = Snapshot), (status = "default", body = ProblemBody)))]
pub(crate) async fn read_shared(
    State(api): State<Arc<Api>>,
    Path(share): Path<String>,
    query: QueryMap,
) -> Result<Json<Snapshot>, Problem> {
    let found = api.shared(&share).await?;
    Ok(Json(snapshot_of(&api, found, &query, true).await?))
}

async fn snapshot_of(
    api: &Api,
    (conversation, record): (Conversation, Record),
    query: &QueryMap,
    read_only: bool,
) -> Result<Snapshot, Problem> {
    let from = query.get("from").unwrap_or("0").parse::<u64>();
    let from = from.map_err(|_| Problem::invalid("from must be a number"))?;
    let has_messages = record.turns > 0 || !record.title.is_empty();
    if from == 0 && has_messages && !api.turns.is_running(&conversation.session) {
        // A message that an earlier process of the gateway sent.
        let open = history::open_message(&api.parts.client, &conversation).await?;
        if let Some(message) = open {
            api.turns.adopt(&conversation, &message).await;
        }
    }
    let snapshot = snapshot::read(&api.turns, &api.hub, &conversation, record, from).await?;
    Ok(if read_only { snapshot.into_read_only() } else { snapshot })
}

/// Returns the events of a conversation after a position.
#[utoipa::path(get, path = "/api/v1/conversations/{id}/events", tag = "conversations",
    params(("id" = String, Path, description = "The conversation"),
        ("after" = String, Query, description = "Id of the last event that was seen")),
    responses((status = 200, body = EventPage), (status = "default", body = ProblemBody)))]
pub(crate) async fn events(
    State(api): State<Arc<Api>>,
    Extension(identity): Extension<Identity>,
    Path(id): Path<String>,
    query: QueryMap,
) -> Result<Json<EventPage>, Problem> {
    let (conversation, _) = api.conversation(&identity, &id).await?;
    let after = query.get("after").unwrap_or_default();
    let now = api.hub.now();
    let found = api
        .hub
        .parse(after)
        .and_then(|position| api.hub.after(&conversation.session, position, MAX_PAGE_BYTES));
    let page = match found {
        Ok(found) => {
            let last = found.events.last().map_or(now, |(position, _)| *position);
            let events = found.events.into_iter().map(|(_, event)| (*event).clone()).collect();
            EventPage { reset: None, events, last_event_id: api.hub.id_at(last) }
        }
        Err(missing) => EventPage {
            reset: Some(missing.as_str()),
            events: Vec::new(),
            last_event_id: api.hub.id_at(now),
        },
    };
    Ok(Json(page))
}

impl Missing {
    /// Returns the name in responses.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Gap { .. } => "gap",
            Self::Epoch => "epoch",
        }
    }
}
