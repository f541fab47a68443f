//! Sessions with servers: listing and calling tools.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::future::BoxFuture;
use rmcp::{
    RoleClient,
    model::{
        CallToolRequest, CallToolRequestParams, CancelledNotification, CancelledNotificationParam,
        ClientRequest, InputRequest, InputRequiredResult, JsonObject, PaginatedRequestParams,
        PingRequest, RequestId, ServerResult, Tool,
    },
    service::{ClientCacheConfig, Peer, PeerRequestOptions, ServiceError},
};
use rockbot_contracts::{
    Executed,
    mcp::{McpPromptMessage, McpToolDefinition},
};
use rockbot_tools::{ToolContext, ToolFailure, ToolResult};
use serde_json::{Value, json};
use tokio::time::timeout;
use tracing::{Instrument, warn};

use crate::{
    call_error::{CallError, failure, is_gone},
    client::Client,
    config::ServerConfig,
    content::{self, BoundedContent, ContentFailure, ResourceList},
    definitions::{Definitions, MAX_TOOLS, Offers},
    result::{readable_result, tool_result},
    server_session::{ServerInfo, ServerSession},
    telemetry,
    transport::describe_request,
};

/// The default idle timeout of a call: how long the server may send nothing.
pub(crate) const DEFAULT_IDLE: Duration = Duration::from_secs(60);
/// The time limit for one page of the tool list.
const LIST_TIMEOUT: Duration = Duration::from_secs(30);
/// The maximum number of pages of the tool list.
const MAX_PAGES: usize = 100;
/// The time limit for a ping.
const PING_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum number of rounds of a call: the call itself, and the responses to requests for input.
const MAX_ROUNDS: usize = 4;

/// An open session. Calls run concurrently.
pub(crate) struct Session {
    peer: Peer<RoleClient>,
    client: Client,
    calls: Arc<AtomicUsize>,
    info: ServerInfo,
    /// The server declares resources.
    has_resources: bool,
    /// The server declares prompts.
    pub(crate) has_prompts: bool,
    /// The session began with a handshake, as before 2026-07-28.
    pub(crate) has_handshake: bool,
}

impl Session {
    pub(crate) async fn new(peer: Peer<RoleClient>, client: Client) -> Self {
        // Lists are requested after change notifications, so cached responses would be stale.
        peer.set_response_cache_config(ClientCacheConfig::disabled()).await;
        let info = peer.peer_info();
        let info = info.as_deref();
        let version = info.map(|info| info.protocol_version.clone()).unwrap_or_default();
        let capabilities = info.map(|info| info.capabilities.clone()).unwrap_or_default();
        let server_info = ServerInfo {
            display_name: info
                .and_then(|info| info.server_info.as_ref())
                .map(|server| server.title.clone().unwrap_or_else(|| server.name.clone())),
            instructions: info.and_then(|info| info.instructions.clone()),
            protocol_version: version.to_string(),
        };
        Self {
            info: server_info,
            has_resources: capabilities.resources.is_some(),
            has_prompts: capabilities.prompts.is_some(),
            has_handshake: version.has_initialize(),
            peer,
            client,
            calls: Arc::default(),
        }
    }

    /// Returns the protocol peer.
    pub(crate) fn peer(&self) -> &Peer<RoleClient> {
        &self.peer
    }

    /// Returns the number of running calls.
    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }

    /// Returns the tools that the server lists, within bounds.
    ///
    /// # Errors
    /// When a page is missing or invalid.
    async fn tools(&self) -> Result<Vec<Tool>, ServiceError> {
        let mut tools = Vec::new();
        let mut cursor = None;
        for _ in 0..MAX_PAGES {
            let mut page = PaginatedRequestParams::default();
            page.cursor = cursor;
            let listed = timeout(LIST_TIMEOUT, self.peer.list_tools(Some(page))).await;
            let page = listed.map_err(|_| ServiceError::Timeout { timeout: LIST_TIMEOUT })??;
            tools.extend(page.tools);
            cursor = page.next_cursor;
            if cursor.is_none() || tools.len() > MAX_TOOLS {
                break;
            }
        }
        Ok(tools)
    }

    /// Returns the offers of the server besides tools that its configuration permits. A list of prompts that
    /// fails is empty: the tools do not depend on it.
    async fn offers(&self, config: &ServerConfig) -> Offers {
        let mut offers =
            Offers { has_resources: self.has_resources && config.resources, prompts: Vec::new() };
        if self.has_prompts && config.prompts {
            match content::list_prompts(&self.peer).await {
                Ok(prompts) => offers.prompts = prompts,
                Err(error) => warn!(server = %config.name, error, "prompt listing failed"),
            }
        }
        offers
    }

    /// Returns whether the server replies, even with an error.
    pub(crate) async fn ping(&self) -> bool {
        let options = PeerRequestOptions::with_timeout(PING_TIMEOUT);
        let request = if self.has_handshake {
            ClientRequest::PingRequest(PingRequest::default())
        } else {
            // The later revisions have no ping.
            ClientRequest::ListToolsRequest(rmcp::model::ListToolsRequest::default())
        };
        let sent =
            timeout(PING_TIMEOUT, self.peer.send_request_with_option(request, options)).await;
        match sent {
            Ok(Ok(handle)) => {
                matches!(handle.await_response().await, Ok(_) | Err(ServiceError::McpError(_)))
            }
            _ => false,
        }
    }

    async fn traced_call(
        &self,
        tool: &McpToolDefinition,
        arguments: &Value,
        context: &ToolContext,
        idle: Duration,
    ) -> Result<ToolResult, CallError> {
        let _active = ActiveCall::start(&self.calls);
        let span = telemetry::call_span(&self.info.protocol_version, tool, context);
        let rounds = self.rounds(tool, arguments, context, idle);
        let outcome = Box::pin(rounds).instrument(span.clone()).await;
        match outcome {
            Err(CallError::SessionExpired) => {
                telemetry::record_session_expiry(&span);
                Err(CallError::SessionExpired)
            }
            outcome => {
                let outcome = outcome.map_err(CallError::into_failure);
                telemetry::record_outcome(&span, &outcome);
                Ok(outcome?)
            }
        }
    }

    /// Sends the call, and declines requests for input until the server returns a result.
    async fn rounds(
        &self,
        tool: &McpToolDefinition,
        arguments: &Value,
        context: &ToolContext,
        idle: Duration,
    ) -> Result<ToolResult, CallError> {
        let (mut input_responses, mut request_state) = (None, None);
        for _ in 0..MAX_ROUNDS {
            let mut params = CallToolRequestParams::new(tool.name.clone());
            params.arguments = Some(object(arguments)?);
            params.input_responses = input_responses;
            params.request_state = request_state;
            match self.request(params, tool, context, idle).await? {
                Reply::Result(result) => return Ok(result),
                Reply::InputRequired(input) => {
                    let InputRequiredResult { input_requests, request_state: state, .. } = input;
                    input_responses =
                        input_requests.map(|requests| requests.iter().map(decline_input).collect());
                    request_state = state;
                }
            }
        }
        let message = "the server requires input from a user, which is not supported";
        Err(ToolFailure::failed(message).into())
    }

    async fn request(
        &self,
        params: CallToolRequestParams,
        tool: &McpToolDefinition,
        context: &ToolContext,
        idle: Duration,
    ) -> Result<Reply, CallError> {
        let total = context.remaining();
        let failure = |error| failure(error, tool, idle.min(total));
        let options = PeerRequestOptions::with_timeout(idle)
            .reset_timeout_on_progress()
            .with_max_total_timeout(total);
        let options = match telemetry::trace_meta() {
            Some(meta) => options.with_meta(meta),
            None => options,
        };
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        let not_sent = || ToolFailure::Unavailable {
            message: "the server is disconnected; try again".to_owned(),
            executed: Executed::No,
        };
        let sent = self.peer.send_request_with_option(request, options);
        let handle = timeout(total, sent).await.map_err(|_| not_sent())?.map_err(|_| not_sent())?;
        let _progress = context.updates.is_some().then(|| {
            let context = context.clone();
            let sink = Arc::new(move |line| context.progress(line));
            self.client.forward_progress(handle.progress_token.clone(), sink)
        });
        let mut cancel = CancelOnDrop::armed(&self.peer, &handle.id);
        let reply = tokio::select! {
            biased;
            reply = handle.await_response() => reply,
            () = context.cancellation.cancelled() => {
                // The server sends no response to a cancelled request.
                return Err(ToolFailure::Cancelled { executed: Executed::Unknown }.into());
            }
        };
        cancel.disarm();
        match reply {
            Ok(ServerResult::CallToolResult(result)) => Ok(Reply::Result(tool_result(result))),
            Ok(ServerResult::InputRequiredResult(input)) => Ok(Reply::InputRequired(input)),
            Ok(ServerResult::CustomResult(result)) => match readable_result(result.0) {
                Some(result) => Ok(Reply::Result(result)),
                None => Err(failure(ServiceError::UnexpectedResponse).into()),
            },
            Ok(_) => Err(failure(ServiceError::UnexpectedResponse).into()),
            Err(error) if self.has_handshake && is_gone(&error) => Err(CallError::SessionExpired),
            Err(error) => Err(failure(error).into()),
        }
    }
}

impl ServerSession for Session {
    fn info(&self) -> &ServerInfo {
        &self.info
    }

    fn list<'a>(&'a self, config: &'a ServerConfig) -> BoxFuture<'a, Result<Definitions, String>> {
        Box::pin(async move {
            let listed = self.tools().await.map_err(|error| describe_request(&error))?;
            let offers = self.offers(config).await;
            Ok(Definitions { offers, ..Definitions::from_listed(config, listed) })
        })
    }

    fn call<'a>(
        &'a self,
        tool: &'a McpToolDefinition,
        arguments: &'a Value,
        context: &'a ToolContext,
        idle: Duration,
    ) -> BoxFuture<'a, Result<ToolResult, CallError>> {
        Box::pin(self.traced_call(tool, arguments, context, idle))
    }

    fn resources(
        &self,
        templates: bool,
        after: Option<String>,
    ) -> BoxFuture<'_, Result<ResourceList, ContentFailure>> {
        Box::pin(async move {
            if !self.has_resources {
                return Err(ContentFailure::not_offered("resources"));
            }
            content::list_resources(&self.peer, templates, after).await
        })
    }

    fn read_resource<'a>(
        &'a self,
        uri: &'a str,
    ) -> BoxFuture<'a, Result<BoundedContent, ContentFailure>> {
        Box::pin(async move {
            if !self.has_resources {
                return Err(ContentFailure::not_offered("resources"));
            }
            content::read_resource(&self.peer, uri).await
        })
    }

    fn prompt<'a>(
        &'a self,
        name: &'a str,
        arguments: BTreeMap<String, String>,
    ) -> BoxFuture<'a, Result<Vec<McpPromptMessage>, ContentFailure>> {
        Box::pin(async move {
            if !self.has_prompts {
                return Err(ContentFailure::not_offered("prompts"));
            }
            content::get_prompt(&self.peer, name, arguments).await
        })
    }
}

enum Reply {
    Result(ToolResult),
    InputRequired(InputRequiredResult),
}

fn object(arguments: &Value) -> Result<JsonObject, ToolFailure> {
    match arguments {
        Value::Object(object) => Ok(object.clone()),
        Value::Null => Ok(JsonObject::new()),
        _ => Err(ToolFailure::invalid("the arguments must be an object")),
    }
}

/// Returns the response to a request for input from a user, a model or the file system.
fn decline_input((key, request): (&String, &InputRequest)) -> (String, Value) {
    let response = match request {
        InputRequest::ListRoots(_) => json!({"roots": []}),
        // A decline. Sampling defines no decline; a client without the capability gets this as well.
        _ => json!({"action": "decline"}),
    };
    (key.clone(), response)
}

/// Cancels the request at the server when dropped before a reply arrived.
struct CancelOnDrop<'a> {
    peer: &'a Peer<RoleClient>,
    request: Option<RequestId>,
}

impl<'a> CancelOnDrop<'a> {
    fn armed(peer: &'a Peer<RoleClient>, request: &RequestId) -> Self {
        Self { peer, request: Some(request.clone()) }
    }

    fn disarm(&mut self) {
        self.request = None;
    }
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        let Some(request) = self.request.take() else { return };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let params = CancelledNotificationParam::new(
            Some(request),
            Some("the caller stopped waiting".into()),
        );
        let peer = self.peer.clone();
        runtime.spawn(async move {
            let cancel = CancelledNotification::new(params);
            // Best effort: the server may not be reading.
            let _ = timeout(PING_TIMEOUT, peer.send_notification(cancel.into())).await;
        });
    }
}

/// Counts a running call until dropped.
struct ActiveCall(Arc<AtomicUsize>);

impl ActiveCall {
    fn start(calls: &Arc<AtomicUsize>) -> Self {
        calls.fetch_add(1, Ordering::Relaxed);
        Self(calls.clone())
    }
}

impl Drop for ActiveCall {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
