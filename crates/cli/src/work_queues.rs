//! The work queues of a fleet. A broker does not tell which there are, so they are known by name.

use rockbot_agent::AgentDefinition;
use rockbot_bus::{Bus, BusReport, Look};
use rockbot_contracts::{
    AgentName, QueueName, QueueSpec,
    topology::{tool_invoke, tool_invoke_mcp, user_message},
};
use rockbot_service::exit;

use crate::{
    ending::{Exits, Failure},
    settings::Settings,
};

/// A work queue as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WorkQueue {
    pub(crate) name: QueueName,
    pub(crate) look: Look,
    /// The queue of its dead letters.
    pub(crate) dead_letters: Look,
}

/// The queue of tool calls and the one for suspects beside it, and those of the configured agent and
/// of every defined one.
pub(crate) fn known(settings: &Settings) -> Result<Vec<QueueName>, Failure> {
    let mut agents = vec![AgentName::new(settings.agent.name.as_str()).exits(exit::USAGE)?];
    if let Some(folder) = &settings.agent.directory {
        let defined = AgentDefinition::load_dir(folder).exits(exit::USAGE)?;
        agents.extend(defined.into_iter().map(|agent| agent.name));
    }
    let mut names =
        vec![QueueSpec::work(&tool_invoke()).name, QueueSpec::quarantine(&tool_invoke()).name];
    for agent in agents {
        let name = QueueSpec::work(&user_message(&agent)).name;
        if !names.contains(&name) {
            names.push(name);
        }
    }
    Ok(names)
}

/// A work queue by the name that an operator typed: bare, as the broker shows it with the namespace
/// before it, or the name of its dead letters. What a queue for suspects gave up is with the dead
/// letters of the one that it stands beside.
pub(crate) fn named(typed: &str, settings: &Settings) -> Result<QueueName, Failure> {
    let prefix = format!("{}.", settings.bus.namespace);
    let bare = typed.strip_prefix(&prefix).unwrap_or(typed);
    let bare = bare.strip_suffix(".dlq").unwrap_or(bare);
    let name = QueueName::new(bare).exits(exit::USAGE)?;
    let suspects = [tool_invoke(), tool_invoke_mcp()].map(|key| QueueSpec::quarantine(&key));
    let beside = suspects.into_iter().find(|queue| queue.name == name);
    Ok(beside.map_or(name, |queue| queue.gives_up_as))
}

/// Looks at queues, in this order.
pub(crate) async fn look(
    bus: &dyn Bus,
    names: &[QueueName],
) -> Result<(BusReport, Vec<WorkQueue>), Failure> {
    let both: Vec<_> = names.iter().flat_map(|name| [name.clone(), name.dead_letters()]).collect();
    let report = bus.inspect(&both).await.exits(exit::UNAVAILABLE)?;
    let pairs = names.iter().zip(report.queues.chunks_exact(2));
    let queues = pairs.map(|(name, pair)| WorkQueue {
        name: name.clone(),
        look: pair[0].look,
        dead_letters: pair[1].look,
    });
    let queues = queues.collect();
    Ok((report, queues))
}

#[cfg(test)]
mod tests {
    use rockbot_bus::{MemoryBus, Publication, Settlement, Subscription, report::QueueDepth};
    use rockbot_contracts::Envelope;

    use super::*;
    use crate::arguments::{Arguments, Common};
    use clap::Parser;

    fn settings(lines: &[(&str, &str)]) -> Settings {
        let common: Common = Arguments::parse_from(["rockbot", "doctor"]).common;
        let lines = lines.iter().map(|(name, value)| (name.to_string(), value.to_string()));
        Settings::read(&common, lines).unwrap()
    }

    #[test]
    fn the_queues_of_every_defined_agent_are_known() {
        let folder = tempfile::tempdir().unwrap();
        let agent = "+++\nname = \"writer\"\ndescription = \"writes\"\n+++\nYou write.\n";
        std::fs::write(folder.path().join("writer.md"), agent).unwrap();
        let folder = folder.path().to_str().unwrap();
        let settings = settings(&[("ROCKBOT_AGENT__DIRECTORY", folder)]);
        let names = known(&settings).unwrap();
        let names: Vec<_> = names.iter().map(QueueName::as_str).collect();
        let agents = ["user.message.assistant", "user.message.writer"];
        assert_eq!(names, [&["tool.invoke", "tool.invoke.quarantine"][..], &agents].concat());
    }

    #[test]
    fn a_queue_may_be_named_as_the_broker_shows_it() {
        let settings = settings(&[("ROCKBOT_BUS__NAMESPACE", "fleet")]);
        for typed in [
            "tool.invoke",
            "fleet.tool.invoke",
            "tool.invoke.dlq",
            "fleet.tool.invoke.dlq",
            "fleet.tool.invoke.quarantine",
        ] {
            assert_eq!(named(typed, &settings).unwrap().as_str(), "tool.invoke", "{typed}");
        }
        assert_eq!(named("tool *", &settings).unwrap_err().code, exit::USAGE);
    }

    #[tokio::test]
    async fn a_look_counts_what_waits_who_consumes_and_what_died() {
        let bus = MemoryBus::new();
        let spec = QueueSpec::work(&tool_invoke());
        let mut consumer = bus.consume(Subscription::new(spec.clone(), 1)).await.unwrap();
        for _ in 0..3 {
            let envelope = Envelope::raw("Text", Vec::new());
            bus.publish(Publication::mandatory(tool_invoke(), envelope)).await.unwrap();
        }
        let letter = consumer.next().await.unwrap();
        letter.settle(Settlement::dead_letter("no")).await.unwrap();
        let other = QueueName::new("other").unwrap();
        let (_, queues) = look(&bus, &[spec.name.clone(), other.clone()]).await.unwrap();
        let waiting = Look::There(QueueDepth { ready: 2, consumers: 1 });
        let died = Look::There(QueueDepth { ready: 1, consumers: 0 });
        assert_eq!(
            queues,
            [
                WorkQueue { name: spec.name, look: waiting, dead_letters: died },
                WorkQueue { name: other, look: Look::Missing, dead_letters: Look::Missing },
            ]
        );
    }
}
