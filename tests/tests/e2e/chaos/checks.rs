//! The promises of a call, checked against what was observed.

use std::collections::BTreeMap;

use rockbot_contracts::{Executed, topology::DELIVERED_TOO_OFTEN};

use super::{
    load::{CallEnd, CallRecord, GRACE},
    observer::{Line, Reply, RunningEntry},
    violation::Violation,
};

/// Everything that was observed in a run.
#[derive(Default)]
pub(super) struct Observations {
    pub(super) calls: Vec<CallRecord>,
    pub(super) lines: BTreeMap<String, Vec<Line>>,
    pub(super) replies: BTreeMap<String, Vec<Reply>>,
    /// Calls among the dead letters, with the reason.
    pub(super) dead_letters: Vec<(String, String)>,
    /// Calls that run, according to the journal.
    pub(super) running: Vec<RunningEntry>,
    /// Messages, processes and requests that were left.
    pub(super) leftovers: Vec<String>,
    /// Exits and panics of handlers.
    pub(super) handler_problems: Vec<String>,
}

/// Numbers of calls by their outcome.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) calls: usize,
    pub(super) succeeded: usize,
    /// Failed with `executed: yes`.
    pub(super) failed: usize,
    pub(super) not_executed: usize,
    pub(super) unknown: usize,
    /// Calls of callers that did not wait.
    pub(super) abandoned: usize,
    /// Stopped between their start and their side effect.
    pub(super) stopped_early: usize,
    /// Copies of a reply.
    pub(super) duplicates: usize,
    /// Calls with the reply `unknown` and another one.
    pub(super) revised: usize,
    /// Calls whose outcome is `unknown` although another reply followed within a second.
    pub(super) overtaken: usize,
    /// Dead letters of calls without a reply.
    pub(super) dead_letters: usize,
    /// Calls that the journal has as started by a handler that died.
    pub(super) interrupted: usize,
}

/// Time after an outcome `unknown` within which another reply shows that it came too early.
const OVERTAKEN_WITHIN: std::time::Duration = std::time::Duration::from_secs(1);

/// Checks all promises.
pub(super) fn check(observations: &Observations) -> (Counts, Vec<Violation>) {
    let mut counts = Counts::default();
    let mut violations = Vec::new();
    for call in &observations.calls {
        let lines = observations.lines.get(&call.id).map_or(0, Vec::len);
        let replies = observations.replies.get(&call.id).map_or(&[][..], Vec::as_slice);
        count(&mut counts, call, replies);
        let mut violate = |kind, text| {
            violations.push(Violation { kind, subject: Some(call.id.clone()), text });
        };
        if lines > 1 {
            violate("ran twice", format!("{lines} lines"));
        }
        if call.expects_outcome() {
            match &call.end {
                None => violate("no outcome", format!("within its deadline and {GRACE:?}")),
                Some(end) => check_outcome(&mut counts, call, end, lines, &mut violate),
            }
        }
        if call.has_side_effect() {
            for reply in replies.iter().filter(|reply| reply.executed == "no" && lines > 0) {
                violate("reply denies execution", format!("{:?} of {}", reply.code, reply.source));
            }
        }
        check_replies(&mut counts, call, replies, &mut violate);
    }
    check_leftovers(observations, &mut counts, &mut violations);
    (counts, violations)
}

fn count(counts: &mut Counts, call: &CallRecord, replies: &[Reply]) {
    counts.calls += 1;
    match &call.end {
        _ if !call.expects_outcome() => counts.abandoned += 1,
        Some(CallEnd { code: None, .. }) => counts.succeeded += 1,
        Some(CallEnd { executed: Executed::Yes, .. }) => counts.failed += 1,
        Some(CallEnd { executed: Executed::No, .. }) => counts.not_executed += 1,
        Some(end) => {
            counts.unknown += 1;
            let followed = replies
                .iter()
                .any(|reply| reply.executed != "unknown" && reply.at < end.at + OVERTAKEN_WITHIN);
            counts.overtaken += usize::from(followed);
        }
        None => {}
    }
}

fn check_outcome(
    counts: &mut Counts,
    call: &CallRecord,
    end: &CallEnd,
    lines: usize,
    violate: &mut impl FnMut(&'static str, String),
) {
    let text = format!("{:?}: {}", end.code, end.text);
    if end.at > call.sent + call.timeout + GRACE {
        violate("late outcome", text.clone());
    }
    if !call.has_side_effect() {
        return;
    }
    match end.executed {
        Executed::No if lines > 0 => violate("ran, executed: no", text),
        // The shell had started and was stopped before its first command.
        Executed::Yes if lines == 0 && is_stopped(end) => counts.stopped_early += 1,
        Executed::Yes if lines == 0 => violate("did not run, executed: yes", text),
        Executed::Yes | Executed::No | Executed::Unknown => {}
    }
}

fn is_stopped(end: &CallEnd) -> bool {
    matches!(end.code.as_deref(), Some("timeout" | "cancelled"))
}

/// Checks that replies to one call are copies of each other. `unknown` says less than another reply and
/// does not contradict it.
fn check_replies(
    counts: &mut Counts,
    call: &CallRecord,
    replies: &[Reply],
    violate: &mut impl FnMut(&'static str, String),
) {
    let mut definite = replies.iter().filter(|reply| reply.executed != "unknown");
    let has_unknown = replies.iter().any(|reply| reply.executed == "unknown");
    let Some(first) = definite.next() else { return };
    counts.revised += usize::from(has_unknown);
    for other in definite {
        let is_copy = first.executed == other.executed && first.content == other.content;
        if is_copy {
            counts.duplicates += 1;
        } else if call.has_side_effect() {
            violate(
                "different replies",
                format!(
                    "{} {:?} of {} and {} {:?} of {}",
                    first.executed,
                    first.code,
                    first.source,
                    other.executed,
                    other.code,
                    other.source
                ),
            );
        }
    }
}

fn check_leftovers(
    observations: &Observations,
    counts: &mut Counts,
    violations: &mut Vec<Violation>,
) {
    for (call, reason) in &observations.dead_letters {
        // Faults can take all deliveries of a call after its reply.
        let used_up = reason == DELIVERED_TOO_OFTEN;
        if observations.replies.contains_key(call) && !used_up {
            let (call, text) = (Some(call.clone()), reason.clone());
            violations.push(Violation {
                kind: "dead letter of an answered call",
                subject: call,
                text,
            });
        } else {
            counts.dead_letters += 1;
        }
    }
    for RunningEntry { call, owner, owner_lives } in &observations.running {
        let replies = observations.replies.get(call).into_iter().flatten();
        let denied = replies.filter(|reply| reply.executed == "no").count() > 0;
        let text = match (owner_lives, denied) {
            (true, _) => format!("{owner} lives and does not run it"),
            (false, true) => format!("started by {owner}, and a reply denies it"),
            (false, false) => {
                counts.interrupted += 1;
                continue;
            }
        };
        let call = Some(call.clone());
        violations.push(Violation { kind: "left running in the journal", subject: call, text });
    }
    for text in &observations.leftovers {
        violations.push(Violation { kind: "left over", subject: None, text: text.clone() });
    }
    for text in &observations.handler_problems {
        violations.push(Violation { kind: "handler exit", subject: None, text: text.clone() });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::chaos::load::CALLER;

    const SENT: Duration = Duration::from_secs(10);

    fn call(executed: Executed, code: Option<&str>) -> CallRecord {
        CallRecord {
            id: "call".to_owned(),
            tool: "bash",
            caller: CALLER.to_owned(),
            sent: SENT,
            timeout: Duration::from_secs(5),
            cancelled: None,
            end: Some(CallEnd {
                at: SENT + Duration::from_secs(1),
                executed,
                code: code.map(str::to_owned),
                text: String::new(),
            }),
        }
    }

    fn reply(executed: &str, code: Option<&str>) -> Reply {
        Reply {
            at: SENT,
            source: "tool-handler/handler-1".to_owned(),
            executed: executed.to_owned(),
            code: code.map(str::to_owned),
            content: format!("{executed} {code:?}"),
        }
    }

    fn kinds(call: CallRecord, lines: usize, replies: Vec<Reply>) -> Vec<&'static str> {
        let line = Line { at: SENT, handler: "1".to_owned() };
        let id = call.id.clone();
        let observations = Observations {
            calls: vec![call],
            lines: BTreeMap::from([(id.clone(), vec![line; lines])]),
            replies: BTreeMap::from([(id, replies)]),
            ..Observations::default()
        };
        check(&observations).1.into_iter().map(|violation| violation.kind).collect()
    }

    #[test]
    fn kept_promises_are_no_violation() {
        let none: Vec<&str> = Vec::new();
        assert_eq!(kinds(call(Executed::Yes, None), 1, vec![reply("yes", None); 2]), none);
        assert_eq!(kinds(call(Executed::No, Some("timeout")), 0, Vec::new()), none);
        for lines in [0, 1] {
            assert_eq!(kinds(call(Executed::Unknown, Some("timeout")), lines, Vec::new()), none);
        }
        let revised = vec![reply("unknown", Some("outcome_unknown")), reply("yes", None)];
        assert_eq!(kinds(call(Executed::Unknown, Some("outcome_unknown")), 1, revised), none);
    }

    #[test]
    fn false_outcomes_are_violations() {
        let ran_twice = kinds(call(Executed::Yes, None), 2, Vec::new());
        assert_eq!(ran_twice, ["ran twice"]);
        let denied = vec![reply("no", Some("timeout"))];
        let ran = kinds(call(Executed::No, Some("timeout")), 1, denied);
        assert_eq!(ran, ["ran, executed: no", "reply denies execution"]);
        assert_eq!(kinds(call(Executed::Yes, None), 0, Vec::new()), ["did not run, executed: yes"]);
        let missing = CallRecord { end: None, ..call(Executed::Yes, None) };
        assert_eq!(kinds(missing, 1, Vec::new()), ["no outcome"]);
        let contradiction = vec![reply("yes", None), reply("yes", Some("cancelled"))];
        assert_eq!(kinds(call(Executed::Yes, None), 1, contradiction), ["different replies"]);
    }
}
