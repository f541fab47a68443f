//! The replies of a turn as the pieces of a completion.

use std::sync::Arc;

use rockbot_contracts::{
    AgentReply, ReplyBody, TurnUsage,
    tool::{Executed, ToolErrorCode},
    user::TurnOutcome,
};
use serde_json::{Value, json};

use super::{error::ApiError, stop::StopFilter};
use crate::turns::Followed;

/// Longest shown arguments or progress of a call, in characters.
const MAX_SHOWN_CHARS: usize = 200;
/// Longest text that is remembered as shown, in bytes.
const MAX_SHOWN_BYTES: usize = 1024 * 1024;

/// A piece of a completion.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Piece {
    /// Text of the answer, as it streams.
    Content(String),
    /// A line about the course of the turn.
    Reasoning(String),
    /// A line about an approval request, with its details for programs.
    Approval { line: String, details: Value },
    /// The end of the turn.
    Answered {
        /// The whole text of the answer.
        text: String,
        outcome: TurnOutcome,
        usage: Option<TurnUsage>,
    },
    /// The turn failed, or its answer will not arrive.
    Failed(ApiError),
}

/// Turns replies into pieces.
#[derive(Debug)]
pub(super) struct Output {
    /// Text since the last tool call.
    step: String,
    stop: StopFilter,
    /// All text that was passed on; `None` once it is too long.
    shown: Option<String>,
}

impl Output {
    pub(super) fn new(stop: Vec<String>) -> Self {
        Self { step: String::new(), stop: StopFilter::new(stop), shown: Some(String::new()) }
    }

    /// Returns all text that was passed on, if it is not too long.
    pub(super) fn shown(&self) -> Option<&str> {
        self.shown.as_deref()
    }

    /// Returns the pieces of what a follower received.
    pub(super) fn pieces(&mut self, followed: Followed) -> Vec<Piece> {
        match followed {
            Followed::Reply(reply) => self.reply(&reply),
            Followed::Lost(lost) => vec![line(&format!("{lost} replies of the agent were lost"))],
            Followed::Failed(error) => vec![Piece::Failed(error.into())],
        }
    }

    fn reply(&mut self, reply: &Arc<AgentReply>) -> Vec<Piece> {
        match &reply.body {
            ReplyBody::TextDelta { text } => {
                self.step.push_str(text);
                self.content(text)
            }
            ReplyBody::ToolStarted { tool_name, arguments, .. } => {
                self.step.clear();
                vec![line(&format!("{tool_name} {}", shown(arguments)))]
            }
            ReplyBody::ToolProgressed { text, .. } => vec![line(&shown(text))],
            ReplyBody::ToolFinished { tool_name, elapsed_us, error, executed, .. } => {
                vec![line(&finished(tool_name, *elapsed_us, error.as_ref(), *executed))]
            }
            ReplyBody::ApprovalAsked { .. } => approval(&reply.body).into_iter().collect(),
            ReplyBody::Resumed { .. } => {
                let mut pieces = vec![line(
                    "another process continues the turn; the text since the last tool call is written again",
                )];
                if !std::mem::take(&mut self.step).is_empty() {
                    pieces.extend(self.content("\n\n"));
                }
                pieces
            }
            ReplyBody::Answer { text, outcome, usage } => self.answer(text, *outcome, *usage),
            // Nothing that a reader of the answer has to know.
            _ => Vec::new(),
        }
    }

    fn answer(&mut self, text: &str, outcome: TurnOutcome, usage: Option<TurnUsage>) -> Vec<Piece> {
        if let Some(error) = failure(text, outcome) {
            return vec![Piece::Failed(error)];
        }
        let step = std::mem::take(&mut self.step);
        let missing = match text.strip_prefix(step.as_str()) {
            Some(rest) => rest.to_owned(),
            None if text.trim() == step.trim() => String::new(),
            None => format!("\n\n{text}"),
        };
        let mut pieces = self.content(&missing);
        let held = self.stop.finish();
        pieces.extend(self.pass(held));
        pieces.push(Piece::Answered { text: text.to_owned(), outcome, usage });
        pieces
    }

    fn content(&mut self, text: &str) -> Vec<Piece> {
        let text = self.stop.push(text);
        self.pass(text).into_iter().collect()
    }

    fn pass(&mut self, text: String) -> Option<Piece> {
        if text.is_empty() {
            return None;
        }
        self.shown = self.shown.take().filter(|shown| shown.len() + text.len() <= MAX_SHOWN_BYTES);
        if let Some(shown) = &mut self.shown {
            shown.push_str(&text);
        }
        Some(Piece::Content(text))
    }
}

/// Returns the error of a turn that failed; `None` if it was answered or cancelled.
pub(super) fn failure(text: &str, outcome: TurnOutcome) -> Option<ApiError> {
    match outcome {
        TurnOutcome::ModelFailed => Some(ApiError::model_failed(text)),
        TurnOutcome::Overloaded | TurnOutcome::Expired => Some(ApiError::overloaded(text)),
        TurnOutcome::Completed
        | TurnOutcome::IterationLimit
        | TurnOutcome::BudgetExceeded
        | TurnOutcome::ToolTimeouts
        | TurnOutcome::Cancelled
        | TurnOutcome::Other => None,
    }
}

/// Returns the text of an answer up to the first stop sequence.
pub(super) fn stopped(text: &str, stop: Vec<String>) -> String {
    let mut filter = StopFilter::new(stop);
    let mut stopped = filter.push(text);
    stopped.push_str(&filter.finish());
    stopped
}

fn line(text: &str) -> Piece {
    Piece::Reasoning(format!("[{text}]\n"))
}

fn finished(
    tool: &str,
    elapsed_us: u64,
    error: Option<&ToolErrorCode>,
    executed: Executed,
) -> String {
    let millis = elapsed_us / 1000;
    match error {
        None => format!("{tool} finished after {millis} ms"),
        Some(error) => {
            format!("{tool} failed after {millis} ms: {error}, executed: {executed}")
        }
    }
}

fn approval(body: &ReplyBody) -> Option<Piece> {
    let ReplyBody::ApprovalAsked {
        approval_id,
        tool_name,
        tool_source,
        arguments,
        arguments_left_out,
        call_hash,
        expires_in_ms,
        ..
    } = body
    else {
        return None;
    };
    let line = format!(
        "[{tool_name} needs approval within {} s: {}; decide with POST /v1/approvals/{approval_id}]\n",
        expires_in_ms / 1000,
        shown(arguments),
    );
    let details = json!({
        "approvalId": approval_id,
        "toolName": tool_name,
        "toolSource": tool_source,
        "arguments": arguments,
        "argumentsLeftOut": arguments_left_out,
        "callHash": call_hash,
        "expiresInMs": expires_in_ms,
    });
    Some(Piece::Approval { line, details })
}

/// Returns the beginning of a text on one line.
fn shown(text: &str) -> String {
    let mut characters =
        text.chars().map(|character| if character.is_control() { ' ' } else { character });
    let mut shown: String = characters.by_ref().take(MAX_SHOWN_CHARS).collect();
    if characters.next().is_some() {
        shown.push('…');
    }
    shown
}
