//! Work that an agent delegated: its state, and its summary for users.

use serde::{Deserialize, Serialize};

use crate::{
    ids::{AgentName, SessionId, TaskId},
    spending::Spending,
};

/// State of delegated work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskState {
    /// It was accepted and waits for capacity.
    Submitted,
    /// It runs, or waits for a process that continues it.
    Running,
    /// It waits for an answer to its question.
    InputRequired,
    /// It was cancelled, and its end is not confirmed.
    Cancelling,
    /// It ended with a result.
    Completed,
    /// It ended without a result.
    Failed,
    /// It did not end within its time limit.
    Expired,
    /// It was cancelled and has ended.
    Cancelled,
    /// A state that this build does not know.
    #[serde(other)]
    Other,
}

impl TaskState {
    /// Returns `true` if the work has ended.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Expired | Self::Cancelled)
    }

    /// Returns the state as on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Submitted => "submitted",
            Self::Running => "running",
            Self::InputRequired => "input_required",
            Self::Cancelling => "cancelling",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Expired => "expired",
            Self::Cancelled => "cancelled",
            Self::Other => "other",
        }
    }
}

/// Overview of delegated work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskSummary {
    /// The work.
    pub task_id: TaskId,
    /// The conversation that delegated it.
    pub session_id: SessionId,
    /// The conversation in which it is done.
    pub task_session_id: SessionId,
    /// The other agent: the one that does it, or that asked for it. Absent for a sub-agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentName>,
    /// Its description, at most 200 characters.
    pub description: String,
    /// Its state.
    pub state: TaskState,
    /// Time at which it was delegated, in Unix milliseconds.
    pub created_ms: u64,
    /// Time at which it ended, in Unix milliseconds; absent while it is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_ms: Option<u64>,
    /// Its time limit, in Unix milliseconds.
    pub deadline_ms: u64,
    /// Its spending so far; absent for an open task at another agent, or one that cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Spending>,
    /// Its last report; may be empty.
    #[serde(default)]
    pub last_report: String,
    /// Set once its result was passed on to the conversation.
    #[serde(default)]
    pub is_folded: bool,
}
