//! Scripts in containers of their own, where Docker is: for local development.
//!
//! Docker's command line is started with arguments that hold nothing of the model's; script and input
//! go over standard input to the first process of the container (`run.py`), which runs the script as a
//! child.

mod arguments;
mod cli;
mod container;
mod daemon;
mod failure;
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
    arguments::{Particulars, arguments, name_of, now},
    cli::Docker,
    container::Container,
    run::Run,
};
pub use self::{
    failure::DockerError,
    options::{DockerOptions, Pull},
};
use crate::{
    prepared::PreparedImages,
    requirement::UnusableRequirement,
    runner::{Isolation, Script, ScriptOutcome, ScriptRunner},
    slots::Slots,
};

/// How long after its last second a container may be left by a runner that is alive.
const SWEEP_MARGIN: Duration = Duration::from_secs(120);

/// Runs every script in a container of its own, which is gone when the script has ended or is not
/// wanted any more.
///
/// The container's name comes from the call: a call whose script runs already is refused with an
/// unknown outcome.
#[derive(Debug)]
pub struct DockerRunner {
    options: DockerOptions,
    docker: Docker,
    images: PreparedImages,
    slots: Slots,
    isolation: OnceCell<Isolation>,
    endings: TaskTracker,
}

impl DockerRunner {
    /// Runs scripts as `options` say. Docker need not be there yet. Has containers removed that
    /// another process left behind and that should have ended.
    ///
    /// # Errors
    /// When the packages of the prepared images can't be read.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn start(options: DockerOptions) -> Result<Self, UnusableRequirement> {
        let images = PreparedImages::of(&options.images)?;
        let docker = Docker { program: options.program.clone(), host: options.host.clone() };
        let slots = Slots::new(options.at_once, options.waiting);
        let (isolation, endings) = (OnceCell::new(), TaskTracker::new());
        endings.spawn(sweep(docker.clone()));
        Ok(Self { options, docker, images, slots, isolation, endings })
    }

    /// The name of the container of a call.
    #[must_use]
    pub fn container_name(id: &ToolCallId) -> String {
        name_of(id)
    }

    /// What keeps scripts from everything else, as the daemon says. Asked once.
    ///
    /// # Errors
    /// When Docker is not there; the next call asks again.
    pub async fn isolation(&self) -> Result<&Isolation, DockerError> {
        let ask = || daemon::isolation(&self.docker, self.options.runtime.as_deref());
        self.isolation.get_or_try_init(ask).await
    }

    /// Waits until the containers of scripts that have ended are gone, at most `grace`.
    pub async fn stop(&self, grace: Duration) {
        self.endings.close();
        if timeout(grace, self.endings.wait()).await.is_err() {
            warn!("containers of scripts are left; they end by themselves");
        }
    }

    async fn ended(
        &self,
        script: &Script,
        context: &ToolContext,
    ) -> Result<ScriptOutcome, ToolFailure> {
        let image = match script.packages().is_empty() {
            true => &self.options.image,
            false => self
                .images
                .with(script.packages())
                .map_err(|error| ToolFailure::NotPermitted { reason: error.to_string() })?,
        };
        let asked = Instant::now();
        let beginning = async {
            let slot = self.slots.take().await?;
            let isolation =
                self.isolation().await.map_err(|error| error.into_failure(Executed::No))?;
            Ok::<_, ToolFailure>((slot, isolation))
        };
        let (slot, isolation) = tokio::select! {
            biased;
            () = context.cancellation.cancelled() => {
                return Err(ToolFailure::Cancelled { executed: Executed::No });
            }
            begun = beginning => begun?,
            () = sleep_until(context.deadline) => {
                let (after, executed) = (asked.elapsed(), Executed::No);
                return Err(ToolFailure::TimedOut { after, executed, repeatable: false });
            }
        };
        let (name, run) = (name_of(&context.tool_call_id), InstanceId::generate().to_string());
        let life = self.options.start_timeout + script.timeout() + SWEEP_MARGIN;
        let ends = now() + life.as_secs();
        let words = arguments(&self.options, &Particulars { name: &name, run: &run, ends, image });
        let container = Container::start(&self.docker, &words, run, slot, &self.endings)
            .map_err(|error| error.into_failure(Executed::No))?;
        let mut run = Run::of(script, &self.options, container, context.deadline);
        let ended = tokio::select! {
            biased;
            () = context.cancellation.cancelled() => None,
            ended = run.follow() => Some(ended),
        };
        let Some(ended) = ended else {
            return Err(ToolFailure::Cancelled { executed: run.executed() });
        };
        ended.map(|ended| ended.within(isolation))
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
        Box::pin(self.ended(script, context))
    }
}

async fn sweep(docker: Docker) {
    match docker.sweep().await {
        Ok(0) => {}
        Ok(count) => info!(count, "removed containers that earlier scripts left behind"),
        Err(error) => warn!(%error, "containers of earlier scripts can't be looked for"),
    }
}
