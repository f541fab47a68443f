//! Where scripts run in containers: a daemon that `cargo xtask test` provides.

use std::time::Duration;

use rockbot_contracts::{AgentName, SessionId};
use rockbot_scripts::{DockerOptions, DockerRunner, Script, ScriptOutcome, ScriptRunner};
use rockbot_testkit::fixture::{TEST_TIMEOUT, within_timeout};
use rockbot_tools::{ToolContext, ToolFailure};
use tokio::process::Command;

/// A runner, and another way to ask its daemon.
pub(super) struct Stage {
    pub(super) runner: DockerRunner,
    host: String,
}

/// What `cargo xtask test` says, or the environment.
///
/// # Panics
/// Without it: a test that needs Docker and has none fails, and says what to do.
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

/// Options for that daemon.
pub(super) fn options() -> DockerOptions {
    DockerOptions {
        host: Some(named("ROCKBOT_TEST_DOCKER_HOST")),
        image: named("ROCKBOT_TEST_DOCKER_IMAGE"),
        ..DockerOptions::default()
    }
}

/// A call with time.
pub(super) fn context() -> ToolContext {
    let agent = AgentName::new("assistant").unwrap();
    ToolContext::new("execute_python_script", SessionId::generate(), agent)
}

/// A script that may take a while.
pub(super) fn script(code: &str) -> Script {
    Script::new(code).unwrap()
}

/// A script that may take a few seconds.
pub(super) fn brief(code: &str) -> Script {
    script(code).within(Duration::from_secs(3)).unwrap()
}

impl Stage {
    pub(super) fn set() -> Self {
        Self::with(options())
    }

    pub(super) fn with(options: DockerOptions) -> Self {
        let host = options.host.clone().unwrap();
        Self { runner: DockerRunner::start(options).unwrap(), host }
    }

    /// Runs a script to its end.
    pub(super) async fn try_run(&self, script: &Script) -> Result<ScriptOutcome, ToolFailure> {
        let context = context();
        within_timeout("the end of a script", self.runner.run(script, &context)).await
    }

    /// Runs a script, of which there must be an outcome.
    pub(super) async fn run(&self, script: &Script) -> ScriptOutcome {
        self.try_run(script).await.unwrap()
    }

    /// What a script prints that ends well.
    pub(super) async fn printed(&self, code: &str) -> String {
        let outcome = self.run(&script(code)).await;
        assert_eq!((outcome.exit_code, outcome.stderr.as_str()), (0, ""), "{outcome:?}");
        outcome.stdout.trim_end().to_owned()
    }

    /// What Docker says, whether it succeeds or not.
    pub(super) async fn docker(&self, words: &[&str]) -> String {
        let mut command = Command::new("docker");
        let output = command.env("DOCKER_HOST", &self.host).args(words).output().await.unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Returns when the script of a call runs.
    pub(super) async fn running(&self, context: &ToolContext) {
        let name = DockerRunner::container_name(&context.tool_call_id);
        within_timeout("the script runs", async {
            while !self.docker(&["top", &name]).await.contains("-X utf8 /tmp/script.py") {}
        })
        .await;
    }

    /// Whether there is a container of a call, running or not.
    pub(super) async fn has_container(&self, context: &ToolContext) -> bool {
        let name = DockerRunner::container_name(&context.tool_call_id);
        let filter = format!("name={name}");
        !self.docker(&["ps", "--all", "--quiet", "--filter", &filter]).await.trim().is_empty()
    }

    /// Returns when there is no container of a call.
    pub(super) async fn gone(&self, context: &ToolContext) {
        within_timeout("the container is gone", async {
            while self.has_container(context).await {}
        })
        .await;
    }

    /// Nothing is left of a call once the runner has cleared away.
    pub(super) async fn clear_of(&self, context: &ToolContext) {
        self.runner.stop(TEST_TIMEOUT).await;
        assert!(!self.has_container(context).await, "a container is left");
    }
}
