//! MCP servers of the bridges on the bus.

use std::{sync::Arc, time::Duration};

use parking_lot::{Mutex, MutexGuard};

use futures_util::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use rockbot_bus::{
    Bus, ConsumeError, Publication, Requester, SUBSCRIBE_TIMEOUT, Subscription, subscribe,
};
use rockbot_contracts::{
    Envelope, InputAction, InputRequest, InstanceId, Message, QueueSpec, ToolHints,
    ToolRegistration, ToolSource,
    json::Limits,
    mcp::{
        McpConnection, McpGetPromptRequest, McpInputAnswer, McpInputAnswered, McpInputAsked,
        McpListResourcesRequest, McpManageError, McpManageErrorCode, McpMetadataRefreshRequest,
        McpPromptMessages, McpReadResourceRequest, McpRegisterServerRequest, McpResourceContent,
        McpResourcePage, McpResourcesChanged, McpServerDetails, McpServerDetailsRequest,
        McpServerRegistered, McpServerSummary, McpServerUnregistered, McpServersIndexed,
        McpUnregisterServerRequest,
    },
    topology::{
        mcp_manage, mcp_manage_at, tool_invoke_mcp, tool_invoke_mcp_at, tool_meta_mcp,
        tool_meta_mcp_refresh,
    },
};
use rockbot_tools::{
    UserInput, context::ToolContext, failure::ToolFailure, result::ToolResult, tool::Tool,
};
use serde_json::Value;
use tokio::{
    sync::{broadcast, mpsc, watch},
    task::JoinHandle,
    time::{Instant, timeout},
};
use tracing::debug;

use super::{
    McpGateway, McpIndex, McpServerReport,
    bridge_request::{manage_error, send_request},
    bridges::{Bridges, IndexUpdate},
    details_parts::{DetailsParts, NextPart},
};
use crate::{catalog::EXPIRE_AFTER, remote::RemoteTool};

/// Timeout for the details, a resource, a prompt and the removal of a server.
const DETAILS_TIMEOUT: Duration = Duration::from_secs(25);
/// Timeout for the registration of a server.
const REGISTER_TIMEOUT: Duration = Duration::from_secs(55);

/// Maximum number of requests for input that are open in one call.
const MAX_INPUT_REQUESTS: usize = 8;

/// Maximum number of announcements of changed resources that an agent has not read.
const MAX_CHANGES: usize = 256;

/// Time without announcements after which all bridges have replied to a refresh request.
const SETTLE_TIME: Duration = Duration::from_millis(500);

/// Time after the start by which every live bridge has announced its servers.
const DISCOVERY_TIME: Duration = Duration::from_secs(2);

/// Shortest interval between refresh requests.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);

/// The servers of all bridges on the bus, as one [`McpGateway`].
///
/// Collects the announcements of the bridges, removes a bridge without heartbeats, and requests a refresh
/// after a missed announcement. Requests go to a bridge that has the server.
pub struct BusGateway {
    calls: Arc<Requester>,
    management: Requester,
    bridges: Arc<Mutex<Bridges>>,
    index: watch::Receiver<McpIndex>,
    states: watch::Receiver<Vec<McpServerReport>>,
    changes: broadcast::Sender<McpResourcesChanged>,
    started: Instant,
    task: JoinHandle<()>,
}

impl BusGateway {
    /// Starts to consume announcements, and requests one of every bridge. Calls are sent through `calls`.
    ///
    /// # Errors
    /// When the queue for announcements can't be consumed.
    pub async fn start(calls: Arc<Requester>) -> Result<Arc<Self>, ConsumeError> {
        let bus = calls.bus().clone();
        let address = calls.address().clone().for_mcp_management();
        let queue = QueueSpec::exclusive(&tool_meta_mcp(), address.instance());
        let subscription = Subscription::on_receipt(queue, 64);
        let mut announcements = subscribe(&*bus, subscription, SUBSCRIBE_TIMEOUT).await?;
        // After the queue is declared, so that the announcements reach it.
        let mut refresher = Refresher { bus: bus.clone(), last_request: None };
        refresher.request().await;
        let (sender, index) = watch::channel(McpIndex::default());
        let (state_sender, states) = watch::channel(Vec::new());
        let bridges = Arc::new(Mutex::new(Bridges::default()));
        let updated = bridges.clone();
        let changes = broadcast::Sender::new(MAX_CHANGES);
        let changed = changes.clone();
        let task = tokio::spawn(async move {
            let mut expiry = tokio::time::interval(EXPIRE_AFTER / 7);
            loop {
                let announcement = tokio::select! {
                    announcement = announcements.next() => {
                        let Some(announcement) = announcement else { break };
                        if announcement.envelope().message_type() == McpResourcesChanged::TYPE {
                            forward_changes(&changed, announcement.envelope());
                            continue;
                        }
                        match announcement.envelope().decode(Limits::default()) {
                            Ok(announcement) => Some(announcement),
                            Err(error) => {
                                // At debug level: the error may quote a server.
                                debug!(%error, "unreadable announcement of MCP servers");
                                continue;
                            }
                        }
                    }
                    _ = expiry.tick() => None,
                };
                let result = update(&updated, &sender, &state_sender, announcement);
                if result == IndexUpdate::Gap {
                    refresher.request().await;
                }
            }
        });
        let management = Requester::new(bus, address);
        let started = Instant::now();
        Ok(Arc::new(Self { calls, management, bridges, index, states, changes, started, task }))
    }

    /// Waits until a bridge has announced a server, at most `wait`. Returns whether one has.
    pub async fn wait_for_any(&self, wait: Duration) -> bool {
        let mut index = self.index.clone();
        matches!(timeout(wait, index.wait_for(|index| !index.is_empty())).await, Ok(Ok(_)))
    }

    /// Waits until a bridge has announced a server, no server is being connected, and the index is unchanged
    /// for 0.5 s; at most `wait`.
    pub async fn settle(&self, wait: Duration) {
        let settled = async {
            let (mut index, mut states) = (self.index.clone(), self.states.clone());
            tokio::select! {
                _ = index.wait_for(|index| !index.is_empty()) => {}
                _ = states.wait_for(|states| !states.is_empty()) => {}
            }
            let is_settled = |states: &Vec<McpServerReport>| {
                let mut states = states.iter();
                states.all(|report| report.state.connection != McpConnection::Connecting)
            };
            // The sender outlives this wait unless the gateway ends.
            let _ = states.wait_for(is_settled).await;
            index.mark_unchanged();
            while timeout(SETTLE_TIME, index.changed()).await.is_ok_and(|changed| changed.is_ok()) {
            }
        };
        let _ = timeout(wait, settled).await;
    }

    /// Returns the bridges that have `server`, and whether these are all bridges.
    fn owners(&self, server: &str) -> (Vec<InstanceId>, bool) {
        let bridges = lock(&self.bridges);
        let owners = bridges.owners(server);
        // Bridges that are not discovered yet may not have it.
        let is_discovered = self.started.elapsed() >= DISCOVERY_TIME;
        let all = is_discovered && owners.len() == bridges.len();
        (owners, all)
    }

    async fn request_details(
        &self,
        request: McpServerDetailsRequest,
    ) -> Result<McpServerDetails, McpManageError> {
        let deadline = Instant::now() + DETAILS_TIMEOUT;
        if request.tool_name.is_some() || request.after.is_some() {
            return self.request_part(request, deadline).await;
        }
        let mut parts = DetailsParts::default();
        let mut after = String::new();
        loop {
            let part = McpServerDetailsRequest { after: Some(after), ..request.clone() };
            after = match parts.add(self.request_part(part, deadline).await?) {
                NextPart::Complete(details) => return Ok(*details),
                NextPart::After(after) => after,
                NextPart::TooMany => {
                    let message =
                        "the definitions of its tools are too large; request a single tool";
                    let code = McpManageErrorCode::Unavailable;
                    return Err(manage_error(&request.server_name, code, message));
                }
            };
        }
    }

    async fn request_part(
        &self,
        request: McpServerDetailsRequest,
        deadline: Instant,
    ) -> Result<McpServerDetails, McpManageError> {
        self.request_of_owner(&request.server_name, &request, deadline).await
    }

    /// Requests a resource or a prompt, or a list of them.
    async fn request_content<Q: Message, R: Message>(
        &self,
        server: &str,
        request: &Q,
    ) -> Result<R, McpManageError> {
        self.request_of_owner(server, request, Instant::now() + DETAILS_TIMEOUT).await
    }

    /// Sends a request about a server to a bridge that has it; to another one if that one does not
    /// respond.
    async fn request_of_owner<Q: Message, R: Message>(
        &self,
        server: &str,
        request: &Q,
        deadline: Instant,
    ) -> Result<R, McpManageError> {
        let (owners, _) = self.owners(server);
        // A bridge that is not discovered yet may have it.
        let keys = match owners.as_slice() {
            [] => vec![mcp_manage()],
            owners => owners.iter().map(mcp_manage_at).collect(),
        };
        let message = "no bridge has this server";
        let mut reply = Err(manage_error(server, McpManageErrorCode::Unavailable, message));
        for key in keys {
            let left = deadline.saturating_duration_since(Instant::now());
            reply = send_request(&self.management, key, request, server, left).await;
            // The bridge stopped, or another one has taken the server over.
            let elsewhere = |error: &McpManageError| {
                matches!(error.code, McpManageErrorCode::Unavailable | McpManageErrorCode::NotFound)
            };
            if !reply.as_ref().is_err_and(elsewhere) {
                break;
            }
        }
        reply
    }

    async fn request_removal(&self, server: &str) -> Result<(), McpManageError> {
        let (owners, _) = self.owners(server);
        let key = owners.first().map_or_else(mcp_manage, mcp_manage_at);
        let request = McpUnregisterServerRequest { server_name: server.to_owned() };
        let _: McpServerUnregistered =
            send_request(&self.management, key, &request, server, DETAILS_TIMEOUT).await?;
        Ok(())
    }

    async fn call_tool(
        &self,
        server: &str,
        tool: &str,
        arguments: Value,
        context: &ToolContext,
    ) -> Result<ToolResult, ToolFailure> {
        // A server that all bridges have is load-balanced; otherwise the call goes to one that has it.
        let key = match self.owners(server) {
            (_, true) => tool_invoke_mcp(),
            (owners, false) => owners.first().map_or_else(tool_invoke_mcp, tool_invoke_mcp_at),
        };
        let remote = RemoteTool::new(registration(server, tool), self.calls.clone(), key);
        let remote = remote.with_mcp_server(server, tool);
        let outcome = match &context.input {
            None => remote.call(arguments, context).await,
            Some(input) => {
                let input = input.as_ref();
                Box::pin(self.call_with_input(server, remote, arguments, context, input)).await
            }
        };
        // Bridges strip the text of servers, but a peer may not be one of ours.
        outcome.map(ToolResult::without_hidden_text).map_err(ToolFailure::without_hidden_text)
    }

    /// Runs a tool, and passes the requests of its server for input on to the user.
    async fn call_with_input(
        &self,
        server: &str,
        remote: RemoteTool,
        arguments: Value,
        context: &ToolContext,
        input: &dyn UserInput,
    ) -> Result<ToolResult, ToolFailure> {
        let (sender, mut asked) = mpsc::channel(MAX_INPUT_REQUESTS);
        let remote = remote.with_input(Arc::new(move |request| {
            if sender.try_send(request).is_err() {
                debug!("request for input dropped: too many are open in this call");
            }
        }));
        let mut call = remote.call(arguments, context);
        let mut bridge: Option<InstanceId> = None;
        let mut answers = FuturesUnordered::new();
        loop {
            tokio::select! {
                biased;
                outcome = &mut call => return outcome,
                Some(()) = answers.next(), if !answers.is_empty() => {}
                Some(request) = asked.recv(), if answers.len() < MAX_INPUT_REQUESTS => {
                    // Another bridge continues the call: the earlier requests are lost.
                    if bridge.as_ref() != Some(&request.bridge) {
                        answers.clear();
                        bridge = Some(request.bridge.clone());
                    }
                    answers.push(self.answer_input(server, request, input));
                }
            }
        }
    }

    /// Asks the user, and sends the response to the bridge.
    async fn answer_input(&self, server: &str, asked: McpInputAsked, input: &dyn UserInput) {
        let McpInputAsked { input_id, bridge, expires_in_ms, request, .. } = asked;
        // The name by which the agent knows the server that it calls.
        let request = InputRequest { server: server.to_owned(), ..request };
        let response = match request.checked() {
            Ok(request) => input.ask(request, Duration::from_millis(expires_in_ms)).await,
            Err(reason) => {
                debug!(%input_id, reason, "request for input declined");
                InputAction::Decline.into()
            }
        };
        let (key, answer) = (mcp_manage_at(&bridge), McpInputAnswer { input_id, response });
        let sent: Result<McpInputAnswered, _> =
            send_request(&self.management, key, &answer, server, DETAILS_TIMEOUT).await;
        if let Err(McpManageError { code, .. }) = sent {
            debug!(?code, "response to a request for input not delivered");
        }
    }
}

impl McpGateway for BusGateway {
    fn index(&self) -> watch::Receiver<McpIndex> {
        self.index.clone()
    }

    fn states(&self) -> watch::Receiver<Vec<McpServerReport>> {
        self.states.clone()
    }

    fn details(
        &self,
        request: McpServerDetailsRequest,
    ) -> BoxFuture<'_, Result<McpServerDetails, McpManageError>> {
        Box::pin(self.request_details(request))
    }

    fn resources(
        &self,
        request: McpListResourcesRequest,
    ) -> BoxFuture<'_, Result<McpResourcePage, McpManageError>> {
        Box::pin(async move { self.request_content(&request.server_name, &request).await })
    }

    fn read_resource(
        &self,
        request: McpReadResourceRequest,
    ) -> BoxFuture<'_, Result<McpResourceContent, McpManageError>> {
        Box::pin(async move { self.request_content(&request.server_name, &request).await })
    }

    fn resource_changes(&self) -> broadcast::Receiver<McpResourcesChanged> {
        self.changes.subscribe()
    }

    fn prompt(
        &self,
        request: McpGetPromptRequest,
    ) -> BoxFuture<'_, Result<McpPromptMessages, McpManageError>> {
        Box::pin(async move { self.request_content(&request.server_name, &request).await })
    }

    fn call<'a>(
        &'a self,
        server: &'a str,
        tool: &'a str,
        arguments: Value,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolResult, ToolFailure>> {
        Box::pin(self.call_tool(server, tool, arguments, context))
    }

    fn deduplicates_calls(&self) -> bool {
        true
    }

    fn register(
        &self,
        request: McpRegisterServerRequest,
    ) -> BoxFuture<'_, Result<McpServerSummary, McpManageError>> {
        Box::pin(async move {
            let server = request.server_name.clone();
            let registered: McpServerRegistered =
                send_request(&self.management, mcp_manage(), &request, &server, REGISTER_TIMEOUT)
                    .await?;
            Ok(registered.server)
        })
    }

    fn unregister<'a>(&'a self, server: &'a str) -> BoxFuture<'a, Result<(), McpManageError>> {
        Box::pin(self.request_removal(server))
    }
}

impl Drop for BusGateway {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl std::fmt::Debug for BusGateway {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BusGateway")
            .field("bridges", &lock(&self.bridges).len())
            .field("servers", &self.index.borrow().len())
            .finish_non_exhaustive()
    }
}

/// Passes changed resources on to the agents of this process.
fn forward_changes(changes: &broadcast::Sender<McpResourcesChanged>, envelope: &Envelope) {
    match envelope.decode::<McpResourcesChanged>(Limits::default()) {
        Ok(mut changed) => {
            changed.uris.truncate(McpResourcesChanged::MAX_URIS);
            // Without a receiver, no agent of this process reads resources.
            let _ = changes.send(changed);
        }
        // At debug level: the error may quote a server.
        Err(error) => debug!(%error, "unreadable announcement of changed resources"),
    }
}

/// Applies an announcement, or removes expired bridges without one, and publishes a changed index and
/// changed states.
fn update(
    bridges: &Mutex<Bridges>,
    index: &watch::Sender<McpIndex>,
    states: &watch::Sender<Vec<McpServerReport>>,
    announcement: Option<McpServersIndexed>,
) -> IndexUpdate {
    let mut bridges = lock(bridges);
    let result = match announcement {
        Some(announcement) => bridges.apply(announcement),
        None => {
            bridges.remove_expired(EXPIRE_AFTER);
            IndexUpdate::Applied
        }
    };
    replace(index, bridges.index());
    replace(states, bridges.states());
    result
}

/// Publishes a value if it differs from the published one.
fn replace<T: PartialEq>(published: &watch::Sender<T>, now: T) {
    published.send_if_modified(|published| {
        let changed = *published != now;
        *published = now;
        changed
    });
}

fn lock(bridges: &Mutex<Bridges>) -> MutexGuard<'_, Bridges> {
    bridges.lock()
}

/// Returns the registration of a tool of which only the server and the name are known, with the most
/// cautious hints.
fn registration(server: &str, tool: &str) -> ToolRegistration {
    ToolRegistration {
        name: tool.to_owned(),
        label: None,
        description: String::new(),
        tool_description: None,
        parameters: Value::Null,
        source: ToolSource::Mcp(server.to_owned()),
        hints: ToolHints::default(),
        timeout_ms: None,
    }
}

/// Requests complete announcements of all bridges, at most once per [`REFRESH_INTERVAL`].
struct Refresher {
    bus: Arc<dyn Bus>,
    last_request: Option<Instant>,
}

impl Refresher {
    async fn request(&mut self) {
        if self.last_request.is_some_and(|at| at.elapsed() < REFRESH_INTERVAL) {
            // The next heartbeat shows the gap again.
            return;
        }
        self.last_request = Some(Instant::now());
        let envelope = Envelope::from_payload(&McpMetadataRefreshRequest::default());
        let publication = Publication::announcement(tool_meta_mcp_refresh(), envelope);
        if let Err(error) = self.bus.publish(publication).await {
            debug!(%error, "refresh request not published; heartbeats follow anyway");
        }
    }
}
