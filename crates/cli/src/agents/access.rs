//! Access to agents: one embedded in this process, or those of a running fleet.

use std::sync::Arc;

use rockbot_agent::{AgentClient, ConversationRequestError};
use rockbot_contracts::{
    AgentName, ConversationRequest, ConversationResponse, RoutingKey, conversation::AgentOverview,
};
use rockbot_llm::ScriptedModel;
use rockbot_tool_rpc::catalog::CatalogSnapshot;
use secrecy::SecretString;

use crate::{
    failure::Failure,
    fleet::{Fleet, SERVERS_TIMEOUT, agent_client},
    host::Host,
    settings::Settings,
    stored_conversations::ConversationStores,
    tools::CALLER,
    work_queues,
};

/// The agents that a command asks.
pub(super) struct AgentAccess {
    client: AgentClient,
    fleet: Fleet,
    settings: Settings,
    embedded: Option<(Host, ConversationStores)>,
}

impl AgentAccess {
    /// Embeds the configured agent, or connects to a running fleet.
    pub(super) async fn open(mut settings: Settings) -> Result<Self, Failure> {
        let (fleet, embedded) = if settings.embeds() {
            // No message is sent, so nothing is stored, and the model is not called.
            settings.agent.conversations.store = Some(SecretString::from("memory:"));
            let definition = settings.agent.definition().map_err(Failure::usage)?;
            let stores = ConversationStores::open(&settings).await?;
            let fleet = Fleet::embed(&settings, Some(&stores)).await?;
            fleet.await_mcp_servers(SERVERS_TIMEOUT).await;
            let model = Arc::new(ScriptedModel::new([]));
            let host = Host::start(&fleet, &settings, &stores, definition, model).await?;
            (fleet, Some((host, stores)))
        } else {
            (Fleet::open(&settings).await?, None)
        };
        let client = agent_client(fleet.bus.clone()).await?;
        Ok(Self { client, fleet, settings, embedded })
    }

    pub(super) fn fleet(&self) -> &Fleet {
        &self.fleet
    }

    /// Returns the number of processes that consume a queue; `None` if this user may not inspect it.
    pub(super) async fn consumers(&self, key: &RoutingKey) -> Result<Option<u32>, Failure> {
        self.fleet.consumers(key).await
    }

    /// Returns the handlers of the fleet and the owners of their tools.
    pub(super) async fn catalog(&self) -> Result<Arc<CatalogSnapshot>, Failure> {
        if let Some((host, _)) = &self.embedded {
            return Ok(host.handlers().snapshot());
        }
        let pools = work_queues::pools(&self.settings, Vec::new());
        let discovered = self.fleet.discover_all(CALLER, &pools).await?;
        Ok(discovered.directory.view().snapshot())
    }

    /// Asks a running agent to describe itself.
    pub(super) async fn overview(&self, agent: &AgentName) -> Result<AgentOverview, Failure> {
        match self.client.request(agent, &ConversationRequest::Agent {}).await? {
            ConversationResponse::Agent { agent } => Ok(self.with_model(agent)),
            _ => Err(ConversationRequestError::UnexpectedResponse.into()),
        }
    }

    /// Sets the name of the model of an embedded agent, for which a script stands in here.
    fn with_model(&self, agent: AgentOverview) -> AgentOverview {
        if self.embedded.is_none() {
            return agent;
        }
        let defined = self.settings.agent.definition().ok().and_then(|one| one.model);
        let configured = || {
            let environment = |name: &str| std::env::var(name).ok();
            let resolved = rockbot_llm::resolve(&self.settings.llm, &environment);
            resolved.map(|resolved| resolved.model.name().to_owned()).ok()
        };
        let model = defined.or_else(configured).unwrap_or_default();
        AgentOverview { model, ..agent }
    }

    /// Stops the embedded agent and disconnects.
    pub(super) async fn close(self) {
        drop(self.client);
        if let Some((host, stores)) = self.embedded {
            host.stop(self.settings.service.drain()).await;
            self.fleet.close().await;
            stores.close().await;
        } else {
            self.fleet.close().await;
        }
    }
}
