//! An agent inside this process, on whatever bus the fleet has.

use std::{sync::Arc, time::Duration};

use rockbot_agent::{
    Agent, AgentDefinition, AgentParts, Approvals, FrontDoor, McpParts, Team, serve,
};
use rockbot_llm::ChatModel;
use rockbot_service::exit;
use rockbot_store::{Clock, Store};
use rockbot_tools::{CatalogDirectory, LayerOptions, ToolPins};

use crate::{
    ending::{Exits, Failure},
    fleet::Fleet,
    settings::Settings,
};

/// Messages in hand at once.
const CONCURRENCY: u16 = 64;

/// An embedded agent behind its queue, with the others of its folder as tools.
pub(crate) struct Host {
    door: FrontDoor,
    team: Team,
    pins: Option<Arc<dyn Store>>,
    _directory: CatalogDirectory,
}

impl Host {
    /// Starts the agent; its tools are what the fleet announces.
    pub(crate) async fn start(
        fleet: &Fleet,
        settings: &Settings,
        definition: AgentDefinition,
        model: Arc<dyn ChatModel>,
    ) -> Result<Self, Failure> {
        let discovered = fleet.discover(definition.name.as_str()).await?;
        let pins = pins_store(settings).await?;
        let (own, registry) = (definition.name.clone(), discovered.registry);
        let hire = {
            let (models, store) = (settings.models.clone(), pins.clone());
            let redactor = fleet.redactor.clone();
            let layers = LayerOptions { redactor, ..LayerOptions::default() };
            let approvals = Approvals::new(settings.approval.clone());
            let (servers, registry) = (fleet.embedded_servers(), registry.clone());
            move |definition: AgentDefinition| {
                let name = definition.name.clone();
                let pins = store.clone().map(|store| Arc::new(ToolPins::new(store, name)));
                let mcp = servers.clone().map(McpParts::new);
                AgentParts {
                    mcp: mcp.map(|parts| McpParts { pins: pins.clone(), ..parts }),
                    pins,
                    approvals: approvals.clone(),
                    layers: layers.clone(),
                    behaviour: models.of(definition.model.as_deref().unwrap_or(model.name())),
                    ..AgentParts::new(definition, model.clone(), registry.clone())
                }
            }
        };
        let agent = Agent::new(hire(definition));
        let team = Team::new(own, registry, Arc::new(hire));
        if let Some(folder) = &settings.agent.directory {
            team.watch(folder.clone());
        }
        let door = serve(agent, fleet.bus.clone(), CONCURRENCY).await.exits(exit::UNAVAILABLE)?;
        Ok(Self { door, team, pins, _directory: discovered.directory })
    }

    /// Ends running turns within `grace`.
    pub(crate) async fn stop(self, grace: Duration) {
        self.door.drain(grace).await;
        self.team.shut_down(Duration::ZERO).await;
        if let Some(pins) = self.pins {
            pins.close().await;
        }
    }
}

/// Where the definitions of tools are kept that are trusted, if they are.
pub(crate) async fn pins_store(settings: &Settings) -> Result<Option<Arc<dyn Store>>, Failure> {
    let Some(url) = settings.pins.url().map_err(Failure::usage)? else { return Ok(None) };
    let store = rockbot_store::connect(&url, Clock::System).await;
    store.map(Some).map_err(|error| Failure::unavailable(format!("pins.store: {url}: {error}")))
}
