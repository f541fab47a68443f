//! How a turn can end, and what is said then.

use std::time::Duration;

use rockbot_contracts::{Executed, user::TurnOutcome};
use rockbot_llm::{AssembledAnswer, ChatError, FinishReason};

use super::calls::TimedOutCall;
use crate::event::TurnAnswer;

/// Why a turn ended.
#[derive(Debug)]
pub(super) enum Ending {
    /// The model answered in words.
    Answered(AssembledAnswer),
    /// It answered because it may call no more tools.
    IterationLimit(AssembledAnswer),
    /// Too many tools timed out in a row.
    ToolTimeouts(Vec<TimedOutCall>),
    /// The person cancelled, or the agent shuts down.
    Cancelled,
    /// The turn took too long.
    OutOfTime {
        /// How long it may take.
        after: Duration,
        /// Whether tools were running.
        in_tools: bool,
    },
    /// The model gave no answer.
    ModelFailed(ChatError),
}

impl Ending {
    /// What the person reads.
    pub(super) fn into_answer(self) -> TurnAnswer {
        let (outcome, text) = match self {
            Self::Answered(answer) if answer.text.trim().is_empty() => {
                (TurnOutcome::ModelFailed, said_nothing(&answer.finish_reason).to_owned())
            }
            Self::Answered(answer) => (TurnOutcome::Completed, with_note(answer)),
            Self::IterationLimit(answer) if answer.text.trim().is_empty() => {
                let text = "I used all the tool calls of this turn without coming to an answer. \
                            Ask for less at once, or ask me to go on.";
                (TurnOutcome::IterationLimit, text.to_owned())
            }
            Self::IterationLimit(answer) => (TurnOutcome::IterationLimit, with_note(answer)),
            Self::ToolTimeouts(calls) => (TurnOutcome::ToolTimeouts, timeouts_text(&calls)),
            Self::Cancelled => (TurnOutcome::Cancelled, "Cancelled.".to_owned()),
            Self::OutOfTime { after, in_tools } => {
                let outcome =
                    if in_tools { TurnOutcome::ToolTimeouts } else { TurnOutcome::ModelFailed };
                (outcome, out_of_time_text(after, in_tools))
            }
            Self::ModelFailed(error) => {
                (TurnOutcome::ModelFailed, format!("The model gave no answer: {error}."))
            }
        };
        TurnAnswer::new(outcome, text)
    }

    /// What the model reads of it in the next turn.
    pub(super) fn last_word(&self) -> String {
        match self {
            Self::Answered(answer) | Self::IterationLimit(answer) => {
                let text = &answer.text;
                if text.trim().is_empty() { "(no answer)".to_owned() } else { text.clone() }
            }
            Self::ToolTimeouts(calls) => timeouts_text(calls),
            Self::Cancelled => "(the user cancelled the turn)".to_owned(),
            Self::OutOfTime { .. } => "(the turn ran out of time)".to_owned(),
            // Not the error: it would only confuse a model, and may name hosts.
            Self::ModelFailed(_) => "(no answer: the model failed)".to_owned(),
        }
    }
}

fn with_note(answer: AssembledAnswer) -> String {
    let note = match answer.finish_reason {
        FinishReason::Length => "The answer was cut: it reached the longest length allowed.",
        FinishReason::ContentFilter => "The answer was cut by the provider's content filter.",
        FinishReason::Stop | FinishReason::ToolCalls | FinishReason::Other(_) => {
            return answer.text;
        }
    };
    format!("{}\n\n({note})", answer.text)
}

fn said_nothing(reason: &FinishReason) -> &'static str {
    match reason {
        FinishReason::ContentFilter => {
            "The provider's content filter held the answer back. Ask in other words."
        }
        FinishReason::Length => {
            "The model reached its longest answer before it said anything. Allow it more tokens."
        }
        FinishReason::Stop | FinishReason::ToolCalls | FinishReason::Other(_) => {
            "The model gave an empty answer. Ask again."
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
            Executed::Yes => "ran, and may have done all or part of its work",
            Executed::Unknown => "may have run; its outcome is not known",
        };
        text.push_str(&format!("\n- {}: {ran}", call.tool_name));
    }
    text.push_str("\nCheck what was done before you ask again.");
    text
}

fn out_of_time_text(after: Duration, in_tools: bool) -> String {
    let who = if in_tools { "its tools" } else { "the model" };
    format!(
        "I ran out of time: a turn may take {} s, and {who} did not come to an end. What tools did \
         until then is not undone. Ask for less at once.",
        after.as_secs()
    )
}
