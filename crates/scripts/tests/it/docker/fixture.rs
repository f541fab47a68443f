//! Docker runners on the daemon that `cargo xtask test` provides.

use std::time::Duration;

use rockbot_contracts::{AgentName, SessionId};
use rockbot_scripts::{DockerOptions, DockerRunner, Script, ScriptOutcome, ScriptRunner};
use rockbot_testkit::fixture::{TEST_TIMEOUT, within_timeout};
use rockbot_tools::{ToolContext, ToolFailure};
use tokio::process::Command;

/// A runner, and direct access to its daemon.
pub(super) struct Fixture {
    pub(super) runner: DockerRunner,
    host: String,
}

/// Returns a variable that `cargo xtask test` or the environment sets.
///
/// # Panics
/// If it is unset: tests without Docker fail with the remedy.
fn named(variable: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| {
        panic!(
            "this test needs Docker: run `cargo xtask test` as root on Linux, or set \
             ROCKBOT_TEST_DOCKER_HOST to a DOCKER_HOST (unix:///var/run/docker.sock) and \
             ROCKBOT_TEST_DOCKER_IMAGE to an image there with a python3 (python:3.12-slim); \
             {variable} is not set"
        )
    })
}

/// Returns options for that daemon.
pub(super) fn options() -> DockerOptions {
    DockerOptions {
        host: Some(named("ROCKBOT_TEST_DOCKER_HOST")),
        image: named("ROCKBOT_TEST_DOCKER_IMAGE"),
        ..DockerOptions::default()
    }
}

/// Returns the context of a new call.
pub(super) fn context() -> ToolContext {
    let agent = AgentName::new("assistant").unwrap();
    ToolContext::new("execute_python_script", SessionId::generate(), agent)
}

/// Returns a script with the default timeout.
pub(super) fn script(code: &str) -> Script {
    Script::new(code).unwrap()
}

/// Returns a script with a timeout of 3 s.
pub(super) fn brief(code: &str) -> Script {
    script(code).with_timeout(Duration::from_secs(3)).unwrap()
}

impl Fixture {
    pub(super) fn new() -> Self {
        Self::with_options(options())
    }

    pub(super) fn with_options(options: DockerOptions) -> Self {
        let host = options.host.clone().unwrap();
        Self { runner: DockerRunner::start(options).unwrap(), host }
    }

    /// Runs a script to its end.
    pub(super) async fn try_run(&self, script: &Script) -> Result<ScriptOutcome, ToolFailure> {
        let context = context();
        within_timeout("the end of a script", self.runner.run(script, &context)).await
    }

    /// Runs a script that must have an outcome.
    pub(super) async fn run(&self, script: &Script) -> ScriptOutcome {
        self.try_run(script).await.unwrap()
    }

    /// Returns the output of a script that must succeed.
    pub(super) async fn output_of(&self, code: &str) -> String {
        let outcome = self.run(&script(code)).await;
        assert_eq!((outcome.exit_code, outcome.stderr.as_str()), (0, ""), "{outcome:?}");
        outcome.stdout.trim_end().to_owned()
    }

    /// Runs a Docker command and returns its stdout, even if it fails.
    pub(super) async fn docker(&self, arguments: &[&str]) -> String {
        let mut command = Command::new("docker");
        let output = command.env("DOCKER_HOST", &self.host).args(arguments).output().await.unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Waits until the script of a call runs.
    pub(super) async fn wait_running(&self, context: &ToolContext) {
        let name = DockerRunner::container_name(&context.tool_call_id);
        within_timeout("the script runs", async {
            while !self.docker(&["top", &name]).await.contains("-X utf8 /tmp/script.py") {}
        })
        .await;
    }

    /// Returns whether a call has a container, running or not.
    pub(super) async fn has_container(&self, context: &ToolContext) -> bool {
        let name = DockerRunner::container_name(&context.tool_call_id);
        let filter = format!("name={name}");
        !self.docker(&["ps", "--all", "--quiet", "--filter", &filter]).await.trim().is_empty()
    }

    /// Waits until the container of a call is removed.
    pub(super) async fn wait_removed(&self, context: &ToolContext) {
        within_timeout("the removal of the container", async {
            while self.has_container(context).await {}
        })
        .await;
    }

    /// Asserts that the runner has removed the container of a call.
    pub(super) async fn assert_removed(&self, context: &ToolContext) {
        self.runner.stop(TEST_TIMEOUT).await;
        assert!(!self.has_container(context).await, "the container was not removed");
    }
}
