//! Faults that explain the outcome `unknown` of a call.

use std::time::Duration;

use super::recorded::RecordedCall;
use crate::chaos::{observer::Line, timeline::SentSignal};

/// Longest time that a handler stays stopped: it may have been stopped before the call.
const LONGEST_STOP: Duration = Duration::from_secs(8);
/// Time after the start of a service within which each client finds its lost connections.
const RECONNECT: Duration = Duration::from_secs(5);
/// Inaccuracy of the recorded times.
const TOLERANCE: Duration = Duration::from_millis(50);

/// Returns whether a fault explains the outcome `unknown`: one that affected the process that wrote the
/// line of the call, or any handler if there is no line; or an outage of a service. A fault of an agent
/// explains nothing, because the journal of the handlers knows the outcome.
pub(super) fn is_explained(call: &RecordedCall, lines: &[Line], signals: &[SentSignal]) -> bool {
    let ended = call.results.iter().map(|result| result.at).max().unwrap_or_default();
    signals.iter().enumerate().any(|(index, signal)| {
        let is_service = is_service(signal) && signal.signal != SentSignal::UP;
        let is_handler = signal.name.starts_with("handler")
            && (lines.is_empty() || lines.iter().any(|line| line.handler == signal.pid));
        let last = if is_service {
            end_of_outage(signal, &signals[index..])
        } else {
            signal.at + if signal.stops() { LONGEST_STOP } else { TOLERANCE }
        };
        let is_near = last >= call.requested && signal.at <= ended + TOLERANCE;
        is_near && (is_service || is_handler)
    })
}

fn is_service(signal: &SentSignal) -> bool {
    signal.name == "broker" || signal.name == "database"
}

/// Returns when the clients of a service that was killed have connected again.
fn end_of_outage(outage: &SentSignal, later: &[SentSignal]) -> Duration {
    let is_end =
        |signal: &&SentSignal| signal.name == outage.name && signal.signal == SentSignal::UP;
    later.iter().find(is_end).map_or(Duration::MAX, |end| end.at + RECONNECT)
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
        let outage = |from, until| {
            [signal(from, "database", "SIGKILL"), signal(until, "database", SentSignal::UP)]
        };
        assert!(is_explained(&call, &lines("8"), &outage(11, 12)));
        assert!(is_explained(&call, &lines("8"), &outage(3, 6)));
        assert!(!is_explained(&call, &lines("8"), &outage(2, 4)));
        assert!(!is_explained(&call, &lines("8"), &outage(13, 14)));
    }
}
