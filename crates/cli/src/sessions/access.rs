//! Access to the conversations and the schedule of an agent, in the store of the embedded agent or over the
//! bus of a fleet.

use std::io;

use rockbot_agent::{AgentClient, ConversationRequestError};
use rockbot_contracts::{
    AgentName, ConversationRequest, ConversationResponse, ScheduleRequest, ScheduleResponse,
    SessionId, UserFeedback,
    conversation::{ConversationSummary, HistoryItem},
};
use rockbot_service::exit;

use crate::{
    conversation_history, conversation_summary,
    failure::{Failure, OrExit},
    fleet::{Fleet, agent_client},
    settings::Settings,
    stored_conversations::{Purpose, StoredConversations},
};

/// Number of conversations in one page.
const PAGE: u32 = 100;

/// Client for the conversations and the schedule of one agent.
pub(crate) struct ConversationAccess {
    client: AgentClient,
    agent: AgentName,
    backend: Backend,
}

enum Backend {
    /// The store of the embedded agent, which is not running.
    Store(StoredConversations),
    /// A running fleet.
    Fleet(Fleet),
}

impl ConversationAccess {
    /// Opens the store of the embedded agent, or connects to a running fleet.
    pub(crate) async fn open(settings: &Settings, purpose: Purpose) -> Result<Self, Failure> {
        let agent = AgentName::new(settings.agent.name.as_str()).or_exit(exit::USAGE)?;
        let (bus, backend) = if settings.embeds() {
            let stored = StoredConversations::serve(settings, &agent, purpose).await?;
            (stored.bus(), Backend::Store(stored))
        } else {
            let fleet = Fleet::open(settings).await?;
            fleet.expect_agent(&agent).await?;
            (fleet.bus.clone(), Backend::Fleet(fleet))
        };
        let client = agent_client(bus).await?;
        Ok(Self { client, agent, backend })
    }

    pub(crate) fn agent(&self) -> &AgentName {
        &self.agent
    }

    pub(crate) async fn request(
        &self,
        request: &ConversationRequest,
    ) -> Result<ConversationResponse, ConversationRequestError> {
        self.client.request(&self.agent, request).await
    }

    /// Records a rating of an answer.
    pub(crate) async fn send_feedback(
        &self,
        feedback: &UserFeedback,
    ) -> Result<(), ConversationRequestError> {
        self.client.send_feedback(&self.agent, feedback).await
    }

    pub(crate) async fn request_schedule(
        &self,
        request: &ScheduleRequest,
    ) -> Result<ScheduleResponse, ConversationRequestError> {
        self.client.request_schedule(&self.agent, request).await
    }

    /// Returns the summary of a conversation.
    pub(crate) async fn summary(
        &self,
        session: &SessionId,
    ) -> Result<ConversationSummary, Failure> {
        conversation_summary::request(&self.client, &self.agent, Some(session.clone())).await
    }

    /// Calls `read` for each item of a conversation.
    pub(crate) async fn for_each_item(
        &self,
        session: &SessionId,
        read: impl FnMut(&HistoryItem) -> io::Result<()>,
    ) -> Result<(), Failure> {
        conversation_history::for_each_item(&self.client, &self.agent, session, read).await
    }

    /// Calls `read` for each JSON line of a conversation.
    pub(crate) async fn for_each_line(
        &self,
        session: &SessionId,
        read: impl FnMut(&str) -> io::Result<()>,
    ) -> Result<(), Failure> {
        conversation_history::for_each_line(&self.client, &self.agent, session, read).await
    }

    /// Returns the conversations after `after`, and the `after` of the next page, if there is one.
    pub(crate) async fn page(
        &self,
        after: Option<SessionId>,
    ) -> Result<(Vec<ConversationSummary>, Option<SessionId>), Failure> {
        match self.request(&ConversationRequest::List { after, limit: PAGE }).await? {
            ConversationResponse::Conversations { conversations, next } => {
                Ok((conversations, next))
            }
            _ => Err(ConversationRequestError::UnexpectedResponse.into()),
        }
    }

    pub(crate) async fn close(self) {
        drop(self.client);
        match self.backend {
            Backend::Store(stored) => stored.close().await,
            Backend::Fleet(fleet) => fleet.close().await,
        }
    }
}
