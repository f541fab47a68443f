//! Results of scheduled tasks, for people.

use rockbot_contracts::{ScheduledEnded, user::TurnOutcome};
use serde_json::json;

use crate::{print::outln, render};

/// Prints the result of a scheduled task between two turns of a chat.
pub(crate) fn print_result(ended: &ScheduledEnded, json: bool) -> std::io::Result<()> {
    if json {
        let line = json!({"kind": "scheduled_ended", "result": ended});
        return outln!("{}", render::json_line(&line));
    }
    let ScheduledEnded { task, outcome, text, session_id, .. } = ended;
    let heading =
        format!("scheduled task '{task}' {}, conversation {session_id}", outcome_text(*outcome));
    outln!("\r{}", render::dim(&render::short_line(&heading, usize::MAX)))?;
    outln!("{}", render::clean(text.trim()))
}

/// Returns the description of an outcome.
pub(crate) fn outcome_text(outcome: TurnOutcome) -> &'static str {
    match outcome {
        TurnOutcome::Completed => "completed",
        TurnOutcome::IterationLimit => "stopped at its limit of tool calls",
        TurnOutcome::ToolTimeouts => "stopped because tools timed out",
        TurnOutcome::Cancelled => "cancelled",
        TurnOutcome::ModelFailed => "failed",
        TurnOutcome::Overloaded => "refused for lack of capacity",
        TurnOutcome::Expired => "missed",
        TurnOutcome::Other => "ended",
    }
}
