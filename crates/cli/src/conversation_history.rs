//! The recorded history of a conversation.

use std::io;

use rockbot_agent::{AgentClient, ConversationRequestError};
use rockbot_contracts::{
    AgentName, ConversationRequest, ConversationResponse, SessionId, conversation::HistoryItem,
};
use serde_json::json;

use crate::{conversation_summary, failure::Failure, render};

/// Number of items in one page.
const PAGE: u32 = 200;

/// Calls `read` for each item of a conversation, which is requested page by page.
///
/// # Errors
/// When the agent refuses the request or does not respond, and the errors of `read`.
pub(crate) async fn for_each_item(
    client: &AgentClient,
    agent: &AgentName,
    session: &SessionId,
    mut read: impl FnMut(&HistoryItem) -> io::Result<()>,
) -> Result<(), Failure> {
    let mut from = 0;
    loop {
        let session_id = session.clone();
        let request = ConversationRequest::History { session_id, from, limit: PAGE };
        let response = client.request(agent, &request).await?;
        let ConversationResponse::History { items, next } = response else {
            return Err(ConversationRequestError::UnexpectedResponse.into());
        };
        items.iter().try_for_each(&mut read)?;
        match next {
            // A `next` that does not advance would cause an endless loop.
            Some(next) if next > from => from = next,
            _ => return Ok(()),
        }
    }
}

/// Calls `read` for each JSON line of a conversation: its summary, then each of its items.
///
/// # Errors
/// Like [`for_each_item`].
pub(crate) async fn for_each_line(
    client: &AgentClient,
    agent: &AgentName,
    session: &SessionId,
    mut read: impl FnMut(&str) -> io::Result<()>,
) -> Result<(), Failure> {
    let summary = conversation_summary::request(client, agent, Some(session.clone())).await?;
    read(&render::json_line(&json!({"kind": "conversation", "conversation": summary})))?;
    for_each_item(client, agent, session, |item| read(&render::json_line(&json!(item)))).await
}
