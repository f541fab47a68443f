//! The MCP servers of a process, behind the [`McpGateway`] port.

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
    ToolRegistry, ToolResult, limits::queue::Queue,
};
use serde_json::Value;
use tokio::{
    sync::{Semaphore, watch},
    time::timeout,
};
use tracing::{info, warn};

use crate::{
    catalog::Catalog,
    config::{MAX_SERVERS, OAuthClient, Program, Remote, ServerConfig, ServersFile, Transport},
    connect::DialSettings,
    oauth::{Login, OAuthError},
    ownership::Ownership,
    queue::BridgeQueues,
    server::{BridgeContext, Server},
    state::ServerState,
    status::ServerStatus,
    telemetry::ServerMetrics,
    tool_caller::SESSION_TIMEOUT,
    transport::DialPolicy,
};

/// The time limit for connecting a server that is added at run time.
const REGISTER_TIMEOUT: Duration = Duration::from_secs(45);
/// The maximum number of servers that are awaited or stopped concurrently: all of them.
const MAX_CONCURRENT: usize = MAX_SERVERS + MAX_ADDED;
/// The maximum number of servers that are added at run time.
const MAX_ADDED: usize = 32;
/// The maximum number of arguments of a program that is added at run time.
const MAX_ARGUMENTS: usize = 64;
/// The longest such argument, in bytes.
const MAX_ARGUMENT_BYTES: usize = 4096;

/// The default capacity of the result cache, in bytes.
const DEFAULT_CACHE_BYTES: u64 = 64 * 1024 * 1024;

/// Options of a bridge.
#[derive(Clone, Default)]
pub struct BridgeOptions {
    /// Queues that servers can share, by name, in addition to those of the servers file.
    pub queues: BTreeMap<String, Arc<Queue>>,
    /// Servers that are connected concurrently at startup; 0 means 8.
    pub init_concurrency: usize,
    /// Addresses that may be dialed. Default: public addresses with TLS.
    pub dial: DialPolicy,
    /// The folder for tokens of servers that require a login. No tokens are sent when this is `None`.
    pub tokens: Option<PathBuf>,
    /// Servers that callers may add at run time.
    pub registration: RegistrationPolicy,
    /// Store, fleet namespace and instance for the ownership of stdio servers. This bridge serves all of
    /// them when this is `None`.
    pub shared: Option<(Arc<dyn Store>, String, InstanceId)>,
    /// Summarizes servers. Servers get a fixed summary when this is `None`.
    pub model: Option<Arc<dyn ChatModel>>,
    /// Layers of every call. Without a cache, one of 64 MiB is created.
    pub layers: LayerOptions,
}

/// Servers that callers may add at run time. Default: none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RegistrationPolicy {
    /// Allows callers to add servers.
    pub allowed: bool,
    /// Programs that may be started, as named in a request.
    pub commands: BTreeSet<String>,
}

/// The servers of this process. As a [`McpGateway`], it is usable without a bus.
pub struct Bridge {
    context: Arc<BridgeContext>,
    executor: Arc<ToolExecutor>,
    registration: RegistrationPolicy,
    servers: RwLock<BTreeMap<String, ServerEntry>>,
}

#[derive(Clone)]
struct ServerEntry {
    server: Arc<Server>,
    /// It was added at run time and is not from the configuration.
    added: bool,
}

impl Bridge {
    /// Creates a bridge without servers.
    #[must_use]
    pub fn new(options: BridgeOptions) -> Arc<Self> {
        let BridgeOptions { queues, init_concurrency, dial, tokens, .. } = options;
        let BridgeOptions { registration, shared, model, mut layers, .. } = options;
        let ownership =
            shared.map(|(store, namespace, instance)| Ownership::new(store, &namespace, &instance));
        let concurrency = if init_concurrency == 0 { 8 } else { init_concurrency };
        let context = BridgeContext {
            catalog: Catalog::new(),
            queues: BridgeQueues::new(queues),
            dial: DialSettings { policy: Arc::new(dial), tokens, apis: Arc::default() },
            ownership,
            metrics: ServerMetrics::default(),
            model,
            starting: Arc::new(Semaphore::new(concurrency)),
        };
        layers.cache.get_or_insert_with(|| ResultCache::new(DEFAULT_CACHE_BYTES));
        let registry = context.catalog.registry().clone();
        Arc::new(Self {
            context: Arc::new(context),
            executor: Arc::new(ToolExecutor::with_layers(registry, layers)),
            registration,
            servers: RwLock::default(),
        })
    }

    /// Applies a servers file: starts new servers, stops removed ones, restarts changed ones, and leaves
    /// the others alone. Servers that were added at run time stay, unless the file takes their name.
    pub async fn apply(&self, file: ServersFile) {
        let queues = &self.context.queues;
        for problem in file.queue_problems(|name| queues.is_configured(name)) {
            warn!(problem, "servers file has an invalid queue");
        }
        let ServersFile { servers: mut wanted, queues: in_file, errors, warnings } = file;
        for warning in &warnings {
            warn!(warning, "servers file entry has parts without effect");
        }
        for error in &errors {
            warn!(error, "servers file entry rejected");
        }
        queues.apply(&in_file);
        wanted.retain(|_, config| {
            config.queue.as_ref().is_none_or(|queue| queues.get(queue).is_some())
        });
        let mut removed = Vec::new();
        {
            let mut servers = self.write();
            servers.retain(|name, entry| {
                let keep = match wanted.get(name) {
                    Some(config) => {
                        entry.server.config() == config
                            && entry.server.has_current_queue(queues)
                            && !entry.added
                    }
                    None => entry.added,
                };
                if !keep {
                    removed.push(entry.server.clone());
                }
                keep
            });
        }
        // Two programs of one server must not run at the same time, so changed servers are stopped first.
        stop_all(removed.iter()).await;
        let mut servers = self.write();
        let (unchanged, mut added) = (servers.len(), 0);
        for (name, config) in wanted {
            servers.entry(name).or_insert_with(|| {
                added += 1;
                self.start(config, false)
            });
        }
        info!(stopped = removed.len(), added, unchanged, "servers file applied");
    }

    fn start(&self, config: ServerConfig, added: bool) -> ServerEntry {
        let server = Arc::new(Server::start(config, self.context.clone()));
        ServerEntry { server, added }
    }

    /// Returns the tools of all connected servers, under their model names.
    #[must_use]
    pub fn registry(&self) -> &Arc<ToolRegistry> {
        self.context.catalog.registry()
    }

    /// Returns the executor with the bridge's layers.
    pub(crate) fn executor(&self) -> &Arc<ToolExecutor> {
        &self.executor
    }

    /// Returns the registry name of a tool. Server names are case-insensitive.
    #[must_use]
    pub fn registry_name(&self, server: &str, tool: &str) -> Option<String> {
        self.context.catalog.registry_name(server, tool)
    }

    /// Returns the status of all servers, ordered by name.
    #[must_use]
    pub fn servers(&self) -> Vec<ServerStatus> {
        let catalog = &self.context.catalog;
        self.read().values().map(|entry| status(&entry.server, catalog)).collect()
    }

    /// Waits until every server has either connected and published its tools, or failed once; at most
    /// `limit`.
    pub async fn wait_until_settled(&self, limit: Duration) {
        let servers: Vec<_> = self.read().values().map(|entry| entry.server.clone()).collect();
        let all = stream::iter(servers).for_each_concurrent(MAX_CONCURRENT, |server| async move {
            self.server_settled(&server).await;
        });
        let _ = timeout(limit, all).await;
    }

    /// Waits until one server has either connected and published its tools, or failed once; at most
    /// `limit`.
    pub async fn wait_until_server_settled(&self, server: &str, limit: Duration) {
        let Some(ServerEntry { server, .. }) = self.find(server) else { return };
        let _ = timeout(limit, self.server_settled(&server)).await;
    }

    /// Completes when a server has either connected and published its tools, or failed once.
    async fn server_settled(&self, server: &Server) {
        let (mut states, mut index) = (server.states(), self.index());
        loop {
            // A session is ready shortly before its tools are published.
            let is_settled = match &*states.borrow_and_update() {
                ServerState::Connecting { failures: 0, .. } => false,
                ServerState::Ready(_) => {
                    index.borrow_and_update().get(&server.config().name).is_some()
                }
                _ => true,
            };
            if is_settled {
                return;
            }
            let changed = tokio::select! {
                changed = states.changed() => changed,
                changed = index.changed() => changed,
            };
            if changed.is_err() {
                return;
            }
        }
    }

    /// Returns the registry name of a tool that is not registered, once its server is connected.
    ///
    /// # Errors
    /// The reason why the tool cannot be called.
    async fn await_registration(
        &self,
        server: &Server,
        tool: &str,
        context: &ToolContext,
    ) -> Result<String, ToolFailure> {
        server.caller().active_session(context).await?;
        let _ =
            timeout(context.remaining().min(SESSION_TIMEOUT), self.server_settled(server)).await;
        self.registry_name(&server.config().name, tool)
            .ok_or_else(|| ToolFailure::NotFound { name: tool.chars().take(128).collect() })
    }

    /// Starts an interactive login at a server that rejected a request, with the scopes that it requires,
    /// and with `scopes` in addition. Returns `None` when it uses no tokens, or has rejected no request
    /// since the last login and `scopes` is empty.
    ///
    /// # Errors
    /// When the authorization server cannot be found or rejects this client.
    pub async fn log_in(
        &self,
        server: &str,
        scopes: &[String],
    ) -> Result<Option<Login>, OAuthError> {
        let Some(ServerEntry { server, .. }) = self.find(server) else { return Ok(None) };
        match server.tokens() {
            Some(tokens) => tokens.log_in(scopes).await,
            None => Ok(None),
        }
    }

    /// Returns the names of required servers that are not connected.
    #[must_use]
    pub fn missing_required(&self) -> Vec<String> {
        let missing = |server: &ServerStatus| server.required && !server.ready;
        self.servers().into_iter().filter(missing).map(|server| server.name).collect()
    }

    /// Returns a function that updates the gauges of the servers.
    pub fn gauges(self: &Arc<Self>) -> impl Fn() + Send + Sync + 'static {
        let bridge = self.clone();
        move || bridge.context.metrics.record(&bridge.servers())
    }

    /// Closes every session. Programs that do not exit are killed.
    pub async fn stop(&self) {
        let servers = std::mem::take(&mut *self.write());
        stop_all(servers.values().map(|entry| &entry.server)).await;
    }

    fn find(&self, server: &str) -> Option<ServerEntry> {
        self.read().get(&server.to_lowercase()).cloned()
    }

    async fn add(
        &self,
        request: McpRegisterServerRequest,
    ) -> Result<McpServerSummary, McpManageError> {
        let name = request.server_name.clone();
        let fail = |code, message: String| manage_error(&name, code, message);
        if !self.registration.allowed {
            let message = "adding servers at run time is disabled; ask an operator to set \
                           mcp.allow_registration";
            return Err(fail(McpManageErrorCode::NotPermitted, message.to_owned()));
        }
        let config = self.server_config(request)?;
        let server = {
            let mut servers = self.write();
            if servers.contains_key(&name.to_lowercase()) {
                let message = format!("server {name} already exists; choose another name");
                return Err(fail(McpManageErrorCode::Conflict, message));
            }
            if servers.values().filter(|entry| entry.added).count() >= MAX_ADDED {
                let message =
                    format!("the limit of {MAX_ADDED} added servers is reached; remove one first");
                return Err(fail(McpManageErrorCode::NotPermitted, message));
            }
            let entry = self.start(config, true);
            let server = entry.server.clone();
            servers.insert(name.to_lowercase(), entry);
            server
        };
        let settled = timeout(REGISTER_TIMEOUT, self.server_settled(&server)).await.is_ok();
        if let Some(summary) = self.context.catalog.summary(&name) {
            return Ok(summary);
        }
        // A server that never connected is not kept. An operator may have taken its name meanwhile.
        {
            let mut servers = self.write();
            let current = servers.get(&name.to_lowercase());
            if current.is_some_and(|entry| Arc::ptr_eq(&entry.server, &server)) {
                servers.remove(&name.to_lowercase());
            }
        }
        server.stop().await;
        let reason = if settled { "it cannot be connected" } else { "it did not connect in time" };
        Err(fail(McpManageErrorCode::Unavailable, format!("server {name} was not added: {reason}")))
    }

    /// Converts a request to a configuration, without the settings reserved for operators.
    fn server_config(
        &self,
        request: McpRegisterServerRequest,
    ) -> Result<ServerConfig, McpManageError> {
        let McpRegisterServerRequest { server_name, command, arguments, url } = request;
        let fail = |code, message: &str| Err(manage_error(&server_name, code, message.to_owned()));
        let too_long = arguments.iter().any(|argument| argument.len() > MAX_ARGUMENT_BYTES);
        if arguments.len() > MAX_ARGUMENTS || too_long {
            let message = format!(
                "at most {MAX_ARGUMENTS} arguments of {MAX_ARGUMENT_BYTES} bytes are allowed"
            );
            return fail(McpManageErrorCode::InvalidRequest, &message);
        }
        let transport = match (command, url) {
            (Some(command), None) if !self.registration.commands.contains(&command) => {
                let message =
                    "the program is not allowed; ask an operator to add it to mcp.allowed_commands";
                return fail(McpManageErrorCode::NotPermitted, message);
            }
            (Some(command), None) => {
                let (args, env) = (arguments, BTreeMap::new());
                Transport::Stdio(Program { command, args, env, cwd: None })
            }
            (None, Some(url)) if arguments.is_empty() => {
                let oauth = OAuthClient::default();
                Transport::for_url(Remote { url, headers: BTreeMap::new(), oauth })
            }
            _ => {
                let message = "specify either a command with arguments or a url";
                return fail(McpManageErrorCode::InvalidRequest, message);
            }
        };
        ServerConfig::added_at_run_time(&server_name, transport)
            .map_err(|error| manage_error(&server_name, McpManageErrorCode::InvalidRequest, error))
    }

    async fn remove(&self, name: &str) -> Result<(), McpManageError> {
        let server = {
            let mut servers = self.write();
            match servers.get(&name.to_lowercase()) {
                None => return Err(not_found(name)),
                Some(entry) if !entry.added => {
                    let message =
                        format!("server {name} is configured by an operator and cannot be removed");
                    return Err(manage_error(name, McpManageErrorCode::NotPermitted, message));
                }
                Some(_) => servers.remove(&name.to_lowercase()),
            }
        };
        if let Some(entry) = server {
            entry.server.stop().await;
        }
        Ok(())
    }

    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<String, ServerEntry>> {
        self.servers.read()
    }

    fn write(&self) -> RwLockWriteGuard<'_, BTreeMap<String, ServerEntry>> {
        self.servers.write()
    }
}

/// Stops servers concurrently, so that a hung one does not delay the others.
async fn stop_all(servers: impl Iterator<Item = &Arc<Server>>) {
    stream::iter(servers).for_each_concurrent(MAX_CONCURRENT, |server| server.stop()).await;
}

fn status(server: &Server, catalog: &Catalog) -> ServerStatus {
    let ServerConfig { name, required, transport, .. } = server.config();
    let mut status = ServerStatus {
        name: name.clone(),
        transport: transport.name(),
        required: *required,
        ready: false,
        tools: 0,
        rejected_tools: Vec::new(),
        protocol_version: None,
        reason: None,
    };
    match server.state() {
        ServerState::Ready(serving) => {
            status.ready = true;
            if let Some(summary) = catalog.summary(&status.name) {
                status.tools = summary.tool_count as usize;
                status.rejected_tools = summary.rejected_tools;
            }
            status.reason = serving.outdated.as_ref().map(ToString::to_string);
            status.protocol_version = Some(serving.session.info().protocol_version.clone());
        }
        ServerState::OwnedElsewhere { owner } => {
            status.ready = true;
            status.reason = Some(format!("it is owned by bridge {owner}"));
        }
        ServerState::Connecting { reason, .. } => {
            status.reason = reason.map(|reason| reason.to_string());
        }
        ServerState::Stopped => {}
    }
    status
}

fn manage_error(server: &str, code: McpManageErrorCode, message: String) -> McpManageError {
    let server_name = server.chars().take(128).collect();
    McpManageError { server_name, code, message }
}

fn not_found(server: &str) -> McpManageError {
    let name: String = server.chars().take(128).collect();
    let message = format!("no server {name:?}; list the servers for their names");
    manage_error(server, McpManageErrorCode::NotFound, message)
}

impl McpGateway for Bridge {
    fn index(&self) -> watch::Receiver<McpIndex> {
        self.context.catalog.index()
    }

    fn details(
        &self,
        request: McpServerDetailsRequest,
    ) -> BoxFuture<'_, Result<McpServerDetails, McpManageError>> {
        Box::pin(async move {
            let McpServerDetailsRequest { server_name, tool_name, .. } = request;
            let catalog = &self.context.catalog;
            let details = match &tool_name {
                None => catalog.details(&server_name),
                Some(tool) => catalog.tool_details(&server_name, tool),
            };
            let Some(details) = details else {
                let known = self.find(&server_name).is_some();
                let unavailable = || {
                    let message = format!("server {server_name} is not connected; try again later");
                    manage_error(&server_name, McpManageErrorCode::Unavailable, message)
                };
                return Err(if known { unavailable() } else { not_found(&server_name) });
            };
            if let Some(tool_name) = tool_name.filter(|_| details.tools.is_empty()) {
                let tool: String = tool_name.chars().take(128).collect();
                let message = format!("server {server_name} has no tool {tool:?}");
                return Err(manage_error(&server_name, McpManageErrorCode::NotFound, message));
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
                let message = format!("no MCP server {server:?}; list the servers for their names");
                return Err(ToolFailure::Unavailable { message, executed: Executed::No });
            };
            let name = match self.registry_name(server, tool) {
                Some(name) => name,
                None => self.await_registration(&entry.server, tool, context).await?,
            };
            // The same layers as for a call over the bus: no tool is called without them.
            let context = ToolContext { tool_name: name.into(), ..context.clone() };
            let arguments = arguments.to_string().into();
            self.executor.execute(ToolCall { context, arguments }).await
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
