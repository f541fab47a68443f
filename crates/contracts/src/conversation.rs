//! Requests of users about an agent and their stored conversations with it, and feedback on its answers.
//!
//! Both go to `user.conversation.<agent>` and are answered with a [`ConversationResponse`] at their
//! reply-to, a `user.response.<proxy>` address, under the message id of the request as correlation id.

use serde::{Deserialize, Serialize};

use crate::{
    catalog::{ToolHints, ToolSource},
    ids::{AgentName, InstanceId, MessageId, SessionId, TaskId, ToolCallId},
    message::Message,
    spending::{Spending, TurnUsage},
    task::TaskSummary,
    tool::{Executed, ToolErrorCode},
    user::TurnOutcome,
};

/// Largest number of conversations or history items in one response.
pub const MAX_PAGE_ITEMS: u32 = 500;

/// Largest comment of a [`UserFeedback`] in bytes.
pub const MAX_COMMENT_BYTES: usize = 16 * 1024;

/// A request about the conversations of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum ConversationRequest {
    /// Lists conversations, in the order of their session ids.
    List {
        /// Lists those after this one; from the first when absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<SessionId>,
        /// Maximum number of conversations, at most [`MAX_PAGE_ITEMS`].
        limit: u32,
    },
    /// Returns the summary of one conversation, or of the one that was active last.
    Summary {
        /// The conversation; the one that was active last when absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session_id: Option<SessionId>,
    },
    /// Returns what was recorded in a conversation, oldest first.
    History {
        /// The conversation.
        session_id: SessionId,
        /// Number of the first item; from the oldest when 0.
        #[serde(default)]
        from: u64,
        /// Maximum number of items, at most [`MAX_PAGE_ITEMS`]. A response also ends after 1 MiB of text.
        limit: u32,
    },
    /// Returns a message that a user sent, so that its sender can receive its replies again.
    Message {
        /// The conversation.
        session_id: SessionId,
        /// The message.
        message_id: MessageId,
    },
    /// Deletes a conversation and everything that was stored for it.
    Delete {
        /// The conversation.
        session_id: SessionId,
    },
    /// Describes the agent and the tools that its turns may use.
    Agent {},
    /// Lists work that the agent delegated, the oldest first, at most [`MAX_PAGE_ITEMS`].
    Tasks {},
    /// Returns delegated work.
    Task {
        /// The work.
        task_id: TaskId,
    },
    /// Cancels delegated work.
    CancelTask {
        /// The work.
        task_id: TaskId,
    },
}

impl Message for ConversationRequest {
    const TYPE: &'static str = "ConversationRequest";
}

/// A user's feedback on an answer. It is recorded in the conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UserFeedback {
    /// The conversation.
    pub session_id: SessionId,
    /// The message whose answer is rated.
    pub message_id: MessageId,
    /// The rating.
    pub rating: FeedbackRating,
    /// A comment, at most [`MAX_COMMENT_BYTES`]; may be empty.
    #[serde(default, deserialize_with = "crate::tool::null_is_default")]
    pub comment: String,
}

impl Message for UserFeedback {
    const TYPE: &'static str = "UserFeedback";
}

/// Rating of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FeedbackRating {
    /// The answer helped.
    Positive,
    /// The answer did not help, or did harm.
    Negative,
}

/// Response to a [`ConversationRequest`] or a [`UserFeedback`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum ConversationResponse {
    /// A page of conversations.
    Conversations {
        /// The conversations, in the order of their session ids.
        conversations: Vec<ConversationSummary>,
        /// Set if there may be more: the `after` of the next request.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        next: Option<SessionId>,
    },
    /// The summary of a conversation.
    Summary {
        /// The summary.
        #[serde(flatten)]
        conversation: ConversationSummary,
    },
    /// A page of a conversation's history.
    History {
        /// The items, oldest first.
        items: Vec<HistoryItem>,
        /// Set if there are more: the `from` of the next request.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        next: Option<u64>,
    },
    /// A message that a user sent.
    Message {
        /// Its text.
        text: String,
        /// Set once the final answer is recorded.
        is_answered: bool,
    },
    /// The agent and its tools.
    Agent {
        /// The description.
        #[serde(flatten)]
        agent: AgentOverview,
    },
    /// The conversation was deleted.
    Deleted {},
    /// Delegated work, the oldest first.
    Tasks {
        /// The work.
        tasks: Vec<TaskSummary>,
    },
    /// Delegated work, also after it was cancelled.
    Task {
        /// The work.
        #[serde(flatten)]
        task: TaskSummary,
        /// Its result; may be empty.
        #[serde(default)]
        result: String,
    },
    /// The feedback was recorded.
    FeedbackRecorded {},
    /// The request failed. Nothing was changed, unless the code is [`ConversationErrorCode::Unavailable`].
    Failed {
        /// The kind of failure.
        code: ConversationErrorCode,
        /// Description for people.
        message: String,
    },
}

impl Message for ConversationResponse {
    const TYPE: &'static str = "ConversationResponse";
}

/// Kinds of failures of requests about conversations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConversationErrorCode {
    /// The agent has no such conversation or message.
    NotFound,
    /// The sender may not use this agent or this conversation.
    NotPermitted,
    /// The request is invalid.
    InvalidRequest,
    /// A turn of the conversation is running.
    Busy,
    /// The recorded conversation cannot be read by this agent: it is damaged, or of a newer version.
    Unreadable,
    /// The store of the conversations is unavailable; try again.
    Unavailable,
    /// A code that this build does not know.
    #[serde(other)]
    Other,
}

/// Overview of an agent: what a user can expect of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentOverview {
    /// Name of the agent.
    pub name: AgentName,
    /// Purpose of the agent, for people.
    #[serde(default, deserialize_with = "crate::tool::null_is_default")]
    pub description: String,
    /// Name of its model.
    #[serde(default, deserialize_with = "crate::tool::null_is_default")]
    pub model: String,
    /// The tools that a turn may use now, ordered by name; at most [`MAX_TOOLS`](Self::MAX_TOOLS).
    #[serde(default, deserialize_with = "crate::tool::null_is_default")]
    pub tools: Vec<AgentTool>,
    /// Number of further tools.
    #[serde(default, deserialize_with = "crate::tool::null_is_default")]
    pub more_tools: u32,
    /// Number of processes that serve the agent and do not share the conversations of the replying one. Conversations
    /// lose their context if it is not 0.
    #[serde(default, deserialize_with = "crate::tool::null_is_default")]
    pub foreign_processes: u32,
}

impl AgentOverview {
    /// Maximum number of listed tools.
    pub const MAX_TOOLS: usize = 2048;
}

/// A tool that an agent may use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentTool {
    /// Name of the tool.
    pub name: String,
    /// Origin of the tool.
    pub source: ToolSource,
    /// First sentence of its description, at most [`MAX_SUMMARY`](Self::MAX_SUMMARY) characters. Untrusted text.
    #[serde(default, deserialize_with = "crate::tool::null_is_default")]
    pub summary: String,
    /// Possible effects of a call.
    #[serde(default, deserialize_with = "crate::tool::null_is_default")]
    pub hints: ToolHints,
    /// Set if a tool handler announced it. Other tools run in the agent, or are those of MCP servers.
    #[serde(default, deserialize_with = "crate::tool::null_is_default")]
    pub is_announced: bool,
}

impl AgentTool {
    /// Maximum length of a summary in characters.
    pub const MAX_SUMMARY: usize = 200;
}

/// Overview of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConversationSummary {
    /// The conversation.
    pub session_id: SessionId,
    /// Title: the first words of its first message.
    pub title: String,
    /// Time of its first message in Unix milliseconds; 0 if unknown.
    #[serde(default)]
    pub created_ms: u64,
    /// Time of its last entry in Unix milliseconds.
    pub last_active_ms: u64,
    /// State of its last turn.
    pub state: ConversationState,
    /// Number of turns.
    pub turns: u64,
    /// Usage of all its turns.
    #[serde(default)]
    pub usage: Spending,
    /// The message whose turn has no answer yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_message: Option<MessageId>,
}

/// State of a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConversationState {
    /// Every message has its answer.
    Idle,
    /// A turn has no answer yet: it is running, or waits for a process of the agent.
    Open,
    /// The recorded conversation cannot be read: it is damaged, or of a newer version.
    Unreadable,
    /// A state that this build does not know.
    #[serde(other)]
    Other,
}

/// An item of a conversation's history.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HistoryItem {
    /// Number in the conversation; numbers grow, with gaps.
    pub number: u64,
    /// Time in Unix milliseconds; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_ms: Option<u64>,
    /// Content.
    #[serde(flatten)]
    pub body: HistoryBody,
}

/// Content of a history item.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum HistoryBody {
    /// A message that started a turn.
    Message {
        /// Its message id; absent if it did not come over the bus.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message_id: Option<MessageId>,
        /// Text.
        text: String,
    },
    /// A message that was added to a running turn.
    Steered {
        /// Its message id; absent if it did not come over the bus.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message_id: Option<MessageId>,
        /// Text.
        text: String,
    },
    /// A user cancelled the turn.
    Cancelled {},
    /// A response of the model.
    Model {
        /// Text; may be empty.
        text: String,
        /// The tool calls that it requested.
        calls: Vec<HistoryCall>,
    },
    /// The result of a tool call, as the model read it.
    Result {
        /// The call.
        tool_call_id: ToolCallId,
        /// The tool, if known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tool_name: Option<String>,
        /// Text.
        text: String,
        /// Error code of a failed call.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<ToolErrorCode>,
        /// Execution state of the tool; absent if not recorded.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        executed: Option<Executed>,
    },
    /// Approval of a call was requested.
    ApprovalAsked {
        /// The call.
        tool_call_id: ToolCallId,
        /// The tool, if known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tool_name: Option<String>,
    },
    /// An approval request was decided.
    Decided {
        /// The decision: `allow`, `allow_in_session`, `deny`, or why there was none.
        decision: String,
    },
    /// The answer of a turn.
    Answer {
        /// Text.
        text: String,
        /// Outcome of the turn.
        outcome: TurnOutcome,
        /// Usage, if recorded.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        usage: Option<TurnUsage>,
    },
    /// A summary that replaced older items in the model's context.
    Summary {
        /// Text.
        text: String,
    },
    /// A user's feedback on an answer.
    Feedback {
        /// The message whose answer was rated.
        message_id: MessageId,
        /// The rating.
        rating: FeedbackRating,
        /// The comment; may be empty.
        #[serde(default)]
        comment: String,
    },
    /// Another process continued the turn.
    Resumed {
        /// The process.
        on: InstanceId,
        /// Number of the process that runs the turn, from 1.
        attempt: u32,
    },
    /// A process stopped the turn between two steps, for another one to continue.
    PutDown {
        /// The process.
        on: InstanceId,
    },
    /// An item that this build does not know.
    #[serde(other)]
    Other,
}

/// A tool call in a response of the model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HistoryCall {
    /// The call.
    pub tool_call_id: ToolCallId,
    /// The tool.
    pub tool_name: String,
    /// The arguments as JSON.
    pub arguments: String,
}
