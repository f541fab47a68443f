//! Entries of a conversation's log.
//!
//! An entry is a JSON object with its format version, its time and its kind. Entries of all older versions
//! stay readable; a reader rejects newer ones. Names are short, because an entry is written for each
//! step of a turn.

use std::time::{SystemTime, UNIX_EPOCH};

use rockbot_contracts::{
    ApprovalDecision, ApprovalId, Executed, InstanceId, MessageId, RoutingKey, SessionId, Spending,
    TaskId, ToolCallId, ToolErrorCode, TraceContext, TurnUsage, conversation::FeedbackRating,
    user::TurnOutcome,
};
use rockbot_llm::ToolCallRequest;
use rockbot_tools::{BudgetLimits, EntryPoint, RecordedScope, ToolFailure};
use serde::{Deserialize, Serialize};

use super::{
    compact_spending::{self, CompactSpending},
    entry_point,
    mcp_use::{McpTarget, McpUse},
};

/// Version of the format that this build writes.
pub(crate) const VERSION: u32 = 1;

/// An entry with its version and time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RecordedEntry {
    /// Version of the format.
    pub(crate) v: u32,
    /// Time of the recording in Unix milliseconds, by the clock of its process.
    pub(crate) at: u64,
    #[serde(flatten)]
    pub(crate) entry: ConversationEntry,
}

impl RecordedEntry {
    /// Creates an entry of the current version and time.
    pub(crate) fn now(entry: ConversationEntry) -> Self {
        Self { v: VERSION, at: unix_ms(), entry }
    }
}

/// Returns the time of this process in Unix milliseconds.
pub(crate) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// A step of a conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum ConversationEntry {
    /// A message that starts a turn. Written before anything is done with it.
    Message(Box<MessageEntry>),
    /// A model answer that requests tool calls. Written before the first of them is made.
    Model(ModelEntry),
    /// The result of a call. Written as it arrives.
    Result(ResultEntry),
    /// A message that is added to the running turn. Written before it takes effect.
    Steer(SteerEntry),
    /// The user's cancel of the turn. Written before it takes effect.
    Cancel(CancelEntry),
    /// An approval request. Written before a user sees it.
    #[serde(rename = "question")]
    ApprovalRequest(ApprovalRequestEntry),
    /// The outcome of an approval request. Written before the call runs.
    Decision(DecisionEntry),
    /// The answer of the turn. Written before it is published.
    Answer(Box<AnswerEntry>),
    /// Totals of older entries, which are removed from the log.
    Checkpoint(Box<CheckpointEntry>),
    /// A user's feedback on an answer.
    Feedback(FeedbackEntry),
    /// Another process continues the turn. Written before it does anything, and again before it makes a call or
    /// requests the model.
    Takeover(TakeoverEntry),
    /// The process stopped the turn between two steps, for another process to continue.
    #[serde(rename = "put_down")]
    Released(ReleasedEntry),
}

/// See [`ConversationEntry::Message`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct MessageEntry {
    pub(crate) id: MessageId,
    /// Broker user that sent the message, as validated by the broker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sender: Option<String>,
    /// Address of the replies; absent for a message within the process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reply_to: Option<RoutingKey>,
    pub(crate) text: String,
    /// Images and recordings of the message, in base64.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) media: Vec<String>,
    #[serde(with = "entry_point")]
    pub(crate) entry: EntryPoint,
    /// Time limit of the turn in Unix milliseconds. Absent in entries of earlier builds, and for delegated work,
    /// which has its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) deadline: Option<u64>,
    /// W3C `traceparent` of the sender.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) trace: Option<String>,
    /// W3C `traceparent` of the turn in the process that started it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) span: Option<String>,
    /// The delegated work that the turn does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) task: Option<Box<TaskEntry>>,
    /// The delegated work whose results the turn reads.
    #[serde(rename = "fold", default, skip_serializing_if = "Option::is_none")]
    pub(crate) task_results: Option<Box<TaskResultsEntry>>,
}

/// Limits of a turn that does delegated work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct TaskEntry {
    pub(crate) task: TaskId,
    /// The conversation that delegated it.
    pub(crate) root: SessionId,
    /// Time limit in Unix milliseconds.
    pub(crate) deadline: u64,
    /// Scope of the turn that delegated it.
    pub(crate) scope: RecordedScope,
    /// The share of the budget that was granted.
    pub(crate) grant: BudgetLimits,
}

/// The results that a turn reads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct TaskResultsEntry {
    pub(crate) tasks: Vec<TaskId>,
    /// Spending of the work. It counts as spending of the turn.
    #[serde(with = "CompactSpending")]
    pub(crate) spent: Spending,
    /// Number of such turns in a chain since the last message of a user.
    pub(crate) generation: u32,
}

impl MessageEntry {
    /// Returns the trace context of the sender.
    pub(crate) fn trace_context(&self) -> TraceContext {
        TraceContext { parent: self.trace.as_deref().map(Into::into), state: None }
    }

    /// Returns the trace context of the process that started the turn.
    pub(crate) fn first_context(&self) -> TraceContext {
        TraceContext { parent: self.span.as_deref().map(Into::into), state: None }
    }
}

/// See [`ConversationEntry::Model`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ModelEntry {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) text: String,
    pub(crate) calls: Vec<CallEntry>,
    /// The answer reached its maximum length.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) truncated: bool,
    /// Context that was appended to the message of the turn. Recorded once, with the first entry after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) context: Option<String>,
    /// Spending on models since the previous entry of the turn.
    #[serde(with = "CompactSpending")]
    pub(crate) cost: Spending,
}

/// A call that a model requested.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct CallEntry {
    /// Id of the call in the fleet, the same for all attempts.
    pub(crate) call: ToolCallId,
    /// Id that the model assigned.
    pub(crate) id: String,
    pub(crate) name: String,
    /// The tool that the name stands for, if another process cannot find it by the name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tool: Option<Box<CalledTool>>,
    pub(crate) arguments: String,
}

/// The tool that a name in a model request stands for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CalledTool {
    /// Name in the registry of the agent.
    pub(crate) name: String,
    /// For a tool of an MCP server: the server in lower case, and the name of the tool on that server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) mcp: Option<McpTarget>,
}

impl CallEntry {
    /// Returns the tool of an MCP server that was called by its own name.
    pub(crate) fn mcp_target(&self) -> Option<&McpTarget> {
        self.tool.as_ref()?.mcp.as_ref()
    }

    /// Returns the call as the model requested it.
    pub(crate) fn request(&self) -> ToolCallRequest {
        let Self { id, name, arguments, .. } = self.clone();
        ToolCallRequest { id, name, arguments }
    }
}

/// See [`ConversationEntry::Result`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ResultEntry {
    pub(crate) call: ToolCallId,
    /// The text that the model reads.
    pub(crate) text: String,
    pub(crate) executed: Executed,
    /// Error code of a failed call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<ToolErrorCode>,
    /// Number of images and recordings of the result, which are not recorded.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) media: usize,
    /// Duration of the call in this process, in milliseconds.
    pub(crate) ms: u64,
    /// Spending of the turn of another agent that the call ran.
    #[serde(default, with = "CompactSpending", skip_serializing_if = "compact_spending::is_zero")]
    pub(crate) child: Spending,
    /// Number of calls that a batch made.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) inner_calls: u64,
    /// Number of turns that the calls of a batch or the steps of plans started. Absent for other calls, and in
    /// entries of earlier builds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) delegations: Option<u64>,
    /// Tools and servers of MCP that the conversation uses since the previous result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) mcp: Option<Box<McpUse>>,
}

impl ResultEntry {
    /// Creates the result of a call.
    pub(crate) fn succeeded(call: ToolCallId, text: String) -> Self {
        Self {
            call,
            text,
            executed: Executed::Yes,
            error: None,
            media: 0,
            ms: 0,
            child: Spending::default(),
            inner_calls: 0,
            delegations: None,
            mcp: None,
        }
    }

    /// Creates the result of a call that failed at once.
    pub(crate) fn failed(call: ToolCallId, failure: &ToolFailure) -> Self {
        Self {
            executed: failure.executed(),
            error: Some(failure.code()),
            ..Self::succeeded(call, failure.model_text())
        }
    }

    /// Returns the text for a model that did not read the images and recordings of the result.
    pub(crate) fn text_without_media(&self) -> String {
        match self.media {
            0 => self.text.clone(),
            left_out => {
                format!("{}\n[{left_out} images or recordings are no longer available]", self.text)
            }
        }
    }
}

fn is_zero<N: PartialEq + Default>(number: &N) -> bool {
    *number == N::default()
}

/// See [`ConversationEntry::Steer`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct SteerEntry {
    pub(crate) id: MessageId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reply_to: Option<RoutingKey>,
    pub(crate) text: String,
    /// Images and recordings of the message, in base64.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) media: Vec<String>,
    /// As in [`ModelEntry::context`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) context: Option<String>,
}

/// See [`ConversationEntry::Cancel`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct CancelEntry {
    pub(crate) id: MessageId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reply_to: Option<RoutingKey>,
}

/// See [`ConversationEntry::ApprovalRequest`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ApprovalRequestEntry {
    pub(crate) approval: ApprovalId,
    pub(crate) call: ToolCallId,
    /// Hash of the call that the decision applies to.
    pub(crate) hash: String,
}

/// See [`ConversationEntry::Decision`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct DecisionEntry {
    pub(crate) approval: ApprovalId,
    /// The user's decision; absent if the request expired.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) decision: Option<ApprovalDecision>,
    /// Name and fingerprint of the tool that was allowed for the whole conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) allowed: Option<(String, String)>,
}

/// See [`ConversationEntry::Answer`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct AnswerEntry {
    pub(crate) text: String,
    pub(crate) outcome: TurnOutcome,
    /// The text that the model sees in later turns, if it differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) history: Option<String>,
    /// As in [`ModelEntry::context`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) context: Option<String>,
    /// Usage of the turn, and of the conversation so far.
    pub(crate) usage: TurnUsage,
    /// Number of turns of the conversation so far.
    pub(crate) turns: u64,
    /// Number of the process that recorded it, from 1.
    #[serde(default = "first_attempt", skip_serializing_if = "is_first_attempt")]
    pub(crate) attempt: u32,
    /// Title of the conversation.
    pub(crate) title: String,
    /// Time of its first message in Unix milliseconds.
    pub(crate) created: u64,
}

impl AnswerEntry {
    /// Returns the text that the model sees in later turns.
    pub(crate) fn history_text(&self) -> &str {
        self.history.as_deref().unwrap_or(&self.text)
    }
}

/// See [`ConversationEntry::Checkpoint`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct CheckpointEntry {
    /// Number of the first entry that is kept.
    pub(crate) from: u64,
    /// Tools and fingerprints that were allowed for the whole conversation.
    #[serde(default)]
    pub(crate) allowed: Vec<(String, String)>,
    /// Broker user that started the conversation, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) starter: Option<String>,
    pub(crate) spent: Spending,
    pub(crate) turns: u64,
    pub(crate) title: String,
    pub(crate) created: u64,
}

/// See [`ConversationEntry::Feedback`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct FeedbackEntry {
    pub(crate) id: MessageId,
    pub(crate) rating: FeedbackRating,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) comment: String,
}

/// See [`ConversationEntry::Takeover`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct TakeoverEntry {
    pub(crate) instance: InstanceId,
    /// Number of the process that runs the turn, from 1.
    pub(crate) attempt: u32,
    /// The process is about to make a call or to request the model.
    #[serde(rename = "acts", default, skip_serializing_if = "is_false")]
    pub(crate) is_active: bool,
}

/// See [`ConversationEntry::Released`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ReleasedEntry {
    pub(crate) instance: InstanceId,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde requires")]
fn is_false(value: &bool) -> bool {
    !value
}

const fn first_attempt() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde requires")]
fn is_first_attempt(attempt: &u32) -> bool {
    *attempt == first_attempt()
}
