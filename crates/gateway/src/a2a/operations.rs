//! The operations of the protocol.

use std::time::Duration;

use axum::response::Response;
use metrics::counter;
use rockbot_contracts::{ApprovalAnswer, MessageId, UserMessage};
use serde_json::Value;
use tokio::time::timeout;

use super::{
    A2a, MAX_OPEN,
    binding::Binding,
    caller::Caller,
    error::A2aError,
    followed_task::{FollowedTask, await_requests},
    message::NewMessage,
    push::NewPushTarget,
    records::{BegunTask, Record},
    state::{TaskEnd, TaskState},
    stream::TaskStream,
    tasks::Found,
    view::TaskView,
};
use crate::{
    clock::now_ms,
    guard::{AuditAction, OpenRecord, Refusal, sent_outcome},
    open_counts::OpenPermit,
};

/// Time limit for an answer that the agent has recorded, and for its confirmation of a decision.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit for approval requests that were asked before this process followed the task.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);
/// Time limit for the end of a cancelled task.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(30);
/// Age in milliseconds at which a message that its agent does not have will not reach it: messages expire in its
/// queue earlier.
const LOST_AFTER_MS: u64 = 150_000;

/// Why a request failed.
#[derive(Debug)]
pub(super) enum Failure {
    Error(A2aError),
    /// The guard refuses it.
    Refused(Refusal),
}

impl From<A2aError> for Failure {
    fn from(error: A2aError) -> Self {
        Self::Error(error)
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// Sends a message, and returns its task: at its end, when it needs the client, or at once if the client asks for it.
///
/// # Errors
/// When the message is not sent, or no final reply will come.
///
/// # Cancellation
/// Dropping the future leaves the task running.
pub(super) async fn send(
    a2a: &A2a,
    caller: &Caller,
    message: NewMessage,
) -> Result<Value, Failure> {
    let _open = open(a2a, caller)?;
    let returns_immediately = message.returns_immediately;
    let mut task = begin(a2a, caller, message).await?;
    if returns_immediately {
        task.catch_up()?;
    } else {
        task.until(TaskView::is_interrupted).await?;
    }
    Ok(task.view.to_json())
}

/// Sends a message, and streams its task until its end.
///
/// # Errors
/// When the message is not sent.
pub(super) async fn send_streaming(
    a2a: &A2a,
    caller: &Caller,
    message: NewMessage,
    binding: Binding,
) -> Result<Response, Failure> {
    let open = open(a2a, caller)?;
    let task = begin(a2a, caller, message).await?;
    Ok(TaskStream::response(task, binding, open)?)
}

/// Returns a task.
///
/// # Errors
/// When the caller has no such task, or its agent does not respond.
pub(super) async fn get(a2a: &A2a, caller: &Caller, id: &str) -> Result<Value, Failure> {
    let _open = open(a2a, caller)?;
    let (mut task, _) = recorded(a2a, caller, id).await?;
    add_requests(a2a, caller, [&mut task]).await;
    Ok(task.view.to_json())
}

/// Streams a running task from its present state to its end.
///
/// # Errors
/// When the caller has no such task, it has ended, or its agent does not respond.
pub(super) async fn subscribe(
    a2a: &A2a,
    caller: &Caller,
    id: &str,
    binding: Binding,
) -> Result<Response, Failure> {
    let open = open(a2a, caller)?;
    let (task, _) = recorded(a2a, caller, id).await?;
    if task.view.state().is_terminal() {
        return Err(A2aError::unsupported("the task has ended; send GetTask for its end").into());
    }
    if !task.is_followed() {
        return Err(
            A2aError::unsupported("the agent has not received the message yet; try again").into()
        );
    }
    Ok(TaskStream::response(task, binding, open)?)
}

/// Cancels the turn of a task, and returns the task. Other open tasks of its context end with it.
///
/// # Errors
/// When the caller has no such task, it has ended, or its agent does not respond.
pub(super) async fn cancel(a2a: &A2a, caller: &Caller, id: &str) -> Result<Value, Failure> {
    let _open = open(a2a, caller)?;
    let found = recorded(a2a, caller, id).await;
    // Nothing is cancelled before the cancel is sent.
    let (mut task, record) = found.map_err(A2aError::not_executed)?;
    if task.view.state().is_terminal() {
        return Err(A2aError::not_cancelable("the task has ended").into());
    }
    if !task.is_followed() {
        let message = "the agent has not received the message of the task yet; try again";
        return Err(A2aError::not_cancelable(message).into());
    }
    let cancel = UserMessage::cancelling(caller.session(&record.context));
    // The final reply comes to the message of the task.
    let audited = OpenRecord::new(&caller.identity, AuditAction::Cancel, id);
    let sent = a2a.parts.client.send(&caller.agent, &cancel).await;
    audited.end(sent_outcome(&sent, "sent"));
    sent.map_err(A2aError::from)?;
    let ended = timeout(CANCEL_TIMEOUT, task.until(|view| view.state().is_terminal())).await;
    // Without its end, the task is returned as it is.
    if let Ok(ended) = ended {
        ended?;
    }
    Ok(task.view.to_json())
}

/// Counts an open response of the caller.
pub(super) fn open(a2a: &A2a, caller: &Caller) -> Result<OpenPermit, A2aError> {
    let open = a2a.open.admit(caller.subject(), MAX_OPEN, usize::MAX);
    open.map_err(|_| A2aError::overloaded())
}

/// Returns the id of a task that the caller has.
///
/// # Errors
/// When the caller has no such task, or the store does not respond.
pub(super) async fn known_task(
    a2a: &A2a,
    caller: &Caller,
    id: &str,
) -> Result<MessageId, A2aError> {
    a2a.records.get(caller, id).await?;
    known_id(id)
}

/// Returns the id of a recorded task.
fn known_id(id: &str) -> Result<MessageId, A2aError> {
    MessageId::new(id).map_err(|_| A2aError::unknown_task())
}

/// Sends a message, unless it was sent before, and follows its task.
async fn begin(a2a: &A2a, caller: &Caller, message: NewMessage) -> Result<FollowedTask, Failure> {
    a2a.guard.count_message(&caller.identity)?;
    let push = match message.push.clone() {
        Some(config) => Some((a2a.push()?, NewPushTarget::parse(config)?)),
        None => None,
    };
    if let Some(task) = &message.task {
        let _registered = match push {
            Some((push, target)) => {
                let id = known_task(a2a, caller, task).await?;
                Some(push.register(caller, &id, target).await?)
            }
            None => None,
        };
        return Ok(decide(a2a, caller, task, &message).await?);
    }
    let task = caller.task(&message.id);
    let NewMessage { id, context, text, media, .. } = message;
    let context = context.unwrap_or_else(|| caller.new_context(&id));
    let media_json = serde_json::to_vec(&media).unwrap_or_default();
    let digest = caller.digest([context.as_bytes(), text.as_bytes(), &media_json]);
    let new = Record { digest, context, sent_ms: now_ms(), end: None };
    let begun = a2a.records.begin(caller, &task, new).await?;
    // Its notifications start after the message is sent.
    let _registered = match push {
        Some((push, target)) => match push.register(caller, &task, target).await {
            Ok(registered) => Some(registered),
            Err(error) => {
                let error = error.not_executed();
                return Err(unsent(a2a, caller, &task, &begun, error).await.into());
            }
        },
        None => None,
    };
    let record = &begun.record;
    if record.end.is_some() {
        let found = find(a2a, caller, &task, record).await;
        return Ok(found.map_err(A2aError::maybe_executed)?);
    }
    let mut message = UserMessage::new(caller.session(&record.context), text);
    message.media = media;
    let audited = OpenRecord::new(&caller.identity, AuditAction::Message, task.as_str());
    let sent = a2a.tasks.send(caller, &task, record, message).await;
    audited.end(match &sent {
        Ok(_) => "sent",
        Err(error) if error.may_have_arrived() => "unknown",
        Err(_) => "not sent",
    });
    let follower = match sent {
        Ok(follower) => follower,
        Err(error) => return Err(unsent(a2a, caller, &task, &begun, error).await.into()),
    };
    let repeated = if begun.new_version.is_some() { "false" } else { "true" };
    counter!("rockbot_gateway_turns_total", "face" => "a2a", "repeated" => repeated).increment(1);
    Ok(FollowedTask::new(TaskView::new(task, begun.record.context), follower))
}

/// Returns the error of a message that this request did not send, with the effect of all requests with the message. A
/// new task is forgotten, unless the message may have arrived.
async fn unsent(
    a2a: &A2a,
    caller: &Caller,
    task: &MessageId,
    begun: &BegunTask,
    error: A2aError,
) -> A2aError {
    // The message may have arrived when it was sent before.
    let Some(version) = begun.new_version else { return error.maybe_executed() };
    let is_sent =
        error.may_have_arrived() || !a2a.records.forget(caller, task, &begun.record, version).await;
    if is_sent { error.maybe_executed() } else { error }
}

/// Decides on an approval request of a task.
async fn decide(
    a2a: &A2a,
    caller: &Caller,
    id: &str,
    message: &NewMessage,
) -> Result<FollowedTask, A2aError> {
    let record = a2a.records.get(caller, id).await?;
    if message.context.as_ref().is_some_and(|context| *context != record.context) {
        return Err(A2aError::invalid("message.contextId is not that of the task; leave it out"));
    }
    let found = find(a2a, caller, &known_id(id)?, &record).await;
    let mut task = found.map_err(A2aError::not_executed)?;
    // The agent repeats open requests to a process that follows the task from now on.
    if let Ok(reached) = timeout(REQUEST_TIMEOUT, task.until(TaskView::is_interrupted)).await {
        reached.map_err(A2aError::not_executed)?;
    }
    if task.view.state().is_terminal() {
        let message = "the task has ended; send a message with its contextId and without a taskId";
        return Err(A2aError::unsupported(message));
    }
    if task.view.state() != TaskState::InputRequired {
        return Err(A2aError::unsupported(
            "the task waits for no decision; to add to its turn, send a message with its contextId and without \
             a taskId",
        ));
    }
    let (decision, parsed) = message.decision()?;
    let approval = task.view.approval(&decision.approval_id).ok_or_else(|| {
        A2aError::invalid("the task has no open approval request of this approvalId")
    })?;
    if approval.call_hash != decision.call_hash {
        let message = "callHash is not that of the approval request; show the request again";
        return Err(A2aError::invalid(message));
    }
    let answer = ApprovalAnswer {
        session_id: caller.session(&record.context),
        approval_id: approval.id.clone(),
        call_hash: decision.call_hash.clone(),
        decision: parsed,
        reason: None,
    };
    let id = answer.approval_id.as_str();
    let audited = OpenRecord::new(&caller.identity, AuditAction::Approval, id);
    let sent = a2a.parts.client.answer_approval(&caller.agent, &answer).await;
    audited.end(sent_outcome(&sent, decision.name()));
    sent?;
    let closed = task.until(|view| view.approval(&decision.approval_id).is_none());
    match timeout(ANSWER_TIMEOUT, closed).await {
        Ok(closed) => closed?,
        Err(_) => {
            let message =
                "the agent did not confirm the decision in time; send GetTask for the state";
            return Err(A2aError::internal(message).maybe_executed());
        }
    }
    Ok(task)
}

/// Returns a task of the caller, and its record.
pub(super) async fn recorded(
    a2a: &A2a,
    caller: &Caller,
    id: &str,
) -> Result<(FollowedTask, Record), A2aError> {
    let record = a2a.records.get(caller, id).await?;
    let task = find(a2a, caller, &known_id(id)?, &record).await?;
    Ok((task, record))
}

/// Returns a recorded task as its agent has it.
async fn find(
    a2a: &A2a,
    caller: &Caller,
    id: &MessageId,
    record: &Record,
) -> Result<FollowedTask, A2aError> {
    let view = TaskView::new(id.clone(), record.context.clone());
    let end = match &record.end {
        Some(end) if end.state != TaskState::Completed => {
            return Ok(FollowedTask::without_replies(view.ended(end.clone())));
        }
        end => end.clone(),
    };
    let Some(found) = a2a.tasks.find(caller, id, record).await? else {
        let view = missing(a2a, caller, id, record, view, end).await?;
        return Ok(FollowedTask::without_replies(view));
    };
    let Found { follower, is_answered, is_new } = found;
    let mut task = FollowedTask::new(view.begun(), follower).with_lacking_requests(is_new);
    task.catch_up()?;
    if is_answered || end.is_some() {
        let ended = task.until(|view| view.state().is_terminal());
        match timeout(ANSWER_TIMEOUT, ended).await {
            Ok(ended) => ended?,
            Err(_) => {
                let message = "the agent did not repeat the answer in time; try again";
                return Err(A2aError::internal(message));
            }
        }
    }
    match end {
        Some(TaskEnd { at_ms, .. }) => task.view.set_ended_ms(at_ms),
        None => record_end(a2a, caller, &mut task).await,
    }
    Ok(task)
}

/// Records the end of a task, unless one is recorded. Every gateway has the recorded time, so that the order of tasks
/// stays.
async fn record_end(a2a: &A2a, caller: &Caller, task: &mut FollowedTask) {
    let Some(seen) = task.view.end() else { return };
    if let Some(recorded) = a2a.records.end(caller, task.view.id(), seen).await {
        task.view.set_ended_ms(recorded.at_ms);
    }
}

/// Adds the open requests of tasks that this process did not follow before, once their agents have repeated them.
pub(super) async fn add_requests<'a>(
    a2a: &A2a,
    caller: &Caller,
    tasks: impl IntoIterator<Item = &'a mut FollowedTask>,
) {
    let mut tasks: Vec<_> = tasks.into_iter().filter(|task| task.lacks_requests()).collect();
    await_requests(&mut tasks).await;
    for task in tasks {
        // It may have ended meanwhile.
        record_end(a2a, caller, task).await;
    }
}

/// Returns a task whose message its agent does not have. Once the agent cannot receive it any longer, the task is
/// rejected for good: a client may send the message with a new id then.
async fn missing(
    a2a: &A2a,
    caller: &Caller,
    task: &MessageId,
    record: &Record,
    view: TaskView,
    end: Option<TaskEnd>,
) -> Result<TaskView, A2aError> {
    if let Some(end) = end {
        let detail = Some("the agent no longer has the answer".to_owned());
        return Ok(view.ended(TaskEnd { detail, ..end }));
    }
    if now_ms().saturating_sub(record.sent_ms) < LOST_AFTER_MS {
        return Ok(view);
    }
    let end = TaskEnd {
        state: TaskState::Rejected,
        at_ms: record.sent_ms,
        detail: Some(
            "the agent has no record of the message; send it with a new messageId".to_owned(),
        ),
    };
    let is_rejected = a2a.records.reject(caller, task, record, &end).await?;
    Ok(if is_rejected { view.ended(end) } else { view })
}
