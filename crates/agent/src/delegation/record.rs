//! The record of handed over work.

use rockbot_contracts::{
    MessageId, RoutingKey, SessionId, Spending, TaskId, TaskState, TaskSummary, ToolCallId,
    TraceContext,
};
use rockbot_tools::{BudgetLimits, RecordedScope};
use serde::{Deserialize, Serialize};

use crate::{conversation::TaskEntry, derived_id::derived_id};

/// Length of a task id in hexadecimal digits.
const ID_CHARS: usize = 12;

/// Returns `true` for the conversation of a sub-agent.
pub(crate) fn is_task_session(session: &SessionId) -> bool {
    task_of(session).is_some()
}

/// Returns the work that a conversation does.
pub(super) fn task_of(session: &SessionId) -> Option<TaskId> {
    TaskId::from_session(session)
}

/// Kinds of handed over work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum TaskKind {
    Subagent,
}

/// The turn that handed the work over, and its user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TaskRoot {
    pub(super) session: SessionId,
    pub(super) message: MessageId,
    /// Address of the user; absent if none takes part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) reply_to: Option<RoutingKey>,
    /// The broker user, if the broker vouches for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) sender: Option<String>,
    /// Number of turns on results since the last message of a user.
    pub(super) generation: u32,
}

/// Handed over work, and how it ended. Changed only by conditional writes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TaskRecord {
    pub(super) task: TaskId,
    pub(super) kind: TaskKind,
    /// The call that handed it over.
    pub(super) call: ToolCallId,
    pub(super) root: TaskRoot,
    /// The first call of the same model response: its results are read together.
    pub(super) batch: ToolCallId,
    /// Description, at most 200 characters.
    pub(super) description: String,
    /// The message to the sub-agent.
    pub(super) text: String,
    pub(super) state: TaskState,
    /// Times in Unix milliseconds.
    pub(super) created: u64,
    pub(super) deadline: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) ended: Option<u64>,
    pub(super) scope: RecordedScope,
    /// Trace of the call that handed it over, which its turns continue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) trace: Option<String>,
    pub(super) grant: BudgetLimits,
    #[serde(default)]
    pub(super) spent: Spending,
    #[serde(default)]
    pub(super) last_report: String,
    /// The result, at most 64 KiB.
    #[serde(default)]
    pub(super) result: String,
    /// The message that passed the result on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) folded_by: Option<MessageId>,
}

impl TaskRecord {
    /// Returns the id of the work of a call: the same when the call is repeated.
    pub(super) fn id_of(call: &ToolCallId) -> Option<TaskId> {
        TaskId::new(derived_id(&["task", call.as_str()], ID_CHARS)).ok()
    }

    /// Returns the conversation of the sub-agent.
    pub(super) fn session(&self) -> Option<SessionId> {
        session_of(&self.task)
    }

    /// Returns the place in the trace of the turn that handed it over.
    pub(super) fn trace(&self) -> TraceContext {
        TraceContext { parent: self.trace.as_deref().map(Into::into), state: None }
    }

    /// Returns the id of its message.
    pub(super) fn message(&self) -> Option<MessageId> {
        MessageId::new(format!("task-{}", self.task)).ok()
    }

    /// Returns the limits that are recorded in its conversation.
    pub(super) fn entry(&self) -> TaskEntry {
        TaskEntry {
            task: self.task.clone(),
            root: self.root.session.clone(),
            deadline: self.deadline,
            scope: self.scope.clone(),
            grant: self.grant,
        }
    }

    /// Returns the overview for users.
    pub(super) fn summary(&self) -> TaskSummary {
        TaskSummary {
            task_id: self.task.clone(),
            session_id: self.root.session.clone(),
            task_session_id: self.session().unwrap_or_else(|| self.root.session.clone()),
            description: self.description.clone(),
            state: self.state,
            created_ms: self.created,
            ended_ms: self.ended,
            deadline_ms: self.deadline,
            usage: self.ended.map(|_| self.spent),
            last_report: self.last_report.clone(),
            is_folded: self.folded_by.is_some(),
        }
    }
}

/// Returns the conversation of a sub-agent.
pub(super) fn session_of(task: &TaskId) -> Option<SessionId> {
    task.session()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_call_has_the_same_task() {
        let (call, other) = (ToolCallId::generate(), ToolCallId::generate());
        let id = TaskRecord::id_of(&call).unwrap();
        assert_eq!(TaskRecord::id_of(&call), Some(id.clone()));
        assert_ne!(TaskRecord::id_of(&other), Some(id.clone()));
        assert_eq!(id.as_str().len(), ID_CHARS);
        let session = session_of(&id).unwrap();
        assert_eq!(task_of(&session), Some(id));
        assert!(!is_task_session(&SessionId::from(&call)));
    }
}
