//! What an operator should know at once, and how bad it is.

use rockbot_bus::Look;
use rockbot_contracts::{QueueSpec, topology::tool_invoke};
use rockbot_service::exit;

use super::Examination;
use crate::{ending::Failure, show};

/// Something that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) severity: Severity,
    pub(super) message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Severity {
    /// Worth a look; the fleet works.
    Warning,
    /// Something does not do what it should.
    Suspicious,
    /// The fleet can't be used.
    Unusable,
}

impl Severity {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Warning => "warning",
            Self::Suspicious => "suspicious",
            Self::Unusable => "unusable",
        }
    }
}

impl Finding {
    fn new(severity: Severity, message: String) -> Self {
        Self { severity, message }
    }

    pub(super) fn is_warning(&self) -> bool {
        self.severity == Severity::Warning
    }
}

/// What is wrong with a fleet.
pub(super) fn findings(examination: &Examination) -> Vec<Finding> {
    let Examination { queues, handlers, round_trip, scripts, .. } = examination;
    let mut findings = Vec::new();
    let mut find = |severity, message| findings.push(Finding::new(severity, message));
    if handlers.is_empty() {
        let message = "no handler announced itself; start rockbot-tool-handler on this bus";
        find(Severity::Unusable, message.to_owned());
    }
    let invoke = QueueSpec::work(&tool_invoke()).name;
    let mut hidden = Vec::new();
    for queue in queues {
        let name = &queue.name;
        if queue.look == Look::Refused {
            hidden.push(name.to_string());
        }
        if queue.dead_letters == Look::Refused {
            hidden.push(name.dead_letters().to_string());
        }
        let depth = queue.look.depth();
        let (ready, consumers) =
            depth.map_or((0, 0), |depth| (depth.ready as usize, depth.consumers as usize));
        if ready > 0 && consumers == 0 {
            let waiting = show::count(ready, "message");
            find(Severity::Suspicious, format!("{waiting} in {name}, and nobody consumes it"));
        }
        let is_known = queue.look != Look::Refused;
        if is_known && *name == invoke && consumers != handlers.len() && !handlers.is_empty() {
            let consumers = show::count(consumers, "consumer");
            let handlers = show::count(handlers.len(), "handler");
            let message = format!("{name} has {consumers}, and {handlers} announced themselves");
            find(Severity::Suspicious, message);
        }
        let letters = queue.dead_letters.depth().map_or(0, |depth| depth.ready as usize);
        if letters > 0 {
            let letters = show::count(letters, "dead letter");
            let message = format!("{letters} of {name}; `rockbot dlq show {name}` shows them");
            find(Severity::Warning, message);
        }
    }
    if !hidden.is_empty() {
        let hidden = hidden.join(", ");
        let message = format!(
            "the broker does not let this user look at {hidden}: what waits there is not known"
        );
        find(Severity::Warning, message);
    }
    let readers = round_trip.reply_depth.map_or(0, |depth| depth.consumers);
    if readers != 1 {
        let queue = &round_trip.reply_queue;
        let message = format!(
            "{queue} has {readers} consumers in place of one: answers go astray. Does another \
             process have the same service.instance?"
        );
        find(Severity::Suspicious, message);
    }
    match scripts {
        Some(Ok(isolation)) if !isolation.is_complete() => {
            let (by, missing) = (&isolation.by, isolation.missing.join(", "));
            let message = format!("scripts are isolated by {by}, and not kept from: {missing}");
            find(Severity::Warning, message);
        }
        Some(Err(problem)) => find(Severity::Warning, format!("scripts: {problem}")),
        Some(Ok(_)) | None => {}
    }
    findings
}

/// How the command ends: with the worst of what was found, warnings aside.
pub(super) fn verdict(findings: &[Finding]) -> Option<Failure> {
    let code = match findings.iter().map(|finding| finding.severity).max()? {
        Severity::Warning => return None,
        Severity::Suspicious => exit::ANSWERED_WITH_ERROR,
        Severity::Unusable => exit::UNAVAILABLE,
    };
    let bad = findings.iter().filter(|finding| !finding.is_warning());
    let messages: Vec<_> = bad.map(|finding| finding.message.as_str()).collect();
    Some(Failure { code, cause: anyhow::anyhow!(messages.join("; ")) })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rockbot_bus::{BusReport, report::QueueDepth};
    use rockbot_scripts::Isolation;

    use super::{super::round_trip::RoundTrip, *};
    use crate::work_queues::WorkQueue;

    fn fleet(ready: u32, consumers: u32, dead_letters: u32, readers: u32) -> Examination {
        Examination {
            bus: BusReport { product: "a bus".to_owned(), address: None, queues: Vec::new() },
            queues: vec![WorkQueue {
                name: rockbot_contracts::QueueName::new("user.message.writer").unwrap(),
                look: Look::There(QueueDepth { ready, consumers }),
                dead_letters: Look::There(QueueDepth { ready: dead_letters, consumers: 0 }),
            }],
            handlers: Vec::new(),
            round_trip: RoundTrip {
                median: Duration::ZERO,
                reply_queue: "tool.result.doctor.1".to_owned(),
                reply_depth: Some(QueueDepth { ready: 0, consumers: readers }),
            },
            scripts: None,
        }
    }

    #[track_caller]
    fn check(examination: &Examination, expected: &[(Severity, &str)]) {
        let mut found = findings(examination);
        assert_eq!(found.remove(0).severity, Severity::Unusable, "no handler is there");
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (finding, (severity, words)) in found.iter().zip(expected) {
            assert_eq!(finding.severity, *severity, "{finding:?}");
            assert!(finding.message.contains(words), "{finding:?}");
        }
    }

    #[test]
    fn what_waits_for_nobody_and_answers_that_go_astray_are_suspicious() {
        check(&fleet(7, 1, 0, 1), &[]);
        check(&fleet(7, 0, 0, 1), &[(Severity::Suspicious, "7 messages in user.message.writer")]);
        check(&fleet(0, 0, 0, 2), &[(Severity::Suspicious, "2 consumers in place of one")]);
        check(&fleet(0, 0, 1, 1), &[(Severity::Warning, "1 dead letter of user.message.writer")]);
    }

    #[test]
    fn of_queues_that_may_not_be_looked_at_nothing_is_said_but_that() {
        let mut examination = fleet(0, 0, 0, 1);
        examination.queues[0].name = QueueSpec::work(&tool_invoke()).name;
        examination.queues[0].look = Look::Refused;
        examination.queues[0].dead_letters = Look::Refused;
        check(&examination, &[(Severity::Warning, "look at tool.invoke, tool.invoke.dlq:")]);
    }

    #[test]
    fn scripts_that_are_not_isolated_are_warned_of() {
        let isolation = Isolation { by: "landlock".to_owned(), missing: vec!["each other".into()] };
        let scripts = Some(Ok(isolation));
        let examination = Examination { scripts, ..fleet(0, 1, 0, 1) };
        check(&examination, &[(Severity::Warning, "not kept from: each other")]);
        let scripts = Some(Err("no Python".to_owned()));
        let examination = Examination { scripts, ..fleet(0, 1, 0, 1) };
        check(&examination, &[(Severity::Warning, "no Python")]);
    }

    #[test]
    fn the_worst_finding_decides_and_warnings_do_not() {
        let finding = |severity| Finding::new(severity, "so".to_owned());
        let code = |findings: &[Finding]| verdict(findings).map(|failure| failure.code);
        let (warning, suspicious) = (finding(Severity::Warning), finding(Severity::Suspicious));
        assert_eq!(code(&[]), None);
        assert_eq!(code(std::slice::from_ref(&warning)), None);
        assert_eq!(code(&[suspicious.clone(), warning]), Some(exit::ANSWERED_WITH_ERROR));
        let unusable = finding(Severity::Unusable);
        assert_eq!(code(&[unusable, suspicious]), Some(exit::UNAVAILABLE));
    }
}
