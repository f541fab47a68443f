//! The MCP servers of a process, behind the [`McpGateway`] port.

mod registration;

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use futures_util::{StreamExt, future::BoxFuture, stream};
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use rockbot_contracts::{
    InstanceId, ToolCallId,
    mcp::{
        McpGetPromptRequest, McpListResourcesRequest, McpManageError, McpManageErrorCode,
        McpPromptMessages, McpReadResourceRequest, McpRegisterServerRequest, McpResourceContent,
        McpResourcePage, McpResourcesChanged, McpServerDetails, McpServerDetailsRequest,
        McpServerSummary,
    },
};
use rockbot_llm::ChatModel;
use rockbot_store::{Clock, MemoryStore, Store};
use rockbot_tool_rpc::mcp::{McpGateway, McpIndex, McpServerReport};
use rockbot_tools::{
    Executed, LayerOptions, ResultCache, ToolCall, ToolContext, ToolExecutor, ToolFailure,
    ToolRegistry, ToolResult, limits::queue::Queue,
};
use serde_json::Value;
use tokio::{
    sync::{Semaphore, broadcast, watch},
    time::timeout,
};
use tracing::{info, warn};

use crate::{
    catalog::Catalog,
    config::{InvalidServer, MAX_SERVERS, ServerConfig, ServersFile},
    connect::DialSettings,
    content::{BoundedContent, ContentFailure, ResourceList},
    oauth::{Login, OAuthError},
    ownership::Ownership,
    queue::BridgeQueues,
    server::{BridgeContext, Server},
    state::{ActiveSession, ServerState},
    states::ServerStates,
    status::ServerStatus,
    task_handles::TaskHandles,
    telemetry::ServerMetrics,
    tool_caller::SESSION_TIMEOUT,
    transport::DialPolicy,
};

pub use self::registration::RegistrationPolicy;

/// The maximum number of servers that are awaited or stopped concurrently: all of them.
const MAX_CONCURRENT: usize = MAX_SERVERS + registration::MAX_ADDED;
/// The maximum number of announcements of changed resources that a receiver has not read.
const MAX_CHANGES: usize = 256;
/// The default capacity of the result cache, in bytes.
const DEFAULT_CACHE_BYTES: u64 = 64 * 1024 * 1024;

/// Options of a bridge.
#[derive(Clone, Default)]
pub struct BridgeOptions {
    /// Queues that servers can share, by name, in addition to those of the servers file.
    pub queues: BTreeMap<String, Arc<Queue>>,
    /// Servers that are connected concurrently at startup; 0 means 8. A connection attempt releases its permit after
    /// 2 s.
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
    /// Declares to servers with a handshake that a user can respond to requests for input.
    pub declares_input: bool,
    /// Summarizes servers. Servers get a fixed summary when this is `None`.
    pub model: Option<Arc<dyn ChatModel>>,
    /// Layers of every call. Without a cache, one of 64 MiB is created.
    pub layers: LayerOptions,
}

/// The servers of this process. As a [`McpGateway`], it is usable without a bus.
pub struct Bridge {
    context: Arc<BridgeContext>,
    executor: Arc<ToolExecutor>,
    registration: RegistrationPolicy,
    servers: RwLock<BTreeMap<String, ServerEntry>>,
    /// The servers that the applied file does not define validly; `None` before the first file.
    invalid: RwLock<Option<Vec<InvalidServer>>>,
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
        let BridgeOptions { queues, init_concurrency, dial, tokens, declares_input, .. } = options;
        let BridgeOptions { registration, shared, model, mut layers, .. } = options;
        let tasks = match &shared {
            Some((store, namespace, _)) => TaskHandles::new(store.clone(), namespace),
            None => TaskHandles::new(Arc::new(MemoryStore::new(Clock::System)), "local"),
        };
        let ownership =
            shared.map(|(store, namespace, instance)| Ownership::new(store, &namespace, &instance));
        let concurrency = if init_concurrency == 0 { 8 } else { init_concurrency };
        let context = BridgeContext {
            catalog: Catalog::new(),
            states: ServerStates::new(layers.redactor.clone()),
            queues: BridgeQueues::new(queues),
            dial: DialSettings {
                policy: Arc::new(dial),
                tokens,
                declares_input,
                tasks,
                apis: Arc::default(),
            },
            ownership,
            metrics: ServerMetrics::default(),
            model,
            resource_changes: broadcast::Sender::new(MAX_CHANGES),
            starting: Arc::new(Semaphore::new(concurrency)),
        };
        layers.cache.get_or_insert_with(|| ResultCache::new(DEFAULT_CACHE_BYTES));
        let registry = context.catalog.registry().clone();
        Arc::new(Self {
            context: Arc::new(context),
            executor: Arc::new(ToolExecutor::with_layers(registry, layers)),
            registration,
            servers: RwLock::default(),
            invalid: RwLock::default(),
        })
    }

    /// Applies a servers file: starts new servers, stops removed ones, restarts changed ones, and leaves
    /// the others alone. What the file says of calls (`toolTimeout`, `traceMCP` and the limits of queues)
    /// applies to the next ones without a restart. Servers that were added at run time stay, unless the file takes their name.
    pub async fn apply(&self, file: ServersFile) {
        let queues = &self.context.queues;
        for problem in file.queue_problems(|name| queues.is_configured(name)) {
            warn!(problem, "servers file has an invalid queue");
        }
        let ServersFile {
            servers: mut wanted, queues: in_file, errors, mut invalid, warnings, ..
        } = file;
        for warning in &warnings {
            warn!(warning, "servers file entry has parts without effect");
        }
        for error in &errors {
            warn!(error, "servers file entry rejected");
        }
        queues.apply(&in_file);
        wanted.retain(|_, ServerConfig { name, queue, required, .. }| {
            let is_known = queue.as_ref().is_none_or(|queue| queues.get(queue).is_some());
            if !is_known {
                let (name, required) = (name.clone(), *required);
                let reason = "its queue is not defined".to_owned();
                invalid.push(InvalidServer { name, reason, required });
            }
            is_known
        });
        let mut removed = Vec::new();
        {
            let mut servers = self.write();
            servers.retain(|name, entry| {
                let keep = match wanted.get(name) {
                    Some(config) => entry.server.config() == config && !entry.added,
                    None => entry.added,
                };
                if keep {
                    let config = wanted.get(name).unwrap_or(entry.server.config());
                    entry.server.set_call_settings(config);
                } else {
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
        self.context.states.publish_invalid(&invalid);
        *self.invalid.write() = Some(invalid);
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

    /// Returns whether a server runs the call as a task that this bridge can continue.
    pub(crate) async fn has_task(&self, call: &ToolCallId) -> bool {
        self.context.dial.tasks.find(call).await.is_some()
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
        let servers = self.read();
        let servers = servers.values().map(|entry| &entry.server);
        let status = |server: &Arc<Server>| {
            let listed = catalog.listed_tools(&server.config().name);
            ServerStatus::new(server.config(), &server.state(), listed)
        };
        servers.map(status).collect()
    }

    /// Returns `true` once a servers file was applied.
    #[must_use]
    pub fn has_applied_file(&self) -> bool {
        self.invalid.read().is_some()
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

    /// Returns the names of required servers that are not connected, or whose entries are invalid.
    #[must_use]
    pub fn missing_required(&self) -> Vec<String> {
        let missing = |server: &ServerStatus| server.required && !server.ready;
        let missing = self.servers().into_iter().filter(missing).map(|server| server.name);
        let invalid = self.invalid.read();
        let invalid = invalid.iter().flatten().filter(|server| server.required);
        missing.chain(invalid.map(|server| server.name.clone())).collect()
    }

    /// Returns the open session with a server. `permits` returns whether its configuration permits the
    /// request.
    fn session(
        &self,
        server: &str,
        what: &str,
        permits: fn(&ServerConfig) -> bool,
    ) -> Result<Arc<ActiveSession>, McpManageError> {
        let entry = self.find(server).ok_or_else(|| not_found(server))?;
        if !permits(entry.server.config()) {
            return Err(content_error(server, ContentFailure::not_offered(what)));
        }
        match entry.server.state() {
            ServerState::Ready(active) => Ok(active),
            _ => {
                let message = format!("server {server} is not connected here; try again later");
                Err(manage_error(server, McpManageErrorCode::Unavailable, message))
            }
        }
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

fn manage_error(server: &str, code: McpManageErrorCode, message: String) -> McpManageError {
    let server_name = server.chars().take(128).collect();
    McpManageError { server_name, code, message }
}

fn content_error(server: &str, failure: ContentFailure) -> McpManageError {
    let ContentFailure { code, message } = failure;
    manage_error(server, code, message)
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

    fn states(&self) -> watch::Receiver<Vec<McpServerReport>> {
        self.context.states.reports()
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

    fn resources(
        &self,
        request: McpListResourcesRequest,
    ) -> BoxFuture<'_, Result<McpResourcePage, McpManageError>> {
        Box::pin(async move {
            let McpListResourcesRequest { server_name, templates, after } = request;
            let active = self.session(&server_name, "resources", |config| config.resources)?;
            let listed = active.session.resources(templates, after).await;
            let listed = listed.map_err(|failure| content_error(&server_name, failure))?;
            let ResourceList { resources, left_out, next } = listed;
            let left_out = u32::try_from(left_out).unwrap_or(u32::MAX);
            Ok(McpResourcePage { server_name, resources, left_out, next })
        })
    }

    fn read_resource(
        &self,
        request: McpReadResourceRequest,
    ) -> BoxFuture<'_, Result<McpResourceContent, McpManageError>> {
        Box::pin(async move {
            let McpReadResourceRequest { server_name, uri } = request;
            let active = self.session(&server_name, "resources", |config| config.resources)?;
            let read = active.session.read_resource(&uri).await;
            let read = read.map_err(|failure| content_error(&server_name, failure))?;
            let BoundedContent { content, is_truncated } = read;
            Ok(McpResourceContent { server_name, content, is_truncated })
        })
    }

    fn resource_changes(&self) -> broadcast::Receiver<McpResourcesChanged> {
        self.context.resource_changes.subscribe()
    }

    fn prompt(
        &self,
        request: McpGetPromptRequest,
    ) -> BoxFuture<'_, Result<McpPromptMessages, McpManageError>> {
        Box::pin(async move {
            let McpGetPromptRequest { server_name, prompt_name, arguments } = request;
            let active = self.session(&server_name, "prompts", |config| config.prompts)?;
            let messages = active.session.prompt(&prompt_name, arguments).await;
            let messages = messages.map_err(|failure| content_error(&server_name, failure))?;
            Ok(McpPromptMessages { server_name, messages })
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
