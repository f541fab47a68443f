//! A session with a server: opened, looked at, called.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use rmcp::{
    RoleClient,
    model::{
        CallToolRequest, CallToolRequestParams, CallToolResult, CancelledNotification,
        CancelledNotificationParam, ClientRequest, ErrorCode, ErrorData, InputRequest,
        InputRequiredResult, JsonObject, PaginatedRequestParams, PingRequest, RequestId,
        ServerResult, Tool,
    },
    service::{ClientCacheConfig, Peer, PeerRequestOptions, ServiceError},
};
use rockbot_contracts::{Executed, mcp::McpToolDefinition};
use rockbot_tools::{ToolContext, ToolFailure, ToolResult};
use serde_json::{Value, json};
use tokio::time::timeout;
use tracing::{Instrument, debug};

use crate::{
    client::Client,
    definitions::MOST_TOOLS,
    result::result,
    telemetry,
    transport::{FailureClass, call_failure_class, stdio::StdioError},
};

/// How long a server may be silent during a call when its configuration does not say.
pub(crate) const DEFAULT_IDLE: Duration = Duration::from_secs(60);
/// How long a page of a list may take.
const LIST_WITHIN: Duration = Duration::from_secs(30);
/// The most pages of a list.
const MOST_PAGES: usize = 100;
/// How long a sign of life may take.
const PING_WITHIN: Duration = Duration::from_secs(10);
/// How often a server may want to know more before it answers a call.
const MOST_ROUNDS: usize = 4;

/// An open session. Calls of it run side by side.
pub(crate) struct Session {
    peer: Peer<RoleClient>,
    client: Client,
    calls: Arc<AtomicUsize>,
    /// What the server calls itself.
    pub(crate) display_name: Option<String>,
    /// How to use it, in its own words.
    pub(crate) instructions: Option<String>,
    /// The revision of the protocol.
    pub(crate) protocol_version: String,
    /// Whether the session began with a handshake, as before 2026-07-28.
    pub(crate) has_handshake: bool,
}

impl Session {
    pub(crate) async fn of(peer: Peer<RoleClient>, client: Client) -> Self {
        // Lists are asked for when the server says that they changed; no other answer is fresh.
        peer.set_response_cache_config(ClientCacheConfig::disabled()).await;
        let info = peer.peer_info();
        let info = info.as_deref();
        let version = info.map(|info| info.protocol_version.clone()).unwrap_or_default();
        Self {
            display_name: info
                .and_then(|info| info.server_info.as_ref())
                .map(|server| server.title.clone().unwrap_or_else(|| server.name.clone())),
            instructions: info.and_then(|info| info.instructions.clone()),
            has_handshake: version.has_initialize(),
            protocol_version: version.to_string(),
            peer,
            client,
            calls: Arc::default(),
        }
    }

    /// What goes to and comes from the server.
    pub(crate) fn peer(&self) -> &Peer<RoleClient> {
        &self.peer
    }

    /// How many calls are under way.
    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }

    /// All tools that the server lists, within bounds.
    ///
    /// # Errors
    /// When a page does not come, or is none.
    pub(crate) async fn tools(&self) -> Result<Vec<Tool>, ServiceError> {
        let mut tools = Vec::new();
        let mut cursor = None;
        for _ in 0..MOST_PAGES {
            let mut page = PaginatedRequestParams::default();
            page.cursor = cursor;
            let listed = timeout(LIST_WITHIN, self.peer.list_tools(Some(page))).await;
            let page = listed.map_err(|_| ServiceError::Timeout { timeout: LIST_WITHIN })??;
            tools.extend(page.tools);
            cursor = page.next_cursor;
            if cursor.is_none() || tools.len() > MOST_TOOLS {
                break;
            }
        }
        Ok(tools)
    }

    /// Whether the server still answers. One that answers with an error does.
    pub(crate) async fn answers(&self) -> bool {
        let options = PeerRequestOptions::with_timeout(PING_WITHIN);
        let request = match self.has_handshake {
            true => ClientRequest::PingRequest(PingRequest::default()),
            // The later revisions have no ping.
            false => ClientRequest::ListToolsRequest(rmcp::model::ListToolsRequest::default()),
        };
        let sent = timeout(PING_WITHIN, self.peer.send_request_with_option(request, options)).await;
        match sent {
            Ok(Ok(handle)) => {
                matches!(handle.await_response().await, Ok(_) | Err(ServiceError::McpError(_)))
            }
            _ => false,
        }
    }

    /// Calls a tool. `idle` is how long the server may be silent; the context's deadline holds as
    /// well.
    ///
    /// # Errors
    /// See [`ToolFailure`]: above all, whether the tool may have run.
    ///
    /// # Cancellation
    /// The server is told, also when the future is dropped.
    pub(crate) async fn call(
        &self,
        tool: &McpToolDefinition,
        arguments: Value,
        context: &ToolContext,
        idle: Duration,
    ) -> Result<ToolResult, ToolFailure> {
        let _counted = Counted::one(&self.calls);
        let mut params = CallToolRequestParams::new(tool.name.clone());
        params.arguments = Some(object(arguments)?);
        let span = telemetry::call(&self.protocol_version, tool, context);
        let rounds = self.rounds(params, tool, context, idle);
        let ended = Box::pin(rounds).instrument(span.clone()).await;
        telemetry::ended(&span, &ended);
        ended
    }

    /// Asks until the server has all that it wants to know.
    async fn rounds(
        &self,
        mut params: CallToolRequestParams,
        tool: &McpToolDefinition,
        context: &ToolContext,
        idle: Duration,
    ) -> Result<ToolResult, ToolFailure> {
        for _ in 0..MOST_ROUNDS {
            match self.ask(params.clone(), tool, context, idle).await? {
                Said::Result(said) => return Ok(result(*said)),
                Said::Wants(more) => {
                    let InputRequiredResult { input_requests, request_state, .. } = more;
                    params.input_responses =
                        input_requests.map(|requests| requests.iter().map(nobody_to_ask).collect());
                    params.request_state = request_state;
                }
            }
        }
        Err(ToolFailure::failed("the server needs answers from a person, and nobody can be asked"))
    }

    async fn ask(
        &self,
        params: CallToolRequestParams,
        tool: &McpToolDefinition,
        context: &ToolContext,
        idle: Duration,
    ) -> Result<Said, ToolFailure> {
        let total = context.remaining();
        let failure = |error| failure(error, tool, idle.min(total));
        let options = PeerRequestOptions::with_timeout(idle)
            .reset_timeout_on_progress()
            .with_max_total_timeout(total);
        let options = match telemetry::meta() {
            Some(meta) => options.with_meta(meta),
            None => options,
        };
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        let not_sent = || ToolFailure::Unavailable {
            message: "the server is gone; try again".to_owned(),
            executed: Executed::No,
        };
        let sent = self.peer.send_request_with_option(request, options);
        let handle = timeout(total, sent).await.map_err(|_| not_sent())?.map_err(|_| not_sent())?;
        let _following = context.updates.is_some().then(|| {
            let context = context.clone();
            let sink = Arc::new(move |line| context.progress(line));
            self.client.follow(handle.progress_token.clone(), sink)
        });
        let mut cancel = CancelOnDrop::armed(&self.peer, &handle.id);
        let answered = tokio::select! {
            biased;
            answered = handle.await_response() => answered,
            () = context.cancellation.cancelled() => {
                // The server does not answer what was cancelled.
                return Err(ToolFailure::Cancelled { executed: Executed::Unknown });
            }
        };
        cancel.disarm();
        match answered {
            Ok(ServerResult::CallToolResult(said)) => Ok(Said::Result(Box::new(said))),
            Ok(ServerResult::InputRequiredResult(more)) => Ok(Said::Wants(more)),
            Ok(_) => Err(failure(ServiceError::UnexpectedResponse)),
            Err(error) => Err(failure(error)),
        }
    }
}

enum Said {
    Result(Box<CallToolResult>),
    Wants(InputRequiredResult),
}

fn object(arguments: Value) -> Result<JsonObject, ToolFailure> {
    match arguments {
        Value::Object(object) => Ok(object),
        Value::Null => Ok(JsonObject::new()),
        _ => Err(ToolFailure::invalid("the arguments must be an object")),
    }
}

/// What a server hears that wants something of a person, of a model or of a disk.
fn nobody_to_ask((key, request): (&String, &InputRequest)) -> (String, Value) {
    let answer = match request {
        InputRequest::ListRoots(_) => json!({"roots": []}),
        // A decline; for sampling there is no such answer, and this one is not what it asked for.
        _ => json!({"action": "decline"}),
    };
    (key.clone(), answer)
}

fn failure(error: ServiceError, tool: &McpToolDefinition, after: Duration) -> ToolFailure {
    match error {
        ServiceError::McpError(error) => refusal(&error),
        ServiceError::Timeout { .. } => ToolFailure::TimedOut {
            after,
            executed: Executed::Unknown,
            repeatable: tool.hints.may_run_again(),
        },
        ServiceError::Cancelled { .. } => ToolFailure::Cancelled { executed: Executed::Unknown },
        ServiceError::TransportSend(error) if error.error.is::<StdioError>() => {
            ToolFailure::Unavailable {
                message: "the server does not take calls now".to_owned(),
                executed: Executed::No,
            }
        }
        ServiceError::TransportSend(_) | ServiceError::TransportClosed => not_answered(&error),
        error => ToolFailure::failed_with_source("the server answered with something else", error),
    }
}

/// A call that the server did not take, or of which nobody knows whether it did.
fn not_answered(error: &ServiceError) -> ToolFailure {
    use FailureClass::{Dns, Gone, Redirect, Refused, Tls, Unauthorised};
    debug!(%error, "a call was not answered");
    match call_failure_class(error) {
        Some(Unauthorised) => ToolFailure::NotPermitted {
            reason:
                "the server wants an authorisation that is missing here; ask an operator for it"
                    .to_owned(),
        },
        Some(Refused | Dns | Tls | Redirect | Gone) => ToolFailure::Unavailable {
            message: "the server did not take the call".to_owned(),
            executed: Executed::No,
        },
        _ => {
            let message = "the server was lost during the call".to_owned();
            ToolFailure::OutcomeUnknown { message }
        }
    }
}

/// An error of the protocol: the server says that it did not run the tool, or that it failed.
fn refusal(error: &ErrorData) -> ToolFailure {
    let message: String = error.message.chars().take(2000).collect();
    match error.code {
        ErrorCode::INVALID_PARAMS => ToolFailure::invalid(message),
        ErrorCode::METHOD_NOT_FOUND => ToolFailure::NotFound { name: message },
        _ => ToolFailure::failed(message),
    }
}

/// Tells the server that nobody waits any more, when the asker goes away without an answer.
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
        let params = CancelledNotificationParam::new(Some(request), Some("nobody waits".into()));
        let peer = self.peer.clone();
        runtime.spawn(async move {
            let cancel = CancelledNotification::new(params);
            // A server that does not read does not hear it either.
            let _ = timeout(PING_WITHIN, peer.send_notification(cancel.into())).await;
        });
    }
}

struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn one(calls: &Arc<AtomicUsize>) -> Self {
        calls.fetch_add(1, Ordering::Relaxed);
        Self(calls.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
