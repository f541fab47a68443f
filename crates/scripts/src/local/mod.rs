//! Scripts on this machine, each in a sandbox of its own.
//!
//! A jail is set up in Python, by the process that becomes the script (`jail.py`): an interpreter that
//! is warm must be forked first, and what is forked has to put up its own walls. `server.py` forks and
//! keeps watch, `run.py` runs the script. What the jail is told is worked out here.
//!
//! Which walls there are depends on the machine, so a runner tries them when it starts, strongest
//! first, with a script that goes for what it must not reach:
//!
//! 1. namespaces that the jail makes, with Landlock and a filter of system calls as second walls;
//! 2. the same by bubblewrap, where only that program may make namespaces. Every script then needs an
//!    interpreter of its own: what forks inside bubblewrap can't have walls between its scripts;
//! 3. Landlock and the filter alone, as in most containers.

mod environment;
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
    time::Duration,
};

use futures_util::future::BoxFuture;
use rockbot_tools::{Executed, ToolContext, ToolFailure};
use tempfile::TempDir;
use tokio::{
    sync::Mutex,
    task::spawn_blocking,
    time::{Instant, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;

pub use self::options::{LocalOptions, Means, PackageOptions, Sandbox};
use self::{
    folders::ScriptFolder,
    interpreter::Interpreter,
    packages::{PackageSet, Packages},
    plan::{Plan, Walls},
    probe::Bait,
    run::{GivenUp, Lost, Places, Until},
    server::Server,
};
use crate::{
    ended::Ended,
    runner::{Isolation, Script, ScriptOutcome, ScriptRunner},
    slots::Slots,
};

const FOLDER_PREFIX: &str = "rockbot-scripts-";
/// How long the script that tries the walls may take.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long scripts may take to be gone when the runner closes.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// Runs scripts on this machine. Linux only.
///
/// Dropped, it ends what it started; [`LocalRunner::close`] also waits for that.
#[derive(Debug)]
pub struct LocalRunner {
    options: LocalOptions,
    plan: Plan,
    isolation: Isolation,
    slots: Slots,
    warm: Mutex<Warm>,
    packages: Option<Packages>,
    closing: CancellationToken,
    folder: TempDir,
    /// Says that the folder is in use.
    held: File,
}

/// Why scripts can't be run on this machine; for the operator.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// No Python that can be used.
    #[error(
        "{program} can't run scripts: {reason}; install Python 3.9 or later, or name another one"
    )]
    Python {
        /// As it was asked for.
        program: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Less isolation than is required.
    #[error(
        "scripts would not be isolated completely: {isolation}. Allow unprivileged user namespaces \
         (sysctl kernel.unprivileged_userns_clone=1, kernel.apparmor_restrict_unprivileged_userns=0, \
         or in a container a seccomp profile that permits them), or install bubblewrap, or ask for \
         less than `required`{}", tried(.refused)
    )]
    Isolation {
        /// What there would be.
        isolation: Isolation,
        /// What was tried, and why it did not work.
        refused: Vec<String>,
    },
    /// Not even a script without walls came to its end.
    #[error("no script runs here{}", tried(.refused))]
    Nothing {
        /// What was tried, and why it did not work.
        refused: Vec<String>,
    },
    /// The folder of the runner can't be used.
    #[error(
        "the folder of the scripts can't be used: {0}; check space and rights of the temporary folder"
    )]
    Folder(#[from] io::Error),
}

fn tried(refused: &[String]) -> String {
    refused.iter().map(|reason| format!("; {reason}")).collect()
}

impl LocalRunner {
    /// Finds Python, tries what isolates scripts here, and warms up.
    ///
    /// # Errors
    /// Without a usable Python or temporary folder, and when isolation is required and not complete.
    pub async fn start(options: LocalOptions) -> Result<Self, StartError> {
        let interpreter = Interpreter::find(&options.python).await?;
        spawn_blocking(|| folders::sweep(&env::temp_dir(), FOLDER_PREFIX));
        let mut folder = tempfile::Builder::new().prefix(FOLDER_PREFIX).tempdir()?;
        let mut held = folders::hold(folder.path())?;
        let mut offered = options.clone();
        let packages = options.packages.as_ref().and_then(|packages| {
            Packages::open(packages, &interpreter)
                .inspect_err(|error| {
                    let folder = packages.folder.display();
                    tracing::warn!(%error, %folder, "scripts get no packages: their folder can't be used");
                })
                .ok()
        });
        if packages.is_none() {
            offered.packages = None;
        }
        let bait = Bait::lay(folder.path())?;
        let mut refused = Vec::new();
        for (walls, bubblewrap) in candidates(&options) {
            let place = folder.path().join(format!("{walls:?}").to_lowercase());
            let sandbox = options.sandbox != Sandbox::Off;
            let plan = Plan::write(walls, sandbox, &interpreter, &offered, bubblewrap, &place)?;
            let mut runner = Self {
                slots: Slots::new(options.at_once, options.waiting),
                isolation: Isolation { by: plan.means(), missing: Vec::new() },
                plan,
                warm: Mutex::default(),
                packages: None,
                closing: CancellationToken::new(),
                options: options.clone(),
                folder,
                held,
            };
            match runner.probe(&bait).await {
                Ok(missing) => {
                    runner.isolation.missing = missing;
                    runner.packages = packages;
                    return runner.open(refused).await;
                }
                Err(reason) => refused.push(format!("{}: {reason}", runner.isolation.by)),
            }
            (folder, held) = (runner.folder, runner.held);
        }
        Err(StartError::Nothing { refused })
    }

    /// What keeps the scripts of this runner from everything else, as tried when it started.
    #[must_use]
    pub fn isolation(&self) -> &Isolation {
        &self.isolation
    }

    /// Ends all scripts and the warm interpreter, and waits until they are gone, ten seconds at most.
    pub async fn close(&self) {
        self.closing.cancel();
        if timeout(CLOSE_TIMEOUT, self.slots.idle()).await.is_err() {
            tracing::warn!("scripts were still running when their runner closed");
        }
        if let Some(server) = self.warm.lock().await.server.take() {
            server.end().await;
        }
    }

    /// Lets the script that tries the walls run, and says what they leave open.
    async fn probe(&self, bait: &Bait) -> Result<Vec<String>, String> {
        let script = bait
            .script(self.options.disk_bytes, self.options.processes)
            .map_err(|error| error.to_string())?;
        let until =
            Until { deadline: Instant::now() + PROBE_TIMEOUT, given_up: std::future::pending() };
        let ended = match self.cold(None).await {
            Ok(begun) => self.follow(begun, &script, None, until).await,
            Err(attempt) => Err(attempt),
        };
        let ended = match ended {
            Ok(ended) => ended,
            Err(Attempt::Server(error)) => return Err(error.to_string()),
            Err(Attempt::Lost(Lost::Unbegun)) => return Err("the script did not begin".to_owned()),
            Err(Attempt::Lost(Lost::Unwalled(reason))) => return Err(reason),
            Err(Attempt::Lost(Lost::Failed(failure))) => return Err(failure.to_string()),
        };
        probe::missing(&ended.stdout).ok_or_else(|| {
            let last = ended.stderr.lines().last().unwrap_or("the script that tries it failed");
            last.to_owned()
        })
    }

    async fn open(self, refused: Vec<String>) -> Result<Self, StartError> {
        let isolation = &self.isolation;
        if !isolation.is_complete() {
            match self.options.sandbox {
                Sandbox::Required => {
                    return Err(StartError::Isolation { isolation: isolation.clone(), refused });
                }
                Sandbox::BestEffort => tracing::warn!(
                    by = %isolation.by, missing = ?isolation.missing, ?refused,
                    "scripts are not isolated completely"
                ),
                Sandbox::Off => tracing::warn!("the sandbox of scripts is off"),
            }
        }
        if self.is_warm() {
            match Server::warm(&self.plan).await {
                Ok(server) => self.warm.lock().await.server = Some(server),
                Err(error) => {
                    tracing::warn!(%error, "no interpreter could be warmed up; the first script tries");
                }
            }
        }
        Ok(self)
    }

    fn is_warm(&self) -> bool {
        self.options.warm && self.plan.can_be_warm()
    }

    async fn attend(
        &self,
        script: &Script,
        context: &ToolContext,
    ) -> Result<ScriptOutcome, ToolFailure> {
        let _slot = self.unless_given_up(context, self.slots.take()).await?;
        let set = self.packages_of(script, context).await?;
        let mut again = true;
        loop {
            match self.attempt(script, set.as_ref(), context).await {
                Ok(ended) => return Ok(ended.within(&self.isolation)),
                Err(Attempt::Lost(Lost::Failed(failure))) => return Err(failure),
                // Its server went away with it: nothing has run yet.
                Err(Attempt::Lost(Lost::Unbegun)) if again => again = false,
                Err(Attempt::Lost(Lost::Unbegun)) => {
                    return Err(unavailable("the script did not begin; try again later"));
                }
                Err(Attempt::Lost(Lost::Unwalled(reason))) => {
                    tracing::warn!(%reason, "a script's sandbox could not be set up");
                    return Err(unavailable("the sandbox could not be set up; try again later"));
                }
                Err(Attempt::Server(error)) => {
                    tracing::warn!(%error, "the interpreter for a script could not be started");
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
    ) -> Result<Ended, Attempt> {
        let begun = if self.is_warm() {
            self.unless_given_up(context, self.warm()).await?
        } else {
            self.unless_given_up(context, self.cold(set)).await?
        };
        let until = Until {
            deadline: context.deadline,
            given_up: async {
                tokio::select! {
                    () = context.cancellation.cancelled() => GivenUp::Cancelled,
                    () = self.closing.cancelled() => GivenUp::Closing,
                }
            },
        };
        self.follow(begun, script, set, until).await
    }

    /// What a script waits for before it begins.
    async fn unless_given_up<T, E: From<ToolFailure>>(
        &self,
        context: &ToolContext,
        wanted: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let (executed, asked) = (Executed::No, Instant::now());
        let failure = tokio::select! {
            biased;
            () = self.closing.cancelled() => unavailable("scripts are no longer run here"),
            () = context.cancellation.cancelled() => ToolFailure::Cancelled { executed },
            got = wanted => return got,
            () = sleep_until(context.deadline) => {
                ToolFailure::TimedOut { after: asked.elapsed(), executed, repeatable: true }
            }
        };
        Err(failure.into())
    }

    async fn packages_of(
        &self,
        script: &Script,
        context: &ToolContext,
    ) -> Result<Option<PackageSet>, ToolFailure> {
        if script.packages().is_empty() {
            return Ok(None);
        }
        let Some(packages) = &self.packages else {
            if self.options.packages.is_some() {
                return Err(unavailable("packages can't be kept here; the log says why"));
            }
            return Err(ToolFailure::NotPermitted {
                reason: "packages are switched off here; use the standard library".to_owned(),
            });
        };
        self.unless_given_up(context, packages.set(script.packages())).await.map(Some)
    }

    /// Has the warm interpreter forked; starts another one when it is gone.
    async fn warm(&self) -> Result<Begun, Attempt> {
        let place = self.place()?;
        let (ends, descriptors) = run::connect()?;
        let asked = Instant::now();
        let mut warm = self.warm.lock().await;
        let is_asked = match &warm.server {
            Some(server) => server.ask(&descriptors).await.is_ok(),
            None => false,
        };
        if !is_asked {
            warm.server = None;
            // A start that failed while this waited is its own: the next would keep it for as long.
            if warm.failed.is_some_and(|failed| failed >= asked) {
                return Err(io::Error::other("it could not be started for another script").into());
            }
            let server = Server::warm(&self.plan).await.inspect_err(|_| {
                warm.failed = Some(Instant::now());
            })?;
            server.ask(&descriptors).await?;
            warm.server = Some(server);
        }
        Ok(Begun { ends, place, _server: None })
    }

    /// Starts an interpreter for one script alone.
    async fn cold(&self, set: Option<&PackageSet>) -> Result<Begun, Attempt> {
        let place = self.place()?;
        let (ends, descriptors) = run::connect()?;
        let server = Server::cold(&self.plan, set.map(PackageSet::path)).await?;
        server.ask(&descriptors).await?;
        Ok(Begun { ends, place, _server: Some(server) })
    }

    async fn follow(
        &self,
        begun: Begun,
        script: &Script,
        set: Option<&PackageSet>,
        until: Until<impl Future<Output = GivenUp>>,
    ) -> Result<Ended, Attempt> {
        let Begun { ends, place, _server } = begun;
        let imports = set.map(|set| self.plan.imports(set.path()));
        let places = Places {
            packages: set.map(PackageSet::name).unwrap_or_default(),
            imports: imports.as_deref(),
            folder: place.path(),
        };
        let request = run::request(script, &places);
        run::follow(ends, &request, script, &self.options, until).await.map_err(Attempt::Lost)
    }

    /// The folder of a script: one on a disk of its own, or one that is removed after it.
    fn place(&self) -> io::Result<Place> {
        Ok(match self.plan.script_folder() {
            Some(folder) => Place::Own(folder),
            None => Place::Shared(ScriptFolder::make(self.folder.path())?),
        })
    }
}

impl ScriptRunner for LocalRunner {
    fn run<'a>(
        &'a self,
        script: &'a Script,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ScriptOutcome, ToolFailure>> {
        Box::pin(self.attend(script, context))
    }
}

/// The interpreter that scripts are forked from.
#[derive(Debug, Default)]
struct Warm {
    server: Option<Server>,
    /// When a start came to nothing.
    failed: Option<Instant>,
}

/// Where a script is going to run, before it is told which.
#[derive(Debug)]
struct Begun {
    ends: run::Ends,
    place: Place,
    /// Of this script alone.
    _server: Option<Server>,
}

#[derive(Debug)]
enum Place {
    Own(&'static str),
    Shared(ScriptFolder),
}

impl Place {
    fn path(&self) -> &Path {
        match self {
            Self::Own(path) => Path::new(path),
            Self::Shared(folder) => folder.path(),
        }
    }
}

/// Why an attempt to run a script came to nothing.
#[derive(Debug)]
enum Attempt {
    Server(io::Error),
    Lost(Lost),
}

impl From<io::Error> for Attempt {
    fn from(error: io::Error) -> Self {
        Self::Server(error)
    }
}

impl From<ToolFailure> for Attempt {
    fn from(failure: ToolFailure) -> Self {
        Self::Lost(Lost::Failed(failure))
    }
}

fn unavailable(message: &str) -> ToolFailure {
    ToolFailure::Unavailable { message: message.to_owned(), executed: Executed::No }
}

/// The walls to try, strongest first, with the path of bubblewrap.
fn candidates(options: &LocalOptions) -> Vec<(Walls, PathBuf)> {
    let (means, mut candidates) = (options.means, Vec::new());
    if options.sandbox != Sandbox::Off {
        if means.namespaces {
            candidates.push((Walls::Own, PathBuf::new()));
        }
        if means.bubblewrap
            && let Some(program) = in_path("bwrap")
        {
            candidates.push((Walls::Bubblewrap, program));
        }
    }
    candidates.push((Walls::None, PathBuf::new()));
    candidates
}

fn in_path(program: &str) -> Option<PathBuf> {
    env::split_paths(&env::var_os("PATH")?)
        .map(|folder| folder.join(program))
        .find(|path| path.is_absolute() && path.is_file())
}
