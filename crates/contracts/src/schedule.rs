//! Scheduled tasks of an agent: requests of users about them, and announcements of their results.
//!
//! Requests go to `user.conversation.<agent>` and are answered with a [`ScheduleResponse`] at their
//! reply-to, a `user.response.<proxy>` address, under the message id of the request as correlation id.

use serde::{Deserialize, Serialize};

use crate::{
    conversation::ConversationErrorCode,
    ids::{AgentName, SessionId},
    message::Message,
    user::TurnOutcome,
};

/// Longest name of a scheduled task, in characters.
pub const MAX_TASK_NAME_CHARS: usize = 64;
/// Longest cron expression, in bytes.
pub const MAX_CRON_BYTES: usize = 100;
/// Longest instructions of a scheduled task, in bytes.
pub const MAX_TASK_DESCRIPTION_BYTES: usize = 4 * 1024;

/// A request about the scheduled tasks of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum ScheduleRequest {
    /// Lists the tasks of the user, in the order of their next fires.
    List {},
    /// Creates a task, or replaces the one with its name.
    Add {
        /// The task.
        #[serde(flatten)]
        task: NewTask,
    },
    /// Removes a task. A running turn of it continues.
    Cancel {
        /// Name of the task.
        name: String,
    },
    /// Lets a task fire at once, besides its schedule.
    RunNow {
        /// Name of the task.
        name: String,
    },
}

impl Message for ScheduleRequest {
    const TYPE: &'static str = "ScheduleRequest";
}

/// A task to schedule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NewTask {
    /// Name: letters, digits, spaces, `-` and `_`, at most [`MAX_TASK_NAME_CHARS`]. Case is ignored.
    pub name: String,
    /// Cron expression of five fields, or of six with seconds first, at most [`MAX_CRON_BYTES`].
    pub cron: String,
    /// Instructions for the agent at each fire, at most [`MAX_TASK_DESCRIPTION_BYTES`].
    pub description: String,
    /// Removes the task after its first fire.
    #[serde(default, deserialize_with = "crate::tool::null_is_default")]
    pub run_once: bool,
    /// IANA time zone; that of the agent when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timezone: Option<String>,
}

/// Response to a [`ScheduleRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum ScheduleResponse {
    /// The tasks.
    Tasks {
        /// Time of the store in Unix milliseconds.
        now_ms: u64,
        /// The tasks, in the order of their next fires.
        tasks: Vec<ScheduledTaskInfo>,
    },
    /// The request was carried out.
    Done {
        /// Description for people.
        message: String,
    },
    /// The request failed. Nothing was changed, unless the code is
    /// [`Unavailable`](ConversationErrorCode::Unavailable).
    Failed {
        /// The kind of failure.
        code: ConversationErrorCode,
        /// Description for people.
        message: String,
    },
}

impl Message for ScheduleResponse {
    const TYPE: &'static str = "ScheduleResponse";
}

/// A scheduled task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScheduledTaskInfo {
    /// Name.
    pub name: String,
    /// Cron expression.
    pub cron: String,
    /// IANA time zone that the expression is read in.
    pub timezone: String,
    /// Set if the zone belongs to the task; otherwise it follows that of the agent.
    #[serde(default)]
    pub has_own_timezone: bool,
    /// Instructions for the agent.
    pub description: String,
    /// Removed after its first fire.
    #[serde(default)]
    pub run_once: bool,
    /// Time of the next fire in Unix milliseconds; absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_ms: Option<u64>,
    /// Time of the fire whose turn has no answer yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running: Option<FireInfo>,
    /// The last fire with an answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<LastFireInfo>,
    /// Fires so far.
    pub fired: u64,
    /// Fires that were skipped because no process of the agent ran at their time.
    pub missed: u64,
    /// Fires that were skipped because the turn of an earlier one was running.
    pub overlapped: u64,
    /// Fires whose turn failed.
    pub failed: u64,
    /// Time of its creation in Unix milliseconds.
    pub created_ms: u64,
    /// Conversation that created it; absent if a person did with the command line program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_in: Option<SessionId>,
    /// Task whose turn created it, or the one that this task descends from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_by_task: Option<String>,
}

/// A fire of a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FireInfo {
    /// Its time in Unix milliseconds.
    pub fire_ms: u64,
    /// The conversation of its turn.
    pub session_id: SessionId,
}

/// The last fire of a task that has an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LastFireInfo {
    /// The fire.
    #[serde(flatten)]
    pub fire: FireInfo,
    /// Time of its answer in Unix milliseconds.
    pub ended_ms: u64,
    /// Outcome of the turn.
    pub outcome: TurnOutcome,
    /// The answer, at most 4 KiB of it.
    pub text: String,
}

/// Announcement on `user.notice.<agent>`: a scheduled task has an answer. It may be lost; the next turn of
/// the user shows it too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScheduledEnded {
    /// The agent.
    pub agent: AgentName,
    /// Name of the task.
    pub task: String,
    /// Time of the fire in Unix milliseconds.
    pub fire_ms: u64,
    /// The conversation of its turn.
    pub session_id: SessionId,
    /// Outcome of the turn.
    pub outcome: TurnOutcome,
    /// The answer, at most 4 KiB of it.
    pub text: String,
}

impl Message for ScheduledEnded {
    const TYPE: &'static str = "ScheduledEnded";
}
