//! Calls that a server runs as tasks (the extension `io.modelcontextprotocol/tasks`): they are polled until
//! they end. Their handles are in the store that the bridges share, so that another bridge can continue.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use metrics::counter;
use rmcp::{
    model::{
        CallToolResult, CancelTaskParams, ErrorCode, ErrorData, GetTaskParams, JsonObject, Task,
        TaskPayload, UpdateTaskParams,
    },
    service::ServiceError,
};
use rockbot_contracts::{Executed, mcp::McpToolDefinition, outside_text::plain};
use rockbot_tools::{ToolContext, ToolFailure, ToolResult};
use serde_json::Value;
use tokio::time::{sleep, timeout, timeout_at};
use tracing::{debug, info};

use crate::{
    call_error::CallError,
    call_link::CallLink,
    elicitation::{Elicitor, respond},
    result::{readable_result, tool_result},
    task_handles::{MAX_TASK_ID_BYTES, TaskHandle, TaskHandles},
};

/// The interval between requests for the state of a task, when the server suggests none.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// The limits of what a server may suggest.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(100);
const MAX_POLL_INTERVAL: Duration = Duration::from_secs(15);
/// The time limit for a request about a task.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);
/// Consecutive errors of the server after which the state of a task is unknown.
const MAX_ERRORS: u32 = 5;
/// The maximum number of attempts to send a response to a request for input.
const MAX_UPDATES: u32 = 3;
/// The maximum number of requests for input of a task.
const MAX_INPUT_REQUESTS: usize = 32;
/// The longest status message or error that is passed on, in characters.
const MAX_MESSAGE_CHARS: usize = 2000;

/// The outcome of a task, or the loss of the session that followed it.
type TaskEnd = Result<ToolResult, CallError>;

/// A call that runs as a task.
pub(crate) struct TaskRun<'a> {
    link: &'a CallLink,
    tool: &'a McpToolDefinition,
    context: &'a ToolContext,
    elicitor: Option<Elicitor>,
    task: String,
    interval: Duration,
    /// The time that the call has.
    total: Duration,
    /// Its handle is in the store.
    is_kept: bool,
}

impl<'a> TaskRun<'a> {
    pub(crate) fn new(
        link: &'a CallLink,
        tool: &'a McpToolDefinition,
        context: &'a ToolContext,
        elicitor: Option<Elicitor>,
    ) -> Self {
        Self {
            link,
            tool,
            context,
            elicitor,
            task: String::new(),
            interval: POLL_INTERVAL,
            total: context.remaining(),
            is_kept: false,
        }
    }

    /// Follows a task that the server has started for the call. Its handle is kept first.
    ///
    /// # Errors
    /// When the server's id of the task cannot be used.
    pub(crate) async fn started(mut self, task: Task) -> Result<Self, CallError> {
        if !(1..=MAX_TASK_ID_BYTES).contains(&task.task_id.len()) {
            let message = "the server returned a task with an unusable id".to_owned();
            return Err(ToolFailure::OutcomeUnknown { message }.into());
        }
        self.interval = poll_interval(&task, POLL_INTERVAL);
        self.task = task.task_id;
        if let Some(handles) = &self.link.handles {
            let (call, remaining) = (&self.context.tool_call_id, self.context.remaining());
            self.is_kept = handles.keep(call, &self.handle(), remaining).await;
        }
        debug!(server = %self.link.server, "call runs as a task");
        Ok(self)
    }

    /// Follows a task that this or another bridge started for the call.
    ///
    /// # Errors
    /// When the handle is that of another call.
    pub(crate) fn continued(mut self, handle: &TaskHandle) -> Result<Self, CallError> {
        self.task.clone_from(&handle.task);
        if *handle != self.handle() {
            let message = "another call has the id of this one".to_owned();
            return Err(ToolFailure::OutcomeUnknown { message }.into());
        }
        self.is_kept = true;
        counter!("rockbot_mcp_tasks_continued_total").increment(1);
        info!(server = %self.link.server, "continuing a call that runs as a task");
        Ok(self)
    }

    fn handle(&self) -> TaskHandle {
        TaskHandle {
            server: self.link.server.to_lowercase(),
            tool: self.tool.name.clone(),
            agent: self.context.agent.clone(),
            task: self.task.clone(),
        }
    }

    /// Polls the task until it ends. One that the caller no longer waits for, or that asks for too much, is
    /// cancelled at the server.
    ///
    /// # Errors
    /// When it fails, is cancelled, or the server does not know it any more.
    ///
    /// # Cancellation
    /// A task whose handle is in the store goes on: another bridge can continue. Others are cancelled.
    pub(crate) async fn follow(self) -> TaskEnd {
        let mut cancel = CancelTask { run: &self, is_armed: !self.is_kept };
        let (cancellation, deadline) = (&self.context.cancellation, self.context.deadline);
        let polled = tokio::select! {
            biased;
            () = cancellation.cancelled() => {
                Err(ToolFailure::Cancelled { executed: Executed::Unknown })
            }
            polled = timeout_at(deadline, self.poll()) => {
                polled.unwrap_or_else(|_| Err(self.timed_out()))
            }
        };
        cancel.is_armed = polled.is_err();
        drop(cancel);
        if let Ok(Err(CallError::TaskDetached)) = polled {
            return Err(CallError::TaskDetached);
        }
        let outcome = if matches!(polled, Ok(Ok(_))) { "ok" } else { "failed" };
        counter!("rockbot_mcp_tasks_total", "outcome" => outcome).increment(1);
        let ended = polled?;
        if let Some(handles) = self.kept_in() {
            handles.remove(&self.context.tool_call_id).await;
        }
        ended
    }

    /// Returns the store that has the handle.
    fn kept_in(&self) -> Option<&TaskHandles> {
        self.link.handles.as_ref().filter(|_| self.is_kept)
    }

    fn timed_out(&self) -> ToolFailure {
        ToolFailure::TimedOut {
            after: self.total,
            executed: Executed::Unknown,
            repeatable: self.tool.hints.may_retry(),
        }
    }

    /// Returns how the task ended, or the failure of a call whose task may go on.
    async fn poll(&self) -> Result<TaskEnd, ToolFailure> {
        let mut interval = self.interval;
        let mut errors = 0;
        let mut shown = None;
        let mut answered = BTreeSet::new();
        loop {
            sleep(interval).await;
            let got = self.link.peer.get_task(GetTaskParams::new(self.task.as_str()));
            let detailed = match timeout(REQUEST_TIMEOUT, got).await {
                Ok(Ok(got)) => got.task,
                Ok(Err(ServiceError::McpError(error))) if is_unknown(&error) => {
                    return Ok(Err(lost(&error).into()));
                }
                Ok(Err(ServiceError::McpError(error))) => {
                    errors += 1;
                    if errors == MAX_ERRORS {
                        return Err(lost(&error));
                    }
                    interval = (interval * 2).min(MAX_POLL_INTERVAL);
                    continue;
                }
                // The task goes on; a session or a server that is started again may know it.
                _ if self.is_kept && self.link.peer.is_transport_closed() => {
                    return Ok(Err(CallError::TaskDetached));
                }
                _ if self.link.peer.is_transport_closed() => {
                    return Ok(Err(CallError::TaskDetached.into_failure().into()));
                }
                _ => {
                    interval = (interval * 2).min(MAX_POLL_INTERVAL);
                    continue;
                }
            };
            errors = 0;
            interval = poll_interval(&detailed.task, self.interval);
            if detailed.task.status_message != shown {
                shown.clone_from(&detailed.task.status_message);
                if let Some(message) = &shown {
                    self.context.progress(plain(message, MAX_MESSAGE_CHARS));
                }
            }
            match detailed.payload {
                TaskPayload::Working => {}
                TaskPayload::Completed { result } => {
                    return Ok(completed(result).map_err(Into::into));
                }
                TaskPayload::Failed { error } => return Ok(Err(failed(&error).into())),
                TaskPayload::Cancelled => {
                    return Ok(Err(ToolFailure::Cancelled { executed: Executed::Unknown }.into()));
                }
                TaskPayload::InputRequired { mut input_requests } => {
                    // The state may lag behind the responses.
                    input_requests.retain(|key, _| !answered.contains(key));
                    answered.extend(input_requests.keys().cloned());
                    if answered.len() > MAX_INPUT_REQUESTS {
                        let message = "the task requires more input than a user is asked for";
                        return Err(ToolFailure::failed(message));
                    }
                    if !input_requests.is_empty() {
                        let responses = respond(&input_requests, self.elicitor.as_ref()).await;
                        self.update(responses).await;
                    }
                }
                _ => {
                    let error = ServiceError::UnexpectedResponse;
                    let message = "the server returned an unknown state of a task";
                    return Err(ToolFailure::failed_with_source(message, error));
                }
            }
        }
    }

    /// Sends responses to requests for input. The user gets no second request when it fails: the task ends as
    /// the server decides.
    async fn update(&self, responses: BTreeMap<String, Value>) {
        for _ in 0..MAX_UPDATES {
            let params = UpdateTaskParams::new(self.task.as_str(), responses.clone());
            match timeout(REQUEST_TIMEOUT, self.link.peer.update_task(params)).await {
                Ok(Ok(())) => return,
                Ok(Err(ServiceError::McpError(_))) => break,
                _ => sleep(POLL_INTERVAL).await,
            }
        }
        debug!(server = %self.link.server, "input of a task not accepted");
    }
}

/// Returns the interval that the server suggests, within the limits; otherwise `default`.
fn poll_interval(task: &Task, default: Duration) -> Duration {
    let suggested = task.poll_interval_ms.map(Duration::from_millis);
    suggested.map_or(default, |interval| interval.clamp(MIN_POLL_INTERVAL, MAX_POLL_INTERVAL))
}

/// Returns the result of a completed task: that of the call.
fn completed(result: JsonObject) -> Result<ToolResult, ToolFailure> {
    let result = Value::Object(result);
    if let Ok(result) = serde_json::from_value::<CallToolResult>(result.clone()) {
        return Ok(tool_result(result));
    }
    readable_result(result).ok_or_else(|| {
        let error = ServiceError::UnexpectedResponse;
        ToolFailure::failed_with_source("the task of the server has an unreadable result", error)
    })
}

/// Returns the failure of a task. The tool has run, whatever the code of the error.
fn failed(error: &JsonObject) -> ToolFailure {
    let message = error.get("message").and_then(Value::as_str).unwrap_or("the task failed");
    ToolFailure::failed(plain(message, MAX_MESSAGE_CHARS))
}

/// Returns whether the server does not know the task. Other errors may pass.
fn is_unknown(error: &ErrorData) -> bool {
    [
        ErrorCode::INVALID_PARAMS,
        ErrorCode::INVALID_REQUEST,
        ErrorCode::METHOD_NOT_FOUND,
        ErrorCode::RESOURCE_NOT_FOUND,
    ]
    .contains(&error.code)
}

/// Returns the failure of a task whose state the server does not return.
fn lost(error: &ErrorData) -> ToolFailure {
    let reason = plain(&error.message, MAX_MESSAGE_CHARS);
    let message = format!("the server has no state of the task that runs the call: {reason}");
    ToolFailure::OutcomeUnknown { message }
}

/// Cancels the task when dropped while it is armed, and removes its handle.
struct CancelTask<'a> {
    run: &'a TaskRun<'a>,
    is_armed: bool,
}

impl Drop for CancelTask<'_> {
    fn drop(&mut self) {
        if !self.is_armed {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (peer, task) = (self.run.link.peer.clone(), self.run.task.clone());
        let (handles, call) = (self.run.kept_in().cloned(), self.run.context.tool_call_id.clone());
        runtime.spawn(async move {
            // Best effort: the server may not be reading.
            let _ = timeout(REQUEST_TIMEOUT, peer.cancel_task(CancelTaskParams::new(task))).await;
            if let Some(handles) = handles {
                handles.remove(&call).await;
            }
        });
    }
}
