//! Scripts in Docker containers, one per script, for local development.
//!
//! No argument of Docker's command line comes from the model. Script and input are sent over standard
//! input to the first process of the container (`run.py`), which runs the script as a child.

mod arguments;
mod command;
mod container;
mod daemon;
mod error;
mod frame;
mod options;
mod run;

use std::time::Duration;

use futures_util::future::BoxFuture;
use rockbot_contracts::{InstanceId, ToolCallId};
use rockbot_tools::{Executed, ToolContext, ToolFailure};
use tokio::{
    sync::OnceCell,
    time::{Instant, sleep_until, timeout},
};
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

use self::{
    arguments::{ContainerSpec, container_name, run_arguments, unix_time},
    command::DockerCli,
    container::Container,
    run::Run,
};
pub use self::{
    error::DockerError,
    options::{DockerOptions, Pull},
};
use crate::{
    output_progress::OutputProgress,
    permits::RunPermits,
    prepared::PreparedImages,
    requirement::InvalidRequirement,
    runner::{Isolation, Script, ScriptOutcome, ScriptRunner},
};

/// The time after its deadline until a container is removed by the sweep of another runner.
const SWEEP_MARGIN: Duration = Duration::from_secs(120);

/// Runs every script in its own container, which is removed when the script has finished or was
/// cancelled.
///
/// The container's name is derived from the call. A call whose script is already running is rejected
/// with an unknown outcome.
#[derive(Debug)]
pub struct DockerRunner {
    options: DockerOptions,
    docker: DockerCli,
    images: PreparedImages,
    permits: RunPermits,
    isolation: OnceCell<Isolation>,
    cleanups: TaskTracker,
}

impl DockerRunner {
    /// Creates a runner. Docker need not be running yet. Removes containers of other processes that
    /// are past their deadline.
    ///
    /// # Errors
    /// When a package of the prepared images is not valid.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn start(options: DockerOptions) -> Result<Self, InvalidRequirement> {
        let images = PreparedImages::try_new(&options.images)?;
        let docker = DockerCli { program: options.program.clone(), host: options.host.clone() };
        let permits = RunPermits::new(options.concurrency, options.waiting);
        let (isolation, cleanups) = (OnceCell::new(), TaskTracker::new());
        cleanups.spawn(sweep(docker.clone()));
        Ok(Self { options, docker, images, permits, isolation, cleanups })
    }

    /// Returns the name of a call's container.
    #[must_use]
    pub fn container_name(id: &ToolCallId) -> String {
        container_name(id)
    }

    /// Returns the isolation that the daemon reports. Requested once.
    ///
    /// # Errors
    /// When Docker is not available; the next call tries again.
    pub async fn isolation(&self) -> Result<&Isolation, DockerError> {
        let request = || daemon::isolation(&self.docker, self.options.runtime.as_deref());
        self.isolation.get_or_try_init(request).await
    }

    /// Waits until the containers of finished scripts are removed, at most `grace`.
    pub async fn stop(&self, grace: Duration) {
        self.cleanups.close();
        if timeout(grace, self.cleanups.wait()).await.is_err() {
            warn!("container removal unfinished at shutdown; containers stop at their deadlines");
        }
    }

    async fn execute(
        &self,
        script: &Script,
        context: &ToolContext,
    ) -> Result<ScriptOutcome, ToolFailure> {
        let image = match script.packages().is_empty() {
            true => &self.options.image,
            false => self
                .images
                .find(script.packages())
                .map_err(|error| ToolFailure::NotPermitted { reason: error.to_string() })?,
        };
        let requested_at = Instant::now();
        let preparation = async {
            let permit = self.permits.acquire().await?;
            let isolation =
                self.isolation().await.map_err(|error| error.into_failure(Executed::No))?;
            Ok::<_, ToolFailure>((permit, isolation))
        };
        let (permit, isolation) = tokio::select! {
            biased;
            () = context.cancellation.cancelled() => {
                return Err(ToolFailure::Cancelled { executed: Executed::No });
            }
            prepared = preparation => prepared?,
            () = sleep_until(context.deadline) => {
                let (after, executed) = (requested_at.elapsed(), Executed::No);
                return Err(ToolFailure::TimedOut { after, executed, repeatable: false });
            }
        };
        let (name, run) =
            (container_name(&context.tool_call_id), InstanceId::generate().to_string());
        let lifetime = self.options.start_timeout + script.timeout() + SWEEP_MARGIN;
        let expires = unix_time() + lifetime.as_secs();
        let spec = ContainerSpec { name: &name, run: &run, expires, image };
        let arguments = run_arguments(&self.options, &spec);
        let container = Container::start(&self.docker, &arguments, run, permit, &self.cleanups)
            .map_err(|error| error.into_failure(Executed::No))?;
        let mut run = Run::new(
            script,
            &self.options,
            container,
            context.deadline,
            OutputProgress::new(context),
        );
        let finished = tokio::select! {
            biased;
            () = context.cancellation.cancelled() => None,
            finished = run.follow() => Some(finished),
        };
        let Some(finished) = finished else {
            return Err(run.cancelled());
        };
        finished.map(|finished| finished.into_outcome(isolation))
    }
}

impl ScriptRunner for DockerRunner {
    /// # Cancellation
    /// The container is removed by a task of the runner; see [`DockerRunner::stop`].
    fn run<'a>(
        &'a self,
        script: &'a Script,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ScriptOutcome, ToolFailure>> {
        Box::pin(self.execute(script, context))
    }
}

async fn sweep(docker: DockerCli) {
    match docker.sweep().await {
        Ok(0) => {}
        Ok(count) => info!(count, "removed expired script containers"),
        Err(error) => warn!(%error, "script container sweep failed"),
    }
}
