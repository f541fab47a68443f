//! All servers of a process, behind one port.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use futures_util::{StreamExt, future::BoxFuture, stream};
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use rockbot_contracts::{
    InstanceId,
    mcp::{
        McpManageError, McpManageErrorCode, McpRegisterServerRequest, McpServerDetails,
        McpServerDetailsRequest, McpServerSummary,
    },
};
use rockbot_llm::ChatModel;
use rockbot_store::Store;
use rockbot_tool_rpc::mcp::{McpGateway, McpIndex};
use rockbot_tools::{
    Executed, LayerOptions, ResultCache, ToolCall, ToolContext, ToolExecutor, ToolFailure,
    ToolRegistry, ToolResult,
};
use serde_json::Value;
use tokio::{
    sync::{Semaphore, watch},
    time::timeout,
};
use tracing::{info, warn};

use crate::{
    config::{MOST_SERVERS, OAuthClient, Program, Remote, ServerConfig, ServersFile, Transport},
    connect::Dialling,
    oauth::{Login, OAuthError},
    offer::Offer,
    ownership::Ownership,
    queue::{self, QueueConfig},
    server::{Server, State, Surroundings},
    telemetry::Told,
    transport::DialPolicy,
};

/// How long a server that is registered at run time may take to connect.
const REGISTER_WITHIN: Duration = Duration::from_secs(45);
/// Servers that are waited for, or ended, at once: all of them.
const MOST_AT_ONCE: usize = MOST_SERVERS + MOST_REGISTERED;
/// The most servers that are registered at run time.
const MOST_REGISTERED: usize = 32;
/// The most arguments of a program that is registered at run time.
const MOST_ARGUMENTS: usize = 64;
/// The longest of them, in bytes.
const MAX_ARGUMENT_BYTES: usize = 4096;

/// Room for kept results, in bytes.
const DEFAULT_CACHE_BYTES: u64 = 64 * 1024 * 1024;

/// How a bridge works.
#[derive(Clone, Default)]
pub struct BridgeOptions {
    /// Queues that servers may share, by name.
    pub queues: BTreeMap<String, QueueConfig>,
    /// How many servers are connected at once at the start; 8 when 0.
    pub init_concurrency: usize,
    /// What may be dialled; only servers on public addresses, by TLS, by default.
    pub dial: DialPolicy,
    /// Where tokens of servers that want a login are kept; without it none are sent.
    pub tokens: Option<PathBuf>,
    /// Whether servers may be added at run time.
    pub registration: RegistrationPolicy,
    /// Where bridges agree on who serves a program: the store, the namespace of the fleet and this
    /// process. Without it this bridge serves all.
    pub shared: Option<(Arc<dyn Store>, String, InstanceId)>,
    /// Who says what a server is for; a fixed text when absent.
    pub model: Option<Arc<dyn ChatModel>>,
    /// What every call passes through. Without a cache, one of 64 MiB is made.
    pub layers: LayerOptions,
}

/// What callers may add at run time. Nothing by default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RegistrationPolicy {
    /// Whether callers may add servers at all.
    pub allowed: bool,
    /// Programs that may be started, as they are named in a request.
    pub commands: BTreeSet<String>,
}

/// A server, as people are told about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerStatus {
    /// Its name.
    pub name: String,
    /// Whether the bridge is not ready without it.
    pub required: bool,
    /// Whether it serves, here or at another bridge.
    pub ready: bool,
    /// Its tools; none while it does not serve here.
    pub tools: usize,
    /// The revision of the protocol, while it serves here.
    pub protocol_version: Option<String>,
    /// Why it does not serve here, where that is known.
    pub why: Option<String>,
}

/// The servers of this process. Also the way to them without a bus.
pub struct Bridge {
    surroundings: Arc<Surroundings>,
    executor: Arc<ToolExecutor>,
    registration: RegistrationPolicy,
    servers: RwLock<BTreeMap<String, Entry>>,
}

#[derive(Clone)]
struct Entry {
    server: Arc<Server>,
    /// Whether it came at run time, and not from the configuration.
    registered: bool,
}

impl Bridge {
    /// A bridge without servers.
    #[must_use]
    pub fn new(options: BridgeOptions) -> Arc<Self> {
        let BridgeOptions { queues, init_concurrency, dial, tokens, .. } = options;
        let BridgeOptions { registration, shared, model, mut layers, .. } = options;
        let ownership = shared.map(|(store, namespace, us)| Ownership::new(store, &namespace, &us));
        let at_once = if init_concurrency == 0 { 8 } else { init_concurrency };
        let surroundings = Surroundings {
            offer: Offer::new(),
            queues: queue::queues(&queues),
            dialling: Dialling { policy: Arc::new(dial), tokens },
            ownership,
            told: Told::default(),
            model,
            starting: Arc::new(Semaphore::new(at_once)),
        };
        layers.cache.get_or_insert_with(|| ResultCache::new(DEFAULT_CACHE_BYTES));
        let registry = surroundings.offer.registry().clone();
        Arc::new(Self {
            surroundings: Arc::new(surroundings),
            executor: Arc::new(ToolExecutor::with_layers(registry, layers)),
            registration,
            servers: RwLock::default(),
        })
    }

    /// Serves what the file says: what is new is started, what is gone is stopped, what changed is
    /// started anew, and all others are left alone. Servers that came at run time stay, unless the
    /// file takes their name.
    pub async fn apply(&self, file: ServersFile) {
        let ServersFile { servers: mut wanted, problems } = file;
        for problem in &problems {
            warn!(%problem, "the file of servers");
        }
        wanted.retain(|_, config| {
            let queues = &self.surroundings.queues;
            let known = config.queue.as_ref().is_none_or(|queue| queues.contains_key(queue));
            if !known {
                warn!(server = %config.name, queue = ?config.queue, "left out: no such queue");
            }
            known
        });
        let mut gone = Vec::new();
        {
            let mut servers = self.write();
            servers.retain(|name, entry| {
                let keep = match wanted.get(name) {
                    Some(config) => entry.server.config() == config && !entry.registered,
                    None => entry.registered,
                };
                if !keep {
                    gone.push(entry.server.clone());
                }
                keep
            });
        }
        // Two programs of one server must not run side by side, so what changed ends first.
        stop_all(gone.iter()).await;
        let mut servers = self.write();
        let (before, mut added) = (servers.len(), 0);
        for (name, config) in wanted {
            servers.entry(name).or_insert_with(|| {
                added += 1;
                self.start(config, false)
            });
        }
        info!(stopped = gone.len(), added, unchanged = before, "servers are as the file says");
    }

    fn start(&self, config: ServerConfig, registered: bool) -> Entry {
        let server = Arc::new(Server::start(config, self.surroundings.clone()));
        Entry { server, registered }
    }

    /// The tools of all servers that are connected, under the names that models use.
    #[must_use]
    pub fn registry(&self) -> &Arc<ToolRegistry> {
        self.surroundings.offer.registry()
    }

    /// Runs the tools of all servers, through the bridge's layers.
    pub(crate) fn executor(&self) -> &Arc<ToolExecutor> {
        &self.executor
    }

    /// The registry's name of a server's tool; the server's name without regard to case.
    #[must_use]
    pub fn registered(&self, server: &str, tool: &str) -> Option<String> {
        self.surroundings.offer.registered(server, tool)
    }

    /// How every server is, in order of their names.
    #[must_use]
    pub fn servers(&self) -> Vec<ServerStatus> {
        self.read().values().map(|entry| status(&entry.server)).collect()
    }

    /// Waits until every server has connected and its tools are offered, or has failed once; at most
    /// `wait`.
    pub async fn settled(&self, wait: Duration) {
        let servers: Vec<_> = self.read().values().map(|entry| entry.server.clone()).collect();
        let settled = servers.into_iter().map(|server| async move {
            let mut states = server.states();
            let begun = |state: &State| !matches!(state, State::Connecting { failed: 0, .. });
            let is_ready =
                states.wait_for(begun).await.is_ok_and(|state| matches!(*state, State::Ready(_)));
            if is_ready {
                let name = &server.config().name;
                let _ = self.index().wait_for(|index| index.get(name).is_some()).await;
            }
        });
        let all = stream::iter(settled).for_each_concurrent(MOST_AT_ONCE, |settled| settled);
        let _ = timeout(wait, all).await;
    }

    /// Waits until one server has connected or failed once, at most `wait`.
    pub async fn settled_one(&self, server: &str, wait: Duration) {
        let Some(Entry { server, .. }) = self.find(server) else { return };
        let begun = |state: &State| !matches!(state, State::Connecting { failed: 0, .. });
        let _ = timeout(wait, server.states().wait_for(begun)).await;
    }

    /// Begins the login of a person at a server that refused this bridge, for what it then said it
    /// wants. None when it refused nothing since the last login, or wants no tokens.
    ///
    /// # Errors
    /// When there is nobody to ask for the authorisation, or nobody to give it.
    pub async fn log_in(&self, server: &str) -> Result<Option<Login>, OAuthError> {
        let Some(Entry { server, .. }) = self.find(server) else { return Ok(None) };
        match server.tokens() {
            Some(tokens) => tokens.log_in().await,
            None => Ok(None),
        }
    }

    /// The servers that are required and don't serve, by name.
    #[must_use]
    pub fn missing(&self) -> Vec<String> {
        let missing = |server: &ServerStatus| server.required && !server.ready;
        self.servers().into_iter().filter(missing).map(|server| server.name).collect()
    }

    /// Sets the gauges that say how the servers are, whenever it is called.
    pub fn gauges(self: &Arc<Self>) -> impl Fn() + Send + Sync + 'static {
        let bridge = self.clone();
        move || bridge.surroundings.told.tell(&bridge.servers())
    }

    /// Ends every session. Programs that don't go are killed.
    pub async fn stop(&self) {
        let servers = std::mem::take(&mut *self.write());
        stop_all(servers.values().map(|entry| &entry.server)).await;
    }

    fn find(&self, server: &str) -> Option<Entry> {
        self.read().get(&server.to_lowercase()).cloned()
    }

    async fn add(
        &self,
        request: McpRegisterServerRequest,
    ) -> Result<McpServerSummary, McpManageError> {
        let name = request.server_name.clone();
        let refuse = |code, message: String| refusal(&name, code, message);
        if !self.registration.allowed {
            let message = "servers can't be added at run time here; an operator can allow it";
            return Err(refuse(McpManageErrorCode::NotPermitted, message.to_owned()));
        }
        let config = self.config_of(request)?;
        let server = {
            let mut servers = self.write();
            if servers.contains_key(&name.to_lowercase()) {
                let message = format!("there is a server {name} already");
                return Err(refuse(McpManageErrorCode::Conflict, message));
            }
            if servers.values().filter(|entry| entry.registered).count() >= MOST_REGISTERED {
                let message = format!("{MOST_REGISTERED} servers were added already");
                return Err(refuse(McpManageErrorCode::NotPermitted, message));
            }
            let entry = self.start(config, true);
            let server = entry.server.clone();
            servers.insert(name.to_lowercase(), entry);
            server
        };
        let mut states = server.states();
        let begun = states.wait_for(|state| !matches!(state, State::Connecting { failed: 0, .. }));
        let begun = timeout(REGISTER_WITHIN, begun).await.is_ok();
        if let Some(details) = self.surroundings.offer.details(&name) {
            return Ok(details.server);
        }
        // One that never worked is not kept. An operator may have taken its name meanwhile.
        {
            let mut servers = self.write();
            let ours = servers.get(&name.to_lowercase());
            if ours.is_some_and(|entry| Arc::ptr_eq(&entry.server, &server)) {
                servers.remove(&name.to_lowercase());
            }
        }
        server.stop().await;
        let why = if begun { "it can't be connected" } else { "it did not connect in time" };
        Err(refuse(McpManageErrorCode::Unavailable, format!("{name} was not added: {why}")))
    }

    /// A request as if an operator had written it, but for what only operators may say.
    fn config_of(&self, request: McpRegisterServerRequest) -> Result<ServerConfig, McpManageError> {
        let McpRegisterServerRequest { server_name, command, arguments, url } = request;
        let refuse = |code, message: &str| Err(refusal(&server_name, code, message.to_owned()));
        let too_long = arguments.iter().any(|argument| argument.len() > MAX_ARGUMENT_BYTES);
        if arguments.len() > MOST_ARGUMENTS || too_long {
            return refuse(
                McpManageErrorCode::InvalidRequest,
                "its arguments are too many or long",
            );
        }
        let transport = match (command, url) {
            (Some(command), None) if !self.registration.commands.contains(&command) => {
                let message = "that program is not among those that an operator allowed";
                return refuse(McpManageErrorCode::NotPermitted, message);
            }
            (Some(command), None) => {
                let (args, env) = (arguments, BTreeMap::new());
                Transport::Stdio(Program { command, args, env, cwd: None })
            }
            (None, Some(url)) if arguments.is_empty() => {
                let is_socket = url.starts_with("wss://") || url.starts_with("ws://");
                let oauth = OAuthClient::default();
                let remote = Remote { url, headers: BTreeMap::new(), oauth };
                if is_socket { Transport::WebSocket(remote) } else { Transport::Http(remote) }
            }
            _ => {
                let message = "give a command with its arguments, or a url, and not both";
                return refuse(McpManageErrorCode::InvalidRequest, message);
            }
        };
        ServerConfig::at_run_time(&server_name, transport)
            .map_err(|why| refusal(&server_name, McpManageErrorCode::InvalidRequest, why))
    }

    async fn remove(&self, name: &str) -> Result<(), McpManageError> {
        let server = {
            let mut servers = self.write();
            match servers.get(&name.to_lowercase()) {
                None => return Err(not_found(name)),
                Some(entry) if !entry.registered => {
                    let message =
                        format!("{name} is in the configuration; only an operator ends it");
                    return Err(refusal(name, McpManageErrorCode::NotPermitted, message));
                }
                Some(_) => servers.remove(&name.to_lowercase()),
            }
        };
        if let Some(entry) = server {
            entry.server.stop().await;
        }
        Ok(())
    }

    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<String, Entry>> {
        self.servers.read()
    }

    fn write(&self) -> RwLockWriteGuard<'_, BTreeMap<String, Entry>> {
        self.servers.write()
    }
}

/// Ends servers side by side, so that one that does not go does not hold up the others.
async fn stop_all(servers: impl Iterator<Item = &Arc<Server>>) {
    stream::iter(servers).for_each_concurrent(MOST_AT_ONCE, |server| server.stop()).await;
}

fn status(server: &Server) -> ServerStatus {
    let ServerConfig { name, required, .. } = server.config();
    let (name, required) = (name.clone(), *required);
    let mut status =
        ServerStatus { name, required, ready: false, tools: 0, protocol_version: None, why: None };
    match server.state() {
        State::Ready(serving) => {
            status.ready = true;
            status.tools = serving.tools.len();
            status.protocol_version = Some(serving.session.protocol_version.clone());
        }
        State::Elsewhere { owner } => {
            status.ready = true;
            status.why = Some(format!("the bridge {owner} serves it"));
        }
        State::Connecting { why, .. } => status.why = why.map(|why| why.to_string()),
        State::Stopped => {}
    }
    status
}

fn refusal(server: &str, code: McpManageErrorCode, message: String) -> McpManageError {
    let server_name = server.chars().take(128).collect();
    McpManageError { server_name, code, message }
}

fn not_found(server: &str) -> McpManageError {
    let name: String = server.chars().take(128).collect();
    let message = format!("there is no server {name:?}; list the servers for their names");
    refusal(server, McpManageErrorCode::NotFound, message)
}

impl McpGateway for Bridge {
    fn index(&self) -> watch::Receiver<McpIndex> {
        self.surroundings.offer.index()
    }

    fn details(
        &self,
        request: McpServerDetailsRequest,
    ) -> BoxFuture<'_, Result<McpServerDetails, McpManageError>> {
        Box::pin(async move {
            let McpServerDetailsRequest { server_name, tool_name } = request;
            let Some(mut details) = self.surroundings.offer.details(&server_name) else {
                let known = self.find(&server_name).is_some();
                let away = || {
                    let message = format!("{server_name} is not connected now; try again later");
                    refusal(&server_name, McpManageErrorCode::Unavailable, message)
                };
                return Err(if known { away() } else { not_found(&server_name) });
            };
            if let Some(tool_name) = tool_name {
                details.tools.retain(|tool| tool.name == tool_name);
                if details.tools.is_empty() {
                    let tool: String = tool_name.chars().take(128).collect();
                    let message = format!("{server_name} has no tool {tool:?}");
                    return Err(refusal(&server_name, McpManageErrorCode::NotFound, message));
                }
            }
            Ok(details)
        })
    }

    fn call<'a>(
        &'a self,
        server: &'a str,
        tool: &'a str,
        arguments: Value,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolResult, ToolFailure>> {
        Box::pin(async move {
            let Some(entry) = self.find(server) else {
                let message = format!("there is no MCP server {server:?}");
                return Err(ToolFailure::Unavailable { message, executed: Executed::No });
            };
            // On a bus the call would pass through the same layers, in the bridge's process.
            if let Some(name) = self.registered(server, tool) {
                let context = ToolContext { tool_name: name.into(), ..context.clone() };
                let arguments = arguments.to_string().into();
                return self.executor.execute(ToolCall { context, arguments }).await;
            }
            // It says why there is no such tool now.
            entry.server.caller().call(tool, arguments, context).await
        })
    }

    fn register(
        &self,
        request: McpRegisterServerRequest,
    ) -> BoxFuture<'_, Result<McpServerSummary, McpManageError>> {
        Box::pin(self.add(request))
    }

    fn unregister<'a>(&'a self, server: &'a str) -> BoxFuture<'a, Result<(), McpManageError>> {
        Box::pin(self.remove(server))
    }
}

impl std::fmt::Debug for Bridge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bridge").field("servers", &self.servers()).finish_non_exhaustive()
    }
}
