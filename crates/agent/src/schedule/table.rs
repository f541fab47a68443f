//! The list of scheduled tasks for models, as a Markdown table.

use rockbot_store::Timestamp;

use super::{
    context::describe_outcome,
    task::{LastFire, ScheduledTask},
    zone::Zone,
};

/// Longest description in a cell, in characters.
const MAX_DESCRIPTION_CHARS: usize = 120;
/// Longest last answer in a cell, in characters.
const MAX_ANSWER_CHARS: usize = 80;

/// Returns the table of `tasks`, or a sentence without tasks. Times are in `zone`.
pub(super) fn markdown(tasks: &[ScheduledTask], now: Timestamp, zone: &Zone) -> String {
    let now = zone.local_with_zone(now);
    if tasks.is_empty() {
        return format!("No scheduled tasks. Current time: {now}.");
    }
    let mut text = format!(
        "Current time: {now}\n\nScheduled tasks ({}):\n\n\
         | Name | Cron | Next fire | Once | Last | Description |\n|---|---|---|---|---|---|\n",
        tasks.len()
    );
    for task in tasks {
        let ScheduledTask { name, cron, zone: own, run_once, description, .. } = task;
        let cron = match own {
            Some(own) => format!("{cron} ({own})"),
            None => cron.clone(),
        };
        let next = match (task.requested, task.due) {
            (Some(_), _) => "now".to_owned(),
            (None, Some(due)) => zone.local(due),
            (None, None) => "none, ends with its turn".to_owned(),
        };
        let once = if *run_once { "yes" } else { "no" };
        let description = cell(description, MAX_DESCRIPTION_CHARS);
        let (name, last) = (cell(name.as_str(), usize::MAX), last(task, zone));
        text += &format!(
            "| {name} | {} | {next} | {once} | {last} | {description} |\n",
            cell(&cron, usize::MAX)
        );
    }
    text
}

fn last(task: &ScheduledTask, zone: &Zone) -> String {
    let mut parts = Vec::new();
    if let Some(fire) = &task.running {
        parts.push(format!("running, due {}", zone.local(fire.at)));
    }
    if let Some(LastFire { at, ended, outcome, text, .. }) = &task.last {
        let (outcome, seconds) = (describe_outcome(*outcome), ended.since(*at).as_secs());
        let answer = cell(text, MAX_ANSWER_CHARS);
        parts.push(format!("{outcome} {}, after {seconds} s: {answer}", zone.local(*at)));
    }
    let counts = task.counts;
    for (count, name) in [(counts.missed, "missed"), (counts.overlapped, "overlapped")] {
        if count > 0 {
            parts.push(format!("{name} {count}"));
        }
    }
    if parts.is_empty() { "never".to_owned() } else { parts.join("; ") }
}

/// Returns a text as the cell of a table: one line, escaped, shortened.
fn cell(text: &str, max_chars: usize) -> String {
    let (mut cell, mut chars) = (String::new(), text.trim().chars());
    for c in chars.by_ref().take(max_chars) {
        match c {
            '|' | '\\' => cell.extend(['\\', c]),
            c if c.is_control() => cell.push(' '),
            c => cell.push(c),
        }
    }
    if chars.next().is_some() {
        cell.push('…');
    }
    cell
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_cannot_break_the_table() {
        assert_eq!(cell("a|b\n\\c", 120), "a\\|b \\\\c");
        assert_eq!(cell(&"𐐀".repeat(121), 120), format!("{}…", "𐐀".repeat(120)));
    }
}
