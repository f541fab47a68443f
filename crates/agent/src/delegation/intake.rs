//! Tasks that other agents delegate to this one: checks and records them. A record is then worked on like that of a
//! sub-agent.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use futures_util::future::BoxFuture;
use metrics::counter;
use parking_lot::Mutex;
use rockbot_bus::{Delivery, Handler, Settlement};
use rockbot_contracts::{
    AgentName, AgentTaskCancelRequest, AgentTaskError, AgentTaskErrorCode, AgentTaskRequest,
    Envelope, Executed, Message, Spending, TaskCaller, TaskId, TaskState,
    agent_task::{
        MAX_LINEAGE, MAX_SKILL_BYTES, MAX_TASK_DATA_BYTES, MAX_TASK_PARTS, MAX_TASK_TEXT_BYTES,
    },
    json::Limits,
};
use rockbot_store::StoreError;
use rockbot_tools::scope::MAX_HANDOVERS;
use tokio::time::Instant;
use tracing::{info, warn};

use super::{
    frame::{one_line, task_text},
    message_digest::MessageDigest,
    peers::Peers,
    received_record::{Inbound, after, cancelled_record, content, new_record},
    record::{TaskKind, TaskRecord},
    tasks::{Attached, Delegation},
};
use crate::conversation::unix_ms;

/// Longest time limit of a task.
const MAX_TIME: Duration = Duration::from_secs(120 * 60);
/// Maximum number of new tasks of one caller in [`RATE_INTERVAL`].
const RATE: usize = 60;
const RATE_INTERVAL: Duration = Duration::from_secs(60);
/// Maximum number of callers whose rate is known.
const MAX_CALLERS: usize = 1000;
/// Maximum number of tasks of other agents that wait or run in this process.
const MAX_TASKS: usize = 256;
/// Fewest model calls of a task: one that calls tools, and the answer.
const MIN_MODEL_CALLS: u64 = 2;
/// Maximum number of messages of one task.
const MAX_MESSAGES: usize = 32;

/// Consumes `agent.task.<agent>`.
pub(crate) struct TaskIntake {
    delegation: Arc<Delegation>,
    rates: Mutex<HashMap<AgentName, VecDeque<Instant>>>,
}

/// A refused request.
struct Refusal {
    code: AgentTaskErrorCode,
    message: String,
    is_retryable: bool,
}

/// Why a request is not recorded.
enum AcceptError {
    Refused(Refusal),
    Store(StoreError),
}

impl From<Refusal> for AcceptError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<StoreError> for AcceptError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl Refusal {
    fn new(code: AgentTaskErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), is_retryable: false }
    }

    fn overloaded(message: &str) -> Self {
        Self { is_retryable: true, ..Self::new(AgentTaskErrorCode::Overloaded, message) }
    }
}

impl Handler for TaskIntake {
    fn handle<'a>(&'a self, delivery: &'a Delivery) -> BoxFuture<'a, Settlement> {
        Box::pin(async move {
            match self.receive(delivery.envelope()).await {
                Ok(settlement) => settlement,
                Err(error) => {
                    warn!(%error, "task of another agent not recorded; retrying");
                    Settlement::Retry
                }
            }
        })
    }
}

impl TaskIntake {
    pub(crate) fn new(delegation: Arc<Delegation>) -> Self {
        Self { delegation, rates: Mutex::default() }
    }

    async fn receive(&self, envelope: &Envelope) -> Result<Settlement, StoreError> {
        let (Some(attached), Some(peers)) = (self.delegation.attached(), self.delegation.peers())
        else {
            return Ok(Settlement::Retry);
        };
        let caller = match TaskCaller::admit(envelope) {
            Ok(caller) => caller,
            Err(error) => return Ok(Settlement::dead_letter(error.to_string())),
        };
        if envelope.message_type() == AgentTaskCancelRequest::TYPE {
            return match envelope.decode::<AgentTaskCancelRequest>(Limits::default()) {
                Ok(request) => self.cancel(attached, &peers, caller, &request.task_id).await,
                Err(error) => Ok(Settlement::dead_letter(error.to_string())),
            };
        }
        let request = match envelope.decode::<AgentTaskRequest>(Limits::default()) {
            Ok(request) => request,
            Err(error) => return Ok(Settlement::dead_letter(error.to_string())),
        };
        let (task_id, digest) = (request.task_id.clone(), MessageDigest::new(&request, envelope));
        let (peers, caller) = (peers.as_ref(), &caller);
        let inbound = Inbound { attached, peers, caller, envelope, request, digest };
        match self.accept(inbound).await {
            Ok(()) => {}
            Err(AcceptError::Store(error)) => return Err(error),
            Err(AcceptError::Refused(Refusal { code, message, is_retryable })) => {
                counter!("rockbot_agent_peer_tasks_refused_total").increment(1);
                let (executed, usage) = (Executed::No, Some(Spending::default()));
                let error =
                    AgentTaskError { task_id, code, message, is_retryable, executed, usage };
                // Without an answer, the task ends at its time limit.
                let _ = peers.refuse(caller.reply_to.clone(), &error).await;
            }
        }
        Ok(Settlement::Ack)
    }

    /// Records a request.
    async fn accept(&self, inbound: Inbound<'_>) -> Result<(), AcceptError> {
        let Inbound { attached, caller, request, digest, .. } = &inbound;
        let task = TaskRecord::received_id_of(&caller.name, &request.task_id).ok_or_else(|| {
            Refusal::new(AgentTaskErrorCode::InvalidRequest, "the task id is invalid")
        })?;
        if let Some(known) = attached.store.get(&task).await? {
            return self.accept_known(&inbound, known).await;
        }
        let time = self.check(&inbound)?;
        let record = new_record(task.clone(), &inbound, time);
        // Before the record, so that a process continues the task after a crash between the two.
        attached.mark(&record).await?;
        match attached.store.create(&record).await? {
            None => {
                info!(%task, agent = %caller.name, "task of another agent accepted");
                counter!("rockbot_agent_delegations_started_total", "kind" => "received")
                    .increment(1);
                self.delegation.start(TaskKind::Received, task, None);
            }
            // Another process has recorded it meanwhile, or its cancel.
            Some(known) if known.was_cancelled_before_request() => return Err(cancelled().into()),
            Some(known) if digest.was_received(&known) => {}
            Some(_) => return Err(other_request().into()),
        }
        Ok(())
    }

    /// Accepts a request for a known task: a repeated one, or the answer to its question.
    async fn accept_known(
        &self,
        inbound: &Inbound<'_>,
        known: TaskRecord,
    ) -> Result<(), AcceptError> {
        let Inbound { attached, peers, caller, envelope, request, digest } = inbound;
        if known.was_cancelled_before_request() {
            return Err(cancelled().into());
        }
        if digest.was_received(&known) {
            if known.state == TaskState::Submitted {
                // The process that recorded its answer may have died before it set the marker.
                attached.mark(&known).await?;
            }
            if let Some(peer) = known.peer.as_deref() {
                // The same message ids as before: its caller knows them.
                match known.state {
                    TaskState::InputRequired => {
                        let _ = peers.ask(&known, peer).await;
                    }
                    state if state.is_terminal() => {
                        let _ = peers.respond(&known, peer).await;
                    }
                    _ => peers.report(&known, peer, "").await,
                }
            }
            self.delegation.start(TaskKind::Received, known.task, None);
            return Ok(());
        }
        let is_full = known.peer.as_ref().is_none_or(|peer| peer.received.len() >= MAX_MESSAGES);
        if known.state != TaskState::InputRequired || is_full {
            return Err(other_request().into());
        }
        check_message(request)?;
        let deadline = after(unix_ms(), time_limit(envelope));
        let text = answer_text(caller, request);
        let recorded = attached.store.update(&known.task, |record| {
            let is_open = record.state == TaskState::InputRequired;
            let Some(peer) = record.peer.as_mut().filter(|_| is_open) else { return false };
            peer.round += 1;
            peer.question = None;
            peer.reply_to = Some(caller.reply_to.clone());
            digest.add_to(peer);
            record.text.clone_from(&text);
            record.deadline = record.deadline.max(deadline);
            record.state = TaskState::Submitted;
            true
        });
        let Some(answered) = recorded.await? else { return Err(unknown_task().into()) };
        if !digest.was_received(&answered) {
            // Another answer was first.
            return Err(other_request().into());
        }
        // After the record: the process whose turn asked may be about to remove earlier markers.
        attached.mark(&answered).await?;
        self.delegation.start(TaskKind::Received, known.task, None);
        Ok(())
    }

    /// Checks a new request. Returns its time limit.
    fn check(&self, inbound: &Inbound<'_>) -> Result<Duration, Refusal> {
        use AgentTaskErrorCode::{
            BudgetExceeded, Expired, LoopDetected, NotPermitted, SkillNotSupported, TooDeep,
        };
        let Inbound { attached, peers, caller, envelope, request, .. } = inbound;
        check_message(request)?;
        if !peers.rules.accepts(&caller.name) {
            return Err(Refusal::new(NotPermitted, "this agent accepts no tasks of the caller"));
        }
        if caller.name == attached.name || request.lineage.contains(&attached.name) {
            let text = "this agent works on the request already; do the work yourself";
            return Err(Refusal::new(LoopDetected, text));
        }
        let delegations = request.lineage.len().saturating_sub(1).max(request.depth as usize);
        if delegations >= MAX_HANDOVERS {
            let text = "the request was delegated too often; do the work yourself";
            return Err(Refusal::new(TooDeep, text));
        }
        if peers.card.skills.iter().all(|skill| skill.id != request.skill) {
            let skills: Vec<_> = peers.card.skills.iter().map(|one| one.id.as_str()).collect();
            let text = format!("no such skill; use one of: {}", skills.join(", "));
            return Err(Refusal::new(SkillNotSupported, text));
        }
        if request.budget.is_some_and(|budget| budget.model_calls < MIN_MODEL_CALLS) {
            let text = "the granted budget is too small; do the work yourself";
            return Err(Refusal::new(BudgetExceeded, text));
        }
        let time = time_limit(envelope);
        if time.is_zero() {
            let text = "the time limit had passed before the task was received";
            return Err(Refusal::new(Expired, text));
        }
        if self.delegation.running_tasks(TaskKind::Received) >= MAX_TASKS {
            return Err(Refusal::overloaded("this agent has too many tasks; try again later"));
        }
        if !self.is_within_rate(&caller.name) {
            return Err(Refusal::overloaded("too many tasks within a minute; try again later"));
        }
        Ok(time)
    }

    /// Counts a new task of a caller. Returns `false` if it has too many.
    fn is_within_rate(&self, caller: &AgentName) -> bool {
        let mut rates = self.rates.lock();
        let now = Instant::now();
        if rates.len() >= MAX_CALLERS && !rates.contains_key(caller) {
            rates
                .retain(|_, times| times.back().is_some_and(|last| last.elapsed() < RATE_INTERVAL));
            if rates.len() >= MAX_CALLERS {
                return false;
            }
        }
        let times = rates.entry(caller.clone()).or_default();
        while times.front().is_some_and(|first| first.elapsed() >= RATE_INTERVAL) {
            times.pop_front();
        }
        let is_within = times.len() < RATE;
        if is_within {
            times.push_back(now);
        }
        is_within
    }

    async fn cancel(
        &self,
        attached: &Attached,
        peers: &Peers,
        caller: TaskCaller,
        task_id: &TaskId,
    ) -> Result<Settlement, StoreError> {
        let task = TaskRecord::received_id_of(&caller.name, task_id);
        let known = match task {
            Some(task) => self.find_or_cancel(attached, peers, &caller, task_id, task).await?,
            None => None,
        };
        let refusal = match known {
            Some(record) if !record.state.is_terminal() => {
                // Its end is sent when it has ended.
                self.delegation.request_cancel(attached, &record.task).await?;
                return Ok(Settlement::Ack);
            }
            Some(record) => {
                let ended =
                    Refusal::new(AgentTaskErrorCode::TaskNotCancelable, "the task has ended");
                // An earlier record of the task may have expired before that of the cancel was written.
                let executed = if record.was_cancelled_before_request() {
                    Executed::Unknown
                } else {
                    record.executed()
                };
                (ended, executed)
            }
            // Its record may have expired.
            None => (unknown_task(), Executed::Unknown),
        };
        let (Refusal { code, message, is_retryable }, executed) = refusal;
        let task_id = task_id.clone();
        let error = AgentTaskError { task_id, code, message, is_retryable, executed, usage: None };
        // Without an answer, the caller ends the task on its own.
        let _ = peers.refuse(caller.reply_to, &error).await;
        Ok(Settlement::Ack)
    }

    /// Returns the record of a task. An unknown task is recorded as cancelled, within the rate of new tasks: another
    /// process may have its request, or receive it later. The request of a caller that is not accepted is refused.
    async fn find_or_cancel(
        &self,
        attached: &Attached,
        peers: &Peers,
        caller: &TaskCaller,
        task_id: &TaskId,
        task: TaskId,
    ) -> Result<Option<TaskRecord>, StoreError> {
        let known = attached.store.get(&task).await?;
        let may_request = || peers.rules.accepts(&caller.name) && self.is_within_rate(&caller.name);
        if known.is_some() || !may_request() {
            return Ok(known);
        }
        attached.store.create(&cancelled_record(task, caller, task_id)).await
    }
}

fn check_message(request: &AgentTaskRequest) -> Result<(), Refusal> {
    let AgentTaskRequest { skill, message, lineage, .. } = request;
    let text: usize =
        message.parts.iter().filter_map(|part| part.text.as_ref()).map(String::len).sum();
    let data: usize =
        message.parts.iter().filter_map(|part| part.data.as_ref()).map(json_len).sum();
    let problem = if message.text().trim().is_empty() {
        "the message has no text"
    } else if text > MAX_TASK_TEXT_BYTES || data > MAX_TASK_DATA_BYTES {
        "the message has more than 64 KiB of text or 256 KiB of data"
    } else if message.parts.len() > MAX_TASK_PARTS {
        "the message has more than 64 parts"
    } else if skill.len() > MAX_SKILL_BYTES {
        "the skill has more than 128 bytes"
    } else if lineage.len() > MAX_LINEAGE {
        "the lineage has more than 16 agents"
    } else {
        return Ok(());
    };
    Err(Refusal::new(AgentTaskErrorCode::InvalidRequest, problem))
}

fn json_len(value: &serde_json::Value) -> usize {
    value.to_string().len()
}

fn other_request() -> Refusal {
    let text = "the task was requested with another message before, and asks nothing";
    Refusal::new(AgentTaskErrorCode::InvalidRequest, text)
}

fn cancelled() -> Refusal {
    let text = "the task was cancelled before its request arrived";
    Refusal::new(AgentTaskErrorCode::Cancelled, text)
}

fn unknown_task() -> Refusal {
    Refusal::new(AgentTaskErrorCode::TaskNotFound, "there is no such task")
}

fn time_limit(envelope: &Envelope) -> Duration {
    envelope.remaining().unwrap_or(MAX_TIME).min(MAX_TIME)
}

fn answer_text(caller: &TaskCaller, request: &AgentTaskRequest) -> String {
    let (text, data) = content(request);
    let text = task_text(caller.name.as_str(), &one_line(&request.skill), &text, data.as_deref());
    format!("The answer to your question has arrived. Continue the task.\n\n{text}")
}

#[cfg(test)]
mod tests {
    use rockbot_contracts::TaskMessage;

    use super::*;
    use crate::delegation::received_record::sample_request;

    #[test]
    fn oversized_messages_are_refused() {
        assert!(check_message(&sample_request()).is_ok());
        // Each has a limit of its own.
        let (text, data) = ("x".repeat(60 * 1024), "y".repeat(200 * 1024).into());
        let message = TaskMessage::new(TaskMessage::USER, &text, Some(data));
        assert!(check_message(&AgentTaskRequest { message, ..sample_request() }).is_ok());
        for message in [
            TaskMessage::new(TaskMessage::USER, " \n", None),
            TaskMessage::new(TaskMessage::USER, &"x".repeat(65 * 1024), None),
            TaskMessage::new(TaskMessage::USER, "x", Some("y".repeat(300 * 1024).into())),
        ] {
            assert!(check_message(&AgentTaskRequest { message, ..sample_request() }).is_err());
        }
        let skill = "s".repeat(129);
        assert!(check_message(&AgentTaskRequest { skill, ..sample_request() }).is_err());
    }
}
