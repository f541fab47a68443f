//! People and agents: a message in, progress and an answer out.

use serde::{Deserialize, Serialize};

use crate::{
    ids::{AgentName, ApprovalId, MessageId, SessionId, ToolCallId},
    message::Message,
    spending::TurnUsage,
    tool::{Executed, ToolErrorCode},
};

/// What a person says to an agent. In a session whose turn is running it steers that turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UserMessage {
    /// The conversation; a new one starts with a new id.
    pub session_id: SessionId,
    /// The words. Empty with `cancel`.
    pub text: String,
    /// Stops the running turn instead of saying something.
    #[serde(default, deserialize_with = "crate::tool::null_is_default")]
    pub cancel: bool,
}

impl Message for UserMessage {
    const TYPE: &'static str = "UserMessage";
}

/// What an agent says back: progress while a turn runs, then exactly one final answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentReply {
    /// The conversation.
    pub session_id: SessionId,
    /// The message that is answered.
    pub in_reply_to: MessageId,
    /// Who answers.
    pub agent: AgentName,
    /// Grows by one with each reply to a message, from 1.
    pub sequence: u64,
    /// Whether this is the last reply to that message.
    pub is_final: bool,
    /// What happened.
    #[serde(flatten)]
    pub body: ReplyBody,
}

impl Message for AgentReply {
    const TYPE: &'static str = "AgentReply";
}

/// The kinds of reply.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum ReplyBody {
    /// A piece of the model's text, as it streams.
    TextDelta {
        /// The piece.
        text: String,
    },
    /// A tool call goes out.
    ToolStarted {
        /// The call.
        tool_call_id: ToolCallId,
        /// The tool.
        tool_name: String,
        /// The arguments as sent, shortened.
        arguments: String,
    },
    /// A sign of life from a running call.
    ToolProgressed {
        /// The call.
        tool_call_id: ToolCallId,
        /// A line for people.
        text: String,
    },
    /// A tool call came back.
    ToolFinished {
        /// The call.
        tool_call_id: ToolCallId,
        /// The tool.
        tool_name: String,
        /// Which process ran it, where that is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ran_on: Option<String>,
        /// From asking to answer, in microseconds.
        elapsed_us: u64,
        /// Size of the result, in bytes.
        bytes: u64,
        /// Why it failed, when it did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<ToolErrorCode>,
        /// Whether the tool ran.
        executed: Executed,
    },
    /// A person is asked whether a call may run, which waits for the answer: an
    /// [`ApprovalAnswer`](crate::ApprovalAnswer) to `user.approval.<agent>`.
    ApprovalAsked {
        /// The question.
        approval_id: ApprovalId,
        /// The agent that wants to call, which may work for the one that replies.
        asking_agent: AgentName,
        /// The call.
        tool_call_id: ToolCallId,
        /// The tool's own name.
        tool_name: String,
        /// Where the tool comes from.
        tool_source: String,
        /// The arguments as JSON, shortened.
        arguments: String,
        /// How many bytes of them are not shown.
        #[serde(default, deserialize_with = "crate::tool::null_is_default")]
        arguments_left_out: u64,
        /// To give back with the answer: of the tool and the exact arguments.
        call_hash: String,
        /// How long the question stands, in milliseconds. Nobody's answer is a refusal.
        expires_in_ms: u64,
    },
    /// The message was taken into a turn that was already running; that turn's answer follows.
    Steered {},
    /// The answer. Always final.
    Answer {
        /// The words.
        text: String,
        /// How the turn ended.
        outcome: TurnOutcome,
        /// What it took; absent when no turn ran.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        usage: Option<TurnUsage>,
    },
}

/// How a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnOutcome {
    /// The model answered.
    Completed,
    /// The model answered without tools after the iteration limit.
    IterationLimit,
    /// Tools timed out too often in a row.
    ToolTimeouts,
    /// The person cancelled.
    Cancelled,
    /// The model could not be reached or refused; the text says why.
    ModelFailed,
    /// The agent had no room for another conversation or message.
    Overloaded,
    /// The message waited for longer than its sender did; nothing was done.
    Expired,
    /// An outcome this build does not know.
    #[serde(other)]
    Other,
}
