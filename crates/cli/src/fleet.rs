//! The fleet that a command uses: embedded in this process, or running elsewhere.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use rockbot_agent::{AgentClient, SendError};
use rockbot_bus::{
    Bus, MemoryBus, Observed, QueueGauge, QueueState, Requester, connected_gauge, readiness_check,
    report::QueueDepth,
};
use rockbot_bus_rabbitmq::RabbitBus;
use rockbot_contracts::{
    AgentName, Envelope, HandlerPool, InstanceId, QueueName, QueueSpec, RoutingKey,
    identity::{CLI, CallerPolicy, User},
    topology::{ReplyAddress, user_message},
};
use rockbot_hooks::OperatorHooks;
use rockbot_mcp_bridge::{Bridge, BridgeOptions, ServerStatus, ServersFile};
use rockbot_scripts::{LazyScripts, RunnerName, local::Sandbox};
use rockbot_service::{Health, exit};
use rockbot_store::{Clock, MemoryStore, Store, StoreUrl};
use rockbot_tool_handler::{
    ToolHandler,
    families::{FamilyParts, HandlerScripts, providers},
};
use rockbot_tool_rpc::{
    CallJournal, CatalogDirectory, Family, JournalOptions,
    catalog::KnownHandler,
    mcp::{BusGateway, McpGateway},
};
use rockbot_tools::{Outputs, Redactor, ToolRegistry, limits::fleet::FleetStore};

use crate::{
    failure::{Failure, OrExit},
    print::note,
    render,
    settings::Settings,
    stored_conversations::ConversationStores,
};

/// The time limit for connecting to the broker.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The time limit for the first announcement of a handler.
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(3);

/// The time limit for the announcements of the other handlers after the first.
const DISCOVER_ALL_TIMEOUT: Duration = Duration::from_secs(1);

/// The time without an announcement after which no further handler is expected. Handlers reply to a request
/// within 0.1 s.
const ANNOUNCE_TIME: Duration = Duration::from_millis(250);

/// The time limit for the MCP servers of an embedded fleet to start before an interactive session.
pub(crate) const SERVERS_TIMEOUT: Duration = Duration::from_secs(15);

/// The time limit for a needed MCP server to start. Many are downloaded at their first start.
pub(crate) const SERVER_TIMEOUT: Duration = Duration::from_secs(60);

/// The time after which the servers that are waited for are shown.
const NOTICE_AFTER: Duration = Duration::from_secs(1);

/// A bus, and the embedded services when there are any.
pub(crate) struct Fleet {
    pub(crate) bus: Arc<dyn Bus>,
    pub(crate) instance: InstanceId,
    /// Redacts the secrets of this process.
    pub(crate) redactor: Arc<Redactor>,
    /// The broker user of this process.
    user: Option<String>,
    embedded: Option<Embedded>,
    /// Queue of the embedded handler.
    work_queue: QueueName,
    drain: Duration,
}

/// The services in this process: a tool handler with the store of its journal, and an MCP bridge that
/// is called without the bus.
struct Embedded {
    handler: ToolHandler,
    /// Store of the journal, unless it is that of the conversations.
    store: Option<Arc<dyn Store>>,
    bridge: Arc<Bridge>,
    scripts: Option<Arc<LazyScripts>>,
    hooks: OperatorHooks,
}

/// The MCP servers of the fleet, and the caller's name.
pub(crate) struct McpServers {
    pub(crate) gateway: Arc<dyn McpGateway>,
    pub(crate) name: AgentName,
}

/// The discovered tools of the fleet, and the caller's name.
pub(crate) struct Discovered {
    pub(crate) registry: Arc<ToolRegistry>,
    pub(crate) directory: CatalogDirectory,
    pub(crate) name: AgentName,
}

impl Fleet {
    /// Embeds a fleet, or connects to a running one.
    pub(crate) async fn open(settings: &Settings) -> Result<Self, Failure> {
        if settings.embeds() {
            Self::embed(settings, None).await
        } else {
            Self::connect(settings).await
        }
    }

    /// Connects to the bus and starts a tool handler on it. `conversations` are those of the embedded
    /// agent, if there is one.
    pub(crate) async fn embed(
        settings: &Settings,
        conversations: Option<&ConversationStores>,
    ) -> Result<Self, Failure> {
        let HandlerStore { store, url, is_shared } =
            HandlerStore::open(settings, conversations).await?;
        let mut fleet = if settings.embeds() {
            Self::new(Observed::new(Arc::new(MemoryBus::new()), "memory"), settings)
        } else {
            Self::connect(settings).await?
        };
        let instance = InstanceId::generate();
        let hooks =
            OperatorHooks::start(&settings.hooks, "rockbot", &instance).or_exit(exit::USAGE)?;
        let mut options = JournalOptions::from_section(&settings.store, &url);
        // This process is the only one on the in-memory bus.
        options.shared |= settings.embeds();
        let journal = CallJournal::start(store.clone(), &instance, options);
        let (bus, section) = (fleet.bus.clone(), &settings.handler);
        let scripts = (settings.families().contains(&Family::Scripts)
            && settings.scripts.runner != RunnerName::Off)
            .then(|| Arc::new(LazyScripts::new(settings.scripts.clone())));
        let at = FleetStore {
            store: store.clone(),
            namespace: settings.bus.namespace.as_str().into(),
            instance: instance.as_str().into(),
        };
        let outputs = settings.outputs.enabled.then(|| settings.outputs.clone());
        // In memory, outputs have their own store, so that they do not use up the journal's space.
        let output_store: Arc<dyn Store> = if matches!(url, StoreUrl::Memory) {
            Arc::new(MemoryStore::new(Clock::System))
        } else {
            store.clone()
        };
        let outputs = outputs.map(|section| Outputs::new(output_store, section));
        let parts = FamilyParts {
            files: &settings.files,
            scripts: scripts.clone().map(|runner| HandlerScripts {
                runner,
                // The isolation is unknown before the first script.
                is_isolated: settings.scripts.runner == RunnerName::Local
                    && settings.scripts.sandbox == Sandbox::Required,
                isolation: None,
            }),
            web: Some(&settings.web),
            #[cfg(feature = "pdf")]
            pdf: rockbot_tool_handler::families::pdf_reader(),
            #[cfg(not(feature = "pdf"))]
            pdf: None,
            rest: Some(&settings.rest),
            queues: section.queues(),
            outputs: outputs.clone(),
        };
        if settings.families().contains(&Family::Rest) {
            let problems = settings.rest.validate_queues(|name| section.queues.contains_key(name));
            if let [problem, ..] = problems.as_slice() {
                return Err(Failure::usage(problem));
            }
        }
        let tools = providers(settings.families(), parts).or_exit(exit::USAGE)?;
        let mut layers = section.layers(Some(&at), fleet.redactor.clone());
        layers.outputs.clone_from(&outputs);
        layers.hooks = hooks.hooks();
        let queues = section.queues();
        let mut bridge_layers =
            section.layers_with_queues(&queues, Some(&at), fleet.redactor.clone());
        bridge_layers.outputs = outputs;
        bridge_layers.hooks = hooks.hooks();
        let handler = ToolHandler::start(bus, section, tools, journal, layers, instance);
        let handler = handler.await.or_exit(exit::USAGE)?;
        let model = settings.summary_model()?;
        let options =
            BridgeOptions { layers: bridge_layers, queues, model, ..settings.mcp.options() };
        let bridge = embed_bridge(settings, options).await?;
        let store = (!is_shared).then_some(store);
        fleet.embedded = Some(Embedded { handler, store, bridge, scripts, hooks });
        Ok(fleet)
    }

    async fn connect(settings: &Settings) -> Result<Self, Failure> {
        let bus = RabbitBus::start(&settings.rabbit()).or_exit(exit::USAGE)?;
        let connected = bus.connected(CONNECT_TIMEOUT).await;
        connected.map_err(Failure::unavailable)?;
        Ok(Self::new(Observed::new(Arc::new(bus), "rabbitmq"), settings))
    }

    fn new(bus: Arc<dyn Bus>, settings: &Settings) -> Self {
        let instance = settings.service.instance();
        let (redactor, drain) = (settings.redactor(), settings.service.drain());
        let user = settings.rabbit().user().filter(|_| !settings.embeds());
        let work_queue = QueueSpec::work(&settings.handler.pool().invoke_key()).name;
        Self { bus, instance, redactor, user, embedded: None, work_queue, drain }
    }

    /// Adds the bus, the handler and the MCP servers to the health and metrics of the process. Returns the
    /// gauge of the handler's queue, which is updated until it is dropped.
    pub(crate) fn monitor(&self, health: &Health) -> Option<QueueGauge> {
        let Embedded { handler, bridge, .. } = self.embedded.as_ref()?;
        health.needs("bus", readiness_check(self.bus.clone()));
        health.refresh_with(connected_gauge(self.bus.clone()));
        health.refresh_with(handler.handler().gauges());
        health.refresh_with(bridge.gauges());
        let required = bridge.clone();
        health.needs("required_servers", move || {
            let missing = required.missing_required();
            let status = if missing.is_empty() { Ok(()) } else { Err(missing.join(", ")) };
            Box::pin(std::future::ready(status))
        });
        Some(QueueGauge::start(self.bus.clone(), self.work_queue.clone()))
    }

    /// Returns the broker user of this process; `None` in an embedded fleet.
    pub(crate) fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// Discovers the tools of the fleet.
    pub(crate) async fn discover(&self, name: &str) -> Result<Discovered, Failure> {
        self.discover_into(name, Arc::default()).await
    }

    /// Discovers the tools of the fleet and adds them to `registry`.
    pub(crate) async fn discover_into(
        &self,
        name: &str,
        registry: Arc<ToolRegistry>,
    ) -> Result<Discovered, Failure> {
        let name = AgentName::new(name).or_exit(exit::USAGE)?;
        let address = ReplyAddress::new(name.clone(), self.instance.clone());
        let requester = Arc::new(Requester::new(self.bus.clone(), address));
        let directory = CatalogDirectory::start(requester, registry.clone());
        let directory = directory.await.or_exit(exit::UNAVAILABLE)?;
        directory.wait_for_any(DISCOVERY_TIMEOUT).await;
        Ok(Discovered { registry, directory, name })
    }

    /// Discovers the tools of the fleet until `tool` is among them, or until all handlers have had the time to
    /// announce theirs. Waits for further announcements of a found tool: it must be that of the pool that
    /// other callers offer.
    pub(crate) async fn discover_tool(
        &self,
        name: &str,
        tool: &str,
    ) -> Result<Discovered, Failure> {
        let discovered = self.discover(name).await?;
        let registry = &discovered.registry;
        let mut changes = registry.subscribe();
        let found = async {
            while registry.get(tool).is_none() && changes.changed().await.is_ok() {}
            if self.embedded.is_none() {
                discovered.directory.view().settle(ANNOUNCE_TIME).await;
            }
        };
        // A missing tool is reported by the caller.
        let _ = tokio::time::timeout(DISCOVER_ALL_TIMEOUT, found).await;
        Ok(discovered)
    }

    /// Discovers the tools of the fleet and their handlers: waits for as many announcements as the request
    /// queues of `pools` and of the announced pools have consumers, and for those of other pools.
    pub(crate) async fn discover_all(
        &self,
        name: &str,
        pools: &[HandlerPool],
    ) -> Result<Discovered, Failure> {
        let discovered = self.discover(name).await?;
        let handlers = discovered.directory.view();
        let known: BTreeSet<_> = pools.iter().cloned().chain(handlers.pools()).collect();
        let names: Vec<_> =
            known.iter().map(|pool| QueueSpec::work(&pool.invoke_key()).name).collect();
        let report = self.bus.inspect(&names).await.or_exit(exit::UNAVAILABLE)?;
        let consumers = report.queues.iter().map(|queue| match queue.state {
            QueueState::Present(depth) => depth.consumers as usize,
            // The number is unknown.
            QueueState::Refused => usize::MAX,
            QueueState::Missing => 0,
        });
        let consumers = consumers.fold(0, usize::saturating_add);
        // A missing announcement shows in the queue's number of consumers.
        let _ = tokio::time::timeout(DISCOVER_ALL_TIMEOUT, async {
            handlers.wait_for_number(consumers).await;
            if self.embedded.is_none() {
                handlers.settle(ANNOUNCE_TIME).await;
            }
        })
        .await;
        Ok(discovered)
    }

    /// Returns the number of consumers of a work queue; `None` if this user may not inspect it.
    pub(crate) async fn consumers(&self, key: &RoutingKey) -> Result<Option<u32>, Failure> {
        let report = self.bus.inspect(&[QueueSpec::work(key).name]).await;
        Ok(match report.or_exit(exit::UNAVAILABLE)?.queues.first().map(|queue| queue.state) {
            Some(QueueState::Present(depth)) => Some(depth.consumers),
            Some(QueueState::Refused) => None,
            Some(QueueState::Missing) | None => Some(0),
        })
    }

    /// Fails if the handlers reject calls of this broker user, which they would dead-letter without a
    /// reply: handlers with their own broker user accept only users that are callers.
    pub(crate) fn require_caller(&self, handlers: &[KnownHandler]) -> Result<(), Failure> {
        let Some(user) = &self.user else { return Ok(()) };
        let own_user = |handler: &KnownHandler| {
            let service = handler.user.as_deref().and_then(User::service_of);
            matches!(service, Some(User::ToolHandler | User::PoolHandler(_)))
        };
        let mut request = Envelope::raw("ToolInvokeRequest", Vec::new()).with_source(CLI);
        request.user_id = Some(user.as_str().into());
        if !handlers.iter().any(own_user) || CallerPolicy::Known.admit(&request).is_ok() {
            return Ok(());
        }
        Err(Failure::denied(format!("the handlers of this fleet accept no calls of user {user}")))
    }

    /// Returns the MCP servers of this process, if it embeds a fleet.
    pub(crate) fn embedded_servers(&self) -> Option<Arc<dyn McpGateway>> {
        self.embedded.as_ref().map(|embedded| embedded.bridge.clone() as Arc<dyn McpGateway>)
    }

    /// Returns a future that ends when the MCP servers of an embedded fleet have connected or failed, after 15 s at
    /// most.
    pub(crate) fn servers_settled(&self) -> BoxFuture<'static, ()> {
        let bridge = self.embedded.as_ref().map(|embedded| embedded.bridge.clone());
        Box::pin(async move {
            if let Some(bridge) = bridge {
                bridge.wait_until_settled(SERVERS_TIMEOUT).await;
            }
        })
    }

    /// Discovers the MCP servers of the fleet. In an embedded fleet, waits up to 60 s for `server`, or for
    /// all servers.
    pub(crate) async fn mcp_servers(
        &self,
        name: &str,
        server: Option<&str>,
    ) -> Result<McpServers, Failure> {
        let name = AgentName::new(name).or_exit(exit::USAGE)?;
        if let Some(Embedded { bridge, .. }) = &self.embedded {
            match server {
                Some(server) => bridge.wait_until_server_settled(server, SERVER_TIMEOUT).await,
                None => self.await_mcp_servers(SERVER_TIMEOUT).await,
            }
            return Ok(McpServers { gateway: bridge.clone(), name });
        }
        let address = ReplyAddress::new(name.clone(), self.instance.clone());
        let requester = Arc::new(Requester::new(self.bus.clone(), address));
        let gateway = BusGateway::start(requester).await.or_exit(exit::UNAVAILABLE)?;
        gateway.settle(DISCOVERY_TIMEOUT).await;
        Ok(McpServers { gateway, name })
    }

    /// Waits until the MCP servers of an embedded fleet have connected or failed, at most `limit`. Prints
    /// those that it waits for, and those that are not connected then.
    pub(crate) async fn await_mcp_servers(&self, limit: Duration) {
        let Some(Embedded { bridge, .. }) = &self.embedded else { return };
        let settled = bridge.wait_until_settled(limit);
        tokio::pin!(settled);
        if tokio::time::timeout(NOTICE_AFTER, &mut settled).await.is_err() {
            let starting =
                disconnected(bridge).into_iter().filter(|server| server.reason.is_none());
            let names: Vec<_> = starting.map(|server| render::clean(&server.name)).collect();
            let names = names.join(", ");
            note!("{}", render::dim(&format!("waiting for MCP servers: {names}")));
            settled.await;
        }
        for server in disconnected(bridge) {
            let name = render::clean(&server.name);
            match server.reason {
                Some(reason) => {
                    note!("MCP server {name} is not connected: {}", render::clean(&reason));
                }
                None => note!("MCP server {name} is still starting; its tools are added then"),
            }
        }
    }

    /// Fails when no instance of `agent` consumes messages: its queue outlives it, so that a message would
    /// wait there for the next instance.
    ///
    /// When the broker does not permit the inspection, prints a note and succeeds.
    pub(crate) async fn expect_agent(&self, agent: &AgentName) -> Result<(), Failure> {
        let report = self.bus.inspect(&[QueueSpec::work(&user_message(agent)).name]).await;
        match report.or_exit(exit::UNAVAILABLE)?.queues.first().map(|queue| queue.state) {
            Some(QueueState::Present(QueueDepth { consumers: 1.., .. })) => Ok(()),
            Some(QueueState::Refused) => {
                note!(
                    "this user may not inspect the queue of agent {agent}; messages wait until it runs"
                );
                Ok(())
            }
            _ => Err(Failure::unavailable(SendError::AgentUnavailable { agent: agent.clone() })),
        }
    }

    /// Finishes running calls and disconnects from the bus.
    pub(crate) async fn close(self) {
        if let Some(Embedded { handler, store, bridge, scripts, hooks }) = self.embedded {
            handler.drain(self.drain).await;
            if let Some(scripts) = scripts {
                scripts.close().await;
            }
            bridge.stop().await;
            hooks.close().await;
            if let Some(store) = store {
                store.close().await;
            }
        }
        self.bus.close().await;
    }
}

/// The store of an embedded handler's journal and outputs.
struct HandlerStore {
    store: Arc<dyn Store>,
    url: StoreUrl,
    /// Set if it is the store of the conversations, which others close.
    is_shared: bool,
}

impl HandlerStore {
    /// Opens the store. On the in-memory bus only calls of durable conversations outlive this process, so
    /// their journal is kept with them.
    async fn open(
        settings: &Settings,
        conversations: Option<&ConversationStores>,
    ) -> Result<Self, Failure> {
        if settings.embeds()
            && let Some(ConversationStores { stores, url, .. }) = conversations
        {
            return Ok(Self { store: stores.store.clone(), url: url.clone(), is_shared: true });
        }
        let url = if settings.embeds() {
            StoreUrl::Memory
        } else {
            settings.store.parse().map_err(Failure::usage)?
        };
        let store = rockbot_store_sql::connect(&url, Clock::System).await;
        let store = store.map_err(|error| Failure::store("store.url", &url, &error))?;
        Ok(Self { store, url, is_shared: false })
    }
}

/// Connects a client of agents, with a reply queue of its own.
///
/// # Errors
/// When the bus is unavailable.
pub(crate) async fn agent_client(bus: Arc<dyn Bus>) -> Result<AgentClient, Failure> {
    AgentClient::connect(bus, &InstanceId::generate()).await.or_exit(exit::UNAVAILABLE)
}

/// Returns the servers that are not connected.
fn disconnected(bridge: &Bridge) -> Vec<ServerStatus> {
    bridge.servers().into_iter().filter(|server| !server.ready).collect()
}

/// Starts the MCP bridge of this process; it has no servers when no server file is configured.
async fn embed_bridge(settings: &Settings, options: BridgeOptions) -> Result<Arc<Bridge>, Failure> {
    let queues = &settings.handler.queues;
    let problems = settings.mcp.validate_queues(|name| queues.contains_key(name));
    if let [problem, ..] = problems.as_slice() {
        return Err(Failure::usage(problem));
    }
    let bridge = Bridge::new(options);
    if let Some(path) = &settings.mcp.config {
        let servers = ServersFile::read(path, |name| std::env::var(name).ok());
        let named = |problem| Failure::usage(format!("mcp.config: {}: {problem}", path.display()));
        bridge.apply(servers.map_err(named)?).await;
    }
    Ok(bridge)
}

#[cfg(test)]
mod tests;
