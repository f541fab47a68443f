//! The exchange with other agents over the bus.

use std::{sync::Arc, time::Duration};

use rockbot_bus::{Bus, Publication};
use rockbot_contracts::{
    AgentCard, AgentName, AgentTaskCancelRequest, AgentTaskError, AgentTaskErrorCode,
    AgentTaskRequest, AgentTaskResult, AgentTaskState, AgentTaskStatusUpdate, ContentTrust,
    Envelope, MessageId, RoutingKey, TaskArtifact, TaskBudget, TaskId, TaskMessage, TaskPart,
    TaskState,
    topology::{agent_response, agent_task, agent_task_cancel},
};
use rockbot_tools::BudgetLimits;
use tracing::debug;

use super::{
    ports::Delivered,
    record::{PeerTask, TaskRecord},
};
use crate::{
    conversation::unix_ms,
    derived_id::derived_id,
    discovery::{A2aRules, AgentDirectory},
};

/// Time limit for publishing a status; a lost status is not resent.
const STATUS_TIMEOUT: Duration = Duration::from_secs(2);

/// Means of an agent to exchange tasks with others.
pub(crate) struct Peers {
    pub(crate) bus: Arc<dyn Bus>,
    pub(crate) directory: Arc<AgentDirectory>,
    /// Rules for accepting tasks.
    pub(crate) rules: A2aRules,
    /// Card of this agent.
    pub(crate) card: AgentCard,
    /// Maximum budget of a received task.
    pub(crate) limits: BudgetLimits,
}

impl Peers {
    fn own(&self) -> &AgentName {
        &self.card.agent_name
    }

    /// Sends the current message of a task to the agent that does it.
    pub(super) async fn request(&self, record: &TaskRecord, peer: &PeerTask) -> Delivered {
        let limits = record.grant;
        let message = TaskMessage::new(TaskMessage::USER, &record.text, peer.data.clone());
        let lineage = record.scope.agents.clone();
        let request = AgentTaskRequest {
            task_id: peer.wire_task.clone(),
            skill: peer.skill.clone(),
            message: message.with_id(peer.message.clone()),
            depth: u32::try_from(lineage.len().saturating_sub(1)).unwrap_or(u32::MAX),
            lineage,
            budget: Some(TaskBudget {
                model_calls: limits.model_calls,
                tokens: limits.tokens,
                cost_micros: limits.cost_micros,
                tool_calls: limits.tool_calls,
                delegations: limits.delegations,
            }),
        };
        let left = Duration::from_millis(record.deadline.saturating_sub(unix_ms()));
        let mut envelope =
            Envelope::from_payload(&request).reply_to(agent_response(self.own())).within(left);
        envelope.message_id = peer.message.clone();
        self.publish(agent_task(&peer.agent), &peer.wire_task, envelope).await
    }

    /// Asks the agent that does a task to end it.
    pub(super) async fn cancel(&self, peer: &PeerTask) -> Delivered {
        let request = AgentTaskCancelRequest { task_id: peer.wire_task.clone() };
        let envelope = Envelope::from_payload(&request).reply_to(agent_response(self.own()));
        self.publish(agent_task_cancel(&peer.agent), &peer.wire_task, envelope).await
    }

    /// Sends the outcome of a task to its caller. Repeats have the same message id.
    pub(super) async fn respond(&self, record: &TaskRecord, peer: &PeerTask) -> Delivered {
        let Some(reply_to) = peer.reply_to.clone() else { return Delivered::Gone };
        let envelope = match error_code(record.state) {
            Some(code) => Envelope::from_payload(&AgentTaskError {
                task_id: peer.wire_task.clone(),
                code,
                message: record.result.clone(),
                is_retryable: false,
                executed: record.executed(),
                usage: Some(record.spent),
            }),
            None => {
                let parts = vec![TaskPart::text(&record.result)];
                Envelope::from_payload(&AgentTaskResult {
                    task_id: peer.wire_task.clone(),
                    state: AgentTaskState::Completed,
                    artifacts: vec![TaskArtifact { name: "result".to_owned(), parts }],
                    message: None,
                    usage: Some(record.spent),
                })
            }
        };
        self.publish(reply_to, &peer.wire_task, identified(envelope, record, "end")).await
    }

    /// Sends the open question of a task to its caller.
    pub(super) async fn ask(&self, record: &TaskRecord, peer: &PeerTask) -> Delivered {
        let Some(reply_to) = peer.reply_to.clone() else { return Delivered::Gone };
        let question = peer.question.as_deref().unwrap_or_default();
        let status = AgentTaskStatusUpdate {
            task_id: peer.wire_task.clone(),
            state: AgentTaskState::InputRequired,
            sequence: u64::from(peer.round) + 1,
            message: Some(TaskMessage::new(TaskMessage::AGENT, question, None)),
        };
        let kind = format!("question-{}", peer.round);
        let envelope = identified(Envelope::from_payload(&status), record, &kind);
        self.publish(reply_to, &peer.wire_task, envelope).await
    }

    /// Reports to the caller of a task that it runs, and its progress. The report may be lost.
    pub(super) async fn report(&self, record: &TaskRecord, peer: &PeerTask, text: &str) {
        let Some(reply_to) = peer.reply_to.clone() else { return };
        let status = AgentTaskStatusUpdate {
            task_id: peer.wire_task.clone(),
            state: AgentTaskState::Working,
            sequence: 0,
            message: (!text.is_empty()).then(|| TaskMessage::new(TaskMessage::AGENT, text, None)),
        };
        let envelope = Envelope::from_payload(&status).transient();
        let envelope = self.addressed(&peer.wire_task, envelope);
        let publication = Publication::mandatory(reply_to, envelope).within(STATUS_TIMEOUT);
        if let Err(error) = self.bus.publish(publication).await {
            debug!(task = %record.task, %error, "status of a task not sent");
        }
    }

    /// Sends an error for a request that was rejected. Sent once; nothing is recorded for a retry.
    pub(super) async fn refuse(&self, reply_to: RoutingKey, error: &AgentTaskError) -> Delivered {
        self.publish(reply_to, &error.task_id, Envelope::from_payload(error)).await
    }

    fn addressed(&self, task: &TaskId, envelope: Envelope) -> Envelope {
        envelope
            .with_correlation_id(task.as_str())
            .with_source(self.own().as_str())
            .with_trust(ContentTrust::AgentMessage)
    }

    async fn publish(&self, to: RoutingKey, task: &TaskId, envelope: Envelope) -> Delivered {
        let envelope = self.addressed(task, envelope);
        self.bus.publish(Publication::mandatory(to, envelope)).await.into()
    }
}

/// Returns the error that reports the outcome of a task to its caller; `None` for a result.
fn error_code(state: TaskState) -> Option<AgentTaskErrorCode> {
    match state {
        TaskState::Completed => None,
        TaskState::Cancelled => Some(AgentTaskErrorCode::Cancelled),
        TaskState::Expired => Some(AgentTaskErrorCode::Expired),
        _ => Some(AgentTaskErrorCode::ExecutionFailed),
    }
}

/// Sets an id derived from the task and `kind`, so that a resent message has the same id.
fn identified(envelope: Envelope, record: &TaskRecord, kind: &str) -> Envelope {
    let id = derived_id(&[kind, record.task.as_str()], 32);
    match MessageId::new(id) {
        Ok(message_id) => Envelope { message_id, ..envelope },
        // Unreachable: 32 hexadecimal digits are a valid message id.
        Err(_) => envelope,
    }
}
