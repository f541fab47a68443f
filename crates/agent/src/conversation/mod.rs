//! Stored conversations: one append-only log each, from which any process of the agent can continue.
//!
//! - [`Conversations`]: lists, reads and deletes them;
//! - `ConversationEntry`: the steps that are recorded;
//! - `Recorder`: records the steps of one conversation, and notices when another process continued it;
//! - `Folded`: the state that a log adds up to.

/// Starts of the session ids of delegated work: of sub-agents, of tasks that another agent does, and of tasks
/// of other agents. Users cannot send messages to them.
pub(crate) const SUBAGENT_PREFIX: &str = rockbot_contracts::TaskId::SESSION_PREFIX;
pub(crate) const SENT_TASK_PREFIX: &str = "agent-request-";
pub(crate) const RECEIVED_TASK_PREFIX: &str = "agent-task-";
pub(crate) const TASK_PREFIXES: [&str; 3] =
    [SUBAGENT_PREFIX, SENT_TASK_PREFIX, RECEIVED_TASK_PREFIX];

mod approvals;
mod batch;
mod codec;
mod compact_spending;
mod conversations;
mod entry;
mod entry_point;
mod error;
mod fold;
mod history_items;
mod latest_cancel;
mod markers;
mod mcp_use;
mod open_turn;
mod reading;
mod recorder;
mod retry;
mod sub_conversations;
mod summary;

pub(crate) use self::{
    approvals::TurnApprovals,
    batch::{BatchItem, MAX_BATCH_CALLS, batch_items},
    entry::{
        AnswerEntry, CallEntry, CalledTool, CancelEntry, CheckpointEntry, ConversationEntry,
        MessageEntry, ModelEntry, ReleasedEntry, ResultEntry, SteerEntry, TakeoverEntry, TaskEntry,
        TaskResultsEntry, unix_ms,
    },
    fold::{BudgetUse, Folded, KnownMessage, TextDigest, Totals, digest, with_context},
    latest_cancel::LatestCancel,
    mcp_use::{McpTarget, McpUse},
    open_turn::{OpenStep, OpenTurn, RecordedApproval, RecordedOutcome},
    recorder::Recorder,
    retry::retry,
    sub_conversations::SubConversation,
};
pub use self::{
    conversations::{ConversationOptions, Conversations},
    error::{ConversationError, EntryProblem},
    reading::StoredMessage,
};
