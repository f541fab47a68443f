//! The promises of a turn, checked against what was observed.

use std::{collections::BTreeMap, time::Duration};

use rockbot_contracts::user::TurnOutcome;

use super::{
    answers::FinalReplies,
    explanation::is_explained,
    load::TurnRecord,
    model_server::SeenRequests,
    recorded::{RecordedCall, RecordedConversation, RecordedTurn},
};
use crate::chaos::{observer::Line, timeline::SentSignal, violation::Violation};

/// Beginning of the final reply of a process that could not reach the store for 60 s. Nothing recorded its
/// message.
const UNAVAILABLE: &str = "Overloaded: The agent's store of conversations is unavailable.";

/// Everything that was observed in a run.
#[derive(Default)]
pub(super) struct Observations {
    pub(super) turns: Vec<TurnRecord>,
    /// By session.
    pub(super) conversations: BTreeMap<String, RecordedConversation>,
    /// By the model's id of the call.
    pub(super) lines: BTreeMap<String, Vec<Line>>,
    pub(super) answers: FinalReplies,
    pub(super) model: SeenRequests,
    pub(super) signals: Vec<SentSignal>,
    /// Messages, processes and turns that were left.
    pub(super) leftovers: Vec<String>,
    /// Exits and panics.
    pub(super) process_problems: Vec<String>,
}

/// Numbers of turns and calls by their outcome.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) turns: usize,
    pub(super) completed: usize,
    /// Ended with another outcome.
    pub(super) not_completed: usize,
    /// Messages that expired before a process recorded them.
    pub(super) expired: usize,
    /// Messages that the broker did not confirm.
    pub(super) unconfirmed: usize,
    pub(super) takeovers: usize,
    pub(super) put_downs: usize,
    pub(super) adopted: usize,
    /// Final replies on the bus beyond the first to a message.
    pub(super) copies: usize,
    /// Messages with a reply that the store is unavailable.
    pub(super) unavailable: usize,
    pub(super) calls: usize,
    pub(super) not_executed: usize,
    /// Numbers of the calls that were not executed, by error code.
    pub(super) refusals: BTreeMap<String, usize>,
    pub(super) unknown: usize,
    /// Stopped between their start and their side effect.
    pub(super) stopped_early: usize,
    pub(super) model_requests: usize,
    /// Longest time between two replies.
    pub(super) silence: Duration,
}

/// Checks all promises.
pub(super) fn check(observations: &Observations) -> (Counts, Vec<Violation>) {
    let mut checker = Checker { observations, counts: Counts::default(), violations: Vec::new() };
    for record in &observations.turns {
        checker.check_message(record);
    }
    for (session, conversation) in &observations.conversations {
        for problem in &conversation.problems {
            checker.violate("wrong log", Some(session), problem.clone());
        }
        for turn in &conversation.turns {
            checker.check_turn(session, turn);
        }
    }
    checker.check_lines();
    checker.check_rest();
    checker.counts.model_requests = observations.model.requests;
    (checker.counts, checker.violations)
}

struct Checker<'a> {
    observations: &'a Observations,
    counts: Counts,
    violations: Vec<Violation>,
}

impl Checker<'_> {
    fn violate(&mut self, kind: &'static str, session: Option<&str>, text: impl Into<String>) {
        let (session, text) = (session.map(str::to_owned), text.into());
        self.violations.push(Violation { kind, subject: session, text });
    }

    /// Checks that a message was recorded once, and what its sender read.
    fn check_message(&mut self, record: &TurnRecord) {
        self.counts.adopted += record.adopted;
        self.counts.silence = self.counts.silence.max(record.silence);
        let session = record.session.as_str();
        let Some(id) = &record.id else {
            self.counts.unconfirmed += 1;
            return;
        };
        self.counts.turns += 1;
        let conversation = self.observations.conversations.get(session);
        let turns = conversation.map_or(&[][..], |conversation| conversation.turns.as_slice());
        let recorded: Vec<_> = turns.iter().filter(|turn| turn.id == id.as_str()).collect();
        if record.is_expired && record.answer.is_none() && recorded.is_empty() {
            self.counts.expired += 1;
            return;
        }
        let Some(answer) = &record.answer else {
            let errors = record.errors.join("; ");
            let text = format!("message {id}, recorded {} times: {errors}", recorded.len());
            return self.violate("no answer", Some(session), text);
        };
        match answer.outcome {
            TurnOutcome::Completed if answer.text == record.plan.answer() => {
                self.counts.completed += 1;
            }
            TurnOutcome::Completed => {
                let text = format!("message {id}: {:?}", answer.text);
                self.violate("answer of another message", Some(session), text);
            }
            _ => self.counts.not_completed += 1,
        }
        if recorded.len() > 1 {
            let text = format!("message {id}: {} times", recorded.len());
            self.violate("recorded twice", Some(session), text);
        }
        let was_run = matches!(answer.outcome, TurnOutcome::Completed);
        let is_recorded =
            recorded.iter().any(|turn| turn.answers.iter().any(|(_, text)| *text == answer.text));
        if was_run && !is_recorded {
            let text = format!("message {id}: {:?}", answer.text);
            self.violate("answer not recorded", Some(session), text);
        }
        let copies = self.observations.answers.get(id.as_str()).map_or(&[][..], Vec::as_slice);
        self.counts.copies += copies.len().saturating_sub(1);
        let (notices, copies): (Vec<_>, Vec<_>) =
            copies.iter().partition(|copy| copy.starts_with(UNAVAILABLE));
        self.counts.unavailable += usize::from(!notices.is_empty());
        if !notices.is_empty() && !recorded.is_empty() {
            let text = format!("message {id}");
            self.violate("recorded, and reported as not processed", Some(session), text);
        }
        if copies.iter().any(|copy| *copy != copies[0]) {
            self.violate("different answers", Some(session), format!("message {id}: {copies:?}"));
        }
    }

    /// Checks a recorded turn and the outcomes of its calls.
    fn check_turn(&mut self, session: &str, turn: &RecordedTurn) {
        self.counts.takeovers += turn.takeovers;
        self.counts.put_downs += turn.put_downs;
        if turn.answers.is_empty() {
            self.violate("unfinished turn", Some(session), format!("message {}", turn.id));
        }
        for call in &turn.calls {
            self.counts.calls += 1;
            match call.results.as_slice() {
                [_] => self.check_call(session, turn, call),
                results => {
                    let text = format!("{} {}: {results:?}", call.id, call.call);
                    self.violate("not one result", Some(session), text);
                }
            }
        }
    }

    fn check_call(&mut self, session: &str, turn: &RecordedTurn, call: &RecordedCall) {
        let result = &call.results[0];
        let lines = self.observations.lines.get(&call.id).map_or(&[][..], Vec::as_slice);
        let text = format!("{} {}: {:?} {}", call.id, call.call, result.error, result.text);
        match result.executed.as_str() {
            "no" => {
                self.counts.not_executed += 1;
                let code = result.error.clone().unwrap_or_default();
                *self.counts.refusals.entry(code).or_default() += 1;
            }
            "unknown" => self.counts.unknown += 1,
            _ => {}
        }
        if call.tool != "bash" {
            return;
        }
        let is_stopped = matches!(result.error.as_deref(), Some("timeout" | "cancelled"));
        match result.executed.as_str() {
            "no" if !lines.is_empty() => self.violate("ran, executed: no", Some(session), text),
            "yes" if lines.is_empty() && is_stopped => self.counts.stopped_early += 1,
            "yes" if lines.is_empty() => {
                self.violate("did not run, executed: yes", Some(session), text);
            }
            // The answer says that these calls may have run.
            "unknown" if turn.is_given_up() => {}
            "unknown" if !is_explained(call, lines, &self.observations.signals) => {
                self.violate("unexplained unknown", Some(session), text);
            }
            _ => {}
        }
    }

    /// Checks that each line belongs to one recorded call, and each call has one line.
    fn check_lines(&mut self) {
        let mut sessions = BTreeMap::new();
        for (session, conversation) in &self.observations.conversations {
            for call in conversation.turns.iter().flat_map(|turn| &turn.calls) {
                if let Some(other) = sessions.insert(call.id.as_str(), session.as_str()) {
                    let text = format!("{} also in session {other}", call.id);
                    self.violate("requested twice", Some(session), text);
                }
            }
        }
        for (id, lines) in &self.observations.lines {
            let session = sessions.get(id.as_str()).copied();
            if session.is_none() {
                self.violate("ran unrecorded", None, id.clone());
            }
            if lines.len() > 1 {
                self.violate("ran twice", session, format!("{id}: {lines:?}"));
            }
        }
    }

    fn check_rest(&mut self) {
        for (call, problem) in &self.observations.model.problems {
            self.violate("wrong history", None, format!("model call {call}: {problem}"));
        }
        for text in &self.observations.leftovers {
            self.violate("left over", None, text.clone());
        }
        for text in &self.observations.process_problems {
            self.violate("process exit", None, text.clone());
        }
    }
}

#[cfg(test)]
mod tests;
