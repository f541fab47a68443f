//! Scripts on this machine, each in its own sandbox.
//!
//! The sandbox is set up in Python, by the process that becomes the script (`jail.py`): a warm
//! interpreter is forked first, and the fork then confines itself. `server.py` forks and supervises,
//! `run.py` runs the script. This module selects the mechanisms of the jail.
//!
//! The available mechanisms depend on the machine. A runner tries them when it starts, strongest first,
//! with a script that attempts forbidden operations:
//!
//! 1. namespaces created by the jail, with Landlock and a filter of system calls as a second layer;
//! 2. namespaces created by bubblewrap, where only that program may create them. Every script then
//!    needs its own interpreter, since forks inside bubblewrap are not isolated from each other;
//! 3. Landlock and the filter alone, as in most containers.

mod cgroup;
mod environment;
mod error;
mod folders;
mod installer;
mod interpreter;
mod options;
mod packages;
mod plan;
mod probe;
mod run;
mod seccomp;
mod server;

use std::{
    env,
    fs::File,
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use futures_util::future::BoxFuture;
use rockbot_contracts::script::ScriptLimit;
use rockbot_tools::{Executed, ToolContext, ToolFailure};
use tempfile::TempDir;
use tokio::{
    sync::Mutex,
    task::spawn_blocking,
    time::{Instant, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;

use self::{
    cgroup::{MemoryCgroup, MemoryCgroups},
    folders::ScriptFolder,
    interpreter::Interpreter,
    packages::{PackageSet, Packages},
    plan::{Namespaces, Plan},
    probe::ProbeTargets,
    run::{AbortReason, RunError, ScriptPaths, StopConditions},
    server::Server,
};
pub use self::{
    error::StartError,
    options::{LocalOptions, Mechanisms, PackageOptions, Sandbox},
};
use crate::{
    finished::FinishedScript,
    output_progress::OutputProgress,
    permits::RunPermits,
    runner::{Isolation, Script, ScriptOutcome, ScriptRunner},
};

const FOLDER_PREFIX: &str = "rockbot-scripts-";
/// Timeout of the script that probes the isolation.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit for running scripts to stop when the runner closes.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// Runs scripts on this machine. Linux only.
///
/// Dropping it kills its processes; [`LocalRunner::close`] also waits for them.
#[derive(Debug)]
pub struct LocalRunner {
    options: LocalOptions,
    plan: Plan,
    isolation: Isolation,
    permits: RunPermits,
    warm: Mutex<WarmServer>,
    packages: Option<Packages>,
    /// Set if a part of the hierarchy is delegated.
    cgroups: Option<Arc<MemoryCgroups>>,
    closing: CancellationToken,
    folder: TempDir,
    /// The lock of the folder, which marks it as in use.
    lock: File,
}

impl LocalRunner {
    /// Finds Python, probes the isolation, and starts the warm interpreter.
    ///
    /// # Errors
    /// Without a usable Python or temporary folder, and when complete isolation is required but not
    /// available.
    pub async fn start(options: LocalOptions) -> Result<Self, StartError> {
        let interpreter = Interpreter::find(&options.python).await?;
        spawn_blocking(|| folders::sweep(&env::temp_dir(), FOLDER_PREFIX));
        let mut folder = tempfile::Builder::new().prefix(FOLDER_PREFIX).tempdir()?;
        let mut lock = folders::lock(folder.path())?;
        let mut plan_options = options.clone();
        let packages = options.packages.as_ref().and_then(|packages| {
            Packages::open(packages, &interpreter)
                .inspect_err(|error| {
                    let folder = packages.folder.display();
                    tracing::warn!(%error, %folder, "package folder unusable; packages disabled");
                })
                .ok()
        });
        if packages.is_none() {
            plan_options.packages = None;
        }
        let targets = ProbeTargets::create(folder.path())?;
        let mut failures = Vec::new();
        let cgroups = memory_cgroups(&options);
        for (namespaces, bubblewrap, cgroups) in candidates(&options, cgroups.as_ref()) {
            let modules = folder.path().join(format!("{namespaces:?}").to_lowercase());
            let sandbox = options.sandbox != Sandbox::Off;
            let plan = Plan::write(
                namespaces,
                sandbox,
                &interpreter,
                &plan_options,
                bubblewrap,
                &modules,
            )?;
            let mut runner = Self {
                permits: RunPermits::new(options.concurrency, options.waiting),
                isolation: Isolation {
                    mechanism: plan.mechanism(cgroups.is_some()),
                    gaps: Vec::new(),
                },
                plan,
                cgroups,
                warm: Mutex::default(),
                packages: None,
                closing: CancellationToken::new(),
                options: options.clone(),
                folder,
                lock,
            };
            match runner.probe(&targets).await {
                Ok(gaps) => {
                    runner.isolation.gaps = gaps;
                    runner.packages = packages;
                    return runner.finish_start(failures).await;
                }
                Err(reason) => failures.push(format!("{}: {reason}", runner.isolation.mechanism)),
            }
            (folder, lock) = (runner.folder, runner.lock);
        }
        Err(StartError::NoScriptRuns { failures })
    }

    /// Returns the isolation of this runner's scripts, as probed when it started.
    #[must_use]
    pub fn isolation(&self) -> &Isolation {
        &self.isolation
    }

    /// Stops all scripts and the warm interpreter, and waits for their exit, at most 10 s.
    pub async fn close(&self) {
        self.closing.cancel();
        if timeout(CLOSE_TIMEOUT, self.permits.wait_idle()).await.is_err() {
            tracing::warn!("scripts still running at shutdown");
        }
        if let Some(server) = self.warm.lock().await.server.take() {
            server.stop().await;
        }
    }

    /// Runs the probe script and returns the gaps in the isolation.
    async fn probe(&self, targets: &ProbeTargets) -> Result<Vec<String>, String> {
        let script = targets
            .script(self.options.disk_bytes, self.options.processes)
            .map_err(|error| error.to_string())?;
        let stop = StopConditions {
            deadline: Instant::now() + PROBE_TIMEOUT,
            aborted: std::future::pending(),
        };
        let result = match self.cold_cell(None).await {
            Ok(cell) => self.follow(cell, &script, None, stop, OutputProgress::disabled()).await,
            Err(error) => Err(error),
        };
        let finished = result.map_err(|error| match error {
            AttemptError::Server(error) => error.to_string(),
            AttemptError::Run(RunError::NotStarted) => "the probe script did not start".to_owned(),
            AttemptError::Run(RunError::SandboxFailed(reason)) => reason,
            AttemptError::Run(RunError::Failed(failure)) => failure.to_string(),
        })?;
        probe::gaps(&finished.stdout).ok_or_else(|| {
            let last = finished.stderr.lines().last().unwrap_or("the probe script failed");
            last.to_owned()
        })
    }

    async fn finish_start(self, failures: Vec<String>) -> Result<Self, StartError> {
        let isolation = &self.isolation;
        if !isolation.is_complete() {
            match self.options.sandbox {
                Sandbox::Required => {
                    return Err(StartError::Isolation { isolation: isolation.clone(), failures });
                }
                Sandbox::BestEffort => tracing::warn!(
                    mechanism = %isolation.mechanism, gaps = ?isolation.gaps, ?failures,
                    "script isolation incomplete"
                ),
                Sandbox::Off => tracing::warn!("script sandbox disabled"),
            }
        }
        if self.is_warm() {
            match Server::warm(&self.plan).await {
                Ok(server) => self.warm.lock().await.server = Some(server),
                Err(error) => {
                    tracing::warn!(%error, "warm interpreter start failed; first script retries");
                }
            }
        }
        Ok(self)
    }

    fn is_warm(&self) -> bool {
        self.options.warm && self.plan.supports_warm()
    }

    async fn execute(
        &self,
        script: &Script,
        context: &ToolContext,
    ) -> Result<ScriptOutcome, ToolFailure> {
        let _permit = self.unless_stopped(context, self.permits.acquire()).await?;
        let set = self.package_set(script, context).await?;
        let mut may_retry = true;
        loop {
            match self.attempt(script, set.as_ref(), context).await {
                Ok(finished) => return Ok(finished.into_outcome(&self.isolation)),
                Err(AttemptError::Run(RunError::Failed(failure))) => return Err(failure),
                // The server was lost; nothing has run.
                Err(AttemptError::Run(RunError::NotStarted)) if may_retry => may_retry = false,
                Err(AttemptError::Run(RunError::NotStarted)) => {
                    return Err(unavailable("the script did not start; try again later"));
                }
                Err(AttemptError::Run(RunError::SandboxFailed(reason))) => {
                    tracing::warn!(%reason, "script sandbox setup failed");
                    return Err(unavailable("the sandbox could not be set up; try again later"));
                }
                Err(AttemptError::Server(error)) => {
                    tracing::warn!(%error, "script interpreter start failed");
                    return Err(unavailable("Python could not be started; try again later"));
                }
            }
        }
    }

    async fn attempt(
        &self,
        script: &Script,
        set: Option<&PackageSet>,
        context: &ToolContext,
    ) -> Result<FinishedScript, AttemptError> {
        let cell = if self.is_warm() {
            self.unless_stopped(context, self.warm_cell()).await?
        } else {
            self.unless_stopped(context, self.cold_cell(set)).await?
        };
        let stop = StopConditions {
            deadline: context.deadline,
            aborted: async {
                tokio::select! {
                    () = context.cancellation.cancelled() => AbortReason::Cancelled,
                    () = self.closing.cancelled() => AbortReason::Closing,
                }
            },
        };
        self.follow(cell, script, set, stop, OutputProgress::new(context)).await
    }

    /// Awaits a step before the script starts, unless the call or the runner is stopped.
    async fn unless_stopped<T, E: From<ToolFailure>>(
        &self,
        context: &ToolContext,
        step: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let (executed, waiting_since) = (Executed::No, Instant::now());
        let failure = tokio::select! {
            biased;
            () = self.closing.cancelled() => unavailable("the script runner is shutting down"),
            () = context.cancellation.cancelled() => ToolFailure::Cancelled { executed },
            result = step => return result,
            () = sleep_until(context.deadline) => {
                let after = waiting_since.elapsed();
                ToolFailure::TimedOut { after, executed, repeatable: true }
            }
        };
        Err(failure.into())
    }

    async fn package_set(
        &self,
        script: &Script,
        context: &ToolContext,
    ) -> Result<Option<PackageSet>, ToolFailure> {
        if script.packages().is_empty() {
            return Ok(None);
        }
        let Some(packages) = &self.packages else {
            if self.options.packages.is_some() {
                return Err(unavailable(
                    "packages can't be stored here; ask an operator to check the log",
                ));
            }
            return Err(ToolFailure::NotPermitted {
                reason: "packages are disabled here; use the standard library".to_owned(),
            });
        };
        self.unless_stopped(context, packages.set(script.packages())).await.map(Some)
    }

    /// Requests a cell from the warm interpreter, which is restarted if it has exited.
    async fn warm_cell(&self) -> Result<Cell, AttemptError> {
        let (cgroup, folder) = (self.cgroup()?, self.work_folder()?);
        let (pipes, descriptors) = run::connect(cgroup.as_ref())?;
        let waiting_since = Instant::now();
        let mut warm = self.warm.lock().await;
        let is_requested = match &warm.server {
            Some(server) => server.request(&descriptors).await.is_ok(),
            None => false,
        };
        if !is_requested {
            warm.server = None;
            // A start that failed while this waited counts as its own: another attempt would keep the
            // next one waiting for as long.
            if warm.failed_at.is_some_and(|failed_at| failed_at >= waiting_since) {
                return Err(io::Error::other("its start for another script failed").into());
            }
            let server = Server::warm(&self.plan).await.inspect_err(|_| {
                warm.failed_at = Some(Instant::now());
            })?;
            server.request(&descriptors).await?;
            warm.server = Some(server);
        }
        Ok(Cell { pipes, folder, cgroup, _server: None })
    }

    /// Starts an interpreter for a single script.
    async fn cold_cell(&self, set: Option<&PackageSet>) -> Result<Cell, AttemptError> {
        let (cgroup, folder) = (self.cgroup()?, self.work_folder()?);
        let (pipes, descriptors) = run::connect(cgroup.as_ref())?;
        let server = Server::cold(&self.plan, set.map(PackageSet::path)).await?;
        server.request(&descriptors).await?;
        Ok(Cell { pipes, folder, cgroup, _server: Some(server) })
    }

    async fn follow(
        &self,
        cell: Cell,
        script: &Script,
        set: Option<&PackageSet>,
        stop: StopConditions<impl Future<Output = AbortReason>>,
        progress: OutputProgress,
    ) -> Result<FinishedScript, AttemptError> {
        let Cell { pipes, folder, cgroup, _server } = cell;
        let imports = set.map(|set| self.plan.import_path(set.path()));
        let paths = ScriptPaths {
            packages: set.map(PackageSet::name).unwrap_or_default(),
            imports: imports.as_deref(),
            folder: folder.path(),
        };
        let request = run::encode_request(script, &paths);
        let followed = run::follow(pipes, &request, script, &self.options, stop, progress).await;
        let mut finished = followed.map_err(AttemptError::Run)?;
        if finished.ended_by.is_none() && cgroup.is_some_and(|cgroup| cgroup.was_exceeded()) {
            finished.ended_by = Some(ScriptLimit::Memory);
        }
        Ok(finished)
    }

    /// Creates the cgroup of a script, where there are any.
    fn cgroup(&self) -> Result<Option<MemoryCgroup>, ToolFailure> {
        let created = self.cgroups.as_ref().map(MemoryCgroups::create).transpose();
        created.map_err(|error| {
            tracing::warn!(%error, "memory cgroup of a script not created");
            unavailable("the memory of the script cannot be limited now; try again later")
        })
    }

    /// Returns the folder of a script: a fixed path in its own mount namespace, or a temporary folder.
    fn work_folder(&self) -> io::Result<WorkFolder> {
        Ok(match self.plan.script_folder() {
            Some(path) => WorkFolder::Private(path),
            None => WorkFolder::Shared(ScriptFolder::create(self.folder.path())?),
        })
    }
}

impl ScriptRunner for LocalRunner {
    fn run<'a>(
        &'a self,
        script: &'a Script,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ScriptOutcome, ToolFailure>> {
        Box::pin(self.execute(script, context))
    }
}

/// The interpreter that scripts are forked from.
#[derive(Debug, Default)]
struct WarmServer {
    server: Option<Server>,
    /// The time of the last failed start.
    failed_at: Option<Instant>,
}

/// A sandbox that waits for its script.
#[derive(Debug)]
struct Cell {
    pipes: run::RunnerPipes,
    folder: WorkFolder,
    cgroup: Option<MemoryCgroup>,
    /// The server of a cold interpreter, which serves this script only.
    _server: Option<Server>,
}

#[derive(Debug)]
enum WorkFolder {
    Private(&'static str),
    Shared(ScriptFolder),
}

impl WorkFolder {
    fn path(&self) -> &Path {
        match self {
            Self::Private(path) => Path::new(path),
            Self::Shared(folder) => folder.path(),
        }
    }
}

/// An error of one attempt to run a script.
#[derive(Debug)]
enum AttemptError {
    Server(io::Error),
    Run(RunError),
}

impl From<io::Error> for AttemptError {
    fn from(error: io::Error) -> Self {
        Self::Server(error)
    }
}

impl From<ToolFailure> for AttemptError {
    fn from(failure: ToolFailure) -> Self {
        Self::Run(RunError::Failed(failure))
    }
}

fn unavailable(message: &str) -> ToolFailure {
    ToolFailure::Unavailable { message: message.to_owned(), executed: Executed::No }
}

/// Returns the cgroups of scripts, if they can be had.
fn memory_cgroups(options: &LocalOptions) -> Option<Arc<MemoryCgroups>> {
    if !options.mechanisms.cgroups {
        return None;
    }
    let bytes = options.memory_bytes.saturating_add(options.disk_bytes);
    match MemoryCgroups::find(bytes) {
        Ok(cgroups) => return Some(Arc::new(cgroups)),
        Err(reason) if reason.is_unexpected() => {
            tracing::warn!(%reason, "scripts get no memory cgroups");
        }
        Err(reason) => tracing::debug!(%reason, "scripts get no memory cgroups"),
    }
    None
}

/// A provider of namespaces, the path of bubblewrap, and the cgroups.
type Candidate = (Namespaces, PathBuf, Option<Arc<MemoryCgroups>>);

/// Returns the mechanisms to try, strongest first.
fn candidates(options: &LocalOptions, cgroups: Option<&Arc<MemoryCgroups>>) -> Vec<Candidate> {
    let (mechanisms, mut candidates) = (options.mechanisms, Vec::new());
    let mut add = |namespaces, bubblewrap: PathBuf| {
        // A kernel before Linux 5.16 may refuse the cgroup to a script of another user.
        for cgroups in cgroups.cloned().map(Some).into_iter().chain([None]) {
            candidates.push((namespaces, bubblewrap.clone(), cgroups));
        }
    };
    if options.sandbox != Sandbox::Off {
        if mechanisms.namespaces {
            add(Namespaces::Own, PathBuf::new());
        }
        if mechanisms.bubblewrap
            && let Some(program) = environment::find_program("bwrap")
        {
            add(Namespaces::Bubblewrap, program);
        }
    }
    add(Namespaces::None, PathBuf::new());
    candidates
}
