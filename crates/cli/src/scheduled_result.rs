//! Results of scheduled tasks, for people.

use rockbot_agent::schedule::describe_outcome;
use rockbot_contracts::ScheduledEnded;
use serde_json::json;

use crate::{print::outln, render};

/// Prints the result of a scheduled task between two turns of a chat.
pub(crate) fn print_result(ended: &ScheduledEnded, json: bool) -> std::io::Result<()> {
    if json {
        let line = json!({"kind": "scheduled_ended", "result": ended});
        return outln!("{}", render::json_line(&line));
    }
    let ScheduledEnded { task, outcome, text, session_id, .. } = ended;
    let heading = format!(
        "scheduled task '{task}' {}, conversation {session_id}",
        describe_outcome(*outcome)
    );
    outln!("\r{}", render::dim(&render::short_line(&heading, usize::MAX)))?;
    outln!("{}", render::clean(text.trim()))
}
