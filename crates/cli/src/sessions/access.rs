//! Access to the conversations of an agent: in the store of the embedded agent, or over the bus of a fleet.

use std::sync::Arc;

use rockbot_agent::{AgentClient, ConversationRequestError};
use rockbot_bus::Bus;
use rockbot_contracts::{
    AgentName, ConversationRequest, ConversationResponse, InstanceId, SessionId,
    conversation::ConversationSummary,
};
use rockbot_service::exit;

use crate::{
    failure::{Failure, OrExit, request_failure},
    fleet::Fleet,
    settings::Settings,
    stored_conversations::StoredConversations,
};

/// Number of conversations in one page.
const PAGE: u32 = 100;

/// The conversations of one agent.
pub(crate) struct Conversations {
    client: AgentClient,
    agent: AgentName,
    place: Place,
}

enum Place {
    /// The store of the embedded agent, without the agent.
    Store(StoredConversations),
    /// A running fleet.
    Fleet(Fleet),
}

impl Conversations {
    /// Opens the store of the embedded agent, or connects to a running fleet.
    pub(crate) async fn open(settings: &Settings) -> Result<Self, Failure> {
        let agent = AgentName::new(settings.agent.name.as_str()).or_exit(exit::USAGE)?;
        let (bus, place) = if settings.embeds() {
            let stored = StoredConversations::serve(settings, &agent).await?;
            (stored.bus(), Place::Store(stored))
        } else {
            let fleet = Fleet::open(settings).await?;
            fleet.expect_agent(&agent).await?;
            (fleet.bus.clone(), Place::Fleet(fleet))
        };
        let client = connect(bus).await?;
        Ok(Self { client, agent, place })
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

    /// Returns the conversations after `after`, and where the next page starts, if there is one.
    pub(crate) async fn page(
        &self,
        after: Option<SessionId>,
    ) -> Result<(Vec<ConversationSummary>, Option<SessionId>), Failure> {
        match self.request(&ConversationRequest::List { after, limit: PAGE }).await {
            Ok(ConversationResponse::Conversations { conversations, next }) => {
                Ok((conversations, next))
            }
            Ok(_) => Err(request_failure(ConversationRequestError::UnexpectedResponse)),
            Err(error) => Err(request_failure(error)),
        }
    }

    pub(crate) async fn close(self) {
        drop(self.client);
        match self.place {
            Place::Store(stored) => stored.close().await,
            Place::Fleet(fleet) => fleet.close().await,
        }
    }
}

async fn connect(bus: Arc<dyn Bus>) -> Result<AgentClient, Failure> {
    AgentClient::connect(bus, &InstanceId::generate()).await.or_exit(exit::UNAVAILABLE)
}
