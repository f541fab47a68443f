//! Findings about the health of a fleet, with their severity.

use rockbot_bus::QueueState;
use rockbot_contracts::{
    HandlerPool, QueueName,
    topology::{mcp_manage, script_invoke, tool_invoke_mcp},
};
use rockbot_tool_rpc::catalog::{KnownHandler, PoolConflict, mismatched_tools};

use crate::{
    mismatch::{describe_conflicts, describe_mismatched},
    queues::{WorkQueue, consuming_agent, inbox_agent, requests_key},
    wording::{count, handler_command},
};

/// A problem of the fleet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Its severity.
    pub severity: Severity,
    /// The problem and its remedy, which ends with a command in backticks. Parts of it come from the fleet and are
    /// untrusted.
    pub message: String,
}

/// Severity of a finding, in ascending order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The fleet works; an operator should have a look.
    Warning,
    /// A part of the fleet does not work as expected.
    Suspicious,
    /// The fleet cannot be used.
    Unusable,
}

impl Severity {
    /// Returns the name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Warning => "warning",
            Self::Suspicious => "suspicious",
            Self::Unusable => "unusable",
        }
    }
}

impl Finding {
    /// Creates a finding.
    #[must_use]
    pub fn new(severity: Severity, message: String) -> Self {
        Self { severity, message }
    }

    /// Returns whether the fleet works as expected in spite of it.
    #[must_use]
    pub fn is_warning(&self) -> bool {
        self.severity == Severity::Warning
    }
}

/// The observed state of a fleet.
#[derive(Debug, Clone, Copy)]
pub struct FleetState<'a> {
    /// Its work queues.
    pub queues: &'a [WorkQueue],
    /// Its handlers.
    pub handlers: &'a [KnownHandler],
    /// Tool names that several pools announce.
    pub conflicts: &'a [PoolConflict],
    /// Set when a bridge runs. A fleet may have the tools of MCP servers only.
    pub has_bridge: bool,
    /// The broker user that may inspect every queue but the quarantine queues.
    pub operator: &'a str,
}

/// Returns the findings about a fleet.
#[must_use]
pub fn findings(fleet: FleetState<'_>) -> Vec<Finding> {
    let FleetState { queues, handlers, conflicts, has_bridge, operator } = fleet;
    let mut findings = Vec::new();
    let mut find = |severity, message| findings.push(Finding::new(severity, message));
    if handlers.is_empty() {
        let message =
            "no tool handler is available; start one on this bus with `rockbot-tool-handler`";
        let severity = if has_bridge { Severity::Warning } else { Severity::Unusable };
        find(severity, message.to_owned());
    }
    let hidden = hidden_queues(queues);
    for queue in queues {
        for finding in queue_findings(queue, handlers) {
            find(finding.severity, finding.message);
        }
    }
    let mismatched = mismatched_tools(handlers);
    if !mismatched.is_empty() {
        find(Severity::Suspicious, describe_mismatched(&mismatched));
    }
    if !conflicts.is_empty() {
        find(Severity::Suspicious, describe_conflicts(conflicts));
    }
    for handler in handlers {
        if let Some(difference) = clock_difference(handler.clock_ahead_seconds) {
            let name = handler.name();
            let message = format!(
                "the clock of {name} is {difference}; synchronize all clocks, on each machine with \
                 `timedatectl set-ntp true`"
            );
            find(Severity::Warning, message);
        }
    }
    if !hidden.is_empty() {
        let hidden = hidden.join(", ");
        let message = format!(
            "this user may not inspect {hidden}; their messages and consumers are unknown; use the \
             broker user {operator}, which may inspect all but the quarantine queues: \
             `rockbot --bus amqp://{operator}:…@HOST/%2f doctor`"
        );
        find(Severity::Warning, message);
    }
    findings
}

/// Returns the names of the queues that this user may not inspect.
fn hidden_queues(queues: &[WorkQueue]) -> Vec<String> {
    let names = queues.iter().flat_map(|queue| {
        let own = (queue.state == QueueState::Refused).then(|| queue.name.to_string());
        let is_hidden = queue.dead_letters == QueueState::Refused;
        let dead_letters = is_hidden.then(|| queue.name.dead_letters().to_string());
        own.into_iter().chain(dead_letters)
    });
    names.collect()
}

/// Returns the findings about one queue.
fn queue_findings(queue: &WorkQueue, handlers: &[KnownHandler]) -> Vec<Finding> {
    let name = &queue.name;
    let mut findings = Vec::new();
    let depth = queue.state.depth();
    let (ready, consumers) =
        depth.map_or((0, 0), |depth| (depth.ready as usize, depth.consumers as usize));
    if ready > 0 && consumers == 0 {
        let waiting = count(ready, "message");
        let remedy = remedy(queue);
        let message = format!("{waiting} in {name}, but it has no consumer; {remedy}");
        findings.push(Finding::new(Severity::Suspicious, message));
    }
    if depth.is_some() && consumers == 0 && inbox_agent(name).is_some() && ready == 0 {
        let remedy = remedy(queue);
        let message = format!("{name} has no consumer: its agent is not running; {remedy}");
        findings.push(Finding::new(Severity::Warning, message));
    }
    findings.extend(handlers_finding(queue, handlers));
    let letters = queue.dead_letters.depth().map_or(0, |depth| depth.ready as usize);
    if letters > 0 {
        let letters = count(letters, "dead letter");
        let message = format!("{letters} of {name}; inspect with `rockbot dlq show {name}`");
        findings.push(Finding::new(Severity::Warning, message));
    }
    findings
}

/// Returns the command that starts a consumer of a queue.
fn remedy(queue: &WorkQueue) -> String {
    let name = &queue.name;
    if let Some(agent) = consuming_agent(name) {
        return format!("start it with `ROCKBOT_AGENT__NAME={agent} rockbot-agent`");
    }
    match service_command(name) {
        Some(command) => format!("start one with `{command}`"),
        None => {
            format!("start the service that consumes it, then look with `rockbot dlq show {name}`")
        }
    }
}

/// Returns the command that starts the service which consumes a queue of requests, or their quarantine queue.
fn service_command(name: &QueueName) -> Option<String> {
    let key = requests_key(name)?;
    if let Some(pool) = HandlerPool::from_invoke_key(&key) {
        return Some(handler_command(&pool));
    }
    let service = if [tool_invoke_mcp(), mcp_manage()].contains(&key) {
        "rockbot-mcp-bridge"
    } else if key == script_invoke() {
        "rockbot-scripts-manager"
    } else {
        return None;
    };
    Some(service.to_owned())
}

/// Compares the consumers of a pool's queue with the handlers that announced themselves.
fn handlers_finding(queue: &WorkQueue, handlers: &[KnownHandler]) -> Option<Finding> {
    let pool = queue.pool()?;
    if queue.state == QueueState::Refused || handlers.is_empty() {
        return None;
    }
    let depth = queue.state.depth();
    let consumers = depth.map_or(0, |depth| depth.consumers as usize);
    let announced = handlers.iter().filter(|handler| handler.pool == pool).count();
    let name = &queue.name;
    if consumers != announced {
        let consumers = count(consumers, "consumer");
        let handlers = count(announced, "handler");
        let message = format!(
            "{name} has {consumers}, but {handlers} announced tools; restart the processes that consume it, each \
             with `{}`",
            handler_command(&pool)
        );
        return Some(Finding::new(Severity::Suspicious, message));
    }
    let is_idle = depth.is_none_or(|depth| depth.ready == 0);
    (consumers == 0 && is_idle && pool != HandlerPool::Unnamed).then(|| {
        let remedy = remedy(queue);
        let message =
            format!("{name} has no consumer: no handler of its pool is running; {remedy}");
        Finding::new(Severity::Warning, message)
    })
}

/// Describes a clock that differs from this one by more than a message can take.
fn clock_difference(ahead_seconds: i64) -> Option<String> {
    let direction = if ahead_seconds > 0 { "ahead of" } else { "behind" };
    let seconds = ahead_seconds.unsigned_abs();
    (seconds >= 5).then(|| format!("{seconds} s {direction} this one"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_without_consumer_names_the_command_to_start_one() {
        for (name, command) in [
            ("user.message.writer", "`ROCKBOT_AGENT__NAME=writer rockbot-agent`"),
            ("user.conversation.writer", "`ROCKBOT_AGENT__NAME=writer rockbot-agent`"),
            ("agent.task.writer", "`ROCKBOT_AGENT__NAME=writer rockbot-agent`"),
            ("agent.response.writer", "`ROCKBOT_AGENT__NAME=writer rockbot-agent`"),
            ("tool.invoke", "`rockbot-tool-handler`"),
            ("tool.invoke.pool.web", "`ROCKBOT_HANDLER__POOL=web rockbot-tool-handler`"),
            ("tool.invoke.mcp", "`rockbot-mcp-bridge`"),
            ("tool.invoke.quarantine", "`rockbot-tool-handler`"),
            ("tool.invoke.pool.web.quarantine", "`ROCKBOT_HANDLER__POOL=web rockbot-tool-handler`"),
            ("tool.invoke.mcp.quarantine", "`rockbot-mcp-bridge`"),
            ("mcp.manage", "`rockbot-mcp-bridge`"),
            ("script.invoke", "`rockbot-scripts-manager`"),
            ("script.invoke.quarantine", "`rockbot-scripts-manager`"),
        ] {
            let depth = rockbot_bus::report::QueueDepth { ready: 1, consumers: 0 };
            let queue = WorkQueue {
                name: rockbot_contracts::QueueName::new(name).unwrap(),
                state: QueueState::Present(depth),
                dead_letters: QueueState::Missing,
            };
            let found = queue_findings(&queue, &[]);
            assert!(found[0].message.ends_with(command), "{found:?}");
        }
    }

    #[test]
    fn different_clock_is_described() {
        for same in [-4, 0, 4] {
            assert_eq!(clock_difference(same), None);
        }
        assert_eq!(clock_difference(90).as_deref(), Some("90 s ahead of this one"));
        assert_eq!(clock_difference(-7).as_deref(), Some("7 s behind this one"));
    }
}
