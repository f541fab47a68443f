//! Faults that explain the outcome `unknown` of a call.

use std::time::Duration;

use super::recorded::RecordedCall;
use crate::chaos::{observer::Line, timeline::SentSignal};

/// Longest time that a handler stays stopped: it may have been stopped before the call.
const LONGEST_STOP: Duration = Duration::from_secs(8);
/// Inaccuracy of the recorded times.
const TOLERANCE: Duration = Duration::from_millis(50);

/// Returns whether a fault explains the outcome `unknown`: one that affected the process that wrote the
/// line of the call, or any handler if there is no line; or a service. A fault of an agent explains
/// nothing, because the journal of the handlers knows the outcome.
pub(super) fn is_explained(call: &RecordedCall, lines: &[Line], signals: &[SentSignal]) -> bool {
    let ended = call.results.iter().map(|result| result.at).max().unwrap_or_default();
    signals.iter().any(|signal| {
        let before = if signal.stops() { LONGEST_STOP } else { TOLERANCE };
        let is_near = signal.at + before >= call.requested && signal.at <= ended + TOLERANCE;
        let is_service = signal.name == "broker" || signal.name == "database";
        let is_handler = signal.name.starts_with("handler")
            && (lines.is_empty() || lines.iter().any(|line| line.handler == signal.pid));
        is_near && (is_service || is_handler)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chaos::turns::recorded::RecordedResult;

    #[test]
    fn only_fault_of_the_call_explains() {
        let seconds = Duration::from_secs;
        let result = RecordedResult { at: seconds(12), ..RecordedResult::default() };
        let call = RecordedCall {
            requested: seconds(10),
            results: vec![result],
            ..RecordedCall::default()
        };
        let signal = |at, name: &str, signal: &str| SentSignal {
            at: seconds(at),
            name: name.to_owned(),
            pid: "7".to_owned(),
            signal: signal.to_owned(),
        };
        let lines = |pid: &str| [Line { at: seconds(11), handler: pid.to_owned() }];
        let killed = [signal(11, "handler-1", "SIGKILL")];
        assert!(is_explained(&call, &[], &killed));
        assert!(is_explained(&call, &lines("7"), &killed));
        assert!(!is_explained(&call, &lines("8"), &killed));
        assert!(!is_explained(&call, &[], &[signal(11, "agent-1", "SIGKILL")]));
        assert!(!is_explained(&call, &[], &[signal(8, "handler-1", "SIGKILL")]));
        assert!(is_explained(&call, &[], &[signal(8, "handler-1", "SIGSTOP")]));
        assert!(!is_explained(&call, &[], &[signal(13, "handler-1", "SIGSTOP")]));
        assert!(is_explained(&call, &lines("8"), &[signal(11, "database", "SIGKILL")]));
    }
}
