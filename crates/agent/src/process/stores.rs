//! The stores of pins and of the agent's memory.

use std::sync::Arc;

use rockbot_agent::AgentMemory;
use rockbot_service::{Health, ServeError};
use rockbot_store::{Clock, Store, reachable};
use rockbot_tools::Outputs;

use super::{Settings, configuration_error, unavailable_error};

pub(crate) struct Stores {
    pub(super) pins: Option<Arc<dyn Store>>,
    /// Pins the tools of handlers too, not only MCP tools.
    pub(super) pin_handler_tools: bool,
    pub(super) memory: Option<Arc<AgentMemory>>,
    pub(super) outputs: Option<Arc<Outputs>>,
}

impl Stores {
    /// Opens the stores that are configured.
    pub(crate) async fn open(settings: &Settings) -> Result<Self, ServeError> {
        let all_pins = settings.pins.url().map_err(configuration_error)?;
        let mcp_pins = settings.mcp.pins_url().map_err(configuration_error)?;
        let pin_handler_tools = all_pins.is_some();
        let pins = match all_pins.or(mcp_pins) {
            Some(url) => {
                let store = rockbot_store_sql::connect(&url, Clock::System).await;
                Some(store.map_err(|error| unavailable_error(format!("pins: {url}: {error}")))?)
            }
            None => None,
        };
        let memory = AgentMemory::open(&settings.memory, |url| async move {
            rockbot_store_sql::connect(&url, Clock::System).await
        });
        let memory = memory.await.map_err(unavailable_error)?.map(Arc::new);
        let outputs = memory.as_ref().and_then(|memory| memory.outputs(&settings.outputs));
        Ok(Self { pins, pin_handler_tools, memory, outputs })
    }

    /// Returns the memory of the agents, if it is on.
    pub(crate) fn memory(&self) -> Option<&AgentMemory> {
        self.memory.as_deref()
    }

    /// Makes readiness depend on the store of pins.
    pub(crate) fn add_health_check(&self, health: &Health) {
        if let Some(store) = &self.pins {
            health.needs("store", reachable(store.clone()));
        }
    }

    pub(crate) async fn close(self) {
        if let Some(store) = self.pins {
            store.close().await;
        }
        if let Some(memory) = self.memory {
            memory.close().await;
        }
    }
}
