//! The report of a run: a summary for programs, and a timeline for each violation.

use std::{collections::BTreeMap, fmt::Write, fs, path::Path, time::Duration};

use serde_json::{Value, json};

use super::{
    checks::{Counts, Observations},
    load::CallRecord,
    timeline::{Event, Timeline},
    violation::{self, Violation},
};

/// Log lines of a call that are printed.
const LOG_LINES: usize = 60;
/// Lines at the end of each log, for a violation that concerns no call.
const TAIL: usize = 15;
/// Faults this long before a call and after its last event belong to its timeline.
const AROUND: Duration = Duration::from_secs(4);

/// The result of a run.
pub(super) struct Report {
    pub(super) seed: u64,
    pub(super) duration: Duration,
    pub(super) broker: String,
    pub(super) faults: BTreeMap<&'static str, usize>,
    pub(super) counts: Counts,
    pub(super) violations: Vec<Violation>,
    pub(super) late_replies: u64,
    pub(super) retries: u64,
}

impl Report {
    /// Returns the report for programs.
    pub(super) fn to_json(&self) -> Value {
        let counts = &self.counts;
        let violations = self.violations.iter().map(|violation| {
            json!({"kind": violation.kind, "call": violation.subject, "text": violation.text})
        });
        json!({
            "seed": self.seed,
            "seconds": self.duration.as_secs_f64(),
            "broker": self.broker,
            "faults": self.faults,
            "calls": counts.calls,
            "succeeded": counts.succeeded,
            "failed": counts.failed,
            "notExecuted": counts.not_executed,
            "unknown": counts.unknown,
            "abandoned": counts.abandoned,
            "stoppedEarly": counts.stopped_early,
            "duplicateReplies": counts.duplicates,
            "revisedReplies": counts.revised,
            "overtaken": counts.overtaken,
            "deadLetters": counts.dead_letters,
            "interrupted": counts.interrupted,
            "lateReplies": self.late_replies,
            "retries": self.retries,
            "violations": violations.collect::<Vec<_>>(),
        })
    }

    /// Returns the violations, with the calls, faults and log lines around them.
    pub(super) fn describe(
        &self,
        observations: &Observations,
        timeline: &Timeline,
        logs: &[(String, String)],
    ) -> String {
        violation::describe(&self.violations, self.seed, |text, call| {
            match observations.calls.iter().find(|known| known.id == call) {
                Some(known) => describe_call(text, known, observations, timeline, logs),
                None => describe_tails(text, logs),
            }
        })
    }
}

/// Writes a report, the description of its violations, the timeline and the logs into a folder.
pub(super) fn write_files(
    folder: &Path,
    report: &Value,
    description: &str,
    logs: &[(String, String)],
    timeline: &Timeline,
) {
    fs::create_dir_all(folder).expect("a folder");
    let write = |name: &str, text: &str| fs::write(folder.join(name), text).expect("written");
    write("report.json", &format!("{report:#}\n"));
    write("violations.txt", description);
    let events = timeline.events().iter().map(|event| format!("{event}\n")).collect::<String>();
    write("events.txt", &events);
    for (name, log) in logs {
        write(&format!("{name}.log"), log);
    }
}

fn describe_call(
    text: &mut String,
    call: &CallRecord,
    observations: &Observations,
    timeline: &Timeline,
    logs: &[(String, String)],
) {
    let event = |at, text| Event { at, text };
    let (tool, caller, timeout) = (call.tool, &call.caller, call.timeout.as_secs_f64());
    let mut events = vec![event(call.sent, format!("CALL {tool} of {caller}, {timeout:.1} s"))];
    events.extend(call.cancelled.map(|at| event(at, "CANCEL".to_owned())));
    if let Some(end) = &call.end {
        let (executed, code) = (end.executed, end.code.as_deref().unwrap_or("success"));
        let text = format!("OUTCOME {code}, executed: {executed}, {}", end.text);
        events.push(event(end.at, text));
    }
    for reply in observations.replies.get(&call.id).into_iter().flatten() {
        let code = reply.code.as_deref().unwrap_or("success");
        let text = format!("REPLY {code}, executed: {} of {}", reply.executed, reply.source);
        events.push(event(reply.at, text));
    }
    for line in observations.lines.get(&call.id).into_iter().flatten() {
        events.push(event(line.at, format!("LINE written for process {}", line.handler)));
    }
    let last = events.iter().map(|event| event.at).max().unwrap_or_default() + AROUND;
    let first = call.sent.saturating_sub(AROUND);
    events.extend(timeline.events().into_iter().filter(|event| (first..last).contains(&event.at)));
    events.sort_by_key(|event| event.at);
    for event in events {
        let _ = writeln!(text, "  {event}");
    }
    let mut lines = Vec::new();
    for (name, log) in logs {
        let mut about_call: Vec<_> = log.lines().filter(|line| line.contains(&call.id)).collect();
        // A handler that waits repeats itself.
        about_call.dedup_by_key(|line| after_time(line));
        lines.extend(about_call.into_iter().map(|line| (name, line)));
    }
    lines.sort_by_key(|(_, line)| *line);
    for (name, line) in lines.into_iter().take(LOG_LINES) {
        let _ = writeln!(text, "  [{name}] {line}");
    }
}

/// Returns a log line without its time.
fn after_time(line: &str) -> &str {
    line.split_once(' ').map_or(line, |(_, text)| text)
}

fn describe_tails(text: &mut String, logs: &[(String, String)]) {
    for (name, log) in logs.iter().rev().take(super::handlers::HANDLERS) {
        let lines: Vec<_> = log.lines().collect();
        for line in &lines[lines.len().saturating_sub(TAIL)..] {
            let _ = writeln!(text, "  [{name}] {line}");
        }
    }
}
