//! The turn of another agent as the result of a tool call.

use rockbot_contracts::{Executed, user::TurnOutcome};
use rockbot_tools::{ToolFailure, ToolResult};

/// Returns the result of a call whose turn ended with an answer.
///
/// # Errors
/// When the turn was cancelled, or did not run.
pub(crate) fn result_of_turn(
    text: String,
    outcome: TurnOutcome,
) -> Result<ToolResult, ToolFailure> {
    match outcome {
        TurnOutcome::Completed | TurnOutcome::IterationLimit | TurnOutcome::BudgetExceeded => {
            Ok(ToolResult::text(text))
        }
        TurnOutcome::ToolTimeouts | TurnOutcome::ModelFailed | TurnOutcome::Other => {
            Ok(ToolResult::error(text))
        }
        TurnOutcome::Overloaded | TurnOutcome::Expired => {
            Err(ToolFailure::Overloaded { message: text })
        }
        TurnOutcome::Cancelled => Err(ToolFailure::Cancelled { executed: Executed::Yes }),
    }
}
