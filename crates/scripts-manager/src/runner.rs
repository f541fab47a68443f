//! Runs scripts in pods of their own.

use std::{
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::future::BoxFuture;
use k8s_openapi::api::core::v1::Pod;
use kube::{Client, api::Api};
use rockbot_contracts::{Executed, trace};
use rockbot_scripts::{
    Isolation, PreparedImages, Script, ScriptOutcome, ScriptRunner, UnusableRequirement,
};
use rockbot_tools::{ToolContext, ToolFailure};
use tokio::time::{Instant, sleep_until};
use tracing::{Instrument, debug, info, info_span};

use crate::{
    deletions::{Deletions, Doomed},
    pod::pod_of,
    run::Run,
    section::PodsSection,
    sweep::Sweep,
};

/// What is open to scripts where nobody enforces that it is closed.
pub(crate) const NETWORK: &str = "the network";

/// Runs every script in a pod of its own, which is deleted when the script ended or is not wanted
/// any more.
///
/// The pod's name comes from the call. So a script that is asked for again, because the manager was
/// lost, is found where it runs, and runs once.
pub struct KubernetesRunner {
    pub(crate) pods: Api<Pod>,
    pub(crate) section: PodsSection,
    images: PreparedImages,
    deletions: Arc<Deletions>,
    _sweep: Sweep,
    is_leaving: AtomicBool,
    open: OnceLock<Vec<String>>,
}

impl KubernetesRunner {
    /// Runs scripts in the cluster of `client`. Starts to sweep.
    ///
    /// # Errors
    /// When the packages of the prepared images can't be read.
    pub fn start(client: Client, section: PodsSection) -> Result<Self, UnusableRequirement> {
        let pods: Api<Pod> = Api::namespaced(client, &section.namespace);
        let images = PreparedImages::of(&section.images)?;
        let deletions = Arc::new(Deletions::start(pods.clone()));
        let sweep = Sweep::start(pods.clone(), deletions.clone());
        let (is_leaving, open) = (AtomicBool::new(false), OnceLock::new());
        Ok(Self { pods, section, images, deletions, _sweep: sweep, is_leaving, open })
    }

    /// From now on a script whose future is dropped goes on in its pod, for whoever is asked next.
    /// A cancel, a deadline and an end of the script delete the pod as ever.
    pub fn leave(&self) {
        self.is_leaving.store(true, Ordering::Relaxed);
    }

    /// Deletes what is still to be deleted, within `grace`.
    pub async fn stop(&self, grace: Duration) {
        self.deletions.stop(grace).await;
    }

    /// What keeps scripts from everything else. The network counts as open until a look at it says
    /// otherwise.
    #[must_use]
    pub fn isolation(&self) -> Isolation {
        let by = match &self.section.runtime_class {
            Some(class) => format!("pod ({class})"),
            None => "pod".to_owned(),
        };
        let open = self.open.get().cloned();
        Isolation { by, missing: open.unwrap_or_else(|| vec![format!("{NETWORK} (not probed)")]) }
    }

    /// Has every result say that scripts are not kept from `what`. The first word counts.
    pub(crate) fn admit_open(&self, what: Vec<String>) {
        if self.open.set(what).is_err() {
            debug!("it is known already what is open to scripts");
        }
    }

    fn pod(&self, script: &Script, context: &ToolContext) -> Result<Pod, ToolFailure> {
        let image = match script.packages().is_empty() {
            true => &self.section.image,
            false => self
                .images
                .with(script.packages())
                .map_err(|error| ToolFailure::NotPermitted { reason: error.to_string() })?,
        };
        pod_of(script, &context.tool_call_id, &context.agent, image, &self.section)
            .map_err(|error| ToolFailure::invalid(error.to_string()))
    }

    async fn ended(
        &self,
        script: &Script,
        context: &ToolContext,
    ) -> Result<ScriptOutcome, ToolFailure> {
        let pod = self.pod(script, context)?;
        let begun = Instant::now();
        let held = Held::of(self, &pod);
        let only_takes_on = context.may_have_run && !self.isolation().is_complete();
        let span = info_span!(
            target: trace::TARGET,
            "run_script",
            otel.kind = "client",
            k8s.pod.name = pod.metadata.name.as_deref(),
        );
        let run = Run { runner: self, script, held: &held, only_takes_on };
        let ended = tokio::select! {
            biased;
            ended = run.to_its_end(&pod).instrument(span) => ended,
            () = context.cancellation.cancelled() => {
                Err(ToolFailure::Cancelled { executed: held.executed() })
            }
            () = sleep_until(context.deadline) => Err(ToolFailure::TimedOut {
                after: context.deadline.saturating_duration_since(begun),
                executed: held.executed(),
                repeatable: false,
            }),
        };
        held.end();
        ended
    }
}

impl ScriptRunner for KubernetesRunner {
    fn run<'a>(
        &'a self,
        script: &'a Script,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ScriptOutcome, ToolFailure>> {
        Box::pin(self.ended(script, context))
    }
}

impl std::fmt::Debug for KubernetesRunner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KubernetesRunner").field("section", &self.section).finish_non_exhaustive()
    }
}

/// A pod that is ours to delete, and what is known of its script. Deletes it when dropped, unless the
/// manager leaves.
pub(crate) struct Held<'a> {
    runner: &'a KubernetesRunner,
    state: Mutex<State>,
}

struct State {
    pod: Doomed,
    executed: Executed,
    /// Whether there may be such a pod.
    exists: bool,
    ended: bool,
}

impl<'a> Held<'a> {
    fn of(runner: &'a KubernetesRunner, pod: &Pod) -> Self {
        let name = pod.metadata.name.clone().unwrap_or_default();
        let pod = Doomed { name, uid: None, forced: false };
        let state = State { pod, executed: Executed::No, exists: false, ended: false };
        Self { runner, state: Mutex::new(state) }
    }

    /// A pod was asked for.
    pub(crate) fn asked(&self) {
        let mut state = self.state();
        state.exists = true;
        state.executed = Executed::Unknown;
    }

    /// There is none, or it is not ours.
    pub(crate) fn refused(&self) {
        let mut state = self.state();
        state.exists = false;
        state.executed = Executed::No;
    }

    /// There is one.
    pub(crate) fn made(&self, pod: &Pod) {
        let mut state = self.state();
        state.exists = true;
        state.pod.uid = pod.metadata.uid.clone();
    }

    /// Its script ran, did not, or may have.
    pub(crate) fn saw(&self, executed: Executed) {
        self.state().executed = executed;
    }

    pub(crate) fn executed(&self) -> Executed {
        self.state().executed
    }

    fn end(&self) {
        self.state().ended = true;
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let State { pod, exists, ended, .. } = &*self.state();
        if *exists && (*ended || !self.runner.is_leaving.load(Ordering::Relaxed)) {
            self.runner.deletions.ask(pod.clone());
        } else if *exists {
            info!(pod = pod.name, "a script goes on for whoever is asked next");
        }
    }
}
