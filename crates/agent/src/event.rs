//! What a person sees of a turn.

use std::{sync::Arc, time::Duration};

use rockbot_contracts::{
    AgentName, ApprovalId, Executed, ReplyBody, ToolCallId, ToolErrorCode, TurnUsage,
    user::TurnOutcome,
};
use rockbot_tools::{EventSink, ToolEvent, ToolUpdate};

/// The longest arguments shown, in characters.
const MAX_ARGUMENT_CHARS: usize = 200;
/// The longest line of progress shown, in characters.
const MAX_PROGRESS_CHARS: usize = 500;

/// Something that happens while a turn runs.
#[derive(Debug, Clone, PartialEq)]
pub enum TurnEvent {
    /// The message was taken into the turn that was already running.
    Steered,
    /// A piece of the model's text, as it streams.
    TextDelta {
        /// The piece.
        text: String,
    },
    /// A tool call goes out.
    ToolStarted {
        /// The call.
        tool_call_id: ToolCallId,
        /// The tool, as the model named it.
        tool_name: String,
        /// The arguments, at most 200 characters.
        arguments: String,
    },
    /// A person is asked whether a call may run; the answer goes to
    /// [`Approvals::answer`](crate::Approvals::answer).
    ApprovalAsked {
        /// The question.
        approval_id: ApprovalId,
        /// The agent that wants to call.
        asking_agent: AgentName,
        /// The call.
        tool_call_id: ToolCallId,
        /// The tool's own name.
        tool_name: String,
        /// Where it comes from.
        tool_source: String,
        /// The arguments as JSON, at most 16 KiB.
        arguments: String,
        /// How many bytes of them are not shown.
        arguments_left_out: usize,
        /// To give back with the answer.
        call_hash: String,
        /// How long the question stands.
        expiry: Duration,
    },
    /// A sign of life from a running call.
    ToolProgressed {
        /// The call.
        tool_call_id: ToolCallId,
        /// A line for people, at most 500 characters.
        text: String,
    },
    /// A tool call came back.
    ToolFinished {
        /// The call.
        tool_call_id: ToolCallId,
        /// The tool, as the model named it.
        tool_name: String,
        /// Which process ran it, where that is known.
        ran_on: Option<String>,
        /// From asking to answer.
        elapsed: Duration,
        /// Size of the result, in bytes.
        bytes: usize,
        /// Why it failed, when it did.
        error: Option<ToolErrorCode>,
        /// Whether the tool ran.
        executed: Executed,
    },
}

/// Takes events, in order. Called from the turn itself, so it must not block.
pub type ProgressSink = Arc<dyn Fn(TurnEvent) + Send + Sync>;

/// How a turn ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnAnswer {
    /// The words: the model's, or the agent's own when the model had no say.
    pub text: String,
    /// What kind of end.
    pub outcome: TurnOutcome,
    /// What it took; none when no turn ran.
    pub usage: Option<Box<TurnUsage>>,
}

impl TurnAnswer {
    pub(crate) fn new(outcome: TurnOutcome, text: impl Into<String>) -> Self {
        Self { text: text.into(), outcome, usage: None }
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

impl From<TurnEvent> for ReplyBody {
    fn from(event: TurnEvent) -> Self {
        match event {
            TurnEvent::Steered => Self::Steered {},
            TurnEvent::TextDelta { text } => Self::TextDelta { text },
            TurnEvent::ToolStarted { tool_call_id, tool_name, arguments } => {
                Self::ToolStarted { tool_call_id, tool_name, arguments }
            }
            TurnEvent::ApprovalAsked {
                approval_id,
                asking_agent,
                tool_call_id,
                tool_name,
                tool_source,
                arguments,
                arguments_left_out,
                call_hash,
                expiry,
            } => Self::ApprovalAsked {
                approval_id,
                asking_agent,
                tool_call_id,
                tool_name,
                tool_source,
                arguments,
                arguments_left_out: arguments_left_out as u64,
                call_hash,
                expires_in_ms: u64::try_from(expiry.as_millis()).unwrap_or(u64::MAX),
            },
            TurnEvent::ToolProgressed { tool_call_id, text } => {
                Self::ToolProgressed { tool_call_id, text }
            }
            TurnEvent::ToolFinished {
                tool_call_id,
                tool_name,
                ran_on,
                elapsed,
                bytes,
                error,
                executed,
            } => Self::ToolFinished {
                tool_call_id,
                tool_name,
                ran_on,
                elapsed_us: u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX),
                bytes: bytes as u64,
                error,
                executed,
            },
        }
    }
}

/// Tells what happens to tool calls to whoever watches the turn.
pub(crate) fn relay(progress: ProgressSink) -> EventSink {
    Arc::new(move |event| {
        progress(match event {
            ToolEvent::Started { context, arguments } => TurnEvent::ToolStarted {
                tool_call_id: context.tool_call_id,
                tool_name: shown(&context.tool_name, MAX_ARGUMENT_CHARS),
                arguments: shown(&arguments, MAX_ARGUMENT_CHARS),
            },
            ToolEvent::Updated { context, update } => TurnEvent::ToolProgressed {
                tool_call_id: context.tool_call_id,
                text: match update {
                    ToolUpdate::Progress(line) => shown(&line, MAX_PROGRESS_CHARS),
                    ToolUpdate::Partial(result) => shown(&result.to_text(), MAX_PROGRESS_CHARS),
                },
            },
            ToolEvent::Finished { context, end } => TurnEvent::ToolFinished {
                tool_call_id: context.tool_call_id,
                tool_name: shown(&context.tool_name, MAX_ARGUMENT_CHARS),
                ran_on: end.ran_on,
                elapsed: end.elapsed,
                bytes: end.bytes,
                error: end.error,
                executed: end.executed,
            },
        });
    })
}

/// Outside text as one short line. Control characters go: it may end up on a terminal.
pub(crate) fn shown(text: &str, max_chars: usize) -> String {
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
    fn shown_text_is_short_and_has_no_control_characters() {
        assert_eq!(shown("a\u{1b}[31m\nb", 200), "a [31m b");
        assert_eq!(shown("üüü", 2), "üü…");
        assert_eq!(shown("üü", 2), "üü");
    }
}
