//! Responses to the agents whose tasks a remote agent does.

use std::{sync::Arc, time::Duration};

use rockbot_bus::{Bus, Publication, PublishError};
use rockbot_contracts::{
    AgentName, AgentTaskError, AgentTaskResult, AgentTaskState, AgentTaskStatusUpdate,
    ContentTrust, Envelope, MessageId, RoutingKey, TaskArtifact, TaskId, TaskMessage, TaskPart,
    outside_text::plain,
};
use tracing::debug;

use super::record::{End, Record, digest};

/// Time limit of the publish of a report, which may be lost.
const REPORT_TIMEOUT: Duration = Duration::from_secs(2);
/// Longest report, in characters.
const MAX_REPORT_CHARS: usize = 500;

/// Sends responses in the name of the remote agent.
pub(super) struct Responder {
    bus: Arc<dyn Bus>,
    agent: AgentName,
}

impl Responder {
    pub(super) fn new(bus: Arc<dyn Bus>, agent: AgentName) -> Self {
        Self { bus, agent }
    }

    /// Sends the end of a task. It has the same message id each time.
    pub(super) async fn respond(&self, record: &Record, end: &End) -> Result<(), PublishError> {
        let task_id = record.task.clone();
        let envelope = match end.code {
            Some(code) => Envelope::from_payload(&AgentTaskError {
                task_id,
                code,
                message: end.text.clone(),
                is_retryable: false,
                executed: end.executed,
                usage: None,
            }),
            None => Envelope::from_payload(&AgentTaskResult {
                task_id,
                state: AgentTaskState::Completed,
                artifacts: vec![TaskArtifact {
                    name: "result".to_owned(),
                    parts: vec![TaskPart::text(&end.text)],
                }],
                message: None,
                usage: None,
            }),
        };
        self.publish(record, envelope, "end").await
    }

    /// Sends the open question of a task.
    pub(super) async fn ask(&self, record: &Record) -> Result<(), PublishError> {
        let question = record.question.as_deref().unwrap_or_default();
        let envelope = Envelope::from_payload(&AgentTaskStatusUpdate {
            task_id: record.task.clone(),
            state: AgentTaskState::InputRequired,
            sequence: u64::from(record.round) + 1,
            message: Some(TaskMessage::new(TaskMessage::AGENT, question, None)),
        });
        self.publish(record, envelope, &format!("question-{}", record.round)).await
    }

    /// Reports that the task runs, and its progress. The report may be lost.
    pub(super) async fn report(&self, record: &Record, text: &str) {
        let text = plain(text, MAX_REPORT_CHARS);
        let envelope = Envelope::from_payload(&AgentTaskStatusUpdate {
            task_id: record.task.clone(),
            state: AgentTaskState::Working,
            sequence: 0,
            message: (!text.is_empty()).then(|| TaskMessage::new(TaskMessage::AGENT, &text, None)),
        });
        let envelope = self.addressed(&record.task, envelope.transient());
        let report = Publication::mandatory(record.reply_to.clone(), envelope);
        if let Err(error) = self.bus.publish(report.within(REPORT_TIMEOUT)).await {
            debug!(agent = %self.agent, task = %record.task, %error, "report on a task not sent");
        }
    }

    /// Refuses a request that is not recorded.
    pub(super) async fn refuse(&self, reply_to: RoutingKey, error: &AgentTaskError) {
        let envelope = self.addressed(&error.task_id, Envelope::from_payload(error));
        // Without it, the task ends at its time limit.
        if let Err(error) = self.bus.publish(Publication::mandatory(reply_to, envelope)).await {
            debug!(agent = %self.agent, %error, "refusal of a task not sent");
        }
    }

    async fn publish(
        &self,
        record: &Record,
        envelope: Envelope,
        kind: &str,
    ) -> Result<(), PublishError> {
        let id = MessageId::new(digest(&[kind, self.agent.as_str(), &record.id()]));
        let mut envelope = self.addressed(&record.task, envelope);
        if let Ok(id) = id {
            envelope.message_id = id;
        }
        self.bus.publish(Publication::mandatory(record.reply_to.clone(), envelope)).await
    }

    fn addressed(&self, task: &TaskId, envelope: Envelope) -> Envelope {
        envelope
            .with_correlation_id(task.as_str())
            .with_source(self.agent.as_str())
            .with_trust(ContentTrust::AgentMessage)
    }
}
