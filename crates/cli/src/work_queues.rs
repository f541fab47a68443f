//! The work queues of a fleet. AMQP cannot list queues, so their names come from the configuration and from
//! the announcements of handlers.

use std::collections::BTreeSet;

use rockbot_agent::AgentDefinition;
use rockbot_bus::{Bus, BusReport};
use rockbot_contracts::{AgentName, HandlerPool, QueueName};
use rockbot_monitor::{
    WorkQueue,
    queues::{Services, agent_queue_names, inspect_queues, parse_queue_name, work_queue_names},
};
use rockbot_service::exit;

use crate::{
    failure::{Failure, OrExit},
    settings::Settings,
};

/// Returns the configured agent and every defined one.
pub(crate) fn configured_agents(settings: &Settings) -> Result<Vec<AgentName>, Failure> {
    let mut agents = vec![AgentName::new(settings.agent.name.as_str()).or_exit(exit::USAGE)?];
    if let Some(folder) = &settings.agent.directory {
        let defined = AgentDefinition::load_dir(folder).or_exit(exit::USAGE)?;
        agents.extend(defined.into_iter().map(|agent| agent.name));
    }
    Ok(agents)
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
/// the configured agent and of every defined one. An embedded fleet has only the queues of tool calls and of
/// messages to its agents.
pub(crate) fn configured(
    settings: &Settings,
    pools: &[HandlerPool],
) -> Result<Vec<QueueName>, Failure> {
    let services = if settings.embeds() { Services::Embedded } else { Services::Fleet };
    let agents = configured_agents(settings)?;
    let mut names = work_queue_names(pools, services, &agents);
    if services == Services::Fleet {
        let agents: BTreeSet<_> = agents.iter().collect();
        names.extend(agents.into_iter().flat_map(agent_queue_names));
    }
    Ok(names)
}

/// Parses the name of a work queue: bare, with the namespace as the broker shows it, or the name of its
/// dead-letter queue.
pub(crate) fn parse_name(text: &str, settings: &Settings) -> Result<QueueName, Failure> {
    parse_queue_name(text, &settings.bus.namespace).or_exit(exit::USAGE)
}

/// Inspects queues and their dead-letter queues; the result has the order of `names`.
pub(crate) async fn inspect(
    bus: &dyn Bus,
    names: &[QueueName],
) -> Result<(BusReport, Vec<WorkQueue>), Failure> {
    inspect_queues(bus, names).await.or_exit(exit::UNAVAILABLE)
}

#[cfg(test)]
mod tests {
    use rockbot_contracts::PoolName;

    use super::*;
    use crate::{
        arguments::{Arguments, Common},
        contexts::SelectedContextUse,
    };
    use clap::Parser;

    fn settings(lines: &[(&str, &str)]) -> Settings {
        let common: Common = Arguments::parse_from(["rockbot", "doctor"]).common;
        let lines = lines.iter().map(|(name, value)| (name.to_string(), value.to_string()));
        Settings::read(&common, SelectedContextUse::Join, lines).unwrap()
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
        let others = [
            "user.conversation.assistant",
            "agent.task.assistant",
            "agent.response.assistant",
            "user.conversation.writer",
            "agent.task.writer",
            "agent.response.writer",
        ];
        assert_eq!(names, [&tools[..], &mcp, &scripts, &agents, &others].concat());
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
}
