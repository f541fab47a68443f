//! A fleet for one test: its own namespace on the test broker, and a folder for its file tools.

use std::{fs, path::PathBuf, sync::Arc};

use rockbot_bus::Bus;
use rockbot_bus_rabbitmq::{RabbitBus, RabbitConfig};
use rockbot_contracts::{QueueSpec, topology::tool_invoke};
use rockbot_testkit::fixture::{self, wait_until};
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

use crate::{
    binaries,
    process::{Ended, Running},
};

pub(crate) struct Fleet {
    pub(crate) namespace: String,
    folder: TempDir,
}

impl Fleet {
    pub(crate) fn new() -> Self {
        let folder = TempDir::new().expect("a folder");
        Self { namespace: fixture::fresh_namespace(), folder }
    }

    /// A program of the fleet with nothing else in its environment, in the fleet's folder.
    pub(crate) fn program(&self, name: &str) -> Command {
        let mut command = self.bare_program(name);
        command
            .env("ROCKBOT_BUS__URL", fixture::test_broker_url())
            .env("ROCKBOT_BUS__NAMESPACE", &self.namespace);
        command
    }

    /// The same without a bus.
    pub(crate) fn bare_program(&self, name: &str) -> Command {
        let mut command = Command::new(binaries::path(name));
        command
            .current_dir(self.folder.path())
            .env_clear()
            .env("ROCKBOT_LOG__FORMAT", "text")
            .env("ROCKBOT_STORE__URL", format!("sqlite:{}", self.path("calls.db").display()))
            .env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command
    }

    /// A tool handler that takes calls.
    pub(crate) async fn handler(&self, instance: &str) -> Running {
        self.handler_in(instance, &self.folder.path().display().to_string()).await
    }

    /// A tool handler that takes calls, with its files elsewhere.
    pub(crate) async fn handler_in(&self, instance: &str, root: &str) -> Running {
        self.handler_with(instance, &[("ROCKBOT_FILES__ROOT", root)]).await
    }

    /// A tool handler that takes calls, with other settings.
    pub(crate) async fn handler_with(&self, instance: &str, settings: &[(&str, &str)]) -> Running {
        let mut command = self.program("rockbot-tool-handler");
        command
            .env("ROCKBOT_SERVICE__INSTANCE", instance)
            .env("ROCKBOT_FILES__ROOT", self.folder.path())
            .envs(settings.iter().copied());
        let mut running = Running::start(command);
        running.says("ready").await;
        running
    }

    /// A bridge that serves these MCP servers, from the file `<instance>.json`.
    pub(crate) async fn bridge(&self, instance: &str, servers: &Value) -> Running {
        self.bridge_with(instance, servers, &[]).await
    }

    /// The same with other settings.
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
        running.says("ready").await;
        running
    }

    /// How many calls wait for a handler, including the quarantine, and how many are dead letters.
    pub(crate) async fn waiting_and_dead(&self, bus: &Arc<dyn Bus>) -> (u32, u32) {
        let calls = QueueSpec::work(&tool_invoke());
        let quarantine = QueueSpec::quarantine(&tool_invoke());
        let queues = [calls.dead_letters().name, calls.name, quarantine.name];
        let report = bus.inspect(&queues).await.expect("a report");
        let ready = |at: usize| report.queues[at].depth().map_or(0, |depth| depth.ready);
        (ready(1) + ready(2), ready(0))
    }

    /// Starts `rockbot` as a client of this fleet.
    pub(crate) fn start(&self, arguments: &[&str]) -> Running {
        let mut command = self.program("rockbot");
        command.args(arguments);
        Running::start(command)
    }

    /// Runs `rockbot` as a client of this fleet to its end.
    pub(crate) async fn run(&self, arguments: &[&str]) -> Ended {
        self.start(arguments).ended().await
    }

    /// A connection of the test itself to the bus of the fleet.
    pub(crate) async fn bus(&self, config: impl FnOnce(&mut RabbitConfig)) -> Arc<dyn Bus> {
        let mut settings = RabbitConfig::new(fixture::test_broker_url(), "an e2e test");
        settings.namespace.clone_from(&self.namespace);
        config(&mut settings);
        let bus = RabbitBus::start(&settings).expect("a usable URL");
        bus.connected(fixture::TEST_TIMEOUT).await.expect("the test broker answers");
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

    /// Waits for a file of the fleet.
    pub(crate) async fn exists(&self, name: &str) {
        let path = self.path(name);
        wait_until(name, || path.exists()).await;
    }

    /// Waits for a line in a file that a command writes, and returns the file's text.
    pub(crate) async fn line_in(&self, name: &str) -> String {
        let path = self.path(name);
        let read = || fs::read_to_string(&path).unwrap_or_default();
        wait_until(name, || read().ends_with('\n')).await;
        read()
    }
}

/// The process group of a command that a handler runs. Dropping it kills what is left of it.
pub(crate) struct Group(Pid);

impl Group {
    /// Waits for a command to write `$$` into a file.
    pub(crate) async fn from_file(fleet: &Fleet, name: &str) -> Self {
        let number = fleet.line_in(name).await;
        let number = number.trim().parse().expect("a process id");
        Self(Pid::from_raw(number).expect("a process id"))
    }

    pub(crate) async fn is_gone(&self) {
        wait_until("the end of the command", || test_kill_process(self.0).is_err()).await;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = kill_process_group(self.0, Signal::KILL);
    }
}

/// Fails with what is missing of `words` in `text`.
#[track_caller]
pub(crate) fn assert_says(text: &str, words: &[&str]) {
    let missing: Vec<_> = words.iter().filter(|word| !text.contains(**word)).collect();
    assert!(missing.is_empty(), "missing {missing:?} in:\n{text}");
}
