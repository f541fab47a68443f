//! The fleet of a test: a namespace on the test broker, and a folder for file tools.

use std::{fs, path::PathBuf, sync::Arc, time::Duration};

use rockbot_bus::Bus;
use rockbot_bus_rabbitmq::{RabbitBus, RabbitConfig};
use rockbot_contracts::{QueueSpec, topology::tool_invoke};
use rockbot_testkit::fixture::{self, wait_until, within_timeout};
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

use crate::{
    binaries,
    process::{Exit, Running},
};

/// Interval between checks of a queue.
const POLL: Duration = Duration::from_millis(20);

pub(crate) struct Fleet {
    pub(crate) namespace: String,
    folder: TempDir,
}

impl Fleet {
    pub(crate) fn new() -> Self {
        let folder = TempDir::new().expect("a folder");
        Self { namespace: fixture::fresh_namespace(), folder }
    }

    /// Returns a program in the fleet's folder and namespace, with a clean environment.
    pub(crate) fn program(&self, name: &str) -> Command {
        let mut command = self.program_without_bus(name);
        command
            .env("ROCKBOT_BUS__URL", fixture::test_broker_url())
            .env("ROCKBOT_BUS__NAMESPACE", &self.namespace);
        command
    }

    /// Returns a program in the fleet's folder without a broker, with a clean environment.
    pub(crate) fn program_without_bus(&self, name: &str) -> Command {
        let mut command = Command::new(binaries::path(name));
        command
            .current_dir(self.folder.path())
            .env_clear()
            .env("ROCKBOT_LOG__FORMAT", "text")
            .env("ROCKBOT_STORE__URL", format!("sqlite:{}", self.path("calls.db").display()))
            .env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command
    }

    /// Starts a tool handler, and waits until it is ready.
    pub(crate) async fn handler(&self, instance: &str) -> Running {
        self.handler_in(instance, &self.folder.path().display().to_string()).await
    }

    /// Starts a tool handler with another folder for its files.
    pub(crate) async fn handler_in(&self, instance: &str, root: &str) -> Running {
        self.handler_with(instance, &[("ROCKBOT_FILES__ROOT", root)]).await
    }

    /// Starts a tool handler with additional settings.
    pub(crate) async fn handler_with(&self, instance: &str, settings: &[(&str, &str)]) -> Running {
        let mut command = self.program("rockbot-tool-handler");
        command
            .env("ROCKBOT_SERVICE__INSTANCE", instance)
            .env("ROCKBOT_FILES__ROOT", self.folder.path())
            .envs(settings.iter().copied());
        let mut running = Running::start(command);
        running.expect_log("ready").await;
        running
    }

    /// Starts a bridge for MCP servers, which are written to the file `<instance>.json`.
    pub(crate) async fn bridge(&self, instance: &str, servers: &Value) -> Running {
        self.bridge_with(instance, servers, &[]).await
    }

    /// Starts a bridge with additional settings.
    pub(crate) async fn bridge_with(
        &self,
        instance: &str,
        servers: &Value,
        settings: &[(&str, &str)],
    ) -> Running {
        let file = format!("{instance}.json");
        self.write(&file, &json!({"mcpServers": servers}).to_string());
        let mut command = self.program("rockbot-mcp-bridge");
        command
            .env("ROCKBOT_SERVICE__INSTANCE", instance)
            .env("ROCKBOT_MCP__CONFIG", file)
            .envs(settings.iter().copied());
        let mut running = Running::start(command);
        running.expect_log("ready").await;
        running
    }

    /// Returns the number of waiting calls, including the quarantine, and of their dead letters.
    pub(crate) async fn waiting_and_dead(&self, bus: &Arc<dyn Bus>) -> (u32, u32) {
        let calls = QueueSpec::work(&tool_invoke());
        let quarantine = QueueSpec::quarantine(&tool_invoke());
        let queues = [calls.dead_letters().name, calls.name, quarantine.name];
        let report = bus.inspect(&queues).await.expect("a report");
        let ready = |index: usize| report.queues[index].depth().map_or(0, |depth| depth.ready);
        (ready(1) + ready(2), ready(0))
    }

    /// Waits until no queue of calls has one that no handler holds.
    pub(crate) async fn wait_until_delivered(&self, bus: &Arc<dyn Bus>) {
        let mut ticks = tokio::time::interval(POLL);
        within_timeout("empty queues", async {
            while self.waiting_and_dead(bus).await.0 > 0 {
                ticks.tick().await;
            }
        })
        .await;
    }

    /// Starts `rockbot` as a client of this fleet.
    pub(crate) fn start(&self, arguments: &[&str]) -> Running {
        let mut command = self.program("rockbot");
        command.args(arguments);
        Running::start(command)
    }

    /// Runs `rockbot` as a client of this fleet until it exits.
    pub(crate) async fn run(&self, arguments: &[&str]) -> Exit {
        self.start(arguments).wait().await
    }

    /// Starts an agent, and runs a chat until the agent has discovered the handlers and servers.
    pub(crate) async fn chat_with(&self, agent: Command) -> (Running, Exit) {
        let mut agent = Running::start(agent);
        agent.expect_log("ready").await;
        let mut chat = self.run(&["chat", "go"]).await;
        for _ in 0..100 {
            if !chat.stdout.contains("tool not found") {
                break;
            }
            chat = self.run(&["chat", "go"]).await;
        }
        (agent, chat)
    }

    /// Connects the test to the bus of the fleet.
    pub(crate) async fn bus(&self, config: impl FnOnce(&mut RabbitConfig)) -> Arc<dyn Bus> {
        let mut settings = RabbitConfig::new(fixture::test_broker_url(), "an e2e test");
        settings.namespace.clone_from(&self.namespace);
        config(&mut settings);
        let bus = RabbitBus::start(&settings).expect("a usable URL");
        bus.connected(fixture::TEST_TIMEOUT).await.expect("connected to the test broker");
        Arc::new(bus)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).expect("written");
        path
    }

    /// Waits for a file in the fleet's folder.
    pub(crate) async fn wait_for_file(&self, name: &str) {
        let path = self.path(name);
        wait_until(name, || path.exists()).await;
    }

    /// Waits until a file ends with a newline, and returns its text.
    pub(crate) async fn wait_for_line(&self, name: &str) -> String {
        let path = self.path(name);
        let read = || fs::read_to_string(&path).unwrap_or_default();
        wait_until(name, || read().ends_with('\n')).await;
        read()
    }
}

/// The process group of a command that a handler runs. Dropping it kills the group.
pub(crate) struct ProcessGroup(Pid);

impl ProcessGroup {
    /// Waits until a command has written `$$` into a file.
    pub(crate) async fn from_file(fleet: &Fleet, name: &str) -> Self {
        let number = fleet.wait_for_line(name).await;
        let number = number.trim().parse().expect("a process id");
        Self(Pid::from_raw(number).expect("a process id"))
    }

    pub(crate) async fn wait_for_exit(&self) {
        wait_until("the exit of the command", || test_kill_process(self.0).is_err()).await;
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        let _ = kill_process_group(self.0, Signal::KILL);
    }
}

/// Fails if `text` lacks one of the expected parts.
#[track_caller]
pub(crate) fn assert_contains(text: &str, expected: &[&str]) {
    let missing: Vec<_> = expected.iter().filter(|part| !text.contains(**part)).collect();
    assert!(missing.is_empty(), "missing {missing:?} in:\n{text}");
}
