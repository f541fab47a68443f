//! Checks and records the tasks that agents hand to a remote agent.

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use rockbot_bus::{Delivery, Handler, Settlement};
use rockbot_contracts::{
    AgentTaskCancelRequest, AgentTaskError, AgentTaskErrorCode, AgentTaskRequest, Envelope,
    Executed, Message, TaskCaller, TaskId,
    agent_task::{MAX_TASK_DATA_BYTES, MAX_TASK_PARTS, MAX_TASK_TEXT_BYTES},
    json::Limits,
    trace,
};
use rockbot_store::DocumentError;
use rockbot_tools::scope::MAX_HANDOVERS;
use serde_json::Value;
use tracing::{info, warn};

use super::{
    record::{End, Phase, Record},
    runner::Runner,
};
use crate::{clock::now_ms, identity::NamePatterns, rates::Rates};

/// Longest time limit of a task.
const MAX_TIME: Duration = Duration::from_secs(120 * 60);
/// Maximum number of tasks that wait or run.
const MAX_TASKS: usize = 256;
/// Maximum number of tasks of one caller that wait or run.
const MAX_TASKS_OF_CALLER: usize = MAX_TASKS / 4;
/// Maximum number of new tasks of one caller in a minute.
const TASKS_PER_MINUTE: u32 = 60;
/// Maximum number of messages of one task.
const MAX_MESSAGES: usize = 32;
const NOT_PERMITTED: &str = "this agent accepts no tasks of the caller";

/// Consumes `agent.task.<agent>` of a remote agent.
pub(super) struct Intake {
    runner: Arc<Runner>,
    /// The agents whose tasks are accepted.
    callers: NamePatterns,
    rates: Rates,
}

/// Why a request is not recorded.
enum AcceptError {
    Refused { code: AgentTaskErrorCode, message: String, executed: Executed },
    Store(DocumentError),
}

impl From<DocumentError> for AcceptError {
    fn from(error: DocumentError) -> Self {
        Self::Store(error)
    }
}

impl AcceptError {
    fn new(code: AgentTaskErrorCode, message: impl Into<String>) -> Self {
        Self::Refused { code, message: message.into(), executed: Executed::No }
    }

    fn cancelled() -> Self {
        let text = "the task was cancelled before its request arrived";
        Self::new(AgentTaskErrorCode::Cancelled, text)
    }

    fn other_request() -> Self {
        let text = "the task was requested with another message before, and asks nothing";
        Self::new(AgentTaskErrorCode::InvalidRequest, text)
    }
}

impl Handler for Intake {
    fn handle<'a>(&'a self, delivery: &'a Delivery) -> BoxFuture<'a, Settlement> {
        Box::pin(async move { self.receive(delivery.envelope()).await })
    }
}

impl Intake {
    pub(super) fn new(runner: Arc<Runner>, callers: NamePatterns) -> Self {
        Self { runner, callers, rates: Rates::default() }
    }

    async fn receive(&self, envelope: &Envelope) -> Settlement {
        let caller = match TaskCaller::admit(envelope) {
            Ok(caller) => caller,
            Err(error) => return Settlement::dead_letter(error.to_string()),
        };
        let limits = Limits::default();
        let is_cancel = envelope.message_type() == AgentTaskCancelRequest::TYPE;
        let (task_id, accepted) = if is_cancel {
            let request: AgentTaskCancelRequest = match envelope.decode(limits) {
                Ok(request) => request,
                Err(error) => return Settlement::dead_letter(error.to_string()),
            };
            (request.task_id.clone(), self.cancel(&caller, request.task_id).await)
        } else {
            let request: AgentTaskRequest = match envelope.decode(limits) {
                Ok(request) => request,
                Err(error) => return Settlement::dead_letter(error.to_string()),
            };
            (request.task_id.clone(), self.accept(&caller, envelope, request).await)
        };
        match accepted {
            Ok(()) => {}
            Err(AcceptError::Store(error)) => {
                warn!(agent = %self.runner.name(), %error, "task for a remote agent not recorded; retrying");
                return Settlement::Retry;
            }
            Err(AcceptError::Refused { code, message, executed }) => {
                let is_retryable = code == AgentTaskErrorCode::Overloaded;
                let usage = None;
                let error =
                    AgentTaskError { task_id, code, message, is_retryable, executed, usage };
                self.runner.refuse(caller.reply_to, &error).await;
            }
        }
        Settlement::Ack
    }

    async fn accept(
        &self,
        caller: &TaskCaller,
        envelope: &Envelope,
        request: AgentTaskRequest,
    ) -> Result<(), AcceptError> {
        let records = self.runner.records();
        let id = Record::id_of(&caller.name, &request.task_id);
        let digest = Record::digest_of(&request, envelope);
        check_message(&request)?;
        if let Some(known) = records.get(&id).await? {
            return self.accept_known(known, caller, envelope, &request, &digest).await;
        }
        self.check(caller, &request)?;
        let time = time_limit(envelope);
        if time.is_zero() {
            let text = "the time limit had passed before the task was received";
            return Err(AcceptError::new(AgentTaskErrorCode::Expired, text));
        }
        let (text, data) = content(&request);
        let record = Record {
            skill: request.skill,
            text,
            data,
            received: vec![digest.clone()],
            deadline_ms: after(time),
            traceparent: trace::current().parent.as_deref().map(ToOwned::to_owned),
            ..blank_record(caller, request.task_id)
        };
        match records.create(&record).await? {
            None => {
                info!(agent = %self.runner.name(), caller = %caller.name, "task for a remote agent accepted");
            }
            Some(known) if known.received.contains(&digest) => {}
            Some(known) if known.was_cancelled_before_request() => {
                return Err(AcceptError::cancelled());
            }
            Some(_) => return Err(AcceptError::other_request()),
        }
        self.runner.start(&id, Some(&caller.name));
        Ok(())
    }

    /// Accepts a request for a known task: a repeated one, or the answer to its question.
    async fn accept_known(
        &self,
        known: Record,
        caller: &TaskCaller,
        envelope: &Envelope,
        request: &AgentTaskRequest,
        digest: &str,
    ) -> Result<(), AcceptError> {
        if known.was_cancelled_before_request() {
            return Err(AcceptError::cancelled());
        }
        let (records, id) = (self.runner.records(), known.id());
        if !known.received.iter().any(|received| received == digest) {
            let deadline = after(time_limit(envelope));
            let (text, data) = content(request);
            let answered = records.update(&id, |record| {
                let is_open = record.phase == Phase::InputRequired
                    && !record.is_cancelled
                    && record.received.len() < MAX_MESSAGES;
                if is_open {
                    record.received.push(digest.to_owned());
                    (record.text, record.data) = (text.clone(), data.clone());
                    record.reply_to = caller.reply_to.clone();
                    record.deadline_ms = record.deadline_ms.max(deadline);
                    (record.round, record.attempts) = (record.round + 1, 0);
                    record.is_uncertain = false;
                    (record.question, record.phase) = (None, Phase::Submitted);
                }
                is_open
            });
            if answered.await?.is_none() {
                return Err(AcceptError::other_request());
            }
        }
        // Its end, or its question, is sent again.
        records.mark(&id).await?;
        self.runner.start(&id, Some(&caller.name));
        Ok(())
    }

    fn check(&self, caller: &TaskCaller, request: &AgentTaskRequest) -> Result<(), AcceptError> {
        if !self.permits(caller) {
            return Err(AcceptError::new(AgentTaskErrorCode::NotPermitted, NOT_PERMITTED));
        }
        let name = self.runner.name();
        if caller.name == *name || request.lineage.contains(name) {
            let text = "this agent works on the request already; do the work yourself";
            return Err(AcceptError::new(AgentTaskErrorCode::LoopDetected, text));
        }
        let handovers = request.lineage.len().saturating_sub(1).max(request.depth as usize);
        if handovers >= MAX_HANDOVERS {
            let text = "the request was delegated too often; do the work yourself";
            return Err(AcceptError::new(AgentTaskErrorCode::TooDeep, text));
        }
        let card = self.runner.card();
        let skills = &card.announced.skills;
        if skills.iter().all(|skill| skill.id != request.skill) {
            let skills: Vec<_> = skills.iter().map(|skill| skill.id.as_str()).collect();
            let text = format!("no such skill; use one of: {}", skills.join(", "));
            return Err(AcceptError::new(AgentTaskErrorCode::SkillNotSupported, text));
        }
        if self.runner.running() >= MAX_TASKS {
            let text = "this agent has too many tasks; try again later";
            return Err(AcceptError::new(AgentTaskErrorCode::Overloaded, text));
        }
        if self.runner.running_of(&caller.name) >= MAX_TASKS_OF_CALLER {
            let text = "this agent has too many tasks of the caller; try again later";
            return Err(AcceptError::new(AgentTaskErrorCode::Overloaded, text));
        }
        if !self.is_within_rate(caller) {
            let text = "too many tasks within a minute; try again later";
            return Err(AcceptError::new(AgentTaskErrorCode::Overloaded, text));
        }
        Ok(())
    }

    fn permits(&self, caller: &TaskCaller) -> bool {
        self.callers.matches(caller.name.as_str())
    }

    /// Counts a new task of a caller. Returns `false` if it has too many.
    fn is_within_rate(&self, caller: &TaskCaller) -> bool {
        self.rates.count(&caller.name.as_str().into(), TASKS_PER_MINUTE).is_ok()
    }

    async fn cancel(&self, caller: &TaskCaller, task: TaskId) -> Result<(), AcceptError> {
        let records = self.runner.records();
        let id = Record::id_of(&caller.name, &task);
        if self.mark_cancelled(&id, caller).await? {
            return Ok(());
        }
        let mut known = records.get(&id).await?;
        if known.is_none() && !self.permits(caller) {
            return Err(AcceptError::Refused {
                code: AgentTaskErrorCode::NotPermitted,
                message: NOT_PERMITTED.to_owned(),
                executed: Executed::Unknown,
            });
        }
        if known.is_none() && self.is_within_rate(caller) {
            // Its request may arrive later.
            let end = End::with_code(AgentTaskErrorCode::Cancelled, Executed::Unknown, "");
            let cancelled = Record {
                is_cancelled: true,
                phase: Phase::Ended,
                end: Some(end),
                ..blank_record(caller, task)
            };
            known = records.create(&cancelled).await?;
            // Its request may have been recorded meanwhile.
            if known.is_some() && self.mark_cancelled(&id, caller).await? {
                return Ok(());
            }
        }
        let (code, message, executed) = match known.and_then(|record| record.end) {
            Some(end) => {
                (AgentTaskErrorCode::TaskNotCancelable, "the task has ended", end.executed)
            }
            None => (AgentTaskErrorCode::TaskNotFound, "there is no such task", Executed::Unknown),
        };
        Err(AcceptError::Refused { code, message: message.to_owned(), executed })
    }

    /// Marks an open task as cancelled. Its end is sent when it has ended. Returns `false` without one.
    async fn mark_cancelled(&self, id: &str, caller: &TaskCaller) -> Result<bool, DocumentError> {
        let cancelled = self.runner.records().update(id, |record| {
            let is_open = record.end.is_none();
            record.is_cancelled |= is_open;
            is_open
        });
        let is_open = cancelled.await?.is_some();
        if is_open {
            self.runner.start(id, Some(&caller.name));
        }
        Ok(is_open)
    }
}

/// Returns the record of a submitted task without a message and time.
fn blank_record(caller: &TaskCaller, task: TaskId) -> Record {
    Record::new(caller.name.clone(), task, caller.reply_to.clone())
}

fn check_message(request: &AgentTaskRequest) -> Result<(), AcceptError> {
    let parts = &request.message.parts;
    let text: usize = parts.iter().filter_map(|part| part.text.as_ref()).map(String::len).sum();
    let data: usize =
        parts.iter().filter_map(|part| part.data.as_ref()).map(|data| data.to_string().len()).sum();
    let problem = if parts.len() > MAX_TASK_PARTS {
        "the message has more than 64 parts"
    } else if request.message.text().trim().is_empty() {
        "the message has no text"
    } else if text > MAX_TASK_TEXT_BYTES || data > MAX_TASK_DATA_BYTES {
        "the message has more than 64 KiB of text or 256 KiB of data"
    } else {
        return Ok(());
    };
    Err(AcceptError::new(AgentTaskErrorCode::InvalidRequest, problem))
}

/// Returns the texts and the data of a request.
fn content(request: &AgentTaskRequest) -> (String, Option<Value>) {
    let parts = &request.message.parts;
    let texts: Vec<_> = parts.iter().filter_map(|part| part.text.as_deref()).collect();
    let data = parts.iter().filter(|part| part.text.is_none());
    let mut data: Vec<_> = data.filter_map(|part| part.data.clone()).collect();
    let data = if data.len() > 1 { Some(Value::Array(data)) } else { data.pop() };
    (texts.join("\n"), data)
}

fn time_limit(envelope: &Envelope) -> Duration {
    envelope.remaining().unwrap_or(MAX_TIME).min(MAX_TIME)
}

/// Returns the time in Unix milliseconds that is `time` from now.
fn after(time: Duration) -> u64 {
    now_ms().saturating_add(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}
