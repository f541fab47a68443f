//! Findings about the health of a fleet, with their severity.

use std::collections::BTreeMap;

use rockbot_contracts::{
    ScriptIsolation,
    mcp::{McpConnection, McpServerState},
};
use rockbot_monitor::findings::{self, Finding, FleetState, Severity};
use rockbot_service::exit;
use rockbot_tool_rpc::mcp::McpServerReport;

use super::{
    diagnosis::{Diagnosis, Rejection, SplitAgent},
    message_limit::MessageLimit,
};
use crate::{failure::Failure, render};

/// Returns the findings about a fleet and about this process.
pub(super) fn findings(diagnosis: &Diagnosis) -> Vec<Finding> {
    let Diagnosis { queues, handlers, conflicts, rejection, operator, round_trip, .. } = diagnosis;
    let Diagnosis { servers, scripts, split_agents, message_limit, .. } = diagnosis;
    let has_bridge = servers.has_bridge;
    let state = FleetState { queues, handlers, conflicts, has_bridge, operator };
    let mut findings = findings::findings(state);
    findings.extend(servers.states.iter().filter_map(server_finding));
    let mut find = |severity, message| findings.push(Finding::new(severity, message));
    if let Some(Rejection { reason, user }) = rejection {
        let message = format!("{reason}: `rockbot --bus amqp://{user}:…@HOST/%2f doctor`");
        find(Severity::Unusable, message);
    }
    let readers = round_trip.reply_depth.map_or(0, |depth| depth.consumers);
    if readers != 1 {
        let queue = &round_trip.reply_queue;
        let message = format!(
            "{queue} has {readers} consumers instead of one: replies may be lost; give each process a \
             service.instance of its own, and find the consumers with \
             `rabbitmqctl list_consumers queue_name channel_pid`"
        );
        find(Severity::Suspicious, message);
    }
    if *message_limit == Some(MessageLimit::Accepted) {
        let message = "the broker accepts messages over 4 MiB, which a receiver rejects only when they are in its \
                       memory; set max_message_size = 4194304 in rabbitmq.conf, or the largest message of other \
                       programs on this broker, and restart it: \
                       `systemctl restart rabbitmq-server`";
        find(Severity::Warning, message.to_owned());
    }
    for SplitAgent { name, foreign } in split_agents {
        let others = render::count(*foreign as usize, "other");
        let message = format!(
            "processes of agent {name} have different conversations, which lose their context ({others} \
             beside the one that replied); give the others another agent.name, or run all of them with the same \
             agent.conversations.store: \
             `ROCKBOT_AGENT__NAME={name} ROCKBOT_AGENT__CONVERSATIONS__STORE=postgres://… rockbot-agent`"
        );
        find(Severity::Suspicious, message);
    }
    let isolations = handlers.iter().filter_map(|handler| {
        handler.script_isolation.as_ref().map(|isolation| (handler.name(), isolation))
    });
    for message in script_gaps(isolations) {
        find(Severity::Warning, message);
    }
    match scripts {
        Some(Ok(isolation)) if !isolation.is_complete() => {
            let (by, missing) = (&isolation.mechanism, isolation.gaps.join(", "));
            let remedy = script_remedy(by, "rockbot up");
            let message =
                format!("scripts are isolated by {by}, but not from: {missing}; {remedy}");
            find(Severity::Warning, message);
        }
        Some(Err(error)) => {
            let message = format!(
                "scripts: {error}; correct this, or switch scripts off with \
                 `ROCKBOT_SCRIPTS__RUNNER=off rockbot up`"
            );
            find(Severity::Warning, message);
        }
        Some(Ok(_)) | None => {}
    }
    findings
}

/// Returns a warning for each kind of incomplete isolation of scripts, with its only handler or their number.
fn script_gaps<'a>(
    isolations: impl IntoIterator<Item = (String, &'a ScriptIsolation)>,
) -> Vec<String> {
    let mut kinds: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (handler, ScriptIsolation { mechanism, gaps }) in isolations {
        if !gaps.is_empty() {
            kinds.entry((mechanism, gaps)).or_default().push(handler);
        }
    }
    let warnings = kinds.into_iter().map(|((mechanism, gaps), handlers)| {
        let owners = match handlers.as_slice() {
            [handler] => handler.clone(),
            handlers => render::count(handlers.len(), "handler"),
        };
        let missing = gaps.join(", ");
        let remedy = script_remedy(mechanism, "rockbot-tool-handler");
        let message = format!(
            "scripts of {owners} are isolated by {mechanism}, but not from: {missing}; {remedy}"
        );
        render::clean(&message)
    });
    warnings.collect()
}

/// Returns the remedy for scripts that `mechanism` isolates incompletely, in processes that `command` starts.
fn script_remedy(mechanism: &str, command: &str) -> String {
    if mechanism.starts_with("docker") {
        return "let the Docker daemon limit these; see its warnings with `docker info`".to_owned();
    }
    format!("run them in containers with `ROCKBOT_SCRIPTS__RUNNER=docker {command}`")
}

/// Returns the finding about an MCP server whose tools cannot be called.
fn server_finding(report: &McpServerReport) -> Option<Finding> {
    let McpServerState { name, connection, reason, required, .. } = &report.state;
    let state = match connection {
        McpConnection::Failed => "is not connected",
        McpConnection::Invalid => "has an invalid configuration",
        _ => return None,
    };
    let severity = if *required { Severity::Suspicious } else { Severity::Warning };
    let kind = if *required { "required MCP server" } else { "MCP server" };
    let bridge = report.bridge.as_ref().map(|bridge| format!(" at {bridge}")).unwrap_or_default();
    let reason = reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    let finding = format!("{kind} {name} {state}{bridge}{reason}");
    let message = format!(
        "{}; on the bridge's machine, try it with `rockbot mcp check FILE`",
        render::clean(&finding)
    );
    Some(Finding::new(severity, message))
}

/// Returns the failure of the command: its exit code is that of the worst finding. Warnings do not
/// fail it.
pub(super) fn verdict(findings: &[Finding]) -> Option<Failure> {
    let code = match findings.iter().map(|finding| finding.severity).max()? {
        Severity::Warning => return None,
        Severity::Suspicious => exit::ANSWERED_WITH_ERROR,
        Severity::Unusable => exit::UNAVAILABLE,
    };
    let failed = findings.iter().filter(|finding| !finding.is_warning());
    let messages: Vec<_> = failed.map(|finding| finding.message.as_str()).collect();
    Some(Failure { code, cause: anyhow::anyhow!(messages.join("; ")) })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rockbot_bus::{BusReport, QueueState, report::QueueDepth};
    use rockbot_contracts::{QueueSpec, topology::tool_invoke};
    use rockbot_monitor::WorkQueue;
    use rockbot_scripts::Isolation;

    use super::{
        super::{diagnosis::KnownServers, round_trip::RoundTrip},
        *,
    };

    fn fleet(ready: u32, consumers: u32, dead_letters: u32, readers: u32) -> Diagnosis {
        Diagnosis {
            bus: BusReport { product: "a bus".to_owned(), address: None, queues: Vec::new() },
            queues: vec![WorkQueue {
                name: rockbot_contracts::QueueName::new("user.message.writer").unwrap(),
                state: QueueState::Present(QueueDepth { ready, consumers }),
                dead_letters: QueueState::Present(QueueDepth { ready: dead_letters, consumers: 0 }),
            }],
            handlers: Vec::new(),
            conflicts: Vec::new(),
            servers: KnownServers::default(),
            rejection: None,
            operator: "rockbot.operator".to_owned(),
            round_trip: RoundTrip {
                median: Duration::ZERO,
                reply_queue: "tool.result.doctor.1".to_owned(),
                reply_depth: Some(QueueDepth { ready: 0, consumers: readers }),
            },
            scripts: None,
            split_agents: Vec::new(),
            message_limit: None,
        }
    }

    #[track_caller]
    fn check(diagnosis: &Diagnosis, expected: &[(Severity, &str)]) {
        let mut found = findings(diagnosis);
        assert_eq!(found.remove(0).severity, Severity::Unusable, "no handler is available");
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (finding, (severity, text)) in found.iter().zip(expected) {
            assert_eq!(finding.severity, *severity, "{finding:?}");
            assert!(finding.message.contains(text), "{finding:?}");
        }
    }

    #[test]
    fn unconsumed_messages_and_shared_reply_queue_are_suspicious() {
        check(&fleet(7, 1, 0, 1), &[]);
        // Replicas of an agent share its conversations.
        check(&fleet(7, 3, 0, 1), &[]);
        check(&fleet(7, 0, 0, 1), &[(Severity::Suspicious, "7 messages in user.message.writer")]);
        check(&fleet(0, 1, 0, 2), &[(Severity::Suspicious, "2 consumers instead of one")]);
        check(&fleet(0, 0, 0, 1), &[(Severity::Warning, "its agent is not running")]);
        check(&fleet(0, 1, 1, 1), &[(Severity::Warning, "1 dead letter of user.message.writer")]);
    }

    #[test]
    fn processes_with_other_conversations_are_suspicious() {
        let name = rockbot_contracts::AgentName::new("writer").unwrap();
        let split_agents = vec![SplitAgent { name, foreign: 1 }];
        let diagnosis = Diagnosis { split_agents, ..fleet(0, 3, 0, 1) };
        let text = "processes of agent writer have different conversations, which lose their context (1 other";
        check(&diagnosis, &[(Severity::Suspicious, text)]);
    }

    #[test]
    fn broker_without_a_message_limit_is_a_warning() {
        let with = |limit| Diagnosis { message_limit: Some(limit), ..fleet(0, 1, 0, 1) };
        let accepted = with(MessageLimit::Accepted);
        check(&accepted, &[(Severity::Warning, "set max_message_size = 4194304")]);
        check(&accepted, &[(Severity::Warning, "or the largest message of other programs")]);
        check(&with(MessageLimit::Refused), &[]);
        check(&with(MessageLimit::Unknown("no permission".to_owned())), &[]);
    }

    #[test]
    fn script_gaps_are_grouped_by_isolation() {
        let isolation = |mechanism: &str, gaps: &[&str]| ScriptIsolation {
            mechanism: mechanism.to_owned(),
            gaps: gaps.iter().map(|gap| (*gap).to_owned()).collect(),
        };
        let isolations = [
            ("h/1", isolation("landlock", &["the network", "each other"])),
            ("h/2", isolation("landlock", &["the network"])),
            ("h/3", isolation("landlock", &["the network", "each other"])),
            ("h/4", isolation("bubblewrap", &[])),
            ("h/5", isolation("limits only\u{1b}[31m", &["the network"])),
        ];
        let isolations = isolations.iter().map(|(name, isolation)| ((*name).to_owned(), isolation));
        assert_eq!(
            script_gaps(isolations),
            [
                "scripts of h/2 are isolated by landlock, but not from: the network",
                "scripts of 2 handlers are isolated by landlock, but not from: the network, each other",
                "scripts of h/5 are isolated by limits only, but not from: the network",
            ]
            .map(|gaps| format!("{gaps}; {}", script_remedy("landlock", "rockbot-tool-handler")))
        );
    }

    #[test]
    fn hidden_queues_yield_one_warning() {
        let mut diagnosis = fleet(0, 1, 0, 1);
        diagnosis.queues[0].name = QueueSpec::work(&tool_invoke()).name;
        diagnosis.queues[0].state = QueueState::Refused;
        diagnosis.queues[0].dead_letters = QueueState::Refused;
        check(&diagnosis, &[(Severity::Warning, "inspect tool.invoke, tool.invoke.dlq;")]);
        check(&diagnosis, &[(Severity::Warning, "use the broker user rockbot.operator")]);
    }

    #[test]
    fn rejected_user_makes_the_fleet_unusable() {
        let rejection = Some(Rejection {
            reason: "no calls of user guest; use the broker user rockbot.cli".to_owned(),
            user: "rockbot.cli".to_owned(),
        });
        let diagnosis = Diagnosis { rejection, ..fleet(0, 1, 0, 1) };
        check(&diagnosis, &[(Severity::Unusable, "no calls of user guest")]);
    }

    #[test]
    fn incomplete_script_isolation_is_a_warning() {
        let isolation =
            Isolation { mechanism: "landlock".to_owned(), gaps: vec!["each other".into()] };
        let scripts = Some(Ok(isolation));
        let diagnosis = Diagnosis { scripts, ..fleet(0, 1, 0, 1) };
        check(&diagnosis, &[(Severity::Warning, "not from: each other")]);
        let scripts = Some(Err("no Python".to_owned()));
        let diagnosis = Diagnosis { scripts, ..fleet(0, 1, 0, 1) };
        check(&diagnosis, &[(Severity::Warning, "no Python")]);
    }

    #[test]
    fn fleet_of_bridges_is_usable() {
        let servers = KnownServers { has_bridge: true, ..KnownServers::default() };
        let found = findings(&Diagnosis { servers, ..fleet(0, 1, 0, 1) });
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].is_warning() && found[0].message.contains("no tool handler"), "{found:?}");
        assert!(verdict(&found).is_none());
    }

    #[test]
    fn missing_servers_are_found() {
        let report = |connection, required| McpServerReport {
            bridge: rockbot_contracts::InstanceId::new("b-1").ok(),
            state: McpServerState {
                name: "git".to_owned(),
                connection,
                reason: Some("no such program".to_owned()),
                required,
                ..McpServerState::default()
            },
        };
        let failed = server_finding(&report(McpConnection::Failed, false)).unwrap();
        assert_eq!(failed.severity, Severity::Warning);
        assert_eq!(
            failed.message,
            "MCP server git is not connected at b-1: no such program; on the bridge's machine, try it with `rockbot mcp check FILE`"
        );
        let invalid = server_finding(&report(McpConnection::Invalid, true)).unwrap();
        assert_eq!(invalid.severity, Severity::Suspicious);
        for usable in
            [McpConnection::Connected, McpConnection::Connecting, McpConnection::OwnedElsewhere]
        {
            assert_eq!(server_finding(&report(usable, true)), None);
        }
    }

    #[test]
    fn worst_finding_determines_exit_code() {
        let finding = |severity| Finding::new(severity, "a message".to_owned());
        let code = |findings: &[Finding]| verdict(findings).map(|failure| failure.code);
        let (warning, suspicious) = (finding(Severity::Warning), finding(Severity::Suspicious));
        assert_eq!(code(&[]), None);
        assert_eq!(code(std::slice::from_ref(&warning)), None);
        assert_eq!(code(&[suspicious.clone(), warning]), Some(exit::ANSWERED_WITH_ERROR));
        let unusable = finding(Severity::Unusable);
        assert_eq!(code(&[unusable, suspicious]), Some(exit::UNAVAILABLE));
    }
}
