//! Reasons for the end of a turn, and the resulting answers.

use std::time::Duration;

use rockbot_contracts::{Executed, user::TurnOutcome};
use rockbot_llm::{AssembledAnswer, ChatError, FinishReason};
use rockbot_tools::BudgetError;

use super::calls::TimedOutCall;
use crate::{conversation::ConversationError, event::TurnAnswer};

/// The answer of the agent that a message was handed off to.
#[derive(Debug, Clone)]
pub(super) struct HandedOff {
    pub(super) outcome: TurnOutcome,
    pub(super) text: String,
    /// The answer as the conversation keeps it.
    pub(super) kept: String,
}

/// Why a turn ended.
#[derive(Debug)]
pub(super) enum StopReason {
    /// The model answered with text.
    Answered(AssembledAnswer),
    /// The model answered after the last permitted tool call.
    IterationLimit(AssembledAnswer),
    /// The budget is used up. Has the answer of the model, if one could be requested.
    BudgetExceeded(BudgetError, Option<AssembledAnswer>),
    /// Another agent answered.
    HandedOff(HandedOff),
    /// Too many consecutive tool calls timed out.
    ToolTimeouts(Vec<TimedOutCall>),
    /// The user cancelled the turn, or the agent is shutting down.
    Cancelled,
    /// The turn reached its time limit.
    TimedOut {
        /// The time limit.
        after: Duration,
        /// Tools were running at that time.
        in_tools: bool,
    },
    /// The model returned an error.
    ModelFailed(ChatError),
    /// This number of processes was lost on the same step.
    ProcessesLost(u32),
    /// The agent shuts down and leaves the turn to another process.
    Released,
    /// The model's answer with its calls is too large to be recorded. None of the calls was made.
    AnswerTooLarge,
    /// A step could not be recorded, or another process continues the turn.
    Unrecorded(ConversationError),
}

impl From<ConversationError> for StopReason {
    fn from(error: ConversationError) -> Self {
        Self::Unrecorded(error)
    }
}

impl StopReason {
    /// Returns the answer for the user.
    pub(super) fn into_answer(self) -> TurnAnswer {
        let (outcome, text) = match self {
            Self::Answered(answer) if answer.text.trim().is_empty() => {
                (TurnOutcome::ModelFailed, empty_answer_text(&answer.finish_reason).to_owned())
            }
            Self::Answered(answer) => (TurnOutcome::Completed, with_note(answer)),
            Self::IterationLimit(answer) if answer.text.trim().is_empty() => {
                let text = "I used all the tool calls of this turn without reaching an answer. Ask \
                            for less at once, or ask me to continue.";
                (TurnOutcome::IterationLimit, text.to_owned())
            }
            Self::IterationLimit(answer) => (TurnOutcome::IterationLimit, with_note(answer)),
            Self::BudgetExceeded(_, Some(answer)) if !answer.text.trim().is_empty() => {
                (TurnOutcome::BudgetExceeded, with_note(answer))
            }
            Self::BudgetExceeded(..) => {
                let text = "The budget of this message is used up, and I have no answer yet. What the \
                            tools did is not undone. Ask for less at once, or ask me to continue.";
                (TurnOutcome::BudgetExceeded, text.to_owned())
            }
            Self::HandedOff(HandedOff { outcome, text, .. }) => (outcome, text),
            Self::ToolTimeouts(calls) => (TurnOutcome::ToolTimeouts, timeouts_text(&calls)),
            Self::Cancelled => (TurnOutcome::Cancelled, "Cancelled.".to_owned()),
            Self::TimedOut { after, in_tools } => {
                let outcome =
                    if in_tools { TurnOutcome::ToolTimeouts } else { TurnOutcome::ModelFailed };
                (outcome, timeout_text(after, in_tools))
            }
            Self::ModelFailed(error) => {
                (TurnOutcome::ModelFailed, format!("The model failed: {error}."))
            }
            Self::ProcessesLost(count) => {
                let text = format!(
                    "The turn ended, because {count} processes of the agent were lost on the same step. \
                     What its tools did is not undone, and a call without a result may have run. Check \
                     what was done before you try again."
                );
                (TurnOutcome::ModelFailed, text)
            }
            Self::AnswerTooLarge => {
                let text = "The model's answer with its tool calls exceeds 1 MiB and cannot be \
                            recorded, so none of the calls was made. Ask for less at once.";
                (TurnOutcome::ModelFailed, text.to_owned())
            }
            Self::Released => return TurnAnswer::released(),
            Self::Unrecorded(error) => return error.into(),
        };
        TurnAnswer::new(outcome, text)
    }

    /// Returns the text that the model sees in later turns.
    pub(super) fn history_text(&self) -> String {
        match self {
            Self::Answered(answer)
            | Self::IterationLimit(answer)
            | Self::BudgetExceeded(_, Some(answer)) => {
                let text = &answer.text;
                if text.trim().is_empty() { "(no answer)".to_owned() } else { text.clone() }
            }
            Self::BudgetExceeded(_, None) => {
                "(no answer: the budget of the message was used up)".to_owned()
            }
            Self::HandedOff(handed_off) => handed_off.kept.clone(),
            Self::ToolTimeouts(calls) => timeouts_text(calls),
            Self::Cancelled => "(the user cancelled the turn)".to_owned(),
            Self::TimedOut { .. } => "(the turn exceeded its time limit)".to_owned(),
            // Without the error, which may name hosts and does not help a model.
            Self::ModelFailed(_) => "(no answer: the model failed)".to_owned(),
            Self::ProcessesLost(_) => {
                "(no answer: the agent failed; calls without a result may have run)".to_owned()
            }
            Self::AnswerTooLarge => "(no answer: the tool calls were too large; none was made; \
                                     make smaller ones)"
                .to_owned(),
            Self::Released | Self::Unrecorded(_) => String::new(),
        }
    }
}

fn with_note(answer: AssembledAnswer) -> String {
    let note = match answer.finish_reason {
        FinishReason::Length => "The answer was truncated: it reached the maximum length.",
        FinishReason::ContentFilter => {
            "The answer was truncated by the content filter of the provider."
        }
        FinishReason::Stop | FinishReason::ToolCalls | FinishReason::Other(_) => {
            return answer.text;
        }
    };
    format!("{}\n\n({note})", answer.text)
}

fn empty_answer_text(reason: &FinishReason) -> &'static str {
    match reason {
        FinishReason::ContentFilter => {
            "The provider's content filter blocked the answer. Rephrase the message."
        }
        FinishReason::Length => {
            "The model reached its maximum length without any text. Raise max_tokens."
        }
        FinishReason::Stop | FinishReason::ToolCalls | FinishReason::Other(_) => {
            "The model returned an empty answer. Try again."
        }
    }
}

fn timeouts_text(calls: &[TimedOutCall]) -> String {
    let mut text = match calls.len() {
        1 => "I stopped because a tool call timed out:".to_owned(),
        count => format!("I stopped because {count} tool calls in a row timed out:"),
    };
    for call in calls {
        let ran = match call.executed {
            Executed::No => "did not run",
            Executed::Yes => "ran, and may have finished all or part of its work",
            Executed::Unknown => "may have run; its outcome is unknown",
        };
        text.push_str(&format!("\n- {}: {ran}", call.tool_name));
    }
    text.push_str("\nCheck what was done before you try again.");
    text
}

fn timeout_text(after: Duration, in_tools: bool) -> String {
    let cause = if in_tools { "its tools" } else { "the model" };
    format!(
        "The turn exceeded its time limit of {} s, because {cause} did not finish. What the tools did \
         is not undone. Ask for less at once.",
        after.as_secs()
    )
}
