//! `[scripts]`: the runner of a process and its limits.

use std::{path::PathBuf, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use rockbot_tools::{Executed, ToolContext, ToolFailure};
use serde::Deserialize;
use tokio::sync::OnceCell;

use crate::{
    docker::{DockerError, DockerOptions, DockerRunner},
    local::{LocalOptions, LocalRunner, PackageOptions, Sandbox, StartError},
    prepared::PreparedImage,
    requirement::InvalidRequirement,
    runner::{Isolation, Script, ScriptOutcome, ScriptRunner},
};

/// The runner of scripts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunnerName {
    /// No scripts.
    #[default]
    Off,
    /// A sandbox on this machine.
    Local,
    /// Containers of this machine's Docker daemon.
    Docker,
    /// The scripts manager, over the bus.
    Bus,
}

/// `[scripts]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ScriptsSection {
    /// The runner. Default `off`.
    pub runner: RunnerName,
    /// The interpreter of local scripts: a path, or a name that is looked up in `PATH`. Default
    /// `python3`.
    pub python: PathBuf,
    /// The isolation that local scripts require. Default `best-effort`; the production profile needs
    /// `required`.
    pub sandbox: Sandbox,
    /// The memory of all processes of a script together, in MiB. Default 512.
    pub memory_mib: u64,
    /// The size of a script's folder, which is held in memory, in MiB. Default 64.
    pub disk_mib: u64,
    /// The processes and threads of a script. Default 64.
    pub processes: u32,
    /// The most output of a script, in bytes; a script that prints more is stopped. Default 1 MiB.
    pub output_bytes: usize,
    /// The scripts that run at the same time. Default 8.
    pub concurrency: usize,
    /// The scripts that wait for a permit; more are rejected as overloaded. Default 64.
    pub waiting: usize,
    /// Keeps an interpreter warm for local scripts. Default true.
    pub warm: bool,
    /// Permits PyPI packages for local scripts, as wheels. Default false. Needs `package_folder`.
    pub packages: bool,
    /// The folder of installed packages. Default `script-packages` in the state folder; without a state
    /// folder, packages are disabled.
    pub package_folder: Option<PathBuf>,
    /// Options of the Docker runner.
    pub docker: DockerSection,
}

/// `[scripts.docker]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DockerSection {
    /// The image of scripts without packages. Default `python:3.12-slim`.
    pub image: String,
    /// Images with packages.
    pub images: Vec<PreparedImage>,
    /// The container runtime, such as `runsc`. Default: the daemon's own.
    pub runtime: Option<String>,
}

impl Default for DockerSection {
    fn default() -> Self {
        let DockerOptions { image, images, runtime, .. } = DockerOptions::default();
        Self { image, images, runtime }
    }
}

impl Default for ScriptsSection {
    fn default() -> Self {
        let local = LocalOptions::default();
        Self {
            runner: RunnerName::Off,
            python: local.python,
            sandbox: local.sandbox,
            memory_mib: local.memory_bytes / MIB,
            disk_mib: local.disk_bytes / MIB,
            processes: local.processes,
            output_bytes: local.stdout_bytes,
            concurrency: local.concurrency,
            waiting: local.waiting,
            warm: local.warm,
            packages: false,
            package_folder: None,
            docker: DockerSection::default(),
        }
    }
}

const MIB: u64 = 1024 * 1024;

impl ScriptsSection {
    /// Validates the section and returns all errors, for the operator. `supported` are the runners
    /// that the process offers.
    #[must_use]
    pub fn validate(&self, supported: &[RunnerName], production: bool) -> Vec<String> {
        let mut errors = Vec::new();
        let mut check = |valid: bool, error: &str| {
            if !valid {
                errors.push(format!("scripts.{error}"));
            }
        };
        let known = self.runner == RunnerName::Off || supported.contains(&self.runner);
        check(known, "runner: not supported by this program");
        check((16..=65_536).contains(&self.memory_mib), "memory_mib: must be 16 to 65536");
        check((1..=65_536).contains(&self.disk_mib), "disk_mib: must be 1 to 65536");
        check((1..=4096).contains(&self.processes), "processes: must be 1 to 4096");
        let output = 1024..=MAX_OUTPUT_BYTES;
        check(output.contains(&self.output_bytes), "output_bytes: must be 1024 to 3145728");
        check((1..=1024).contains(&self.concurrency), "concurrency: must be 1 to 1024");
        check(self.waiting <= 65_536, "waiting: must be at most 65536");
        let local = self.runner == RunnerName::Local;
        let sandboxed = !local || !production || self.sandbox == Sandbox::Required;
        check(sandboxed, "sandbox: in the production profile it must be \"required\"");
        errors
    }

    /// Sets the runner.
    #[must_use]
    pub fn with_runner(mut self, runner: RunnerName) -> Self {
        self.runner = runner;
        self
    }

    /// Starts the runner of this process. Returns `None` if scripts are off or run elsewhere.
    ///
    /// # Errors
    /// When the runner can't start; the error has the remedy.
    pub async fn start(&self) -> Result<Option<Scripts>, ScriptsStartError> {
        Ok(match self.runner {
            RunnerName::Off | RunnerName::Bus => None,
            RunnerName::Local => {
                Some(Scripts::Local(Arc::new(LocalRunner::start(self.local_options()).await?)))
            }
            RunnerName::Docker => {
                let runner = DockerRunner::start(self.docker_options())?;
                let isolation = runner.isolation().await?.clone();
                Some(Scripts::Docker(Arc::new(runner), isolation))
            }
        })
    }

    fn local_options(&self) -> LocalOptions {
        let packages = self.package_folder().filter(|_| self.packages).map(PackageOptions::new);
        LocalOptions {
            python: self.python.clone(),
            sandbox: self.sandbox,
            memory_bytes: self.memory_mib * MIB,
            disk_bytes: self.disk_mib * MIB,
            processes: self.processes,
            stdout_bytes: self.output_bytes,
            concurrency: self.concurrency,
            waiting: self.waiting,
            warm: self.warm,
            packages,
            ..LocalOptions::default()
        }
    }

    fn docker_options(&self) -> DockerOptions {
        let DockerSection { image, images, runtime } = self.docker.clone();
        DockerOptions {
            image,
            images,
            runtime,
            memory_bytes: self.memory_mib * MIB,
            disk_bytes: self.disk_mib * MIB,
            processes: self.processes,
            stdout_bytes: self.output_bytes,
            concurrency: self.concurrency,
            waiting: self.waiting,
            ..DockerOptions::default()
        }
    }

    fn package_folder(&self) -> Option<PathBuf> {
        let default = || rockbot_store::state_folder().map(|state| state.join("script-packages"));
        self.package_folder.clone().or_else(default)
    }
}

/// The most output that fits into a message: the bus accepts 4 MiB.
const MAX_OUTPUT_BYTES: usize = 3 * 1024 * 1024;

/// An error that keeps the runner of a process from starting; for the operator.
#[derive(Debug, thiserror::Error)]
pub enum ScriptsStartError {
    /// The local runner can't start.
    #[error(transparent)]
    Local(#[from] StartError),
    /// Docker is not available.
    #[error(transparent)]
    Docker(#[from] DockerError),
    /// A package of a prepared image is not valid.
    #[error("scripts.docker.images: {0}")]
    Images(#[from] InvalidRequirement),
}

/// Time limit for the removal of containers at shutdown.
const CONTAINER_REMOVAL_TIMEOUT: Duration = Duration::from_secs(10);

/// The started runner of a process.
#[derive(Debug, Clone)]
pub enum Scripts {
    /// The sandbox on this machine.
    Local(Arc<LocalRunner>),
    /// Docker, with the isolation that the daemon reports.
    Docker(Arc<DockerRunner>, Isolation),
}

impl Scripts {
    /// Returns the runner.
    #[must_use]
    pub fn runner(&self) -> Arc<dyn ScriptRunner> {
        match self {
            Self::Local(runner) => runner.clone(),
            Self::Docker(runner, _) => runner.clone(),
        }
    }

    /// Returns the isolation of its scripts.
    #[must_use]
    pub fn isolation(&self) -> &Isolation {
        match self {
            Self::Local(runner) => runner.isolation(),
            Self::Docker(_, isolation) => isolation,
        }
    }

    /// Stops its scripts and releases its resources.
    pub async fn close(&self) {
        match self {
            Self::Local(runner) => runner.close().await,
            Self::Docker(runner, _) => runner.stop(CONTAINER_REMOVAL_TIMEOUT).await,
        }
    }
}

/// A runner that starts with the first script, at no cost for a process that runs none.
#[derive(Debug)]
pub struct LazyScripts {
    section: ScriptsSection,
    started: OnceCell<Scripts>,
}

impl LazyScripts {
    /// Creates a runner without starting it.
    #[must_use]
    pub fn new(section: ScriptsSection) -> Self {
        Self { section, started: OnceCell::new() }
    }

    /// Stops the runner if it was started.
    pub async fn close(&self) {
        if let Some(started) = self.started.get() {
            started.close().await;
        }
    }

    async fn started(&self) -> Result<&Scripts, ToolFailure> {
        let start = async || match self.section.start().await {
            Ok(Some(scripts)) => Ok(scripts),
            Ok(None) => Err(unavailable("scripts are disabled here")),
            Err(error) => {
                tracing::warn!(%error, "script runner start failed");
                Err(unavailable("scripts are not available here; ask an operator to check the log"))
            }
        };
        self.started.get_or_try_init(start).await
    }
}

impl ScriptRunner for LazyScripts {
    fn run<'a>(
        &'a self,
        script: &'a Script,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ScriptOutcome, ToolFailure>> {
        Box::pin(async move { self.started().await?.runner().run(script, context).await })
    }
}

fn unavailable(message: &str) -> ToolFailure {
    ToolFailure::Unavailable { message: message.to_owned(), executed: Executed::No }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_settings_are_reported_together() {
        let section = ScriptsSection {
            runner: RunnerName::Bus,
            memory_mib: 1,
            concurrency: 0,
            ..ScriptsSection::default()
        };
        let errors = section.validate(&[RunnerName::Local], false);
        assert_eq!(errors.len(), 3, "{errors:?}");
        let local = ScriptsSection::default().with_runner(RunnerName::Local);
        assert!(local.validate(&[RunnerName::Local], false).is_empty());
        let errors = local.validate(&[RunnerName::Local], true);
        assert_eq!(errors, ["scripts.sandbox: in the production profile it must be \"required\""]);
    }
}
