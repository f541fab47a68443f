//! Tests of the commands in findings.

use std::{collections::BTreeSet, fs, path::Path, time::Duration};

use rockbot_bus::{BusReport, QueueState, report::QueueDepth};
use rockbot_contracts::{
    AgentName, Envelope, HandlerPool, InstanceId, PoolName, QueueName, ScriptIsolation,
    ToolCatalog, ToolHints, ToolRegistration, ToolSource,
    mcp::{McpConnection, McpServerState},
};
use rockbot_monitor::{
    WorkQueue,
    queues::{Services, agent_queue_names, work_queue_names},
};
use rockbot_scripts::Isolation;
use rockbot_testkit::documented_commands::in_lines;
use rockbot_tool_rpc::{
    catalog::{CatalogObserver, CatalogSnapshot},
    mcp::McpServerReport,
};
use serde_json::json;

use super::{
    diagnosis::{Diagnosis, KnownServers, Rejection, SplitAgent},
    findings::findings,
    message_limit::MessageLimit,
    round_trip::RoundTrip,
};
use crate::arguments::documented::violation;

/// Programs of other projects, which administrators of a fleet have.
const OTHER_PROGRAMS: [&str; 4] = ["timedatectl", "rabbitmqctl", "systemctl", "docker"];

/// Returns an announcement of one tool.
fn announcement(
    instance: &str,
    pool: &HandlerPool,
    tool: &str,
    source: ToolSource,
    isolated_by: &str,
) -> Envelope {
    let registration = ToolRegistration {
        name: tool.to_owned(),
        label: None,
        description: "A tool".to_owned(),
        tool_description: None,
        parameters: json!({"type": "object"}),
        source,
        hints: ToolHints::default(),
        timeout_ms: None,
    };
    let catalog = ToolCatalog {
        handler: "tool-handler".to_owned(),
        instance: InstanceId::new(instance).unwrap(),
        tools: vec![registration],
        removed: Vec::new(),
        fingerprint: instance.to_owned(),
        version: None,
        load: None,
        invoke_key: Some(pool.invoke_key()),
        instructions: Vec::new(),
        guides: Vec::new(),
        script_isolation: Some(ScriptIsolation {
            mechanism: isolated_by.to_owned(),
            gaps: vec!["the network".to_owned()],
        }),
    };
    let mut envelope = Envelope::from_payload(&catalog);
    envelope.timestamp += 60_000;
    envelope
}

/// Returns two handlers of one pool with different tools, and one of another pool with a tool of the first.
fn handlers() -> CatalogSnapshot {
    let web = HandlerPool::Named(PoolName::new("web").unwrap());
    let mut observer = CatalogObserver::default();
    for (instance, pool, tool, source, isolated_by) in [
        ("h-1", &HandlerPool::Unnamed, "read", ToolSource::Files, "landlock"),
        ("h-2", &HandlerPool::Unnamed, "write", ToolSource::Files, "landlock"),
        ("h-3", &web, "read", ToolSource::Other("own".to_owned()), "docker (runc)"),
    ] {
        observer.observe(&announcement(instance, pool, tool, source, isolated_by));
    }
    observer.snapshot()
}

/// Returns queues that have messages and no consumer, and dead letters.
fn unconsumed_queues() -> Vec<WorkQueue> {
    let pools = [HandlerPool::Unnamed, HandlerPool::Named(PoolName::new("web").unwrap())];
    let agent = AgentName::new("writer").unwrap();
    let own = agent_queue_names(&agent);
    let names = work_queue_names(&pools, Services::Fleet, std::slice::from_ref(&agent));
    let present = |ready| QueueState::Present(QueueDepth { ready, consumers: 0 });
    let queue = |name| WorkQueue { name, state: present(1), dead_letters: present(1) };
    names.into_iter().chain(own).map(queue).collect()
}

/// Returns the state of a fleet in which as much as possible is wrong.
fn broken(queues: Vec<WorkQueue>, handlers: &CatalogSnapshot) -> Diagnosis {
    let failed = McpServerReport {
        bridge: None,
        state: McpServerState {
            name: "git".to_owned(),
            connection: McpConnection::Failed,
            ..McpServerState::default()
        },
    };
    Diagnosis {
        bus: BusReport { product: "a bus".to_owned(), address: None, queues: Vec::new() },
        queues,
        handlers: handlers.handlers().cloned().collect(),
        conflicts: handlers.conflicts(),
        servers: KnownServers { states: vec![failed], ..KnownServers::default() },
        rejection: Some(Rejection {
            reason: "the handlers accept no calls of user guest".to_owned(),
            user: "rockbot.cli".to_owned(),
        }),
        operator: "rockbot.operator".to_owned(),
        round_trip: RoundTrip {
            median: Duration::ZERO,
            reply_queue: "tool.result.doctor.1".to_owned(),
            reply_depth: None,
        },
        scripts: Some(Ok(Isolation {
            mechanism: "landlock".to_owned(),
            gaps: vec!["each other".to_owned()],
        })),
        split_agents: vec![SplitAgent { name: AgentName::new("writer").unwrap(), foreign: 1 }],
        message_limit: Some(MessageLimit::Accepted),
    }
}

/// Returns the messages of all kinds of findings.
fn messages() -> Vec<String> {
    let queue = |name: &str, state| WorkQueue {
        name: QueueName::new(name).unwrap(),
        state,
        dead_letters: QueueState::Missing,
    };
    let idle = QueueState::Present(QueueDepth { ready: 0, consumers: 0 });
    let hidden = vec![
        queue("tool.invoke", QueueState::Refused),
        queue("tool.invoke.pool.idle", idle),
        queue("user.message.writer", idle),
        queue("own.queue", QueueState::Present(QueueDepth { ready: 1, consumers: 0 })),
    ];
    let without_handlers = CatalogSnapshot::default();
    let fleets = [
        broken(unconsumed_queues(), &handlers()),
        Diagnosis {
            scripts: Some(Err("no Python".to_owned())),
            ..broken(hidden, &without_handlers)
        },
    ];
    fleets.iter().flat_map(findings).map(|finding| finding.message).collect()
}

#[test]
fn findings_end_with_a_command_that_exists() {
    let messages = messages();
    let text = messages.join("\n");
    for part in [
        "no tool handler is available",
        "but it has no consumer",
        "its agent is not running",
        "dead letter of script.invoke",
        "announce different tools",
        "several pools announce",
        "the clock of tool-handler/h-1",
        "may not inspect tool.invoke",
        "but 2 handlers announced tools",
        "in own.queue, but it has no consumer",
        "MCP server git is not connected",
        "accept no calls",
        "consumers instead of one",
        "messages over 4 MiB",
        "agent writer have different conversations",
        "isolated by docker",
        "2 handlers are isolated by landlock",
        "scripts are isolated by landlock",
        "no Python",
    ] {
        assert!(text.contains(part), "no finding has {part:?}:\n{text}");
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let keys = fs::read_to_string(root.join("docs/configuration.md")).unwrap();
    let programs = programs(&root);
    for message in &messages {
        let command = message.strip_suffix('`').and_then(|rest| rest.rsplit_once('`'));
        let (_, command) =
            command.unwrap_or_else(|| panic!("it ends without a command: {message}"));
        check(command, &programs, &keys);
    }
}

/// Returns the names of the binary programs of the workspace.
fn programs(root: &Path) -> BTreeSet<String> {
    let mut programs: BTreeSet<_> = OTHER_PROGRAMS.map(str::to_owned).into();
    for entry in fs::read_dir(root.join("crates")).unwrap() {
        let Ok(text) = fs::read_to_string(entry.unwrap().path().join("Cargo.toml")) else {
            continue;
        };
        let manifest: toml::Table = toml::from_str(&text).unwrap();
        let binaries = manifest.get("bin").and_then(toml::Value::as_array).into_iter().flatten();
        let names = binaries.filter_map(|binary| Some(binary.get("name")?.as_str()?.to_owned()));
        programs.extend(names);
    }
    programs
}

/// Checks that the program, its arguments and the variables of a command exist.
fn check(command: &str, programs: &BTreeSet<String>, keys: &str) {
    let mut words = command.split(' ').skip_while(|word| {
        let variable = word.split_once('=').map(|(name, _)| name);
        if let Some(name) = variable.filter(|name| name.starts_with("ROCKBOT_")) {
            assert!(keys.contains(&format!("`{name}`")), "{name} is not documented: {command}");
        }
        variable.is_some()
    });
    let program = words.next().unwrap_or_default();
    assert!(programs.contains(program), "{program:?} is no program: {command}");
    for documented in in_lines("a finding", command, &["rockbot"]) {
        assert_eq!(violation(&documented), None);
    }
}
