//! The fleet that a command talks to: one inside this process, or one that runs elsewhere.

use std::{sync::Arc, time::Duration};

use rockbot_agent::SayError;
use rockbot_bus::{Bus, Look, MemoryBus, Requester, report::QueueDepth};
use rockbot_bus_rabbitmq::RabbitBus;
use rockbot_contracts::{
    AgentName, InstanceId, QueueSpec,
    topology::{ReplyAddress, tool_invoke, user_message},
};
use rockbot_mcp_bridge::{Bridge, BridgeOptions, ServersFile};
use rockbot_scripts::{ExecutePythonScript, LazyScripts, RunnerName, local::Sandbox};
use rockbot_service::exit;
use rockbot_store::{Clock, MemoryStore, Store, StoreError, StoreUrl};
use rockbot_tool_handler::ToolHandler;
use rockbot_tool_rpc::{
    CallJournal, CatalogDirectory, JournalOptions,
    mcp::{BusGateway, McpGateway},
};
use rockbot_toolkit::files;
use rockbot_tools::{
    LayerOptions, Outputs, Redactor, ToolOutput, ToolRegistry, layers::fleet::FleetStore,
};

use crate::{
    ending::{Exits, Failure},
    print::note,
    settings::Settings,
};

/// How long a broker may take to answer.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// How long to wait for handlers to announce themselves.
const DISCOVER_WITHIN: Duration = Duration::from_secs(3);

/// How long to wait for the others once one handler announced itself.
const ALL_WITHIN: Duration = Duration::from_secs(1);

/// How long the MCP servers of an embedded fleet may take to begin before those that did are shown.
const SERVERS_WITHIN: Duration = Duration::from_secs(15);

/// How long one of them may take that is asked for. Many are fetched when they start for the first
/// time.
const SERVER_WITHIN: Duration = Duration::from_secs(60);

/// A bus, and the handler on it when this process embeds one.
pub(crate) struct Fleet {
    pub(crate) bus: Arc<dyn Bus>,
    pub(crate) instance: InstanceId,
    /// Knows the secrets of this process.
    pub(crate) redactor: Arc<Redactor>,
    handler: Option<Embedded>,
    drain: Duration,
}

/// A handler in this process, where it keeps its journal, and MCP servers without a bus between.
struct Embedded {
    handler: ToolHandler,
    store: Arc<dyn Store>,
    bridge: Arc<Bridge>,
    scripts: Option<Arc<LazyScripts>>,
}

/// The MCP servers of the fleet, and who asks.
pub(crate) struct McpServers {
    pub(crate) gateway: Arc<dyn McpGateway>,
    pub(crate) name: AgentName,
}

/// What the fleet runs, as this process discovered it.
pub(crate) struct Discovered {
    pub(crate) registry: Arc<ToolRegistry>,
    pub(crate) directory: CatalogDirectory,
    pub(crate) name: AgentName,
}

impl Fleet {
    /// Embeds a fleet, or connects to one.
    pub(crate) async fn reach(settings: &Settings) -> Result<Self, Failure> {
        if settings.embeds() { Self::embed(settings).await } else { Self::connect(settings).await }
    }

    /// Connects to the bus, and runs a handler on it.
    pub(crate) async fn embed(settings: &Settings) -> Result<Self, Failure> {
        // On a bus in memory nothing outlives this process, so its journal need not either.
        let url = match settings.embeds() {
            true => StoreUrl::Memory,
            false => settings.store.parse().map_err(Failure::usage)?,
        };
        let store = rockbot_store_sql::connect(&url, Clock::System).await;
        let store = store.map_err(|error| unusable(&url, &error))?;
        let mut fleet = if settings.embeds() {
            let bus: Arc<dyn Bus> = Arc::new(MemoryBus::new());
            Self::on(bus, settings)
        } else {
            Self::connect(settings).await?
        };
        let instance = InstanceId::generate();
        let mut options = JournalOptions::of(&settings.store, &url);
        // Nobody else is on a bus in memory.
        options.shared |= settings.embeds();
        let journal = CallJournal::start(store.clone(), &instance, options);
        let (bus, section) = (fleet.bus.clone(), &settings.handler);
        let mut tools = files::tools(&settings.files).exits(exit::USAGE)?;
        let scripts = (settings.scripts.runner != RunnerName::Off)
            .then(|| Arc::new(LazyScripts::new(settings.scripts.clone())));
        if let Some(scripts) = &scripts {
            // What isolates them is not known before the first one.
            let contained = settings.scripts.runner == RunnerName::Local
                && settings.scripts.sandbox == Sandbox::Required;
            tools.push(Arc::new(ExecutePythonScript::new(scripts.clone(), contained)));
        }
        let at = FleetStore {
            store: store.clone(),
            namespace: settings.bus.namespace.as_str().into(),
            instance: instance.as_str().into(),
        };
        let outputs = settings.outputs.enabled.then(|| settings.outputs.clone());
        // In memory they have room of their own: they shall not take that of the journal.
        let kept: Arc<dyn Store> = match settings.embeds() {
            true => Arc::new(MemoryStore::new(Clock::System)),
            false => store.clone(),
        };
        let outputs = outputs.map(|section| Outputs::new(kept, section));
        if let Some(outputs) = &outputs {
            tools.push(Arc::new(ToolOutput::new(outputs.clone())));
        }
        let mut layers = section.layers(Some(&at), fleet.redactor.clone());
        layers.outputs.clone_from(&outputs);
        let mut bridge_layers = section.layers_with_queues(Some(&at), fleet.redactor.clone());
        bridge_layers.outputs = outputs;
        let handler = ToolHandler::start(bus, section, tools, journal, layers, instance);
        let handler = handler.await.exits(exit::USAGE)?;
        let bridge = embed_bridge(settings, bridge_layers).await?;
        fleet.handler = Some(Embedded { handler, store, bridge, scripts });
        Ok(fleet)
    }

    async fn connect(settings: &Settings) -> Result<Self, Failure> {
        let bus = RabbitBus::start(&settings.rabbit()).exits(exit::USAGE)?;
        let connected = bus.connected(CONNECT_WITHIN).await;
        connected.map_err(Failure::unavailable)?;
        Ok(Self::on(Arc::new(bus), settings))
    }

    fn on(bus: Arc<dyn Bus>, settings: &Settings) -> Self {
        let instance = settings.service.instance();
        let (redactor, drain) = (settings.redactor(), settings.service.drain());
        Self { bus, instance, redactor, handler: None, drain }
    }

    /// Learns which tools the fleet runs.
    pub(crate) async fn discover(&self, name: &str) -> Result<Discovered, Failure> {
        self.discover_into(name, Arc::default()).await
    }

    /// The same, beside the tools that are in the registry.
    pub(crate) async fn discover_into(
        &self,
        name: &str,
        registry: Arc<ToolRegistry>,
    ) -> Result<Discovered, Failure> {
        let name = AgentName::new(name).exits(exit::USAGE)?;
        let address = ReplyAddress::new(name.clone(), self.instance.clone());
        let requester = Arc::new(Requester::new(self.bus.clone(), address));
        let directory = CatalogDirectory::start(requester, registry.clone());
        let directory = directory.await.exits(exit::UNAVAILABLE)?;
        directory.wait_for_any(DISCOVER_WITHIN).await;
        Ok(Discovered { registry, directory, name })
    }

    /// Learns which tools the fleet runs, and which process runs each: waits for as many handlers as
    /// consume requests.
    pub(crate) async fn discover_all(&self, name: &str) -> Result<Discovered, Failure> {
        let discovered = self.discover(name).await?;
        let report = self.bus.inspect(&[QueueSpec::work(&tool_invoke()).name]).await;
        let look = report.exits(exit::UNAVAILABLE)?.queues.first().map(|queue| queue.look);
        let consumers = match look {
            Some(Look::There(depth)) => depth.consumers as usize,
            // However many there are.
            Some(Look::Refused) => usize::MAX,
            Some(Look::Missing) | None => 0,
        };
        let mut look = tokio::time::interval(Duration::from_millis(5));
        let all = async {
            while discovered.directory.handlers().len() < consumers {
                look.tick().await;
            }
        };
        // One that does not answer is told by the numbers of the queue.
        let _ = tokio::time::timeout(ALL_WITHIN, all).await;
        Ok(discovered)
    }

    /// The MCP servers of this process, where it embeds a fleet.
    pub(crate) fn embedded_servers(&self) -> Option<Arc<dyn McpGateway>> {
        self.handler.as_ref().map(|embedded| embedded.bridge.clone() as Arc<dyn McpGateway>)
    }

    /// Learns which MCP servers the fleet serves.
    /// Of an embedded fleet, waits for the one server of interest, or a little for all of them.
    pub(crate) async fn mcp_servers(
        &self,
        name: &str,
        server: Option<&str>,
    ) -> Result<McpServers, Failure> {
        let name = AgentName::new(name).exits(exit::USAGE)?;
        if let Some(Embedded { bridge, .. }) = &self.handler {
            match server {
                Some(server) => bridge.settled_one(server, SERVER_WITHIN).await,
                None => bridge.settled(SERVERS_WITHIN).await,
            }
            return Ok(McpServers { gateway: bridge.clone(), name });
        }
        let address = ReplyAddress::new(name.clone(), self.instance.clone());
        let requester = Arc::new(Requester::new(self.bus.clone(), address));
        let gateway = BusGateway::start(requester).await.exits(exit::UNAVAILABLE)?;
        gateway.settle(DISCOVER_WITHIN).await;
        Ok(McpServers { gateway, name })
    }

    /// Fails when nobody takes messages for `agent`: its queue outlives it, so that a message would
    /// wait there for the next one.
    ///
    /// Where the broker lets nobody look, it says so and goes on.
    pub(crate) async fn expect_agent(&self, agent: &AgentName) -> Result<(), Failure> {
        let report = self.bus.inspect(&[QueueSpec::work(&user_message(agent)).name]).await;
        match report.exits(exit::UNAVAILABLE)?.queues.first().map(|queue| queue.look) {
            Some(Look::There(QueueDepth { consumers: 1.., .. })) => Ok(()),
            Some(Look::Refused) => {
                note!(
                    "the broker does not tell whether {agent} is there; what is said waits for it"
                );
                Ok(())
            }
            _ => Err(Failure::unavailable(SayError::NobodyServes { agent: agent.clone() })),
        }
    }

    /// Finishes what is under way, and leaves the bus.
    pub(crate) async fn leave(self) {
        if let Some(Embedded { handler, store, bridge, scripts }) = self.handler {
            handler.drain(self.drain).await;
            if let Some(scripts) = scripts {
                scripts.close().await;
            }
            bridge.stop().await;
            store.close().await;
        }
        self.bus.close().await;
    }
}

/// Why there is no journal: one that is there and can't be used is a matter of configuration.
fn unusable(url: &StoreUrl, error: &StoreError) -> Failure {
    let message = format!("store.url: {url}: {error}");
    match error {
        StoreError::Unavailable { .. } => Failure::unavailable(message),
        _ => Failure::usage(message),
    }
}

/// The MCP servers of this process; none where no file of servers is named.
async fn embed_bridge(settings: &Settings, layers: LayerOptions) -> Result<Arc<Bridge>, Failure> {
    let bridge = Bridge::new(BridgeOptions { layers, ..settings.mcp.options() });
    if let Some(path) = &settings.mcp.config {
        let servers = ServersFile::read(path, |name| std::env::var(name).ok());
        let named = |problem| Failure::usage(format!("mcp.config: {}: {problem}", path.display()));
        bridge.apply(servers.map_err(named)?).await;
    }
    Ok(bridge)
}
