//! Calls of tools by people with a form, and by scripts.

use std::{fmt, sync::Arc, time::Duration};

use rockbot_bus::{Bus, ConsumeError};
use rockbot_contracts::{AgentName, InstanceId, topology::ReplyAddress};
use rockbot_mcp_server::{Discovery, FleetParts, McpFleet, McpServerSection};
use rockbot_tools::{Guides, LayerOptions};

/// Longest timeout of a call.
pub(crate) const MAX_TIMEOUT: Duration = Duration::from_secs(600);

/// Calls the tools that handlers announce, as one caller. Dropping it ends the updates of its tools.
pub struct ToolCalls {
    fleet: Arc<McpFleet>,
    _discovery: Discovery,
}

impl ToolCalls {
    /// Discovers the tools of the handlers on `bus`, and calls them as `caller`, whose broker user that of the
    /// connection must be. `section` has the limits.
    ///
    /// # Errors
    /// When the queue of announcements cannot be consumed.
    ///
    /// # Cancellation
    /// Dropping the future stops the discovery.
    pub async fn start(
        bus: Arc<dyn Bus>,
        caller: AgentName,
        section: McpServerSection,
    ) -> Result<Self, ConsumeError> {
        let call_timeout = section.call_timeout.min(MAX_TIMEOUT);
        // The other connections of the process may be a caller too.
        let address = ReplyAddress::new(caller.clone(), InstanceId::generate());
        let discovery = Discovery::start(bus, address).await?;
        let fleet = McpFleet::start(FleetParts {
            caller,
            registry: discovery.registry.clone(),
            servers: None,
            agents: Vec::new(),
            guides: Guides::new([]),
            layers: LayerOptions::default(),
            announced: discovery.announced(),
            section: McpServerSection { call_timeout, ..section },
        });
        Ok(Self { fleet, _discovery: discovery })
    }

    /// Returns the tools and their running calls.
    pub(crate) fn fleet(&self) -> &McpFleet {
        &self.fleet
    }

    /// Rejects further calls, waits for the running ones until `limit`, and cancels those that are left.
    pub(crate) async fn stop(&self, limit: Duration) {
        self.fleet.stop(limit).await;
    }
}

impl fmt::Debug for ToolCalls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolCalls").field("fleet", &self.fleet).finish_non_exhaustive()
    }
}
