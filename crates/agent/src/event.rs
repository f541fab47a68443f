//! Progress events and answers of turns.

use std::{
    fmt,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use rockbot_contracts::{
    AgentName, ApprovalId, ApprovalOutcome, CallStages, Executed, InputId, InputOutcome,
    InputRequest, InstanceId, ReplyBody, ToolCallId, ToolErrorCode, ToolHints, TurnUsage,
    user::{ReplyDetail, TurnOutcome},
};
use rockbot_tools::{EventSink, ToolContext, ToolEvent, ToolFailure, ToolUpdate};

use crate::conversation::ConversationError;

/// Longest arguments in a brief reply, and longest name of a tool, in characters.
const MAX_ARGUMENT_CHARS: usize = 200;
/// Longest id of a conversation with a sub-agent, in characters.
const MAX_ID_CHARS: usize = 128;
/// Longest progress line, in characters.
const MAX_PROGRESS_CHARS: usize = 500;

/// A progress event of a turn.
#[derive(Debug, Clone, PartialEq)]
pub enum TurnEvent {
    /// The message was taken into the running turn.
    Steered,
    /// This process continues a turn of another one. The text streamed since the last tool call is
    /// superseded. Always the first event.
    Resumed {
        /// Number of the process that runs the turn, from 1.
        attempt: u32,
        /// This process.
        on: InstanceId,
    },
    /// A piece of the streamed text.
    TextDelta {
        /// The text.
        text: String,
    },
    /// A tool call started.
    ToolStarted {
        /// Id of the call.
        tool_call_id: ToolCallId,
        /// The tool name that the model used.
        tool_name: String,
        /// The arguments, at most 16 KiB.
        arguments: String,
        /// Number of omitted bytes of the arguments.
        arguments_left_out: usize,
    },
    /// A tool call needs approval. The response goes to [`Approvals::answer`](crate::Approvals::answer).
    ApprovalAsked {
        /// Id of the approval request.
        approval_id: ApprovalId,
        /// The agent that calls the tool.
        asking_agent: AgentName,
        /// Id of the call.
        tool_call_id: ToolCallId,
        /// The original name of the tool.
        tool_name: String,
        /// The source of the tool.
        tool_source: String,
        /// The arguments as JSON, at most 16 KiB.
        arguments: String,
        /// Number of omitted bytes of the arguments.
        arguments_left_out: usize,
        /// Hash of the call, to be returned with the response.
        call_hash: String,
        /// Time until the request expires.
        expiry: Duration,
        /// The hints that the rules consider.
        hints: ToolHints,
        /// The rule that asks.
        rule: String,
    },
    /// An approval request was closed.
    ApprovalClosed {
        /// Id of the approval request.
        approval_id: ApprovalId,
        /// Its outcome.
        decision: ApprovalOutcome,
    },
    /// An MCP server requests input. The response goes to [`Approvals::answer_input`](crate::Approvals::answer_input).
    InputAsked {
        /// Id of the request.
        input_id: InputId,
        /// The agent that makes the call.
        asking_agent: AgentName,
        /// Id of the call.
        tool_call_id: ToolCallId,
        /// The requested input.
        request: Box<InputRequest>,
        /// Time until the request expires.
        expiry: Duration,
    },
    /// A request for input was closed.
    InputClosed {
        /// Id of the request.
        input_id: InputId,
        /// Its outcome.
        outcome: InputOutcome,
    },
    /// Progress of a running call.
    ToolProgressed {
        /// Id of the call.
        tool_call_id: ToolCallId,
        /// A line of text, at most 500 characters.
        text: String,
    },
    /// Another agent answers the message.
    HandedOff {
        /// Name of the agent.
        to: String,
    },
    /// Progress of the task.
    TaskStatus {
        /// `starting`, `in-progress` or `completed`, as the model reported; or `waiting` while the store of
        /// conversations is unavailable.
        status: String,
        /// The part that is done, at most 500 characters.
        done: String,
        /// The part that is left, at most 500 characters.
        pending: String,
        /// The current work, at most 500 characters.
        now: String,
    },
    /// A tool call finished.
    ToolFinished {
        /// Id of the call.
        tool_call_id: ToolCallId,
        /// The tool name that the model used.
        tool_name: String,
        /// The process that ran it, if known.
        ran_on: Option<String>,
        /// Time from request to result.
        elapsed: Duration,
        /// Size of the result, in bytes.
        bytes: usize,
        /// Error code of a failed call.
        error: Option<ToolErrorCode>,
        /// Execution state of the tool.
        executed: Executed,
        /// Conversation with a sub-agent that the call ran, at most 128 characters.
        child_loop_id: Option<String>,
        /// Durations of the call's stages, as its handler reported them.
        stages: Option<CallStages>,
        /// The result or the error as text, at most 16 KiB.
        result: String,
        /// Number of omitted bytes of the result.
        result_left_out: usize,
    },
}

/// Receives the events of a turn, in order. It is called from the turn and must not block.
pub type ProgressSink = Arc<dyn Fn(TurnEvent) + Send + Sync>;

/// The answer of a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnAnswer {
    /// The text of the model, or a message of the agent if the model gave none.
    pub text: String,
    /// The outcome of the turn.
    pub outcome: TurnOutcome,
    /// Spending of the turn; `None` if no turn ran.
    pub usage: Option<Box<TurnUsage>>,
    /// The end of the turn in this process, which decides about publishing.
    pub ended: TurnEnd,
    /// The message was rejected. Another message may have its id.
    pub(crate) is_rejection: bool,
}

/// The end of a turn in this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum TurnEnd {
    /// With an answer, which is recorded if the turn is. It is to be published; then
    /// [`Conversations::unmark`](crate::Conversations::unmark) is to be called.
    #[default]
    Answered,
    /// With an answer that is not recorded. It is to be published, but it does not end a turn that is
    /// recorded for the message: that one continues after its last recorded step when it is resumed.
    Unrecorded,
    /// With an answer although it is unknown whether the message is recorded. A message that its queue can
    /// deliver again is to be returned to it, and nothing is to be published; otherwise as
    /// [`Unrecorded`](Self::Unrecorded).
    Undecided,
    /// The store of conversations failed, so the next step or the answer is not recorded. The turn is recorded: it
    /// continues after its last recorded step when it is resumed, and its answer is published then. Among
    /// processes that share the conversations, one of them resumes it, and no answer is to be published
    /// before; otherwise as [`Unrecorded`](Self::Unrecorded).
    Suspended,
    /// Another process continues the turn and answers the message. Nothing is to be published.
    Fenced,
    /// This process has no capacity for the message, which is recorded. Nothing is to be published; the
    /// message is to be processed again, or resumed.
    Deferred,
    /// The agent is shutting down and left the turn after a step. Nothing is to be published: the process
    /// that receives the message next, or resumes the turn, answers it.
    Released,
}

impl TurnEnd {
    /// Returns `true` if there is an answer to be published.
    #[must_use]
    pub fn is_answer(self) -> bool {
        matches!(self, Self::Answered | Self::Unrecorded | Self::Undecided)
    }
}

impl TurnAnswer {
    pub(crate) fn new(outcome: TurnOutcome, text: impl Into<String>) -> Self {
        let (text, ended) = (text.into(), TurnEnd::Answered);
        Self { text, outcome, usage: None, ended, is_rejection: false }
    }

    /// Sets how the turn ended in this process.
    pub(crate) fn with_end(self, ended: TurnEnd) -> Self {
        Self { ended, ..self }
    }

    /// Creates the answer of a turn whose conversation was deleted.
    pub(crate) fn deleted() -> Self {
        let text =
            "The conversation was deleted while its turn ran. What the tools did is not undone.";
        Self::new(TurnOutcome::Cancelled, text)
    }

    /// Creates the answer of a turn that could not be recorded.
    pub(crate) fn unrecorded(error: &dyn fmt::Display) -> Self {
        let text = format!(
            "The turn stopped, because its next step could not be recorded: {error}. What its tools did \
             is not undone. It continues after its last recorded step when the store is available again."
        );
        Self::new(TurnOutcome::ModelFailed, text).with_end(TurnEnd::Unrecorded)
    }

    /// Returns the answer for a message that joined the turn. Unlike the message that started it, such a message may
    /// not be recorded: a turn that is suspended does not answer it.
    pub(crate) fn for_joined(&self) -> Self {
        let ended = match self.ended {
            TurnEnd::Suspended => TurnEnd::Undecided,
            ended => ended,
        };
        self.clone().with_end(ended)
    }

    /// Creates the result of a turn that another process continues.
    pub(crate) fn fenced() -> Self {
        let text = "Another process of the agent continues this conversation, and records the answer in it.";
        Self::new(TurnOutcome::Other, text).with_end(TurnEnd::Fenced)
    }

    /// Creates the result of a turn that the agent left after a step.
    pub(crate) fn released() -> Self {
        let text = "The agent is shutting down. A recorded turn continues after its last step when the \
                    conversation is resumed. Send other messages again.";
        Self::new(TurnOutcome::Overloaded, text).with_end(TurnEnd::Released)
    }
}

impl From<ConversationError> for TurnAnswer {
    /// Ends a turn whose next step was not recorded.
    fn from(error: ConversationError) -> Self {
        match error {
            ConversationError::Fenced { .. } => Self::fenced(),
            ConversationError::NotFound { .. } => Self::deleted(),
            ConversationError::Store(_) => Self::unrecorded(&error).with_end(TurnEnd::Suspended),
            error => Self::unrecorded(&error),
        }
    }
}

impl From<TurnAnswer> for ReplyBody {
    fn from(answer: TurnAnswer) -> Self {
        Self::Answer {
            text: answer.text,
            outcome: answer.outcome,
            usage: answer.usage.map(|usage| *usage),
        }
    }
}

impl TurnEvent {
    /// Returns the event with one line of arguments, and without a result.
    #[must_use]
    pub fn brief(mut self) -> Self {
        match &mut self {
            Self::ToolStarted { arguments, arguments_left_out, .. } => {
                let is_brief = *arguments_left_out > 0
                    && arguments.ends_with('…')
                    && arguments.chars().count() == MAX_ARGUMENT_CHARS + 1;
                if !is_brief {
                    if let Some((end, _)) = arguments.char_indices().nth(MAX_ARGUMENT_CHARS) {
                        *arguments_left_out += arguments.len() - end;
                    }
                    *arguments = display_line(arguments, MAX_ARGUMENT_CHARS);
                }
            }
            Self::ToolFinished { result, result_left_out, .. } => {
                *result_left_out += std::mem::take(result).len();
            }
            _ => {}
        }
        self
    }

    /// Returns the reply that reports the event with this detail.
    #[must_use]
    pub fn into_reply(self, detail: ReplyDetail) -> ReplyBody {
        let is_full = detail == ReplyDetail::Full;
        match if is_full { self } else { self.brief() } {
            Self::Steered => ReplyBody::Steered {},
            Self::Resumed { attempt, on } => ReplyBody::Resumed { on, attempt },
            Self::TextDelta { text } => ReplyBody::TextDelta { text },
            Self::ToolStarted { tool_call_id, tool_name, arguments, arguments_left_out } => {
                let arguments_left_out = arguments_left_out as u64;
                ReplyBody::ToolStarted { tool_call_id, tool_name, arguments, arguments_left_out }
            }
            Self::ApprovalClosed { approval_id, decision } => {
                ReplyBody::ApprovalClosed { approval_id, decision }
            }
            Self::ApprovalAsked {
                approval_id,
                asking_agent,
                tool_call_id,
                tool_name,
                tool_source,
                arguments,
                arguments_left_out,
                call_hash,
                expiry,
                hints,
                rule,
            } => ReplyBody::ApprovalAsked {
                approval_id,
                asking_agent,
                tool_call_id,
                tool_name,
                tool_source,
                arguments,
                arguments_left_out: arguments_left_out as u64,
                call_hash,
                expires_in_ms: u64::try_from(expiry.as_millis()).unwrap_or(u64::MAX),
                hints: Some(hints),
                rule: Some(rule),
            },
            Self::InputAsked { input_id, asking_agent, tool_call_id, request, expiry } => {
                ReplyBody::InputAsked {
                    input_id,
                    asking_agent,
                    tool_call_id,
                    request: *request,
                    expires_in_ms: u64::try_from(expiry.as_millis()).unwrap_or(u64::MAX),
                }
            }
            Self::InputClosed { input_id, outcome } => ReplyBody::InputClosed { input_id, outcome },
            Self::ToolProgressed { tool_call_id, text } => {
                ReplyBody::ToolProgressed { tool_call_id, text }
            }
            Self::HandedOff { to } => ReplyBody::HandedOff { to },
            Self::TaskStatus { status, done, pending, now } => {
                ReplyBody::TaskStatus { status, done, pending, now }
            }
            Self::ToolFinished {
                tool_call_id,
                tool_name,
                ran_on,
                elapsed,
                bytes,
                error,
                executed,
                child_loop_id,
                stages,
                result,
                result_left_out,
            } => ReplyBody::ToolFinished {
                tool_call_id,
                tool_name,
                ran_on,
                elapsed_us: u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX),
                bytes: bytes as u64,
                error,
                executed,
                child_loop_id,
                stages,
                result: is_full.then_some(result),
                result_left_out: if is_full { result_left_out as u64 } else { 0 },
            },
        }
    }
}

/// Converts the events of one tool call into turn events. Every start has an end.
pub(crate) struct CallEvents {
    progress: ProgressSink,
    tool_call_id: ToolCallId,
    tool_name: String,
    started: Arc<OnceLock<Instant>>,
}

impl CallEvents {
    pub(crate) fn new(progress: ProgressSink, context: &ToolContext) -> Self {
        Self {
            progress,
            tool_call_id: context.tool_call_id.clone(),
            tool_name: display_line(&context.tool_name, MAX_ARGUMENT_CHARS),
            started: Arc::default(),
        }
    }

    /// Returns the sink for the events of the call.
    pub(crate) fn sink(&self) -> EventSink {
        let (progress, started) = (self.progress.clone(), self.started.clone());
        let (tool_call_id, tool_name) = (self.tool_call_id.clone(), self.tool_name.clone());
        Arc::new(move |event| {
            let (tool_call_id, tool_name) = (tool_call_id.clone(), tool_name.clone());
            progress(match event {
                ToolEvent::Started { arguments, .. } => {
                    let _ = started.set(Instant::now());
                    let shown = arguments.floor_char_boundary(ReplyDetail::MAX_DETAIL_BYTES);
                    TurnEvent::ToolStarted {
                        tool_call_id,
                        tool_name,
                        arguments: arguments[..shown].to_owned(),
                        arguments_left_out: arguments.len() - shown,
                    }
                }
                ToolEvent::Updated { update, .. } => TurnEvent::ToolProgressed {
                    tool_call_id,
                    text: match update {
                        ToolUpdate::Progress(line) => display_line(&line, MAX_PROGRESS_CHARS),
                        ToolUpdate::Partial(result) => {
                            display_line(&result.to_text(), MAX_PROGRESS_CHARS)
                        }
                    },
                },
                ToolEvent::Finished { end, text, text_left_out, .. } => TurnEvent::ToolFinished {
                    tool_call_id,
                    tool_name,
                    ran_on: end.ran_on,
                    elapsed: end.elapsed,
                    bytes: end.bytes,
                    error: end.error,
                    executed: end.executed,
                    child_loop_id: end.child_loop_id.map(|id| display_line(&id, MAX_ID_CHARS)),
                    stages: end.stages,
                    result: text,
                    result_left_out: text_left_out,
                },
            });
        })
    }

    /// Reports the end of a call whose future was dropped, if its start was reported.
    pub(crate) fn finish_abandoned(&self, failure: &ToolFailure) {
        let Some(started) = self.started.get() else { return };
        (self.progress)(TurnEvent::ToolFinished {
            tool_call_id: self.tool_call_id.clone(),
            tool_name: self.tool_name.clone(),
            ran_on: None,
            elapsed: started.elapsed(),
            bytes: failure.model_text().len(),
            error: Some(failure.code()),
            executed: failure.executed(),
            child_loop_id: None,
            stages: None,
            result: failure.model_text(),
            result_left_out: 0,
        });
    }
}

/// Returns external text as one short line. Control characters are replaced, since the line may be printed
/// to a terminal.
pub(crate) fn display_line(text: &str, max_chars: usize) -> String {
    let mut chars = text.chars();
    let clean = |c: char| if c.is_control() { ' ' } else { c };
    let mut line: String = chars.by_ref().take(max_chars).map(clean).collect();
    if chars.next().is_some() {
        line.push('…');
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_line_is_short_without_control_characters() {
        assert_eq!(display_line("a\u{1b}[31m\nb", 200), "a [31m b");
        assert_eq!(display_line("üüü", 2), "üü…");
        assert_eq!(display_line("üü", 2), "üü");
    }
}
