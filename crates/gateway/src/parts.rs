//! The ports that the faces use.

use std::{fmt, sync::Arc, time::Duration};

use rockbot_agent::AgentClient;
use rockbot_bus::{Bus, ConsumeError};
use rockbot_contracts::{AgentName, InstanceId};
use rockbot_store::Store;

use crate::{a2a_parts::A2aParts, identity::Identity, tool_calls::ToolCalls};

/// Time limit between two replies of an agent: longer than the longest tool call.
const SILENCE_LIMIT: Duration = Duration::from_secs(11 * 60);

/// Namespace of a fleet whose configuration names none.
const DEFAULT_NAMESPACE: &str = "rockbot";

/// The ports that the faces use. Clones share them.
#[derive(Clone)]
pub struct GatewayParts {
    /// Sends messages to agents.
    pub client: Arc<AgentClient>,
    /// The bus of `client`.
    pub bus: Arc<dyn Bus>,
    /// The agents that can be used, in the order of the configuration.
    pub agents: Arc<[AgentName]>,
    /// Receives copies of all calls; `None` if calls are not watched.
    pub watch: Option<Arc<dyn Bus>>,
    /// Watches calls from the start, not only while there are viewers. Default `false`.
    pub watches_from_start: bool,
    /// Reads and replays dead letters; `None` if it may not.
    pub letters: Option<Arc<dyn Bus>>,
    /// Broker user of `letters`, if the broker has users.
    pub letters_user: Option<Arc<str>>,
    /// Namespace of the fleet. Default `rockbot`.
    pub namespace: Arc<str>,
    /// Calls tools; `None` if it may not.
    pub calls: Option<Arc<dyn Bus>>,
    /// Calls of tools by hand; `None` if they are off.
    pub tool_calls: Option<Arc<ToolCalls>>,
    /// Key and options of the face `a2a`. Default: neither push notifications nor signed cards.
    pub a2a: A2aParts,
    /// Remembers messages and the owners of conversations. Replicas share it.
    pub store: Arc<dyn Store>,
    /// The process.
    pub instance: InstanceId,
}

impl GatewayParts {
    /// Starts a client of the agents on `bus`. Calls are neither watched nor made, and dead letters are not read.
    ///
    /// # Errors
    /// When the queue of the replies cannot be consumed.
    pub async fn connect(
        bus: Arc<dyn Bus>,
        agents: Vec<AgentName>,
        store: Arc<dyn Store>,
        instance: InstanceId,
    ) -> Result<Self, ConsumeError> {
        let client = AgentClient::connect(bus.clone(), &instance).await?;
        let client = Arc::new(client.with_idle_timeout(SILENCE_LIMIT));
        let agents = agents.into();
        Ok(Self {
            client,
            bus,
            agents,
            watch: None,
            watches_from_start: false,
            letters: None,
            letters_user: None,
            calls: None,
            tool_calls: None,
            namespace: DEFAULT_NAMESPACE.into(),
            a2a: A2aParts::default(),
            store,
            instance,
        })
    }

    /// Returns the agents that the identity may use.
    pub(crate) fn agents_for(&self, identity: &Identity) -> impl Iterator<Item = &AgentName> {
        self.agents.iter().filter(move |agent| identity.may_use_agent(agent))
    }

    /// Returns the agent of this name, if the identity may use it.
    pub(crate) fn agent_for(&self, identity: &Identity, name: &str) -> Option<&AgentName> {
        let agent = self.agents.iter().find(|agent| agent.as_str() == name);
        agent.filter(|agent| identity.may_use_agent(agent))
    }
}

impl fmt::Debug for GatewayParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GatewayParts")
            .field("agents", &self.agents)
            .field("instance", &self.instance)
            .finish_non_exhaustive()
    }
}
