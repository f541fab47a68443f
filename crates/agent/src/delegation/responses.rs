//! Responses of other agents to the tasks that were delegated to them: the first end of a task counts.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::future::BoxFuture;
use metrics::counter;
use rockbot_bus::{Delivery, Handler, Settlement};
use rockbot_contracts::{
    AgentTaskError, AgentTaskErrorCode, AgentTaskResult, AgentTaskState, AgentTaskStatusUpdate,
    DecodeError, Envelope, Executed, Message, Spending, TaskId, TaskMessage, TaskState,
    identity::may_reply_as, json::Limits,
};
use rockbot_store::StoreError;
use tracing::{debug, info, warn};

use super::{
    frame::report_line,
    questions,
    record::{LateResult, PeerTask, TaskKind, TaskRecord},
    run::cut,
    sent::{end, unreported},
    tasks::Delegation,
};
use crate::conversation::unix_ms;

/// Time after its limit in which a result is still passed on.
const LATE: Duration = Duration::from_secs(24 * 3600);

/// Consumes `agent.response.<agent>`.
pub(crate) struct ResponseHandler {
    pub(crate) delegation: Arc<Delegation>,
}

/// A response, as far as it changes the record of its task.
enum Response {
    /// The agent works on it.
    Working { report: String },
    /// The agent asks.
    Question { number: u32, text: String },
    /// The agent ended it.
    Ended { state: TaskState, text: String, usage: Option<Spending> },
    /// The agent refused before it began, and may accept the same request later.
    Refused { text: String },
}

impl Handler for ResponseHandler {
    fn handle<'a>(&'a self, delivery: &'a Delivery) -> BoxFuture<'a, Settlement> {
        Box::pin(async move {
            let envelope = delivery.envelope();
            let (task, response) = match Response::read(envelope) {
                Ok(read) => read,
                Err(reason) => return Settlement::dead_letter(reason),
            };
            match self.delegation.respond_to(envelope, &task, response).await {
                Ok(()) => Settlement::Ack,
                Err(error) => {
                    warn!(%task, %error, "response of an agent not recorded; retrying");
                    Settlement::Retry
                }
            }
        })
    }
}

impl Response {
    fn read(envelope: &Envelope) -> Result<(TaskId, Self), String> {
        let limits = Limits::default();
        let problem = |error: DecodeError| error.to_string();
        match envelope.message_type() {
            AgentTaskResult::TYPE => {
                let result: AgentTaskResult = envelope.decode(limits).map_err(problem)?;
                let state = match result.state {
                    AgentTaskState::Completed => TaskState::Completed,
                    AgentTaskState::Canceled => TaskState::Cancelled,
                    _ => TaskState::Failed,
                };
                let (text, usage) = (result.text(), result.usage);
                Ok((result.task_id, Self::Ended { state, text, usage }))
            }
            AgentTaskError::TYPE => {
                let error: AgentTaskError = envelope.decode(limits).map_err(problem)?;
                Ok((error.task_id.clone(), Self::from(error)))
            }
            AgentTaskStatusUpdate::TYPE => {
                let status: AgentTaskStatusUpdate = envelope.decode(limits).map_err(problem)?;
                let text = status.message.as_ref().map(TaskMessage::text).unwrap_or_default();
                let response = match status.state {
                    AgentTaskState::InputRequired => {
                        let number = u32::try_from(status.sequence).unwrap_or(u32::MAX);
                        Self::Question { number, text }
                    }
                    AgentTaskState::AuthRequired => {
                        let text = "The agent needs credentials. An operator must configure them."
                            .to_owned();
                        Self::Ended { state: TaskState::Failed, text, usage: None }
                    }
                    _ => Self::Working { report: text },
                };
                Ok((status.task_id, response))
            }
            _ => Err("not a response to a task".to_owned()),
        }
    }

    /// Changes the record of the task. Returns `false` for a duplicate: the task has ended, or the question is known.
    fn apply(&self, record: &mut TaskRecord) -> bool {
        let (state, deadline, grant) = (record.state, record.deadline, record.grant);
        let Some(peer) = record.peer.as_deref_mut() else { return false };
        // The response may arrive before the request is recorded as sent.
        let is_sent = matches!(state, TaskState::Submitted | TaskState::Running);
        match self {
            _ if state == TaskState::Expired => return self.apply_late(peer, deadline),
            _ if state.is_terminal() => return false,
            Self::Working { .. } => peer.has_begun = true,
            Self::Question { number, text } => {
                let is_new = *number > peer.round && is_sent;
                if !is_new {
                    return false;
                }
                (peer.has_begun, peer.round) = (true, *number);
                let text = cut(text);
                peer.questions.push(questions::digest(&text));
                peer.question = Some(text);
                record.state = TaskState::InputRequired;
            }
            Self::Refused { .. } if !peer.was_retried && is_sent => {
                peer.was_retried = true;
                record.state = TaskState::Submitted;
            }
            Self::Refused { text } => end(record, TaskState::Failed, text, Spending::default()),
            Self::Ended { state, text, usage } => {
                end(record, *state, text, usage.unwrap_or_else(|| unreported(grant)));
            }
        }
        true
    }

    /// Keeps the result of a task whose time limit has passed. Returns `false` for an error, which adds nothing, and
    /// for a further result.
    fn apply_late(&self, peer: &mut PeerTask, deadline: u64) -> bool {
        let now = unix_ms();
        let is_late =
            now.saturating_sub(deadline) <= u64::try_from(LATE.as_millis()).unwrap_or(u64::MAX);
        match self {
            Self::Ended { state: TaskState::Completed, text, .. }
                if is_late && peer.late.is_none() && !peer.is_awaited =>
            {
                peer.late = Some(LateResult { text: cut(text), at: now, is_folded: false });
                true
            }
            _ => false,
        }
    }
}

impl From<AgentTaskError> for Response {
    fn from(error: AgentTaskError) -> Self {
        let AgentTaskError { code, message, is_retryable, executed, usage, .. } = error;
        if is_retryable && executed == Executed::No {
            return Self::Refused { text: message };
        }
        let state = match code {
            AgentTaskErrorCode::Cancelled => TaskState::Cancelled,
            AgentTaskErrorCode::Expired => TaskState::Expired,
            _ => TaskState::Failed,
        };
        let usage = usage.or_else(|| (executed == Executed::No).then(Spending::default));
        Self::Ended { state, text: message, usage }
    }
}

impl Delegation {
    /// Applies a response to the record of its task.
    async fn respond_to(
        self: &Arc<Self>,
        envelope: &Envelope,
        task: &TaskId,
        response: Response,
    ) -> Result<(), StoreError> {
        let Some(attached) = self.attached() else { return Ok(()) };
        let known = attached.store.get(task).await?.filter(|record| record.kind == TaskKind::Sent);
        let Some(peer) = known.and_then(|record| record.peer) else {
            info!(%task, "response to an unknown task dropped; it expired, or its agent lost it");
            count_dropped("unknown");
            return Ok(());
        };
        if !may_reply_as(envelope.user_id.as_deref(), &peer.agent) {
            debug!(%task, "response of another user's agent dropped");
            count_dropped("foreign");
            return Ok(());
        }
        let is_applied = AtomicBool::new(false);
        let updated = attached.store.update(task, |record| {
            let applied = response.apply(record);
            is_applied.store(applied, Ordering::Relaxed);
            applied
        });
        let Some(record) = updated.await? else { return Ok(()) };
        if record.unread_late().is_some() {
            // After the record: a process that is about to end its work may remove earlier markers. A response that is
            // delivered again, after a crash, sets it too.
            attached.mark(&record).await?;
        }
        if !is_applied.into_inner() {
            counter!("rockbot_agent_peer_duplicates_total").increment(1);
            return Ok(());
        }
        if let Response::Working { report } = &response {
            let report = report_line(report);
            if !report.is_empty() {
                self.report(task.clone(), report);
            }
            return Ok(());
        }
        self.changed.notify_waiters();
        // Unless a process waits for it already.
        self.start(record.kind, task.clone(), None);
        Ok(())
    }
}

fn count_dropped(reason: &'static str) {
    counter!("rockbot_agent_peer_responses_dropped_total", "reason" => reason).increment(1);
}

#[cfg(test)]
mod tests {
    use super::{super::record::sent_record, *};

    fn response<M: Message>(payload: &M) -> Response {
        Response::read(&Envelope::from_payload(payload)).unwrap().1
    }

    #[test]
    fn error_before_the_start_may_be_repeated() {
        let error = AgentTaskError {
            task_id: TaskId::new("t").unwrap(),
            code: AgentTaskErrorCode::Overloaded,
            message: "busy".to_owned(),
            is_retryable: true,
            executed: Executed::No,
            usage: None,
        };
        assert!(matches!(response(&error), Response::Refused { .. }));
        let began = AgentTaskError { executed: Executed::Unknown, ..error.clone() };
        assert!(matches!(response(&began), Response::Ended { usage: None, .. }));
        let refused = AgentTaskError { is_retryable: false, ..error };
        let expected = Some(Spending::default());
        assert!(matches!(response(&refused), Response::Ended { usage, .. } if usage == expected));
    }

    #[test]
    fn response_may_be_faster_than_the_record_of_its_request() {
        let question = || Response::Question { number: 1, text: "Which?".to_owned() };
        let mut record = sent_record(TaskState::Submitted);
        assert!(question().apply(&mut record));
        assert_eq!(record.state, TaskState::InputRequired);
        assert!(!question().apply(&mut record), "it is known");
        let refused = || Response::Refused { text: "busy".to_owned() };
        let mut record = sent_record(TaskState::Submitted);
        assert!(refused().apply(&mut record));
        assert_eq!(record.state, TaskState::Submitted, "it is sent again");
        assert!(refused().apply(&mut record));
        assert_eq!(record.state, TaskState::Failed);
    }

    #[test]
    fn unknown_message_is_not_a_response() {
        let envelope = Envelope::raw("ToolError", b"{}".to_vec());
        assert!(Response::read(&envelope).is_err());
    }
}
