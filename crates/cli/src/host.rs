//! An agent inside this process, on whatever bus the fleet has.

use std::{sync::Arc, time::Duration};

use rockbot_agent::{
    Agent, AgentDefinition, AgentParts, FrontDoor, McpParts, ModelBehaviours, serve,
};
use rockbot_llm::ChatModel;
use rockbot_service::exit;
use rockbot_tools::CatalogDirectory;

use crate::{
    ending::{Exits, Failure},
    fleet::Fleet,
};

/// Messages in hand at once.
const CONCURRENCY: u16 = 64;

/// An embedded agent behind its queue.
pub(crate) struct Host {
    door: FrontDoor,
    _directory: CatalogDirectory,
}

impl Host {
    /// Starts the agent; its tools are what the fleet announces.
    pub(crate) async fn start(
        fleet: &Fleet,
        definition: AgentDefinition,
        model: Arc<dyn ChatModel>,
        models: &ModelBehaviours,
    ) -> Result<Self, Failure> {
        let discovered = fleet.discover(definition.name.as_str()).await?;
        let behaviour = models.of(definition.model.as_deref().unwrap_or(model.name()));
        let mut parts = AgentParts::new(definition, model, discovered.registry);
        parts.behaviour = behaviour;
        parts.mcp = fleet.embedded_servers().map(McpParts::new);
        let agent = Agent::new(parts);
        let door = serve(agent, fleet.bus.clone(), CONCURRENCY).await.exits(exit::UNAVAILABLE)?;
        Ok(Self { door, _directory: discovered.directory })
    }

    /// Ends running turns within `grace`.
    pub(crate) async fn stop(self, grace: Duration) {
        self.door.drain(grace).await;
    }
}
