//! One call of a tool: its requests to the server, and the input that the server asks for meanwhile.

use std::{collections::BTreeMap, future::pending, mem::replace, time::Duration};

use futures_util::future::BoxFuture;
use rmcp::{
    RoleClient,
    model::{
        CallToolRequest, CallToolRequestParams, CancelTaskParams, CancelledNotification,
        CancelledNotificationParam, ClientCapabilities, ClientRequest, CreateTaskResult,
        InputRequests, InputRequiredResult, JsonObject, RequestId, ServerResult,
    },
    service::{Peer, PeerRequestOptions, RequestHandle, ServiceError},
};
use rockbot_contracts::{Executed, mcp::McpToolDefinition};
use rockbot_tools::{ToolContext, ToolFailure, ToolResult};
use serde_json::Value;
use tokio::time::timeout;

use crate::{
    call_error::{CallError, failure, is_gone},
    call_link::CallLink,
    elicitation::{self, Elicitor, respond},
    result::{readable_result, tool_result},
    task_run::TaskRun,
    telemetry,
};

/// The time limit for a notification.
const NOTIFY_TIMEOUT: Duration = Duration::from_secs(10);
/// Time that a cancelled call waits for the task that its server may have started.
const LATE_TASK_TIMEOUT: Duration = Duration::from_millis(500);
/// The maximum number of rounds of a call: the call itself, and the responses to requests for input.
const MAX_ROUNDS: usize = 10;

/// A call of a tool.
pub(crate) struct ServerCall<'a> {
    pub(crate) link: &'a CallLink,
    pub(crate) tool: &'a McpToolDefinition,
    pub(crate) context: &'a ToolContext,
    /// Longest silence of the server.
    pub(crate) idle: Duration,
}

impl ServerCall<'_> {
    /// Sends the call, and the responses to requests for input until the server returns a result. A call
    /// that runs as a task already is continued.
    ///
    /// # Errors
    /// See [`CallError`].
    ///
    /// # Cancellation
    /// The call is cancelled at the server. A task that another bridge can continue goes on.
    pub(crate) async fn run(&self, arguments: &Value) -> Result<ToolResult, CallError> {
        let elicitor = Elicitor::for_call(&self.link.server, self.context);
        if self.context.may_have_run
            && let Some(handles) = &self.link.handles
            && let Some(handle) = handles.find(&self.context.tool_call_id).await
        {
            let task = self.task_run(elicitor).continued(&handle)?;
            return task.follow().await;
        }
        if self.context.may_have_run && !self.tool.hints.may_retry() {
            let message = "the bridge that ran the call was lost, and so was its task".to_owned();
            return Err(ToolFailure::OutcomeUnknown { message }.into());
        }
        let (mut input_responses, mut request_state) = (None, None);
        for round in 0..MAX_ROUNDS {
            let mut params = CallToolRequestParams::new(self.tool.name.clone());
            params.arguments = Some(object(arguments)?);
            params.input_responses = input_responses;
            params.request_state = request_state;
            let reply = self.request(params, elicitor.clone()).await;
            // The server worked on the call before it asked for input.
            match if round == 0 {
                reply?
            } else {
                reply.map_err(CallError::into_possibly_executed)?
            } {
                Reply::Result(result) => return Ok(result),
                Reply::Task(created) => {
                    let task = self.task_run(elicitor).started(created.task).await?;
                    return task.follow().await;
                }
                Reply::InputRequired(input) => {
                    input_responses = match &input.input_requests {
                        Some(requests) => Some(self.respond(requests, elicitor.as_ref()).await?),
                        None => None,
                    };
                    request_state = input.request_state;
                }
            }
        }
        let message = "the server requires more input than a user is asked for in one call";
        Err(ToolFailure::failed(message).into())
    }

    fn task_run(&self, elicitor: Option<Elicitor>) -> TaskRun<'_> {
        TaskRun::new(self.link, self.tool, self.context, elicitor)
    }

    /// Responds to the requests of a round.
    async fn respond(
        &self,
        requests: &InputRequests,
        elicitor: Option<&Elicitor>,
    ) -> Result<BTreeMap<String, Value>, CallError> {
        tokio::select! {
            biased;
            () = self.context.cancellation.cancelled() => {
                Err(ToolFailure::Cancelled { executed: Executed::Unknown }.into())
            }
            responses = respond(requests, elicitor) => Ok(responses),
        }
    }

    async fn request(
        &self,
        params: CallToolRequestParams,
        elicitor: Option<Elicitor>,
    ) -> Result<Reply, CallError> {
        let Self { link, tool, context, idle } = self;
        let total = context.remaining();
        let failure = |error| failure(error, tool, (*idle).min(total));
        // Both limits are checked here: the time that a user takes does not count as silence.
        let mut meta = telemetry::trace_meta();
        if !link.has_handshake {
            meta.get_or_insert_default().set_client_capabilities(capabilities(elicitor.is_some()));
        }
        let mut options = PeerRequestOptions::no_options();
        options.meta = meta;
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        let not_sent = || ToolFailure::Unavailable {
            message: "the server is disconnected; try again".to_owned(),
            executed: Executed::No,
        };
        // Before it is sent: the server may ask at once. Also without a receiver of progress, for the time of
        // silence.
        let mut guard = link.client.follow(context, elicitor);
        let sent = link.peer.send_request_with_option(request, options);
        let handle = timeout(total, sent).await.map_err(|_| not_sent())?.map_err(|_| not_sent())?;
        guard.set_token(handle.progress_token.clone());
        let mut cancel = CancelOnDrop::armed(link, handle);
        let reply = tokio::select! {
            biased;
            reply = timeout(context.remaining(), &mut cancel.response) => {
                reply.unwrap_or(Err(ServiceError::Timeout { timeout: total }))
            }
            () = context.cancellation.cancelled() => {
                // The server sends no response to a cancelled request.
                return Err(ToolFailure::Cancelled { executed: Executed::Unknown }.into());
            }
            () = guard.idle(*idle) => Err(ServiceError::Timeout { timeout: *idle }),
        };
        if !matches!(reply, Err(ServiceError::Timeout { .. })) {
            guard.responded();
            cancel.disarm();
        }
        match reply {
            Ok(ServerResult::CallToolResult(result)) => Ok(Reply::Result(tool_result(result))),
            Ok(ServerResult::InputRequiredResult(input)) => Ok(Reply::InputRequired(input)),
            Ok(ServerResult::CreateTaskResult(created)) if link.has_tasks => {
                Ok(Reply::Task(created))
            }
            Ok(ServerResult::CustomResult(result)) => match readable_result(result.0) {
                Some(result) => Ok(Reply::Result(result)),
                None => Err(failure(ServiceError::UnexpectedResponse).into()),
            },
            Ok(_) => Err(failure(ServiceError::UnexpectedResponse).into()),
            Err(error) if link.has_handshake && is_gone(&error) => Err(CallError::SessionExpired),
            Err(error) => Err(failure(error).into()),
        }
    }
}

enum Reply {
    Result(ToolResult),
    InputRequired(InputRequiredResult),
    Task(CreateTaskResult),
}

/// Returns the capabilities of a call without a handshake: each request declares its own.
fn capabilities(has_user: bool) -> ClientCapabilities {
    let mut capabilities = ClientCapabilities::builder().enable_tasks().build();
    if has_user {
        elicitation::declare(&mut capabilities);
    }
    capabilities
}

fn object(arguments: &Value) -> Result<JsonObject, ToolFailure> {
    match arguments {
        Value::Object(object) => Ok(object.clone()),
        Value::Null => Ok(JsonObject::new()),
        _ => Err(ToolFailure::invalid("the arguments must be an object")),
    }
}

/// Cancels the request at the server when dropped before a reply arrived.
struct CancelOnDrop {
    peer: Peer<RoleClient>,
    request: Option<RequestId>,
    response: BoxFuture<'static, Result<ServerResult, ServiceError>>,
    /// The reply may be a task, which a cancellation of the request no longer ends.
    may_start_task: bool,
}

impl CancelOnDrop {
    fn armed(link: &CallLink, handle: RequestHandle<RoleClient>) -> Self {
        Self {
            peer: link.peer.clone(),
            request: Some(handle.id.clone()),
            response: Box::pin(handle.await_response()),
            may_start_task: link.has_tasks,
        }
    }

    fn disarm(&mut self) {
        self.request = None;
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        let Some(request) = self.request.take() else { return };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let params = CancelledNotificationParam::new(
            Some(request),
            Some("the caller stopped waiting".into()),
        );
        let peer = self.peer.clone();
        let unused: BoxFuture<'static, _> = Box::pin(pending());
        let response = replace(&mut self.response, unused);
        let may_start_task = self.may_start_task;
        // Best effort: the server may not be reading.
        runtime.spawn(async move {
            // rmcp drops a reply that arrives after the notification.
            if may_start_task && let Ok(reply) = timeout(LATE_TASK_TIMEOUT, response).await {
                if let Ok(ServerResult::CreateTaskResult(created)) = reply {
                    let cancelled = peer.cancel_task(CancelTaskParams::new(created.task.task_id));
                    let _ = timeout(NOTIFY_TIMEOUT, cancelled).await;
                }
                return;
            }
            let cancel = CancelledNotification::new(params);
            let _ = timeout(NOTIFY_TIMEOUT, peer.send_notification(cancel.into())).await;
        });
    }
}
