//! Events of conversations, as their viewers receive them.

use rockbot_contracts::{InputBody, InputRequest, ReplyBody};
use serde::Serialize;
use utoipa::ToSchema;

use crate::api::schema::{HintsView, StagesView, UsageView, name_of};

/// An event of a conversation.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ConversationEvent {
    /// `EPOCH-SEQUENCE`; the sequence grows within an epoch, with gaps.
    pub(crate) id: String,
    /// The conversation.
    pub(crate) conversation: String,
    /// The message that it belongs to; absent for events of the conversation itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) message_id: Option<String>,
    /// Time in Unix milliseconds.
    pub(crate) at_ms: u64,
    /// Content.
    #[serde(flatten)]
    pub(crate) body: EventBody,
}

/// Content of an event. All texts of agents and tools are untrusted.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum EventBody {
    /// A person sent a message.
    #[serde(rename_all = "camelCase")]
    Message {
        /// Its text.
        text: String,
        /// The idempotency key that its sender chose.
        key: String,
    },
    /// A piece of the streamed text.
    #[serde(rename_all = "camelCase")]
    TextDelta {
        /// The piece.
        text: String,
    },
    /// A tool call was sent.
    #[serde(rename_all = "camelCase")]
    ToolStarted {
        /// The call.
        tool_call_id: String,
        /// The tool.
        tool_name: String,
        /// The arguments as JSON, at most 16 KiB.
        arguments: String,
        /// Number of bytes left out.
        arguments_left_out: u64,
    },
    /// Progress of a running call.
    #[serde(rename_all = "camelCase")]
    ToolProgressed {
        /// The call.
        tool_call_id: String,
        /// A line of text.
        text: String,
    },
    /// A tool call ended.
    #[serde(rename_all = "camelCase")]
    ToolFinished {
        /// The call.
        tool_call_id: String,
        /// The tool.
        tool_name: String,
        /// The process that ran it.
        #[serde(skip_serializing_if = "Option::is_none")]
        ran_on: Option<String>,
        /// Time from request to reply, in microseconds.
        elapsed_us: u64,
        /// Size of the result.
        bytes: u64,
        /// Error code of a failed call.
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<String>,
        /// Execution state of the tool: `no`, `yes` or `unknown`.
        executed: String,
        /// Conversation with a sub-agent that the call ran.
        #[serde(skip_serializing_if = "Option::is_none")]
        child_loop_id: Option<String>,
        /// Durations of the call's stages; absent for a call without a handler, and from older agents.
        #[serde(skip_serializing_if = "Option::is_none")]
        stages: Option<StagesView>,
        /// The result as text, at most 16 KiB; absent if the agent did not send it.
        #[serde(skip_serializing_if = "Option::is_none")]
        result: Option<String>,
        /// Number of bytes left out.
        result_left_out: u64,
    },
    /// A call waits for a decision.
    #[serde(rename_all = "camelCase")]
    ApprovalAsked {
        /// The approval request.
        approval_id: String,
        /// The agent that makes the call.
        asking_agent: String,
        /// The call.
        tool_call_id: String,
        /// The tool.
        tool_name: String,
        /// Source of the tool.
        tool_source: String,
        /// The arguments as JSON, at most 16 KiB.
        arguments: String,
        /// Number of bytes left out.
        arguments_left_out: u64,
        /// Hash of the exact call, to be returned with the decision; empty for viewers who may not decide.
        call_hash: String,
        /// Time at which the request expires, in Unix milliseconds.
        expires_at_ms: u64,
        /// Possible effects of the tool.
        #[serde(skip_serializing_if = "Option::is_none")]
        hints: Option<HintsView>,
        /// The rule of the operator that asks.
        #[serde(skip_serializing_if = "Option::is_none")]
        rule: Option<String>,
    },
    /// An approval request was closed.
    #[serde(rename_all = "camelCase")]
    ApprovalClosed {
        /// The approval request.
        approval_id: String,
        /// `allow`, `allow_in_session`, `deny`, `expired` or `cancelled`.
        decision: String,
        /// The person who decided, if it was through this gateway.
        #[serde(skip_serializing_if = "Option::is_none")]
        by: Option<String>,
    },
    /// An MCP server asks for input, which `POST …/inputs/{inputId}` answers. Only in turns of messages with
    /// `acceptsInput`.
    #[serde(rename_all = "camelCase")]
    InputAsked {
        /// The request.
        input_id: String,
        /// The agent that makes the call.
        asking_agent: String,
        /// The call.
        tool_call_id: String,
        /// The requested input: `server`, `message`, and `mode` with `fields` or `url`. Viewers of a share
        /// get the mode `other` without a message.
        #[schema(value_type = Object)]
        request: Box<InputRequest>,
        /// Time at which the request expires, in Unix milliseconds.
        expires_at_ms: u64,
    },
    /// A request for input was closed.
    #[serde(rename_all = "camelCase")]
    InputClosed {
        /// The request.
        input_id: String,
        /// `accept`, `decline`, `cancel` or `expired`.
        outcome: String,
    },
    /// The message was added to the running turn.
    Steered {},
    /// Another process continues the turn: the text since the last tool call is superseded.
    #[serde(rename_all = "camelCase")]
    Resumed {
        /// The process.
        on: String,
        /// Number of the process that runs the turn, from 1.
        attempt: u32,
    },
    /// Another agent answers from here on.
    #[serde(rename_all = "camelCase")]
    HandedOff {
        /// The agent.
        to: String,
    },
    /// The agent's own statement about its work.
    #[serde(rename_all = "camelCase")]
    TaskStatus {
        /// State.
        status: String,
        /// Finished parts.
        done: String,
        /// Remaining parts.
        pending: String,
        /// The current step.
        now: String,
    },
    /// Progress of work that the agent delegated.
    #[serde(rename_all = "camelCase")]
    DelegationProgressed {
        /// The work.
        task_id: String,
        /// A line of text.
        text: String,
    },
    /// Work that the agent delegated has ended.
    #[serde(rename_all = "camelCase")]
    DelegationEnded {
        /// The work.
        task_id: String,
        /// Final state.
        state: String,
        /// The first characters of the result.
        preview: String,
    },
    /// A further answer, on the results of delegated work. It ends no turn.
    #[serde(rename_all = "camelCase")]
    FollowUp {
        /// The work.
        task_ids: Vec<String>,
        /// Text.
        text: String,
        /// Outcome of the turn that read the results.
        outcome: String,
        /// Usage of that turn and of the work.
        #[serde(skip_serializing_if = "Option::is_none")]
        usage: Option<Box<UsageView>>,
    },
    /// The answer. It ends the turn.
    #[serde(rename_all = "camelCase")]
    Answer {
        /// Text.
        text: String,
        /// Outcome of the turn.
        outcome: String,
        /// Usage, if a turn ran.
        #[serde(skip_serializing_if = "Option::is_none")]
        usage: Option<Box<UsageView>>,
    },
    /// Replies were lost on the bus.
    #[serde(rename_all = "camelCase")]
    Lost {
        /// Their number.
        count: u64,
    },
    /// No answer will arrive here.
    #[serde(rename_all = "camelCase")]
    Failed {
        /// Kind of failure: `agent_unavailable`, `silent` or `closed`.
        code: String,
        /// Description.
        text: String,
    },
    /// The conversation has another title.
    #[serde(rename_all = "camelCase")]
    Renamed {
        /// The title.
        title: String,
    },
    /// The conversation was deleted.
    Deleted {},
}

impl EventBody {
    /// Converts a reply of an agent, received at `now_ms` in Unix milliseconds. Returns `None` for a reply of
    /// a kind that this build does not know.
    pub(crate) fn from_reply(body: ReplyBody, now_ms: u64) -> Option<Self> {
        Some(match body {
            ReplyBody::TextDelta { text } => Self::TextDelta { text },
            ReplyBody::ToolStarted { tool_call_id, tool_name, arguments, arguments_left_out } => {
                let tool_call_id = tool_call_id.to_string();
                Self::ToolStarted { tool_call_id, tool_name, arguments, arguments_left_out }
            }
            ReplyBody::ToolProgressed { tool_call_id, text } => {
                Self::ToolProgressed { tool_call_id: tool_call_id.to_string(), text }
            }
            ReplyBody::ToolFinished {
                tool_call_id,
                tool_name,
                ran_on,
                elapsed_us,
                bytes,
                error,
                executed,
                child_loop_id,
                stages,
                result,
                result_left_out,
            } => Self::ToolFinished {
                tool_call_id: tool_call_id.to_string(),
                tool_name,
                ran_on,
                elapsed_us,
                bytes,
                error: error.map(|code| code.as_str().to_owned()),
                executed: executed.to_string(),
                child_loop_id,
                stages: stages.map(StagesView::from),
                result,
                result_left_out,
            },
            ReplyBody::ApprovalAsked {
                approval_id,
                asking_agent,
                tool_call_id,
                tool_name,
                tool_source,
                arguments,
                arguments_left_out,
                call_hash,
                expires_in_ms,
                hints,
                rule,
            } => Self::ApprovalAsked {
                approval_id: approval_id.to_string(),
                asking_agent: asking_agent.to_string(),
                tool_call_id: tool_call_id.to_string(),
                tool_name,
                tool_source,
                arguments,
                arguments_left_out,
                call_hash,
                expires_at_ms: now_ms.saturating_add(expires_in_ms),
                hints: hints.map(Into::into),
                rule,
            },
            ReplyBody::ApprovalClosed { approval_id, decision } => Self::ApprovalClosed {
                approval_id: approval_id.to_string(),
                decision: name_of(&decision),
                by: None,
            },
            ReplyBody::InputAsked {
                input_id,
                asking_agent,
                tool_call_id,
                request,
                expires_in_ms,
            } => Self::InputAsked {
                input_id: input_id.to_string(),
                asking_agent: asking_agent.to_string(),
                tool_call_id: tool_call_id.to_string(),
                // The agent may not be one of ours.
                request: Box::new(request.checked().ok()?),
                expires_at_ms: now_ms.saturating_add(expires_in_ms),
            },
            ReplyBody::InputClosed { input_id, outcome } => {
                Self::InputClosed { input_id: input_id.to_string(), outcome: name_of(&outcome) }
            }
            ReplyBody::Steered {} => Self::Steered {},
            ReplyBody::Resumed { on, attempt } => Self::Resumed { on: on.to_string(), attempt },
            ReplyBody::Answer { text, outcome, usage } => Self::Answer {
                text,
                outcome: name_of(&outcome),
                usage: usage.map(|usage| Box::new(usage.into())),
            },
            ReplyBody::HandedOff { to } => Self::HandedOff { to },
            ReplyBody::TaskStatus { status, done, pending, now } => {
                Self::TaskStatus { status, done, pending, now }
            }
            ReplyBody::DelegationProgressed { task_id, text } => {
                Self::DelegationProgressed { task_id: task_id.to_string(), text }
            }
            ReplyBody::DelegationEnded { task_id, state, preview } => Self::DelegationEnded {
                task_id: task_id.to_string(),
                state: state.as_str().to_owned(),
                preview,
            },
            ReplyBody::FollowUp { task_ids, text, outcome, usage } => Self::FollowUp {
                task_ids: task_ids.iter().map(ToString::to_string).collect(),
                text,
                outcome: name_of(&outcome),
                usage: usage.map(|usage| Box::new(usage.into())),
            },
            ReplyBody::Other => return None,
        })
    }

    /// Returns the event for viewers who may not decide on approvals or answer requests for input.
    pub(crate) fn read_only(&self) -> Self {
        let mut body = self.clone();
        match &mut body {
            Self::ApprovalAsked { call_hash, .. } => call_hash.clear(),
            Self::InputAsked { request, .. } => {
                // A link may log in the person who opens it, and forms may propose personal values.
                request.message.clear();
                request.body = InputBody::Other;
            }
            _ => {}
        }
        body
    }

    /// Returns whether no further event of the message's turn follows here.
    pub(crate) fn ends_turn(&self) -> bool {
        matches!(self, Self::Answer { .. } | Self::Failed { .. })
    }

    /// Returns the approximate size in memory, in bytes.
    pub(crate) fn size(&self) -> usize {
        let texts = match self {
            Self::Message { text, .. }
            | Self::TextDelta { text }
            | Self::ToolProgressed { text, .. }
            | Self::Answer { text, .. }
            | Self::FollowUp { text, .. }
            | Self::DelegationProgressed { text, .. }
            | Self::DelegationEnded { preview: text, .. }
            | Self::Failed { text, .. }
            | Self::Renamed { title: text } => text.len(),
            Self::ToolStarted { arguments, .. } | Self::ApprovalAsked { arguments, .. } => {
                arguments.len()
            }
            Self::InputAsked { request, .. } => request.size(),
            Self::ToolFinished { result, .. } => result.as_ref().map_or(0, String::len),
            Self::TaskStatus { status, done, pending, now } => {
                status.len() + done.len() + pending.len() + now.len()
            }
            _ => 0,
        };
        texts + 512
    }
}
