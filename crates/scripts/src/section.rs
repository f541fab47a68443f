//! `[scripts]`: who runs scripts in this process, and with which limits.

use std::{path::PathBuf, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use rockbot_tools::{Executed, ToolContext, ToolFailure};
use serde::Deserialize;
use tokio::sync::OnceCell;

use crate::{
    docker::{DockerError, DockerOptions, DockerRunner},
    local::{LocalOptions, LocalRunner, PackageOptions, Sandbox, StartError},
    prepared::PreparedImage,
    requirement::UnusableRequirement,
    runner::{Isolation, Script, ScriptOutcome, ScriptRunner},
};

/// Who runs scripts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunnerName {
    /// Nobody.
    #[default]
    Off,
    /// This machine, in a sandbox.
    Local,
    /// Containers of the Docker on this machine.
    Docker,
    /// The scripts managers on the bus.
    Bus,
}

/// `[scripts]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ScriptsSection {
    /// Who runs scripts. Default nobody.
    pub runner: RunnerName,
    /// The interpreter of local scripts: a path, or a name that is looked up in `PATH`. Default
    /// `python3`.
    pub python: PathBuf,
    /// How much isolation local scripts must have. Default `best-effort`; the production profile
    /// wants `required`.
    pub sandbox: Sandbox,
    /// The memory of all processes of a script together, in MiB. Default 512.
    pub memory_mib: u64,
    /// The folder of a script, which is held in memory, in MiB. Default 64.
    pub disk_mib: u64,
    /// Processes and threads of a script at a time. Default 64.
    pub processes: u32,
    /// How much a script may print before it is ended, in bytes. Default 1 MiB.
    pub output_bytes: usize,
    /// Scripts that run at a time. Default 8.
    pub concurrency: usize,
    /// Scripts that wait for their turn; more are refused as overloaded. Default 64.
    pub waiting: usize,
    /// Whether an interpreter is kept warm for local scripts. Default true.
    pub warm: bool,
    /// Whether local scripts may have packages of PyPI, as wheels. Default false. They need a folder.
    pub packages: bool,
    /// Where those are kept. Default `script-packages` in the folder for state; where there is none,
    /// neither are packages.
    pub package_folder: Option<PathBuf>,
    /// Containers.
    pub docker: DockerSection,
}

/// `[scripts.docker]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DockerSection {
    /// The image of scripts that need no packages. Default `python:3.12-slim`.
    pub image: String,
    /// Images that have packages.
    pub images: Vec<PreparedImage>,
    /// The runtime, such as `runsc`. Default: Docker's own.
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
            concurrency: local.at_once,
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
    /// What is wrong with it, in words for an operator. `here` are the runners that the process can
    /// have.
    #[must_use]
    pub fn problems(&self, here: &[RunnerName], production: bool) -> Vec<String> {
        let mut problems = Vec::new();
        let mut check = |fits: bool, problem: &str| {
            if !fits {
                problems.push(format!("scripts.{problem}"));
            }
        };
        let known = self.runner == RunnerName::Off || here.contains(&self.runner);
        check(known, "runner: this program can't have that one");
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
        problems
    }

    /// The same on another runner.
    #[must_use]
    pub fn on(mut self, runner: RunnerName) -> Self {
        self.runner = runner;
        self
    }

    /// Starts who runs scripts in this process; nobody when they are off or run elsewhere.
    ///
    /// # Errors
    /// When they can't be run here; says what to do.
    pub async fn start(&self) -> Result<Option<Scripts>, CannotStart> {
        Ok(match self.runner {
            RunnerName::Off | RunnerName::Bus => None,
            RunnerName::Local => {
                Some(Scripts::Local(Arc::new(LocalRunner::start(self.local()).await?)))
            }
            RunnerName::Docker => {
                let runner = DockerRunner::start(self.containers())?;
                let isolation = runner.isolation().await?.clone();
                Some(Scripts::Docker(Arc::new(runner), isolation))
            }
        })
    }

    fn local(&self) -> LocalOptions {
        let packages = self.package_folder().filter(|_| self.packages).map(PackageOptions::new);
        LocalOptions {
            python: self.python.clone(),
            sandbox: self.sandbox,
            memory_bytes: self.memory_mib * MIB,
            disk_bytes: self.disk_mib * MIB,
            processes: self.processes,
            stdout_bytes: self.output_bytes,
            at_once: self.concurrency,
            waiting: self.waiting,
            warm: self.warm,
            packages,
            ..LocalOptions::default()
        }
    }

    fn containers(&self) -> DockerOptions {
        let DockerSection { image, images, runtime } = self.docker.clone();
        DockerOptions {
            image,
            images,
            runtime,
            memory_bytes: self.memory_mib * MIB,
            disk_bytes: self.disk_mib * MIB,
            processes: self.processes,
            stdout_bytes: self.output_bytes,
            at_once: self.concurrency,
            waiting: self.waiting,
            ..DockerOptions::default()
        }
    }

    fn package_folder(&self) -> Option<PathBuf> {
        let of_state = || rockbot_store::state_folder().map(|state| state.join("script-packages"));
        self.package_folder.clone().or_else(of_state)
    }
}

/// The most that a script may print: a message on the bus takes 4 MiB.
const MAX_OUTPUT_BYTES: usize = 3 * 1024 * 1024;

/// Why nobody runs scripts in this process; for the operator.
#[derive(Debug, thiserror::Error)]
pub enum CannotStart {
    /// Not on this machine.
    #[error(transparent)]
    Local(#[from] StartError),
    /// Not with its Docker.
    #[error(transparent)]
    Docker(#[from] DockerError),
    /// A prepared image has what is no package.
    #[error("scripts.docker.images: {0}")]
    Images(#[from] UnusableRequirement),
}

/// How long containers may take to be gone when their process ends.
const CONTAINERS_GONE: Duration = Duration::from_secs(10);

/// Who runs scripts in this process.
#[derive(Debug, Clone)]
pub enum Scripts {
    /// This machine.
    Local(Arc<LocalRunner>),
    /// Its Docker, and what that isolates by.
    Docker(Arc<DockerRunner>, Isolation),
}

impl Scripts {
    /// The runner.
    #[must_use]
    pub fn runner(&self) -> Arc<dyn ScriptRunner> {
        match self {
            Self::Local(runner) => runner.clone(),
            Self::Docker(runner, _) => runner.clone(),
        }
    }

    /// What keeps its scripts from everything else.
    #[must_use]
    pub fn isolation(&self) -> &Isolation {
        match self {
            Self::Local(runner) => runner.isolation(),
            Self::Docker(_, isolation) => isolation,
        }
    }

    /// Ends its scripts, and all that it keeps for them.
    pub async fn close(&self) {
        match self {
            Self::Local(runner) => runner.close().await,
            Self::Docker(runner, _) => runner.stop(CONTAINERS_GONE).await,
        }
    }
}

/// Starts who runs scripts with the first script, so that a process that runs none pays nothing.
#[derive(Debug)]
pub struct LazyScripts {
    section: ScriptsSection,
    started: OnceCell<Scripts>,
}

impl LazyScripts {
    /// Starts nothing yet.
    #[must_use]
    pub fn new(section: ScriptsSection) -> Self {
        Self { section, started: OnceCell::new() }
    }

    /// Ends what was started.
    pub async fn close(&self) {
        if let Some(started) = self.started.get() {
            started.close().await;
        }
    }

    async fn started(&self) -> Result<&Scripts, ToolFailure> {
        let start = async || match self.section.start().await {
            Ok(Some(scripts)) => Ok(scripts),
            Ok(None) => Err(unavailable("scripts are off here")),
            Err(error) => {
                tracing::warn!(%error, "scripts can't be run");
                Err(unavailable("scripts can't be run here now; an operator must look at it"))
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
    fn what_can_not_be_is_told_at_once() {
        let section = ScriptsSection {
            runner: RunnerName::Bus,
            memory_mib: 1,
            concurrency: 0,
            ..ScriptsSection::default()
        };
        let problems = section.problems(&[RunnerName::Local], false);
        assert_eq!(problems.len(), 3, "{problems:?}");
        let local = ScriptsSection::default().on(RunnerName::Local);
        assert!(local.problems(&[RunnerName::Local], false).is_empty());
        let problems = local.problems(&[RunnerName::Local], true);
        assert_eq!(
            problems,
            ["scripts.sandbox: in the production profile it must be \"required\""]
        );
    }
}
