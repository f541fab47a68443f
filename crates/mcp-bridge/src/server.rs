//! One server and the task that owns its connection.

use std::{pin::pin, sync::Arc, time::Duration};

use metrics::counter;
use parking_lot::Mutex;
use rmcp::{RoleClient, service::RunningService};
use rockbot_contracts::mcp::McpResourcesChanged;
use rockbot_llm::ChatModel;
use rockbot_tools::CallPolicy;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, broadcast, watch},
    task::JoinHandle,
    time::{Instant, MissedTickBehavior, interval_at, sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use crate::{
    backoff::{Backoff, STABLE_AFTER},
    catalog::Catalog,
    change_stream::ChangeStream,
    client::Client,
    config::ServerConfig,
    connect::{self, ConnectFailure, Opened},
    era::Era,
    oauth::{Grant, OAuthTokens},
    openapi::ApiSession,
    ownership::{Ownership, OwnershipGuard},
    queue::BridgeQueues,
    server_session::ServerSession,
    session::Session,
    state::{ActiveSession, ServerState},
    states::ServerStates,
    status::ServerStatus,
    summary,
    telemetry::ServerMetrics,
    tool_caller::{CallSettings, ToolCaller},
    transport::FailureClass,
};

/// The interval between pings.
const PING_INTERVAL: Duration = Duration::from_secs(30);
/// Consecutive missed pings after which the session is closed.
const MAX_MISSED_PINGS: u32 = 3;
/// The delay between a change notification and listing the tools: notifications come in bursts.
const DEBOUNCE: Duration = Duration::from_millis(250);
/// The minimum interval between two listings.
const LIST_INTERVAL: Duration = Duration::from_secs(1);
/// The time after which a first connection attempt releases its permit. A server that does not respond takes 90 s, and
/// several of them would delay all others.
const PERMIT_TIME_LIMIT: Duration = Duration::from_secs(2);
/// The time limit for closing a session.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(6);
/// Consecutive failures after which the tools of a server are withdrawn.
const WITHDRAW_AFTER_FAILURES: u32 = 3;

/// State shared by all servers of a bridge.
pub(crate) struct BridgeContext {
    pub(crate) catalog: Catalog,
    pub(crate) states: ServerStates,
    pub(crate) queues: BridgeQueues,
    pub(crate) dial: connect::DialSettings,
    pub(crate) ownership: Option<Ownership>,
    pub(crate) metrics: ServerMetrics,
    /// Summarizes servers. Servers get a fixed summary when this is `None`.
    pub(crate) model: Option<Arc<dyn ChatModel>>,
    /// Resources that changed, among those that callers have read.
    pub(crate) resource_changes: broadcast::Sender<McpResourcesChanged>,
    /// Limits concurrent first connection attempts, each for [`PERMIT_TIME_LIMIT`].
    pub(crate) starting: Arc<Semaphore>,
}

/// A server of the bridge.
pub(crate) struct Server {
    caller: ToolCaller,
    tokens: Option<OAuthTokens>,
    context: Arc<BridgeContext>,
    stop: CancellationToken,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Server {
    pub(crate) fn start(config: ServerConfig, context: Arc<BridgeContext>) -> Self {
        let era = Era::configured(&config);
        let config = Arc::new(config);
        let (sender, state) = watch::channel(ServerState::Connecting { failures: 0, reason: None });
        let settings = call_settings(&config, &context.queues);
        let tokens = context.dial.tokens(&config);
        let caller = ToolCaller::new(config, state, settings);
        let stop = CancellationToken::new();
        let task = ConnectionTask {
            caller: caller.clone(),
            tokens: tokens.clone(),
            state: sender,
            context: context.clone(),
            stop: stop.clone(),
            era,
            ownership: None,
            backoff: Backoff::new(),
            restarts: 0,
            followed: Vec::new(),
        };
        task.publish_state();
        let task = Mutex::new(Some(tokio::spawn(task.run())));
        Self { caller, tokens, context, stop, task }
    }

    pub(crate) fn config(&self) -> &ServerConfig {
        self.caller.config()
    }

    pub(crate) fn state(&self) -> ServerState {
        self.caller.states().borrow().clone()
    }

    pub(crate) fn states(&self) -> watch::Receiver<ServerState> {
        self.caller.states().clone()
    }

    /// Returns the token source of the server, if the server uses OAuth.
    pub(crate) fn tokens(&self) -> Option<&OAuthTokens> {
        self.tokens.as_ref()
    }

    pub(crate) fn caller(&self) -> &ToolCaller {
        &self.caller
    }

    /// Applies what a configuration and the queues say of calls to the next ones.
    pub(crate) fn set_call_settings(&self, config: &ServerConfig) {
        self.caller.set_settings(call_settings(config, &self.context.queues));
    }

    /// Closes the session and stops the task, within twice [`CLOSE_TIMEOUT`].
    pub(crate) async fn stop(&self) {
        self.stop.cancel();
        let task = self.task.lock().take();
        if let Some(mut task) = task
            && timeout(CLOSE_TIMEOUT * 2, &mut task).await.is_err()
        {
            warn!(server = %self.config().name, "server shutdown timed out; aborting its task");
            task.abort();
        }
        self.context.states.remove(&self.config().name);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(task) = self.task.lock().take() {
            task.abort();
        }
    }
}

/// Completes `opening`. Releases the permit when it is complete, and after [`PERMIT_TIME_LIMIT`] at the latest.
async fn with_permit<T>(
    permit: Option<OwnedSemaphorePermit>,
    opening: impl Future<Output = T>,
) -> T {
    let mut opening = pin!(opening);
    if let Ok(opened) = timeout(PERMIT_TIME_LIMIT, &mut opening).await {
        return opened;
    }
    drop(permit);
    opening.await
}

/// Returns the settings of calls from the configuration of a server.
fn call_settings(config: &ServerConfig, queues: &BridgeQueues) -> CallSettings {
    let policy = CallPolicy {
        cache: config.cache,
        queue: config.queue.as_ref().and_then(|queue| queues.get(queue)),
        timeout: config.tool_timeout,
        ..CallPolicy::default()
    };
    CallSettings { policy, trace: config.trace }
}

/// Returns the reason why a server is not connected, with the remedy.
fn reason(config: &ServerConfig, failure: &ConnectFailure) -> String {
    let can_log_in = config
        .transport
        .remote()
        .is_some_and(|remote| matches!(remote.oauth.grant, Grant::User { .. }));
    if can_log_in && failure.class() == Some(FailureClass::Unauthorized) {
        format!("{failure}; log in with `rockbot mcp login {}`", config.name)
    } else {
        // It may quote the program or the server.
        config.without_secrets(&failure.to_string())
    }
}

/// The task that owns the connection of a server.
struct ConnectionTask {
    caller: ToolCaller,
    tokens: Option<OAuthTokens>,
    state: watch::Sender<ServerState>,
    context: Arc<BridgeContext>,
    stop: CancellationToken,
    era: Era,
    ownership: Option<OwnershipGuard>,
    backoff: Backoff,
    /// Sessions that ended unexpectedly.
    restarts: u32,
    /// Resources that callers read in earlier sessions.
    followed: Vec<String>,
}

/// The reason why a session ended.
enum SessionEnd {
    Stopped,
    Lost,
    /// Its tools could not be listed.
    Unusable(String),
    /// Ownership was lost to another bridge.
    OwnershipLost,
}

impl ConnectionTask {
    async fn run(mut self) {
        let stop = self.stop.clone();
        while let Some(opened) = stop.run_until_cancelled(Box::pin(self.connect())).await {
            let Some(opened) = opened else { continue };
            let opened_at = Instant::now();
            let name = self.name();
            let end = match opened {
                Opened::Mcp(opened) => {
                    let (running, client, session) = *opened;
                    for uri in std::mem::take(&mut self.followed) {
                        client.resources().follow(&uri);
                    }
                    let end = self.serve(running, &client, session).await;
                    self.followed = client.resources().all();
                    end
                }
                Opened::OpenApi(session) => self.serve_api(*session).await,
            };
            match end {
                SessionEnd::Stopped => break,
                SessionEnd::OwnershipLost => {
                    warn!(server = %name, "server ownership lost");
                    self.context.catalog.withdraw(&name);
                    self.ownership = None;
                    self.backoff.reset();
                }
                SessionEnd::Unusable(reason) => {
                    self.record_failure(&reason);
                    continue;
                }
                SessionEnd::Lost => {
                    info!(server = %name, lasted = ?opened_at.elapsed(), "session ended");
                    self.restarts = self.restarts.saturating_add(1);
                    let metrics = &self.context.metrics;
                    counter!("rockbot_mcp_server_restarts_total", "server" => metrics.label(&name).to_owned())
                        .increment(1);
                    if opened_at.elapsed() >= STABLE_AFTER {
                        self.backoff.reset();
                    } else {
                        self.backoff.record_failure();
                    }
                }
            }
            // Calls wait for the next session, unless sessions keep failing.
            let failures = self.backoff.failures();
            let calls_wait = failures < WITHDRAW_AFTER_FAILURES;
            if !calls_wait {
                self.context.catalog.withdraw(&name);
            }
            let state = if calls_wait {
                ServerState::Connecting { failures: 0, reason: None }
            } else {
                let reason = format!(
                    "the server ended {failures} sessions within {STABLE_AFTER:?} of their start; see \
                     its log"
                );
                ServerState::Connecting { failures, reason: Some(reason.into()) }
            };
            self.set_state(state);
        }
        self.context.catalog.withdraw(&self.name());
        self.state.send_replace(ServerState::Stopped);
        if let Some(owned) = self.ownership.take() {
            owned.release().await;
        }
    }

    fn name(&self) -> String {
        self.caller.config().name.clone()
    }

    fn set_state(&self, state: ServerState) {
        // Published first, because waiters for the state then read the published one.
        self.publish(&state);
        self.state.send_replace(state);
    }

    /// Publishes the current state for people.
    fn publish_state(&self) {
        self.publish(&self.state.borrow());
    }

    fn publish(&self, state: &ServerState) {
        let config = self.caller.config();
        let listed = self.context.catalog.listed_tools(&config.name);
        let status = ServerStatus::new(config, state, listed);
        self.context.states.publish(status.announced(self.restarts));
    }

    /// Waits for the back-off and for a permit to start, then connects. Returns `None` if connecting fails.
    async fn connect(&mut self) -> Option<Opened> {
        sleep(self.backoff.delay()).await;
        self.acquire_ownership().await;
        let config = self.caller.config().clone();
        let starting = self.context.starting.clone();
        let permit =
            if self.backoff.failures() == 0 { starting.acquire_owned().await.ok() } else { None };
        let dial = &self.context.dial;
        let trace = self.caller.start_trace("connect");
        let opening = connect::open(&config, self.era, dial, self.tokens.as_ref());
        let opened = with_permit(permit, opening).await;
        trace.ended(opened.is_ok());
        match opened {
            Ok(opened) => {
                if let Opened::Mcp(opened) = &opened {
                    self.era = Era::from_session(&opened.2);
                }
                Some(opened)
            }
            Err(failure) => {
                // The known era may be outdated: the server may have been replaced.
                self.era = Era::configured(&config);
                self.record_failure(&reason(&config, &failure));
                None
            }
        }
    }

    /// Acquires ownership of the server if only one bridge may serve it.
    async fn acquire_ownership(&mut self) {
        let config = self.caller.config();
        let Some(ownership) = &self.context.ownership else { return };
        if !config.requires_single_owner()
            || self.ownership.as_ref().is_some_and(|owned| !owned.is_lost())
        {
            return;
        }
        let owned = ownership.acquire(&config.name, |owner| {
            self.context.catalog.withdraw(&config.name);
            self.set_state(ServerState::OwnedElsewhere { owner: owner.into() });
        });
        let owned = owned.await;
        self.ownership = Some(owned);
        self.set_state(ServerState::Connecting { failures: 0, reason: None });
    }

    fn record_failure(&mut self, reason: &str) {
        self.backoff.record_failure();
        let (failures, retry_in) = (self.backoff.failures(), self.backoff.delay());
        let name = self.name();
        if self.caller.config().required {
            error!(server = %name, failures, ?retry_in, reason, "connection to required server failed");
        } else {
            warn!(server = %name, failures, ?retry_in, reason, "connection to server failed");
        }
        if failures >= WITHDRAW_AFTER_FAILURES {
            self.context.catalog.withdraw(&name);
        }
        let reason = Some(reason.into());
        self.set_state(ServerState::Connecting { failures, reason });
    }

    /// Serves a session until it ends.
    async fn serve(
        &self,
        running: RunningService<RoleClient, Client>,
        client: &Client,
        session: Session,
    ) -> SessionEnd {
        let session = Arc::new(session);
        let cancel = running.cancellation_token();
        let closed = running.waiting();
        tokio::pin!(closed);
        let ownership_lost = async {
            match &self.ownership {
                Some(owned) => owned.lost().await,
                None => std::future::pending().await,
            }
        };
        let end = tokio::select! {
            _ = &mut closed => return SessionEnd::Lost,
            () = self.stop.cancelled() => SessionEnd::Stopped,
            () = ownership_lost => SessionEnd::OwnershipLost,
            end = self.maintain(&session, client) => end,
        };
        cancel.cancel();
        // Closing notifies the server and waits for its program to exit.
        let _ = timeout(CLOSE_TIMEOUT, closed).await;
        end
    }

    /// Publishes the tools and keeps them up to date. Returns when the first listing fails, or when the server
    /// is unresponsive.
    async fn maintain(&self, session: &Arc<Session>, client: &Client) -> SessionEnd {
        if let Err(reason) = self.refresh_tools(session.clone()).await {
            return SessionEnd::Unusable(format!("listing its tools failed: {reason}"));
        }
        if session.has_handshake() && session.has_subscriptions {
            session.subscribe(&client.resources().all()).await;
        }
        let mut changes = ChangeStream::open(session, client).await;
        let mut ping = interval_at(Instant::now() + PING_INTERVAL, PING_INTERVAL);
        ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut missed = 0;
        let summary = self.summarize();
        tokio::pin!(summary);
        let mut summarized = false;
        loop {
            tokio::select! {
                () = client.tools_changed() => {}
                () = changes.next(client) => {}
                uris = client.resources().changed() => {
                    let changed = McpResourcesChanged { server_name: self.name(), uris };
                    // Without a receiver, no caller follows resources.
                    let _ = self.context.resource_changes.send(changed);
                    continue;
                }
                () = client.resources().following_changed(), if !session.has_handshake() => {
                    changes.reopen(session, client).await;
                    continue;
                }
                () = &mut summary, if !summarized => {
                    summarized = true;
                    continue;
                }
                _ = ping.tick() => {
                    changes.restore(session, client).await;
                    if session.ping().await {
                        missed = 0;
                    } else {
                        missed += 1;
                        warn!(server = %self.name(), missed, "server did not reply to a ping");
                    }
                    // A running call has its own timeout, which takes precedence.
                    if missed >= MAX_MISSED_PINGS && session.calls() == 0 {
                        return SessionEnd::Lost;
                    }
                    continue;
                }
            }
            sleep(DEBOUNCE).await;
            changes.drain(client);
            if let Err(error) = self.refresh_tools(session.clone()).await {
                // The previous tools stay.
                warn!(server = %self.name(), error, "tool listing failed; keeping the previous tools");
            }
            sleep(LIST_INTERVAL - DEBOUNCE).await;
        }
    }

    /// Serves the operations of a document until the server is stopped. Follows changes of the document.
    async fn serve_api(&self, session: ApiSession) -> SessionEnd {
        tokio::select! {
            () = self.stop.cancelled() => SessionEnd::Stopped,
            end = self.maintain_api(session) => end,
        }
    }

    /// Publishes the tools and keeps them up to date. Returns when the first listing fails.
    async fn maintain_api(&self, session: ApiSession) -> SessionEnd {
        let mut session = Arc::new(session);
        let mut document = session.watch();
        if let Err(reason) = self.refresh_tools(session.clone()).await {
            return SessionEnd::Unusable(reason);
        }
        let summary = self.summarize();
        tokio::pin!(summary);
        let mut summarized = false;
        loop {
            tokio::select! {
                () = document.changed() => {}
                () = &mut summary, if !summarized => {
                    summarized = true;
                    continue;
                }
            }
            let refreshed = async {
                session = Arc::new(session.reopen(&self.name()).await?);
                self.refresh_tools(session.clone()).await
            };
            if let Err(error) = refreshed.await {
                warn!(server = %self.name(), error, "document is invalid; keeping the previous tools");
                self.mark_outdated(&error);
            }
        }
    }

    /// Records in the state that the tools are not up to date.
    fn mark_outdated(&self, reason: &str) {
        self.state.send_modify(|state| {
            if let ServerState::Ready(active) = state {
                let (session, tools) = (active.session.clone(), active.tools.clone());
                let (outputs, outdated) = (active.outputs.clone(), Some(reason.into()));
                *active = Arc::new(ActiveSession { session, tools, outputs, outdated });
            }
        });
        self.publish_state();
    }

    async fn refresh_tools(&self, session: Arc<dyn ServerSession>) -> Result<(), String> {
        let config = self.caller.config();
        let trace = self.caller.start_trace("tools/list");
        let listed = session.list(config).await;
        trace.ended(listed.is_ok());
        let definitions = listed?;
        debug!(server = %config.name, tools = definitions.tools.len(), "server tools updated");
        // Ready before the catalog is updated, so that every announced tool can be called.
        let (tools, outputs) = (Arc::new(definitions.tools.clone()), Arc::default());
        let active = Arc::new(ActiveSession { session, tools, outputs, outdated: None });
        let before = self.state.send_replace(ServerState::Ready(active.clone()));
        let info = active.session.info();
        let publish_state = || self.publish_state();
        self.context.catalog.update(&config.name, info, definitions, &self.caller, publish_state);
        if !matches!(before, ServerState::Ready(_)) {
            info!(server = %config.name, protocol = %info.protocol_version, "server connected");
        }
        Ok(())
    }

    /// Summarizes the server with the model, if there is one.
    async fn summarize(&self) {
        let Some(model) = &self.context.model else { return std::future::pending().await };
        let name = self.name();
        let Some(details) = self.context.catalog.details(&name) else { return };
        if let Some(text) = summary::generate(model.as_ref(), &details).await {
            self.context.catalog.set_summary(&name, text);
        }
    }
}
