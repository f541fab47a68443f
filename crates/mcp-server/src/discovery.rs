//! The handlers and bridges of a fleet on a bus.

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use rockbot_bus::{Bus, ConsumeError, Requester};
use rockbot_contracts::topology::ReplyAddress;
use rockbot_tool_rpc::{
    CatalogDirectory,
    mcp::{BusGateway, McpGateway},
};
use rockbot_tools::ToolRegistry;

/// Time limit for the first announcement of a handler, and for those of the bridges.
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(3);
/// Time without an announcement after which no further handler is expected.
const ANNOUNCE_TIME: Duration = Duration::from_millis(250);

/// The tools that handlers and bridges on a bus announce. Dropping it stops the updates.
pub struct Discovery {
    /// The tools of the handlers.
    pub registry: Arc<ToolRegistry>,
    /// The handlers.
    pub directory: CatalogDirectory,
    /// The MCP servers of the bridges.
    pub servers: Arc<dyn McpGateway>,
    gateway: Arc<BusGateway>,
}

impl Discovery {
    /// Starts to listen to announcements, and requests them. Calls get their replies at `address`.
    ///
    /// # Errors
    /// When a queue for announcements cannot be consumed.
    pub async fn start(bus: Arc<dyn Bus>, address: ReplyAddress) -> Result<Self, ConsumeError> {
        let requester = Arc::new(Requester::new(bus, address));
        let registry = Arc::new(ToolRegistry::new());
        let directory = CatalogDirectory::start(requester.clone(), registry.clone()).await?;
        let gateway = BusGateway::start(requester).await?;
        Ok(Self { registry, directory, servers: gateway.clone(), gateway })
    }

    /// Returns a future that ends when all handlers and bridges have had the time to announce their tools, after
    /// 3 s at most.
    #[must_use]
    pub fn announced(&self) -> BoxFuture<'static, ()> {
        let (handlers, gateway) = (self.directory.view(), self.gateway.clone());
        Box::pin(async move {
            let announced = async {
                if handlers.wait_for_any(DISCOVERY_TIMEOUT).await {
                    handlers.settle(ANNOUNCE_TIME).await;
                }
            };
            let announced = tokio::time::timeout(DISCOVERY_TIMEOUT, announced);
            let _ = tokio::join!(announced, gateway.settle(DISCOVERY_TIMEOUT));
        })
    }
}

impl std::fmt::Debug for Discovery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Discovery")
            .field("directory", &self.directory)
            .field("gateway", &self.gateway)
            .finish_non_exhaustive()
    }
}
