//! Responses to requests about conversations.

use std::{collections::HashMap, sync::Arc, time::Duration};

use rockbot_contracts::{
    AgentName, ConversationRequest, ConversationResponse, MessageId, SessionId, TaskId,
    UserFeedback,
    conversation::{
        ConversationErrorCode, ConversationState, ConversationSummary, MAX_COMMENT_BYTES,
        MAX_PAGE_ITEMS,
    },
};
use tokio::time::timeout;
use tracing::warn;

use crate::{
    agent::Agent,
    conversation::{ConversationError, Conversations, SubConversation},
    delegation::Delegation,
    session_data::SessionData,
};

/// Page size of the search for the user's most recently active conversation.
const SCAN_PAGE: usize = 100;
/// Time limit for reading the spending of open tasks.
const SPENDING_TIMEOUT: Duration = Duration::from_secs(5);

/// Responds to requests about the conversations of one agent.
pub(super) struct Responder {
    pub(super) agent: AgentName,
    pub(super) conversations: Conversations,
    /// The agent if it runs in this process. It deletes a conversation together with the data that it keeps
    /// for it.
    pub(super) running: Option<Agent>,
    /// Data that is deleted with conversations, if the agent does not run in this process.
    pub(super) data: SessionData,
}

type ResponseResult = Result<ConversationResponse, ConversationError>;

impl Responder {
    /// Responds to a request of the broker user `user`.
    pub(super) async fn respond(
        &self,
        user: Option<&str>,
        request: ConversationRequest,
    ) -> ResponseResult {
        match request {
            ConversationRequest::List { after, limit } => self.list(user, after, limit).await,
            ConversationRequest::Summary { session_id: None } => self.last_active(user).await,
            ConversationRequest::Summary { session_id: Some(session) } => {
                match self.find(user, &session).await? {
                    Ok(conversation) => Ok(ConversationResponse::Summary { conversation }),
                    Err(refusal) => Ok(refusal),
                }
            }
            ConversationRequest::History { session_id, from, limit } => {
                self.history(user, &session_id, from, limit).await
            }
            ConversationRequest::Message { session_id, message_id } => {
                self.message(user, &session_id, &message_id).await
            }
            ConversationRequest::Delete { session_id } => self.delete(user, &session_id).await,
            ConversationRequest::Agent {} => Ok(self.overview().await),
            ConversationRequest::Tasks {} => self.tasks(user).await,
            ConversationRequest::Task { task_id } => self.task(user, &task_id).await,
            ConversationRequest::CancelTask { task_id } => self.cancel_task(user, &task_id).await,
        }
    }

    async fn overview(&self) -> ConversationResponse {
        match &self.running {
            Some(agent) => ConversationResponse::Agent { agent: agent.overview().await },
            None => failed_response(ConversationErrorCode::Unavailable, self.not_running()),
        }
    }

    /// Records the feedback of the broker user `user`.
    pub(super) async fn record_feedback(
        &self,
        user: Option<&str>,
        feedback: UserFeedback,
    ) -> ResponseResult {
        if feedback.comment.len() > MAX_COMMENT_BYTES {
            let text = format!("the comment exceeds {MAX_COMMENT_BYTES} bytes; shorten it");
            return Ok(failed_response(ConversationErrorCode::InvalidRequest, text));
        }
        if let Some(refusal) = self.refusal(user, &feedback.session_id).await? {
            return Ok(refusal);
        }
        self.conversations.record_feedback(&feedback).await?;
        Ok(ConversationResponse::FeedbackRecorded {})
    }

    async fn list(
        &self,
        user: Option<&str>,
        after: Option<SessionId>,
        limit: u32,
    ) -> ResponseResult {
        let limit = limit.clamp(1, MAX_PAGE_ITEMS) as usize;
        let mut conversations = self.conversations.list(after.as_ref(), limit).await?;
        let next = conversations.last().map(|last| last.session_id.clone());
        let next = next.filter(|_| conversations.len() >= limit);
        self.keep_own(user, &mut conversations).await?;
        Ok(ConversationResponse::Conversations { conversations, next })
    }

    async fn last_active(&self, user: Option<&str>) -> ResponseResult {
        let none = || {
            let text = format!("agent {} has no conversation to continue; start one", self.agent);
            failed_response(ConversationErrorCode::NotFound, text)
        };
        let Some(session) = self.conversations.last_active().await? else { return Ok(none()) };
        if let Ok(conversation) = self.find(user, &session).await? {
            return Ok(ConversationResponse::Summary { conversation });
        }
        // It belongs to another user, or was just deleted.
        let (mut latest, mut after) = (None::<ConversationSummary>, None);
        loop {
            let mut page = self.conversations.list(after.as_ref(), SCAN_PAGE).await?;
            let Some(last) = page.last() else { break };
            after = Some(last.session_id.clone());
            self.keep_own(user, &mut page).await?;
            latest = latest.into_iter().chain(page).max_by_key(|one| one.last_active_ms);
        }
        let found = latest.map(|conversation| ConversationResponse::Summary { conversation });
        Ok(found.unwrap_or_else(none))
    }

    async fn history(
        &self,
        user: Option<&str>,
        session: &SessionId,
        from: u64,
        limit: u32,
    ) -> ResponseResult {
        if let Some(refusal) = self.refusal(user, session).await? {
            return Ok(refusal);
        }
        let limit = limit.clamp(1, MAX_PAGE_ITEMS) as usize;
        let items = self.conversations.history(session, from, limit).await?;
        // A short page may not be the last; an empty one is.
        let next = items.last().map(|last| last.number + 1);
        Ok(ConversationResponse::History { items, next })
    }

    async fn message(
        &self,
        user: Option<&str>,
        session: &SessionId,
        message: &MessageId,
    ) -> ResponseResult {
        if let Some(refusal) = self.refusal(user, session).await? {
            return Ok(refusal);
        }
        // A cancel is recorded without text; it cannot be resumed, so it counts as not found.
        let found = self.conversations.message(session, message).await?;
        Ok(match found.filter(|found| !found.text.is_empty()) {
            Some(found) => {
                ConversationResponse::Message { text: found.text, is_answered: found.is_answered }
            }
            None => failed_response(
                ConversationErrorCode::NotFound,
                format!("conversation {session} has no message {message}; send it as a new one"),
            ),
        })
    }

    async fn delete(&self, user: Option<&str>, session: &SessionId) -> ResponseResult {
        let conversation = match self.find(user, session).await? {
            Ok(conversation) => conversation,
            Err(refusal) => return Ok(refusal),
        };
        match &self.running {
            Some(_) if conversation.state == ConversationState::Open => {
                let text = format!(
                    "conversation {session} has a running turn; cancel the turn or wait for its end, \
                     then delete the conversation"
                );
                return Ok(failed_response(ConversationErrorCode::Busy, text));
            }
            Some(agent) => {
                agent.delete_conversation(session).await?;
            }
            None => {
                let started = self.conversations.sub_conversations(session, u64::MAX).await?;
                // Nested sub-conversations first: only their parents refer to them, so an interrupted
                // deletion can be repeated.
                for conversation in started.iter().rev() {
                    let SubConversation { agent, session, .. } = conversation;
                    self.data.delete(agent, session).await?;
                    self.conversations.delete_sub_conversation(conversation).await?;
                }
                self.conversations.delete(session).await?;
                self.data.delete(&self.agent, session).await?;
            }
        }
        Ok(ConversationResponse::Deleted {})
    }

    /// Lists the newest delegated tasks of the user's conversations.
    async fn tasks(&self, user: Option<&str>) -> ResponseResult {
        let Some(delegation) = self.delegation() else { return Ok(self.no_delegation()) };
        let mut visible = HashMap::new();
        let mut tasks = Vec::new();
        for task in delegation.list().await? {
            let session = &task.session_id;
            if !visible.contains_key(session) {
                let starter = self.conversations.started_by(session).await?;
                visible.insert(session.clone(), may_see(user, starter.as_deref()));
            }
            if visible.get(session) == Some(&true) {
                tasks.push(task);
            }
        }
        keep_newest(&mut tasks, MAX_PAGE_ITEMS as usize);
        let spending = async {
            for task in &mut tasks {
                delegation.add_spending(task).await;
            }
        };
        // The rest has none: each reads a log.
        let _ = timeout(SPENDING_TIMEOUT, spending).await;
        Ok(ConversationResponse::Tasks { tasks })
    }

    async fn task(&self, user: Option<&str>, task: &TaskId) -> ResponseResult {
        let mut found = self.find_task(user, task).await?;
        if let (ConversationResponse::Task { task, .. }, Some(delegation)) =
            (&mut found, self.delegation())
        {
            delegation.add_spending(task).await;
        }
        Ok(found)
    }

    /// Returns delegated work without the spending of open work, or the refusal.
    async fn find_task(&self, user: Option<&str>, task: &TaskId) -> ResponseResult {
        let Some(delegation) = self.delegation() else { return Ok(self.no_delegation()) };
        let Some((task, result)) = delegation.show(task).await? else {
            let text = format!("no task {task} is recorded; it has expired, or its id is wrong");
            return Ok(failed_response(ConversationErrorCode::NotFound, text));
        };
        if let Some(refusal) = self.refusal(user, &task.session_id).await? {
            return Ok(refusal);
        }
        Ok(ConversationResponse::Task { task, result })
    }

    /// Cancels delegated work. Reads no log of its conversation, so that it works if the log cannot be read.
    async fn cancel_task(&self, user: Option<&str>, task: &TaskId) -> ResponseResult {
        let found = self.find_task(user, task).await?;
        if let (ConversationResponse::Task { .. }, Some(delegation)) = (&found, self.delegation()) {
            delegation.cancel_task(task).await?;
            return self.find_task(user, task).await;
        }
        Ok(found)
    }

    fn delegation(&self) -> Option<&Arc<Delegation>> {
        self.running.as_ref()?.delegation()
    }

    /// Returns the response when delegation is unavailable.
    fn no_delegation(&self) -> ConversationResponse {
        let text = if self.running.is_some() {
            format!("delegation is disabled for agent {}", self.agent)
        } else {
            self.not_running()
        };
        failed_response(ConversationErrorCode::InvalidRequest, text)
    }

    /// Returns the text of the error when the agent does not run in this process.
    fn not_running(&self) -> String {
        format!("agent {} is not running in this process; use --bus", self.agent)
    }

    /// Returns the summary of a conversation of `user`, or the refusal.
    async fn find(
        &self,
        user: Option<&str>,
        session: &SessionId,
    ) -> Result<Result<ConversationSummary, ConversationResponse>, ConversationError> {
        if let Some(refusal) = self.refusal(user, session).await? {
            return Ok(Err(refusal));
        }
        Ok(self.conversations.summary(session).await?.ok_or_else(|| not_found(session)))
    }

    /// Removes the conversations that other users started.
    async fn keep_own(
        &self,
        user: Option<&str>,
        conversations: &mut Vec<ConversationSummary>,
    ) -> Result<(), ConversationError> {
        let mut own = Vec::with_capacity(conversations.len());
        for conversation in conversations.drain(..) {
            let starter = self.conversations.started_by(&conversation.session_id).await?;
            if may_see(user, starter.as_deref()) {
                own.push(conversation);
            }
        }
        *conversations = own;
        Ok(())
    }

    /// Returns the refusal if another user started the conversation.
    async fn refusal(
        &self,
        user: Option<&str>,
        session: &SessionId,
    ) -> Result<Option<ConversationResponse>, ConversationError> {
        let starter = self.conversations.started_by(session).await?;
        if may_see(user, starter.as_deref()) {
            return Ok(None);
        }
        warn!(user, session_id = %session, "request about another user's conversation refused");
        let text = format!("conversation {session} belongs to another user");
        Ok(Some(failed_response(ConversationErrorCode::NotPermitted, text)))
    }
}

/// Returns `true` if `user` may see a conversation that `starter` started. Also returns `true` if either
/// user is unknown, since users cannot be distinguished then.
fn may_see(user: Option<&str>, starter: Option<&str>) -> bool {
    user.zip(starter).is_none_or(|(user, starter)| user == starter)
}

fn not_found(session: &SessionId) -> ConversationResponse {
    let error = ConversationError::NotFound { session: session.clone() };
    failed_response(ConversationErrorCode::NotFound, error.to_string())
}

/// Returns a response with an error code and a message.
pub(super) fn failed_response(
    code: ConversationErrorCode,
    message: impl Into<String>,
) -> ConversationResponse {
    ConversationResponse::Failed { code, message: message.into() }
}

/// Returns the response for an error. The text of a store's error stays in the log.
pub(super) fn error_response(error: &ConversationError) -> ConversationResponse {
    let code = match error {
        ConversationError::NotFound { .. } | ConversationError::MessageNotFound { .. } => {
            ConversationErrorCode::NotFound
        }
        ConversationError::Unreadable { .. } => ConversationErrorCode::Unreadable,
        ConversationError::Unwritable { .. } | ConversationError::InvalidSession => {
            ConversationErrorCode::InvalidRequest
        }
        ConversationError::Fenced { .. } | ConversationError::FeedbackConflict { .. } => {
            ConversationErrorCode::Busy
        }
        ConversationError::Store(error) => {
            warn!(%error, "request about conversations failed");
            let text = "the store of the conversations is unavailable; try again";
            return failed_response(ConversationErrorCode::Unavailable, text);
        }
    };
    failed_response(code, error.to_string())
}

/// Removes the oldest entries of a list in the order of time until `limit` are left.
fn keep_newest<T>(oldest_first: &mut Vec<T>, limit: usize) {
    let surplus = oldest_first.len().saturating_sub(limit);
    oldest_first.drain(..surplus);
}

#[cfg(test)]
mod tests {
    use super::keep_newest;

    #[test]
    fn oldest_entries_are_left_out() {
        let mut entries = vec![1, 2, 3];
        keep_newest(&mut entries, 3);
        assert_eq!(entries, [1, 2, 3]);
        keep_newest(&mut entries, 2);
        assert_eq!(entries, [2, 3]);
    }
}
