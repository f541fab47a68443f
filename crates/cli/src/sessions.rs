//! `rockbot sessions`: lists, shows, exports, rates, deletes and resumes stored conversations.

pub(crate) mod access;
mod feedback;
mod transcript;

use std::time::SystemTime;

use rockbot_agent::ConversationRequestError;
use rockbot_contracts::{
    ConversationRequest, ConversationResponse, SessionId,
    conversation::{ConversationErrorCode, ConversationSummary},
    envelope::unix_ms,
};
use rockbot_service::exit;
use serde_json::json;

use self::access::ConversationAccess;
use crate::{
    arguments::{Chat, Sessions},
    chat,
    confirm::{confirm, require_confirmation},
    conversation_summary::row,
    failure::{Failure, Outcome},
    print::{note, outln},
    render,
    settings::Settings,
    stored_conversations::Purpose,
};

/// Maximum number of conversations that are read for a list or a deletion of all.
const MAX_LISTED: usize = 20_000;

pub(crate) async fn run(mut settings: Settings, command: Sessions, json: bool) -> Outcome {
    if let Some(name) = command.agent() {
        settings.agent.name.clone_from(name);
    }
    let purpose = match command {
        Sessions::Delete { .. } => Purpose::Delete,
        _ => Purpose::Read,
    };
    match command {
        Sessions::Resume { session, .. } => {
            Box::pin(chat::run(settings, Chat::resuming(session.session), json)).await
        }
        Sessions::Delete { all, yes, .. } if all => {
            require_confirmation(yes, "")?;
            with_conversations(&settings, purpose, async |conversations| {
                delete_all(conversations, yes, json).await
            })
            .await
        }
        Sessions::Delete { sessions, yes, .. } => {
            require_confirmation(yes, "")?;
            with_conversations(&settings, purpose, async |conversations| {
                delete(conversations, &sessions, yes, json).await
            })
            .await
        }
        Sessions::List { limit, .. } => {
            with_conversations(&settings, purpose, async |conversations| {
                list(conversations, limit, json).await
            })
            .await
        }
        Sessions::Feedback { session, rating, comment, message, .. } => {
            let comment = comment.join(" ");
            with_conversations(&settings, purpose, async |conversations| {
                let (session, rating) = (session.session, rating.into());
                feedback::record(conversations, session, message, rating, comment, json).await
            })
            .await
        }
        Sessions::Show { session, .. } if !json => {
            with_conversations(&settings, purpose, async |conversations| {
                transcript::show(conversations, &session.session).await
            })
            .await
        }
        Sessions::Show { session, .. } | Sessions::Export { session, .. } => {
            with_conversations(&settings, purpose, async |conversations| {
                transcript::export(conversations, &session.session).await
            })
            .await
        }
    }
}

/// Runs a command on the conversations of the configured agent.
async fn with_conversations(
    settings: &Settings,
    purpose: Purpose,
    command: impl AsyncFnOnce(&ConversationAccess) -> Outcome,
) -> Outcome {
    let conversations = ConversationAccess::open(settings, purpose).await?;
    let outcome = command(&conversations).await;
    conversations.close().await;
    outcome
}

async fn list(conversations: &ConversationAccess, limit: u32, json: bool) -> Outcome {
    let mut all = read_all(conversations).await?;
    all.sort_by_key(|conversation| std::cmp::Reverse(conversation.last_active_ms));
    let hidden = all.len().saturating_sub(limit as usize);
    all.truncate(limit as usize);
    if json {
        outln!("{}", render::json(&json!(all)))?;
        return Ok(exit::OK);
    }
    if all.is_empty() {
        note!("agent {} has no conversations", conversations.agent());
        return Ok(exit::OK);
    }
    let now = unix_ms(SystemTime::now()) / 1000;
    let headings = ["session", "title", "last active", "turns", "cost", "state"];
    outln!("{}", render::table(&headings, all.iter().map(|conversation| row(conversation, now))))?;
    if hidden > 0 {
        note!("{} older; show more with --limit", render::count(hidden, "conversation"));
    }
    Ok(exit::OK)
}

/// Reads the summaries of all conversations.
async fn read_all(conversations: &ConversationAccess) -> Result<Vec<ConversationSummary>, Failure> {
    let mut all = Vec::new();
    let mut after = None;
    while all.len() < MAX_LISTED {
        let (page, next) = conversations.page(after).await?;
        all.extend(page);
        match next {
            Some(next) => after = Some(next),
            None => return Ok(all),
        }
    }
    note!("the agent has more than {MAX_LISTED} conversations; the others are not shown");
    Ok(all)
}

async fn delete_all(conversations: &ConversationAccess, yes: bool, json: bool) -> Outcome {
    let all = read_all(conversations).await?;
    let sessions: Vec<_> = all.into_iter().map(|conversation| conversation.session_id).collect();
    delete(conversations, &sessions, yes, json).await
}

async fn delete(
    conversations: &ConversationAccess,
    sessions: &[SessionId],
    yes: bool,
    json: bool,
) -> Outcome {
    let prompts = !yes && !sessions.is_empty();
    let counted = render::count(sessions.len(), "conversation");
    let agent = conversations.agent();
    if prompts && !confirm(format!("Delete {counted} of {agent} permanently? [y/N] ")).await? {
        note!("nothing was deleted");
        return Ok(exit::OK);
    }
    let (mut deleted, mut failed) = (Vec::new(), Vec::new());
    for session_id in sessions {
        let request = ConversationRequest::Delete { session_id: session_id.clone() };
        match conversations.request(&request).await {
            Ok(ConversationResponse::Deleted {}) => deleted.push(session_id.as_str()),
            Ok(_) => return Err(ConversationRequestError::UnexpectedResponse.into()),
            // The others can still be deleted.
            Err(ConversationRequestError::Refused {
                code: ConversationErrorCode::NotFound | ConversationErrorCode::Busy,
                message,
            }) => failed.push(message),
            Err(error) => return Err(error.into()),
        }
    }
    if json {
        let report = json!({"deleted": deleted, "errors": failed});
        outln!("{}", render::json(&report))?;
    } else {
        for message in &failed {
            note!("{}", render::clean(message));
        }
        outln!("{} of {agent} deleted", render::count(deleted.len(), "conversation"))?;
    }
    Ok(if failed.is_empty() { exit::OK } else { exit::ANSWERED_WITH_ERROR })
}
