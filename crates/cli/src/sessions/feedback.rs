//! Feedback on an answer.

use rockbot_contracts::{
    MessageId, SessionId, UserFeedback,
    conversation::{FeedbackRating, HistoryBody, HistoryItem},
};
use rockbot_service::exit;
use serde_json::json;

use super::access::ConversationAccess;
use crate::{
    failure::{Failure, Outcome},
    print::outln,
    render,
};

/// Records a rating of the answer to `message`, or of the last answer.
pub(super) async fn record(
    conversations: &ConversationAccess,
    session: SessionId,
    message: Option<MessageId>,
    rating: FeedbackRating,
    comment: String,
    json: bool,
) -> Outcome {
    let message_id = match message {
        Some(message) => message,
        None => last_answered(conversations, &session).await?,
    };
    let feedback = UserFeedback { session_id: session, message_id, rating, comment };
    conversations.send_feedback(&feedback).await?;
    if json {
        let recorded = json!({"recorded": true, "messageId": feedback.message_id});
        outln!("{}", render::json(&recorded))?;
    } else {
        outln!("feedback recorded")?;
    }
    Ok(exit::OK)
}

/// Returns the last message that has an answer.
async fn last_answered(
    conversations: &ConversationAccess,
    session: &SessionId,
) -> Result<MessageId, Failure> {
    let (mut asked, mut answered) = (None, None);
    let read = |item: &HistoryItem| {
        match &item.body {
            HistoryBody::Message { message_id, .. } => asked.clone_from(message_id),
            HistoryBody::Answer { .. } => answered = asked.take(),
            _ => {}
        }
        Ok(())
    };
    conversations.for_each_item(session, read).await?;
    answered.ok_or_else(|| Failure {
        code: exit::ANSWERED_WITH_ERROR,
        cause: anyhow::anyhow!(
            "conversation {session} has no answer to rate; send a message first"
        ),
    })
}
