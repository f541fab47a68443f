//! Conversations of users with agents: messages, progress and answers.

use serde::{Deserialize, Serialize};

use crate::{
    approval::ApprovalOutcome,
    catalog::ToolHints,
    ids::{AgentName, ApprovalId, InputId, InstanceId, MessageId, SessionId, TaskId, ToolCallId},
    input::{InputOutcome, InputRequest},
    message::Message,
    spending::TurnUsage,
    task::TaskState,
    tool::{CallStages, ContentBlock, Executed, ToolErrorCode},
};

/// A user's message to an agent. During a turn, it steers that turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UserMessage {
    /// The conversation; a new id starts a new one.
    pub session_id: SessionId,
    /// Text of the message; empty with `cancel`.
    pub text: String,
    /// Cancels the running turn.
    #[serde(default, deserialize_with = "crate::tool::null_is_default")]
    pub cancel: bool,
    /// Images and recordings that belong to the text: at most [`MAX_MEDIA`](Self::MAX_MEDIA), and
    /// [`MAX_MEDIA_BYTES`](Self::MAX_MEDIA_BYTES) of base64 together. Other blocks are not allowed.
    #[serde(
        default,
        deserialize_with = "crate::tool::null_is_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub media: Vec<ContentBlock>,
    /// The message that its sender sent before it in this conversation, if that one had no final reply yet.
    /// An agent takes that one first, also if another process received it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<MessageId>,
    /// Detail of the replies.
    #[serde(
        default,
        deserialize_with = "crate::tool::null_is_default",
        skip_serializing_if = "ReplyDetail::is_brief"
    )]
    pub detail: ReplyDetail,
    /// Set if the sender shows requests for input to a user, who can respond. Without it, servers that ask
    /// are declined.
    #[serde(
        default,
        deserialize_with = "crate::tool::null_is_default",
        skip_serializing_if = "std::ops::Not::not"
    )]
    pub accepts_input: bool,
}

/// Detail of the replies to a message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplyDetail {
    /// Up to [`MAX_DETAIL_BYTES`](Self::MAX_DETAIL_BYTES) of the arguments and of the result of each call.
    Full,
    /// One line of the arguments, and no results. Unknown values parse as this one.
    #[default]
    #[serde(other)]
    Brief,
}

impl ReplyDetail {
    /// Maximum size of arguments and results in a reply, in bytes of each.
    pub const MAX_DETAIL_BYTES: usize = 16 * 1024;

    // The parameter is a reference for `skip_serializing_if`.
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
    fn is_brief(&self) -> bool {
        *self == Self::Brief
    }
}

impl UserMessage {
    /// Maximum number of images and recordings.
    pub const MAX_MEDIA: usize = 8;

    /// Maximum size of the images and recordings, in bytes of base64. With the text, they are recorded in one
    /// entry of a conversation.
    pub const MAX_MEDIA_BYTES: usize = 768 * 1024;

    /// Creates a message of text.
    #[must_use]
    pub fn new(session_id: SessionId, text: impl Into<String>) -> Self {
        Self {
            session_id,
            text: text.into(),
            cancel: false,
            media: Vec::new(),
            after: None,
            detail: ReplyDetail::Brief,
            accepts_input: false,
        }
    }

    /// Creates a message that cancels the running turn.
    #[must_use]
    pub fn cancelling(session_id: SessionId) -> Self {
        Self { cancel: true, ..Self::new(session_id, "") }
    }
}

impl Message for UserMessage {
    const TYPE: &'static str = "UserMessage";
}

/// A reply of an agent: progress during the turn, then exactly one final reply.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentReply {
    /// The conversation.
    pub session_id: SessionId,
    /// The user's message.
    pub in_reply_to: MessageId,
    /// The agent.
    pub agent: AgentName,
    /// Sequence number among the replies to a message. It grows by 1; a process that continues the turn of
    /// another starts at a larger multiple of 2^32, so that its replies sort after those of the other.
    pub sequence: u64,
    /// Set on the last reply to a message.
    pub is_final: bool,
    /// Content of the reply.
    #[serde(flatten)]
    pub body: ReplyBody,
}

impl AgentReply {
    /// Returns the number before the first sequence number of the process that runs the turn as number
    /// `attempt`.
    #[must_use]
    pub const fn sequence_base(attempt: u32) -> u64 {
        (attempt as u64) << 32
    }

    /// Returns the base that `sequence` was counted from.
    #[must_use]
    pub const fn sequence_base_of(sequence: u64) -> u64 {
        sequence & !(u32::MAX as u64)
    }
}

impl Message for AgentReply {
    const TYPE: &'static str = "AgentReply";
}

/// Content of a reply.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum ReplyBody {
    /// A chunk of the model's text, as it streams.
    TextDelta {
        /// The chunk.
        text: String,
    },
    /// A tool call was sent.
    ToolStarted {
        /// The call.
        tool_call_id: ToolCallId,
        /// The tool.
        tool_name: String,
        /// The arguments as sent, truncated.
        arguments: String,
        /// Number of truncated bytes.
        #[serde(
            default,
            deserialize_with = "crate::tool::null_is_default",
            skip_serializing_if = "is_zero"
        )]
        arguments_left_out: u64,
    },
    /// Progress of a running call.
    ToolProgressed {
        /// The call.
        tool_call_id: ToolCallId,
        /// A human-readable line.
        text: String,
    },
    /// A tool call completed or failed.
    ToolFinished {
        /// The call.
        tool_call_id: ToolCallId,
        /// The tool.
        tool_name: String,
        /// Process that ran the tool, if known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ran_on: Option<String>,
        /// Time from request to reply in microseconds.
        elapsed_us: u64,
        /// Size of the result in bytes.
        bytes: u64,
        /// Error code of a failed call.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<ToolErrorCode>,
        /// Execution state of the tool.
        executed: Executed,
        /// Conversation with a sub-agent that the call ran, at most 128 characters.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        child_loop_id: Option<String>,
        /// Durations of the call's stages, as its handler reported them; absent for a call without a handler.
        #[serde(
            default,
            deserialize_with = "crate::tool::readable_or_none",
            skip_serializing_if = "Option::is_none"
        )]
        stages: Option<CallStages>,
        /// The result as text, truncated; only with [`ReplyDetail::Full`].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        result: Option<String>,
        /// Number of truncated bytes of the result.
        #[serde(
            default,
            deserialize_with = "crate::tool::null_is_default",
            skip_serializing_if = "is_zero"
        )]
        result_left_out: u64,
    },
    /// A request for approval of a call, which waits for an
    /// [`ApprovalAnswer`](crate::ApprovalAnswer) at `user.approval.<agent>`.
    ApprovalAsked {
        /// The approval request.
        approval_id: ApprovalId,
        /// The agent that makes the call: the replying agent, or a sub-agent of it.
        asking_agent: AgentName,
        /// The call.
        tool_call_id: ToolCallId,
        /// Name of the tool at its source.
        tool_name: String,
        /// Source of the tool.
        tool_source: String,
        /// The arguments as JSON, truncated.
        arguments: String,
        /// Number of truncated bytes.
        #[serde(default, deserialize_with = "crate::tool::null_is_default")]
        arguments_left_out: u64,
        /// Hash of the tool and the exact arguments, to be returned with the decision.
        call_hash: String,
        /// Time until the request expires in milliseconds; an expired request counts as denied.
        expires_in_ms: u64,
        /// Possible effects of the tool; those that the rules of the operator consider.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hints: Option<ToolHints>,
        /// The rule of the operator that asks, for people.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rule: Option<String>,
    },
    /// An approval request was closed.
    ApprovalClosed {
        /// The approval request.
        approval_id: ApprovalId,
        /// Its outcome.
        decision: ApprovalOutcome,
    },
    /// A request of an MCP server for input, which waits for an [`InputAnswer`](crate::InputAnswer) at
    /// `user.input.<agent>`. Only in replies to a message that accepts input.
    InputAsked {
        /// The request.
        input_id: InputId,
        /// The agent that makes the call: the replying agent, or a sub-agent of it.
        asking_agent: AgentName,
        /// The call.
        tool_call_id: ToolCallId,
        /// The requested input.
        request: InputRequest,
        /// Time until the request expires in milliseconds; an expired request counts as cancelled.
        expires_in_ms: u64,
    },
    /// A request for input was closed.
    InputClosed {
        /// The request.
        input_id: InputId,
        /// Its outcome.
        outcome: InputOutcome,
    },
    /// The message was added to the running turn, whose answer follows.
    Steered {},
    /// Another process continues the turn. The text streamed since the last tool call is superseded: the
    /// response of the model is requested again.
    Resumed {
        /// The process that continues.
        on: InstanceId,
        /// Number of the process that runs the turn, from 1.
        attempt: u32,
    },
    /// Another agent answers the message. Its text follows.
    HandedOff {
        /// Name of the agent.
        to: String,
    },
    /// Progress of the task.
    TaskStatus {
        /// `starting`, `in-progress` or `completed`, as the model reported; or `waiting` while the agent's store
        /// of conversations is unavailable.
        status: String,
        /// The part that is done, at most 500 characters.
        done: String,
        /// The part that is left, at most 500 characters.
        pending: String,
        /// The current work, at most 500 characters.
        now: String,
    },
    /// Work that the agent delegated reported progress. Not a reply to a waiting message: it may arrive
    /// after the final reply.
    DelegationProgressed {
        /// The work.
        task_id: TaskId,
        /// A human-readable line.
        text: String,
    },
    /// Work that the agent delegated has ended. Not a reply to a waiting message.
    DelegationEnded {
        /// The work.
        task_id: TaskId,
        /// The state in which it ended.
        state: TaskState,
        /// The start of its result; may be empty.
        preview: String,
    },
    /// A further answer, on the results of delegated work. Not a reply to a waiting message. One that
    /// arrives again has the same `inReplyTo`.
    FollowUp {
        /// The ended work; empty for an answer to an agent's question.
        task_ids: Vec<TaskId>,
        /// Text of the answer.
        text: String,
        /// Outcome of the turn.
        outcome: TurnOutcome,
        /// Usage of the turn, with that of the work.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        usage: Option<TurnUsage>,
    },
    /// The answer. Always final.
    Answer {
        /// Text of the answer.
        text: String,
        /// Outcome of the turn.
        outcome: TurnOutcome,
        /// Usage; absent when no turn ran.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        usage: Option<TurnUsage>,
    },
    /// A reply that this build does not know.
    #[serde(other)]
    Other,
}

// The parameter is a reference for `skip_serializing_if`.
#[allow(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Outcome of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnOutcome {
    /// The model answered.
    Completed,
    /// The model answered without tools after the iteration limit.
    IterationLimit,
    /// The model answered without tools, because the budget of the message was used up.
    BudgetExceeded,
    /// Tools timed out too often in a row.
    ToolTimeouts,
    /// The user cancelled.
    Cancelled,
    /// The model was unreachable or refused; the text has the cause.
    ModelFailed,
    /// The agent had no capacity for another conversation or message.
    Overloaded,
    /// The message expired before the agent processed it; nothing was done.
    Expired,
    /// An outcome that this build does not know.
    #[serde(other)]
    Other,
}
