//! The work queues of a fleet and their state. AMQP cannot list queues, so their names follow from pools and
//! agents.

use rockbot_bus::{Bus, BusReport, ConsumeError, QueueState};
use rockbot_contracts::{
    AgentName, HandlerPool, QueueName, QueueSpec, RoutingKey,
    topology::{
        InvalidRoutingKey, USER_CONVERSATION, USER_MESSAGE, agent_response, agent_task_queue,
        mcp_manage, quarantine_of, script_invoke, tool_invoke_mcp, user_conversation, user_message,
    },
};

/// The current state of a work queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkQueue {
    /// Its name.
    pub name: QueueName,
    /// Its state.
    pub state: QueueState,
    /// The state of its dead-letter queue.
    pub dead_letters: QueueState,
}

impl WorkQueue {
    /// Returns whether this user may not inspect it or its dead-letter queue, and the operator may: only
    /// their handlers have a right on quarantine queues.
    #[must_use]
    pub fn is_operators(&self) -> bool {
        let is_hidden = [self.state, self.dead_letters].contains(&QueueState::Refused);
        is_hidden && quarantined_key(&self.name).is_none()
    }

    /// Returns the handler pool of the queue.
    #[must_use]
    pub fn pool(&self) -> Option<HandlerPool> {
        let key = RoutingKey::new(self.name.as_str()).ok()?;
        HandlerPool::from_invoke_key(&key)
    }
}

/// The services besides the handlers of pools whose work queues are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Services {
    /// The MCP bridge and the scripts manager.
    Fleet,
    /// None: tools run in the process of the agent.
    Embedded,
}

/// Returns the names of the queues of these pools and services with their quarantine queues, and those of the
/// inboxes of these agents, each once.
#[must_use]
pub fn work_queue_names(
    pools: &[HandlerPool],
    services: Services,
    agents: &[AgentName],
) -> Vec<QueueName> {
    let mut works: Vec<_> = pools.iter().map(HandlerPool::invoke_key).collect();
    if services == Services::Fleet {
        works.extend([tool_invoke_mcp(), mcp_manage(), script_invoke()]);
    }
    let mut names = Vec::new();
    for work in &works {
        names.push(QueueSpec::work(work).name);
        names.extend(has_quarantine(work).then(|| QueueSpec::quarantine(work).name));
    }
    for agent in agents {
        let name = QueueSpec::work(&user_message(agent)).name;
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// Returns the names of the work queues of an agent besides its inbox: for requests about its conversations, for
/// tasks of other agents, and for the responses to its own tasks. The last two exist for agents that exchange tasks.
#[must_use]
pub fn agent_queue_names(agent: &AgentName) -> [QueueName; 3] {
    [
        QueueSpec::work(&user_conversation(agent)),
        agent_task_queue(agent),
        QueueSpec::work(&agent_response(agent)),
    ]
    .map(|queue| queue.name)
}

/// Returns the agent that consumes a work queue; `None` for queues of other services.
pub(crate) fn consuming_agent(name: &QueueName) -> Option<&str> {
    let (_, last) = name.as_str().rsplit_once('.')?;
    let is_own = |agent| agent_queue_names(&agent).contains(name);
    inbox_agent(name).or_else(|| AgentName::new(last).is_ok_and(is_own).then_some(last))
}

/// Returns the agent whose inbox the queue is; `None` for other queues.
pub(crate) fn inbox_agent(name: &QueueName) -> Option<&str> {
    name.as_str().strip_prefix(USER_MESSAGE)?.strip_prefix('.')
}

/// Returns whether the queue has requests about the conversations of an agent.
pub(crate) fn has_conversation_requests(name: &QueueName) -> bool {
    name.as_str().strip_prefix(USER_CONVERSATION).is_some_and(|rest| rest.starts_with('.'))
}

/// Returns whether the work queue of a key has a quarantine queue.
fn has_quarantine(key: &RoutingKey) -> bool {
    HandlerPool::from_invoke_key(key).is_some()
        || [tool_invoke_mcp(), script_invoke()].contains(key)
}

/// Returns the key of the requests in a quarantine queue; `None` for other queues.
fn quarantined_key(name: &QueueName) -> Option<RoutingKey> {
    let (key, _) = name.as_str().rsplit_once('.')?;
    let key = RoutingKey::new(key).ok().filter(has_quarantine)?;
    (quarantine_of(&key).as_str() == name.as_str()).then_some(key)
}

/// Returns the key of the requests in a work queue or its quarantine queue.
pub(crate) fn requests_key(name: &QueueName) -> Option<RoutingKey> {
    quarantined_key(name).or_else(|| RoutingKey::new(name.as_str()).ok())
}

/// Parses the name of a work queue: bare, with the namespace as the broker shows it, or the name of its
/// dead-letter queue. A quarantine queue shares the dead letters of its work queue, whose name is
/// returned then.
///
/// # Errors
/// When the text is no name of a queue.
pub fn parse_queue_name(text: &str, namespace: &str) -> Result<QueueName, InvalidRoutingKey> {
    let bare = text.strip_prefix(namespace).and_then(|rest| rest.strip_prefix('.')).unwrap_or(text);
    let bare = bare.strip_suffix(".dlq").unwrap_or(bare);
    let name = QueueName::new(bare)?;
    Ok(quarantined_key(&name).map_or(name, |key| QueueSpec::work(&key).name))
}

/// Inspects queues and their dead-letter queues; the result has the order of `names`.
///
/// # Errors
/// When the bus is unavailable. A queue that does not exist, or that this user may not inspect, is no error.
pub async fn inspect_queues(
    bus: &dyn Bus,
    names: &[QueueName],
) -> Result<(BusReport, Vec<WorkQueue>), ConsumeError> {
    let both: Vec<_> = names.iter().flat_map(|name| [name.clone(), name.dead_letters()]).collect();
    let report = bus.inspect(&both).await?;
    let pairs = names.iter().zip(report.queues.chunks_exact(2));
    let queues = pairs.map(|(name, pair)| WorkQueue {
        name: name.clone(),
        state: pair[0].state,
        dead_letters: pair[1].state,
    });
    let queues = queues.collect();
    Ok((report, queues))
}

#[cfg(test)]
mod tests {
    use rockbot_bus::{MemoryBus, Publication, Settlement, Subscription, report::QueueDepth};
    use rockbot_contracts::{Envelope, topology::tool_invoke};

    use super::*;

    #[test]
    fn queue_name_may_have_namespace_and_suffix() {
        for text in [
            "tool.invoke",
            "fleet.tool.invoke",
            "tool.invoke.dlq",
            "fleet.tool.invoke.dlq",
            "fleet.tool.invoke.quarantine",
        ] {
            assert_eq!(parse_queue_name(text, "fleet").unwrap().as_str(), "tool.invoke", "{text}");
        }
        for (text, expected) in [
            ("fleet.tool.invoke.pool.web.quarantine", "tool.invoke.pool.web"),
            ("tool.invoke.pool.web.dlq", "tool.invoke.pool.web"),
            ("tool.invoke.pool.quarantine", "tool.invoke.pool.quarantine"),
        ] {
            assert_eq!(parse_queue_name(text, "fleet").unwrap().as_str(), expected, "{text}");
        }
        let scripts = parse_queue_name("script.invoke.quarantine", "fleet").unwrap();
        assert_eq!(scripts.as_str(), "script.invoke");
        assert!(parse_queue_name("tool *", "fleet").is_err());
    }

    #[test]
    fn quarantine_is_hidden_from_the_operator_too() {
        let hidden = |spec: QueueSpec| {
            let (state, dead_letters) = (QueueState::Refused, QueueState::Missing);
            WorkQueue { name: spec.name, state, dead_letters }.is_operators()
        };
        assert!(hidden(QueueSpec::work(&script_invoke())));
        assert!(!hidden(QueueSpec::quarantine(&script_invoke())));
    }

    #[tokio::test]
    async fn inspect_counts_messages_consumers_and_dead_letters() {
        let bus = MemoryBus::new();
        let spec = QueueSpec::work(&tool_invoke());
        let mut consumer = bus.consume(Subscription::new(spec.clone(), 1)).await.unwrap();
        for _ in 0..3 {
            let envelope = Envelope::raw("Text", Vec::new());
            bus.publish(Publication::mandatory(tool_invoke(), envelope)).await.unwrap();
        }
        let letter = consumer.next().await.unwrap();
        letter.settle(Settlement::dead_letter("rejected")).await.unwrap();
        let other = QueueName::new("other").unwrap();
        let (_, queues) = inspect_queues(&bus, &[spec.name.clone(), other.clone()]).await.unwrap();
        let waiting = QueueState::Present(QueueDepth { ready: 2, consumers: 1 });
        let dead = QueueState::Present(QueueDepth { ready: 1, consumers: 0 });
        assert_eq!(
            queues,
            [
                WorkQueue { name: spec.name, state: waiting, dead_letters: dead },
                WorkQueue {
                    name: other,
                    state: QueueState::Missing,
                    dead_letters: QueueState::Missing
                },
            ]
        );
    }
}
