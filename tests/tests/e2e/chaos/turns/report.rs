//! The report of a run: a summary for programs, and a timeline for each violation.

use std::{collections::BTreeMap, fmt::Write, time::Duration};

use serde_json::{Value, json};

use super::checks::{Counts, Observations};
use crate::chaos::{
    timeline::{Event, Timeline},
    violation::{self, Violation},
};

/// Log lines of a conversation that are printed.
const LOG_LINES: usize = 80;
/// Bytes of an entry or a log line that are printed.
const LINE_BYTES: usize = 600;

/// The result of a run.
pub(super) struct Report {
    pub(super) seed: u64,
    pub(super) duration: Duration,
    pub(super) broker: String,
    pub(super) faults: BTreeMap<&'static str, usize>,
    pub(super) counts: Counts,
    pub(super) violations: Vec<Violation>,
}

impl Report {
    /// Returns the report for programs.
    pub(super) fn to_json(&self) -> Value {
        let counts = &self.counts;
        let violations = self.violations.iter().map(|violation| {
            json!({"kind": violation.kind, "session": violation.subject, "text": violation.text})
        });
        json!({
            "seed": self.seed,
            "seconds": self.duration.as_secs_f64(),
            "broker": self.broker,
            "faults": self.faults,
            "turns": counts.turns,
            "completed": counts.completed,
            "notCompleted": counts.not_completed,
            "expired": counts.expired,
            "unconfirmed": counts.unconfirmed,
            "takeovers": counts.takeovers,
            "putDowns": counts.put_downs,
            "adopted": counts.adopted,
            "copies": counts.copies,
            "unavailable": counts.unavailable,
            "calls": counts.calls,
            "notExecuted": counts.not_executed,
            "refusals": counts.refusals,
            "unknown": counts.unknown,
            "stoppedEarly": counts.stopped_early,
            "modelRequests": counts.model_requests,
            "longestSilenceMs": counts.silence.as_millis(),
            "violations": violations.collect::<Vec<_>>(),
        })
    }

    /// Returns the violations, with the entries, faults and log lines of their conversations.
    pub(super) fn describe(
        &self,
        observations: &Observations,
        timeline: &Timeline,
        logs: &[(String, String)],
    ) -> String {
        violation::describe(&self.violations, self.seed, |text, session| {
            describe_session(text, session, observations, timeline, logs);
        })
    }
}

fn describe_session(
    text: &mut String,
    session: &str,
    observations: &Observations,
    timeline: &Timeline,
    logs: &[(String, String)],
) {
    let mut events = Vec::new();
    for record in observations.turns.iter().filter(|record| record.session.as_str() == session) {
        let sent =
            format!("SENT {:?} {}, errors {:?}", record.id, record.plan.text(), record.errors);
        events.push(Event { at: record.sent, text: sent });
        if let Some(answer) = &record.answer {
            let read = format!("READ {:?} {:?}", answer.outcome, answer.text);
            events.push(Event { at: answer.at, text: read });
        }
    }
    let Some(conversation) = observations.conversations.get(session) else {
        return write_events(text, events, timeline);
    };
    for (at, entry) in &conversation.entries {
        events.push(Event { at: *at, text: entry.clone() });
    }
    for call in conversation.turns.iter().flat_map(|turn| &turn.calls) {
        for line in observations.lines.get(&call.id).into_iter().flatten() {
            let written = format!("LINE {} written for process {}", call.id, line.handler);
            events.push(Event { at: line.at, text: written });
        }
    }
    write_events(text, events, timeline);
    let mut lines = Vec::new();
    for (name, log) in logs {
        let about = log.lines().filter(|line| line.contains(session));
        lines.extend(about.map(|line| (name, line)));
    }
    lines.sort_by_key(|(_, line)| *line);
    for (name, line) in lines.into_iter().rev().take(LOG_LINES).rev() {
        let _ = writeln!(text, "  [{name}] {}", cut(line));
    }
}

fn write_events(text: &mut String, mut events: Vec<Event>, timeline: &Timeline) {
    let first = events.iter().map(|event| event.at).min().unwrap_or_default();
    let last = events.iter().map(|event| event.at).max().unwrap_or_default();
    events.extend(timeline.events().into_iter().filter(|event| (first..last).contains(&event.at)));
    events.sort_by_key(|event| event.at);
    for event in events {
        let _ = writeln!(text, "  {}", cut(&event.to_string()));
    }
}

fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(LINE_BYTES)]
}
