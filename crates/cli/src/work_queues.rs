//! The work queues of a fleet. AMQP cannot list queues, so their names come from the configuration and from
//! the announcements of handlers.

use std::collections::BTreeSet;

use rockbot_agent::AgentDefinition;
use rockbot_bus::{Bus, BusReport, QueueState};
use rockbot_contracts::{
    AgentName, HandlerPool, QueueName, QueueSpec, RoutingKey,
    topology::{mcp_manage, quarantine_of, script_invoke, tool_invoke_mcp, user_message},
};
use rockbot_service::exit;

use crate::{
    failure::{Failure, OrExit},
    settings::Settings,
};

/// The current state of a work queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WorkQueue {
    pub(crate) name: QueueName,
    pub(crate) state: QueueState,
    /// The state of its dead-letter queue.
    pub(crate) dead_letters: QueueState,
}

/// Returns the configured agent and every defined one.
pub(crate) fn configured_agents(settings: &Settings) -> Result<Vec<AgentName>, Failure> {
    let mut agents = vec![AgentName::new(settings.agent.name.as_str()).or_exit(exit::USAGE)?];
    if let Some(folder) = &settings.agent.directory {
        let defined = AgentDefinition::load_dir(folder).or_exit(exit::USAGE)?;
        agents.extend(defined.into_iter().map(|agent| agent.name));
    }
    Ok(agents)
}

impl WorkQueue {
    /// Returns whether this user may not inspect it or its dead-letter queue, and the operator may: only
    /// their handlers have a right on quarantine queues.
    pub(crate) fn is_operators(&self) -> bool {
        let is_hidden = [self.state, self.dead_letters].contains(&QueueState::Refused);
        is_hidden && quarantined_key(&self.name).is_none()
    }

    /// Returns the handler pool of the queue.
    pub(crate) fn pool(&self) -> Option<HandlerPool> {
        let key = RoutingKey::new(self.name.as_str()).ok()?;
        HandlerPool::from_invoke_key(&key)
    }
}

/// Returns the handler pools: the configured ones and these others, and the unnamed one. An embedded fleet
/// has only that of its handler.
pub(crate) fn pools(settings: &Settings, others: Vec<HandlerPool>) -> Vec<HandlerPool> {
    if settings.embeds() {
        return vec![settings.handler.pool()];
    }
    let named = settings.fleet.pools.iter().cloned().map(HandlerPool::Named);
    let pools: BTreeSet<_> = named.chain(others).chain([HandlerPool::Unnamed]).collect();
    pools.into_iter().collect()
}

/// Returns the queues of these pools and of the other services with their quarantine queues, and those of
/// the configured agent and of every defined one. An embedded fleet has only the queue of tool calls.
pub(crate) fn configured(
    settings: &Settings,
    pools: &[HandlerPool],
) -> Result<Vec<QueueName>, Failure> {
    let mut works: Vec<_> = pools.iter().map(HandlerPool::invoke_key).collect();
    if !settings.embeds() {
        works.extend([tool_invoke_mcp(), mcp_manage(), script_invoke()]);
    }
    let mut names = Vec::new();
    for work in &works {
        names.push(QueueSpec::work(work).name);
        names.extend(has_quarantine(work).then(|| QueueSpec::quarantine(work).name));
    }
    for agent in configured_agents(settings)? {
        let name = QueueSpec::work(&user_message(&agent)).name;
        if !names.contains(&name) {
            names.push(name);
        }
    }
    Ok(names)
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

/// Parses the name of a work queue: bare, with the namespace as the broker shows it, or the name of its
/// dead-letter queue. A quarantine queue shares the dead letters of its work queue, whose name is
/// returned then.
pub(crate) fn parse_name(text: &str, settings: &Settings) -> Result<QueueName, Failure> {
    let prefix = format!("{}.", settings.bus.namespace);
    let bare = text.strip_prefix(&prefix).unwrap_or(text);
    let bare = bare.strip_suffix(".dlq").unwrap_or(bare);
    let name = QueueName::new(bare).or_exit(exit::USAGE)?;
    Ok(quarantined_key(&name).map_or(name, |key| QueueSpec::work(&key).name))
}

/// Inspects queues and their dead-letter queues; the result has the order of `names`.
pub(crate) async fn inspect(
    bus: &dyn Bus,
    names: &[QueueName],
) -> Result<(BusReport, Vec<WorkQueue>), Failure> {
    let both: Vec<_> = names.iter().flat_map(|name| [name.clone(), name.dead_letters()]).collect();
    let report = bus.inspect(&both).await.or_exit(exit::UNAVAILABLE)?;
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
    use rockbot_contracts::{Envelope, PoolName, topology::tool_invoke};

    use super::*;
    use crate::arguments::{Arguments, Common};
    use clap::Parser;

    fn settings(lines: &[(&str, &str)]) -> Settings {
        let common: Common = Arguments::parse_from(["rockbot", "doctor"]).common;
        let lines = lines.iter().map(|(name, value)| (name.to_string(), value.to_string()));
        Settings::read(&common, lines).unwrap()
    }

    #[test]
    fn configured_queues_include_defined_agents() {
        let folder = tempfile::tempdir().unwrap();
        let agent = "+++\nname = \"writer\"\ndescription = \"writes\"\n+++\nYou write.\n";
        std::fs::write(folder.path().join("writer.md"), agent).unwrap();
        let folder = folder.path().to_str().unwrap();
        let directory = ("ROCKBOT_AGENT__DIRECTORY", folder);
        let all = |settings: &Settings| configured(settings, &pools(settings, Vec::new())).unwrap();
        let names = all(&settings(&[directory]));
        let names: Vec<_> = names.iter().map(QueueName::as_str).collect();
        let agents = ["user.message.assistant", "user.message.writer"];
        let tools = ["tool.invoke", "tool.invoke.quarantine"];
        assert_eq!(names, [tools, agents].concat());
        let broker = ("ROCKBOT_BUS__URL", "amqp://localhost/%2f");
        let names = all(&settings(&[directory, broker]));
        let names: Vec<_> = names.iter().map(QueueName::as_str).collect();
        let mcp = ["tool.invoke.mcp", "tool.invoke.mcp.quarantine", "mcp.manage"];
        let scripts = ["script.invoke", "script.invoke.quarantine"];
        assert_eq!(names, [&tools[..], &mcp, &scripts, &agents].concat());
    }

    #[test]
    fn pools_are_configured_or_announced() {
        let pool = |name| HandlerPool::Named(PoolName::new(name).unwrap());
        let broker = ("ROCKBOT_BUS__URL", "amqp://localhost/%2f");
        let named = ("ROCKBOT_FLEET__POOLS", r#"["web", "files"]"#);
        let settings = settings(&[broker, named]);
        let pools = pools(&settings, vec![pool("gpu"), pool("web")]);
        assert_eq!(pools, [HandlerPool::Unnamed, pool("files"), pool("gpu"), pool("web")]);
        let names = configured(&settings, &pools).unwrap();
        let names: Vec<_> = names.iter().map(QueueName::as_str).collect();
        assert_eq!(names[6..8], ["tool.invoke.pool.web", "tool.invoke.pool.web.quarantine"]);
    }

    #[test]
    fn queue_name_may_have_namespace_and_suffix() {
        let settings = settings(&[("ROCKBOT_BUS__NAMESPACE", "fleet")]);
        for text in [
            "tool.invoke",
            "fleet.tool.invoke",
            "tool.invoke.dlq",
            "fleet.tool.invoke.dlq",
            "fleet.tool.invoke.quarantine",
        ] {
            assert_eq!(parse_name(text, &settings).unwrap().as_str(), "tool.invoke", "{text}");
        }
        for (text, expected) in [
            ("fleet.tool.invoke.pool.web.quarantine", "tool.invoke.pool.web"),
            ("tool.invoke.pool.web.dlq", "tool.invoke.pool.web"),
            ("tool.invoke.pool.quarantine", "tool.invoke.pool.quarantine"),
        ] {
            assert_eq!(parse_name(text, &settings).unwrap().as_str(), expected, "{text}");
        }
        let scripts = parse_name("script.invoke.quarantine", &settings).unwrap();
        assert_eq!(scripts.as_str(), "script.invoke");
        assert_eq!(parse_name("tool *", &settings).unwrap_err().code, exit::USAGE);
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
        let (_, queues) = inspect(&bus, &[spec.name.clone(), other.clone()]).await.unwrap();
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
