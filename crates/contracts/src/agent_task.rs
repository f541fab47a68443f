//! Tasks between agents on the wire: request, cancel, status, result and error.
//!
//! A request goes to `agent.task.<agent>` and names an address below `agent.response.<caller>`, to which the
//! agent sends statuses and one result or error. `taskId` identifies a task together with its caller: a request
//! that arrives again is the same task.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::{
    ids::{AgentName, MessageId, TaskId},
    message::Message,
    spending::Spending,
    tool::{Executed, null_is_default},
};

/// Longest text of a task's message, in bytes.
pub const MAX_TASK_TEXT_BYTES: usize = 64 * 1024;
/// Largest structured data of a task's message, in bytes of JSON.
pub const MAX_TASK_DATA_BYTES: usize = 256 * 1024;
/// Maximum number of parts of a message or artifact.
pub const MAX_TASK_PARTS: usize = 64;
/// Longest name of a skill, in bytes.
pub const MAX_SKILL_BYTES: usize = 128;
/// Maximum number of agents in a lineage.
pub const MAX_LINEAGE: usize = 16;

/// Request to do a task, or to continue one that required input.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentTaskRequest {
    /// Id of the task, unique among those of the caller.
    pub task_id: TaskId,
    /// The skill of the agent that is asked for.
    pub skill: String,
    /// The task, or the input that it required.
    pub message: TaskMessage,
    /// The agents that delegated the work, the caller last.
    #[serde(default, deserialize_with = "null_is_default")]
    pub lineage: Vec<AgentName>,
    /// Number of delegations before this one.
    #[serde(default, deserialize_with = "null_is_default")]
    pub depth: u32,
    /// The most that may be spent on the task; absent from peers without budgets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<TaskBudget>,
}

/// A message of a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskMessage {
    /// `user` for requests, `agent` for replies.
    pub role: String,
    /// Its content.
    #[serde(default, deserialize_with = "null_is_default")]
    pub parts: Vec<TaskPart>,
    /// Id of the message. A request with the same task and message is the same request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_id: Option<MessageId>,
}

/// A part of a message or artifact.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskPart {
    /// `text` or `data`; other kinds are not read.
    pub kind: String,
    /// The text of a `text` part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The JSON of a `data` part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<serde_json::Value>,
}

/// The most that may be spent on a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskBudget {
    /// Requests to models.
    pub model_calls: u64,
    /// Prompt and completion tokens.
    pub tokens: u64,
    /// Millionths of a US dollar; absent without a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_micros: Option<u64>,
    /// Tool calls.
    pub tool_calls: u64,
    /// Turns that other turns start.
    #[serde(default, deserialize_with = "null_is_default")]
    pub delegations: u64,
}

/// State of a task between agents. Read as a word or, from older peers, as a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AgentTaskState {
    /// Accepted, and not begun.
    Submitted,
    /// It runs.
    Working,
    /// It waits for a message of the caller.
    InputRequired,
    /// It ended with a result.
    Completed,
    /// It ended without a result.
    Failed,
    /// It was cancelled.
    Canceled,
    /// It was not accepted.
    Rejected,
    /// It needs credentials that the caller cannot give.
    AuthRequired,
    /// A state that this build does not know.
    Other,
}

impl AgentTaskState {
    /// The known states; the first six in the order of their numbers.
    const KNOWN: [Self; 8] = [
        Self::Submitted,
        Self::Working,
        Self::InputRequired,
        Self::Completed,
        Self::Failed,
        Self::Canceled,
        Self::Rejected,
        Self::AuthRequired,
    ];
    /// Number of states with a number.
    const NUMBERED: usize = 6;

    /// Returns the state as on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Submitted => "submitted",
            Self::Working => "working",
            Self::InputRequired => "input_required",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Canceled => "canceled",
            Self::Rejected => "rejected",
            Self::AuthRequired => "auth_required",
            Self::Other => "other",
        }
    }
}

impl Serialize for AgentTaskState {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for AgentTaskState {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct StateVisitor;

        impl de::Visitor<'_> for StateVisitor {
            type Value = AgentTaskState;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the state of a task")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<AgentTaskState, E> {
                let known = AgentTaskState::KNOWN.into_iter().find(|state| state.as_str() == text);
                Ok(known.unwrap_or(AgentTaskState::Other))
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<AgentTaskState, E> {
                let numbered = &AgentTaskState::KNOWN[..AgentTaskState::NUMBERED];
                let known = usize::try_from(number).ok().and_then(|number| numbered.get(number));
                Ok(known.copied().unwrap_or(AgentTaskState::Other))
            }

            fn visit_i64<E: de::Error>(self, _: i64) -> Result<AgentTaskState, E> {
                Ok(AgentTaskState::Other)
            }

            fn visit_f64<E: de::Error>(self, _: f64) -> Result<AgentTaskState, E> {
                Ok(AgentTaskState::Other)
            }

            fn visit_bool<E: de::Error>(self, _: bool) -> Result<AgentTaskState, E> {
                Ok(AgentTaskState::Other)
            }

            fn visit_unit<E: de::Error>(self) -> Result<AgentTaskState, E> {
                Ok(AgentTaskState::Other)
            }
        }

        deserializer.deserialize_any(StateVisitor)
    }
}

/// A change of a task that did not end it: progress, or a question of the agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentTaskStatusUpdate {
    /// The task.
    pub task_id: TaskId,
    /// Its state.
    pub state: AgentTaskState,
    /// Number of the question, from 1, with `input_required`. A question that arrives again has the same.
    #[serde(default, deserialize_with = "null_is_default")]
    pub sequence: u64,
    /// The progress, or the question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<TaskMessage>,
}

/// The end of a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentTaskResult {
    /// The task.
    pub task_id: TaskId,
    /// `completed`, or why there is no result.
    pub state: AgentTaskState,
    /// Results.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<TaskArtifact>,
    /// The last message of the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<TaskMessage>,
    /// Spending; absent from peers that do not count it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Spending>,
}

/// A named result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskArtifact {
    /// Its name; may be empty.
    #[serde(default, deserialize_with = "null_is_default")]
    pub name: String,
    /// Its content.
    #[serde(default, deserialize_with = "null_is_default")]
    pub parts: Vec<TaskPart>,
}

/// A task that was refused or failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentTaskError {
    /// The task.
    pub task_id: TaskId,
    /// Kind of the error.
    pub code: AgentTaskErrorCode,
    /// The error and its remedy, for a model.
    pub message: String,
    /// A repeated request may succeed later.
    #[serde(default, deserialize_with = "null_is_default")]
    pub is_retryable: bool,
    /// State of execution: `no` if the task did not begin.
    #[serde(default = "unknown_execution")]
    pub executed: Executed,
    /// Spending; absent from peers that do not count it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Spending>,
}

const fn unknown_execution() -> Executed {
    Executed::Unknown
}

/// Kind of an [`AgentTaskError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentTaskErrorCode {
    /// There is no such task.
    TaskNotFound,
    /// The task has ended.
    TaskNotCancelable,
    /// The agent has no such skill.
    SkillNotSupported,
    /// The request breaks a limit, or differs from an earlier one for the task.
    InvalidRequest,
    /// The agent works on the request already.
    LoopDetected,
    /// The work was delegated too often.
    TooDeep,
    /// The granted budget is too small.
    BudgetExceeded,
    /// The task was cancelled.
    Cancelled,
    /// The time limit has passed.
    Expired,
    /// The agent has too many tasks.
    Overloaded,
    /// The caller may not ask this agent.
    NotPermitted,
    /// The task failed; also any code that this build does not know.
    #[serde(other)]
    ExecutionFailed,
}

/// Request to cancel a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentTaskCancelRequest {
    /// The task.
    pub task_id: TaskId,
}

impl Message for AgentTaskRequest {
    const TYPE: &'static str = "AgentTaskRequest";
}

impl Message for AgentTaskStatusUpdate {
    const TYPE: &'static str = "AgentTaskStatusUpdate";
}

impl Message for AgentTaskResult {
    const TYPE: &'static str = "AgentTaskResult";
}

impl Message for AgentTaskError {
    const TYPE: &'static str = "AgentTaskError";
}

impl Message for AgentTaskCancelRequest {
    const TYPE: &'static str = "AgentTaskCancelRequest";
}

impl TaskMessage {
    /// Role of requests.
    pub const USER: &'static str = "user";
    /// Role of replies.
    pub const AGENT: &'static str = "agent";

    /// Creates a message with a part for the text and one for the data.
    #[must_use]
    pub fn new(role: &str, text: &str, data: Option<serde_json::Value>) -> Self {
        let data = data.map(|data| TaskPart::new("data", None, Some(data)));
        let text = TaskPart::text(text);
        let parts = std::iter::once(text).chain(data).collect();
        Self { role: role.to_owned(), parts, message_id: None }
    }

    /// Sets the id.
    #[must_use]
    pub fn with_id(self, id: MessageId) -> Self {
        Self { message_id: Some(id), ..self }
    }

    /// Returns the texts of its parts, one after the other.
    #[must_use]
    pub fn text(&self) -> String {
        joined(&self.parts)
    }
}

impl TaskPart {
    fn new(kind: &str, text: Option<String>, data: Option<serde_json::Value>) -> Self {
        Self { kind: kind.to_owned(), text, data }
    }

    /// Creates a part with text.
    #[must_use]
    pub fn text(text: &str) -> Self {
        Self::new("text", Some(text.to_owned()), None)
    }
}

impl AgentTaskResult {
    /// Returns the texts of the artifacts, or that of the message without any.
    #[must_use]
    pub fn text(&self) -> String {
        let artifacts: Vec<_> = self.artifacts.iter().map(|one| joined(&one.parts)).collect();
        let text = artifacts.join("\n\n");
        match &self.message {
            Some(message) if text.trim().is_empty() => message.text(),
            _ => text,
        }
    }
}

/// Returns the texts and the data of parts; others are not read.
fn joined(parts: &[TaskPart]) -> String {
    let texts =
        parts.iter().take(MAX_TASK_PARTS).filter_map(|part| match (&part.text, &part.data) {
            (Some(text), _) => Some(text.clone()),
            (None, Some(data)) => Some(data.to_string()),
            (None, None) => None,
        });
    texts.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_words_or_numbers_and_others_are_unknown() {
        for (json, expected) in [
            ("\"input_required\"", AgentTaskState::InputRequired),
            ("2", AgentTaskState::InputRequired),
            ("5", AgentTaskState::Canceled),
            ("6", AgentTaskState::Other),
            ("99", AgentTaskState::Other),
            ("-1", AgentTaskState::Other),
            ("1.5", AgentTaskState::Other),
            ("null", AgentTaskState::Other),
            ("true", AgentTaskState::Other),
            ("\"paused\"", AgentTaskState::Other),
        ] {
            assert_eq!(serde_json::from_str::<AgentTaskState>(json).unwrap(), expected, "{json}");
        }
    }

    #[test]
    fn text_of_a_result_is_that_of_its_artifacts() {
        let message = Some(TaskMessage::new(TaskMessage::AGENT, "said", None));
        let state = AgentTaskState::Completed;
        let task_id = TaskId::new("t").unwrap();
        let mut result =
            AgentTaskResult { task_id, state, artifacts: Vec::new(), message, usage: None };
        assert_eq!(result.text(), "said");
        let parts = vec![TaskPart::text("a"), TaskPart::new("url", None, None)];
        result.artifacts = vec![TaskArtifact { name: String::new(), parts }];
        assert_eq!(result.text(), "a");
    }
}
