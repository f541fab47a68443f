//! A runner with one pod per script.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::future::BoxFuture;
use k8s_openapi::api::core::v1::Pod;
use kube::{Client, api::Api};
use rockbot_contracts::{Executed, trace};
use rockbot_scripts::{
    InvalidRequirement, Isolation, PreparedImages, Script, ScriptOutcome, ScriptRunner, with_output,
};
use rockbot_tools::{ToolContext, ToolFailure};
use tokio::time::{Instant, sleep_until};
use tracing::{Instrument, debug, info_span};

use crate::{
    deletions::DeletionQueue, install_pod::set_name, output::PodLog, package_sets::PackageSets,
    pod::build_pod, pod_guard::PodGuard, run::Run, section::PodsSection, sweep::Sweep,
};

/// The gap in the isolation where the network is not known to be closed.
pub(crate) const NETWORK: &str = "the network";

/// The pod of a script.
struct PreparedPod {
    pod: Pod,
    /// Set when the pod mounts a package set.
    needs_packages: bool,
}

/// Runs every script in its own pod, which is deleted when the script has finished or was cancelled.
///
/// The pod's name is derived from the call, so a request that is redelivered after the loss of a manager
/// finds the running pod, and the script runs once.
pub struct KubernetesRunner {
    pods: Api<Pod>,
    section: PodsSection,
    images: PreparedImages,
    package_sets: PackageSets,
    deletions: Arc<DeletionQueue>,
    _sweep: Sweep,
    is_detaching: AtomicBool,
    gaps: OnceLock<Vec<String>>,
}

impl KubernetesRunner {
    /// Creates a runner in the cluster of `client` and starts the sweep.
    ///
    /// # Errors
    /// When a package of the prepared images is not valid.
    pub fn start(client: Client, section: PodsSection) -> Result<Self, InvalidRequirement> {
        let pods: Api<Pod> = Api::namespaced(client, &section.namespace);
        let images = PreparedImages::try_new(&section.images)?;
        let deletions = Arc::new(DeletionQueue::start(pods.clone()));
        let sweep = Sweep::start(pods.clone(), deletions.clone());
        let package_sets = PackageSets::new(pods.clone(), section.clone(), deletions.clone());
        let (is_detaching, gaps) = (AtomicBool::new(false), OnceLock::new());
        Ok(Self {
            pods,
            section,
            images,
            package_sets,
            deletions,
            _sweep: sweep,
            is_detaching,
            gaps,
        })
    }

    /// From now on, keeps the pod of a script whose future is dropped, for the next manager that gets the
    /// request. Cancellation, the deadline and the end of a script still delete its pod.
    pub fn detach(&self) {
        self.is_detaching.store(true, Ordering::Relaxed);
    }

    /// Waits for queued pod deletions, at most `grace`.
    pub async fn stop(&self, grace: Duration) {
        self.deletions.stop(grace).await;
    }

    /// Returns the isolation of scripts. The network counts as a gap until it was probed.
    #[must_use]
    pub fn isolation(&self) -> Isolation {
        let mechanism = match &self.section.runtime_class {
            Some(class) => format!("pod ({class})"),
            None => "pod".to_owned(),
        };
        let gaps = self.gaps.get().cloned();
        Isolation {
            mechanism,
            gaps: gaps.unwrap_or_else(|| vec![format!("{NETWORK} (not probed)")]),
        }
    }

    /// Returns how long a pod may take to start.
    pub(crate) fn start_timeout(&self) -> Duration {
        self.section.start_timeout()
    }

    /// Sets the gaps that are reported with every result. Only the first call has an effect.
    pub(crate) fn set_gaps(&self, gaps: Vec<String>) {
        if self.gaps.set(gaps).is_err() {
            debug!("isolation gaps already known");
        }
    }

    fn pod(&self, script: &Script, context: &ToolContext) -> Result<PreparedPod, ToolFailure> {
        let packages = script.packages();
        let (image, package_set) = if packages.is_empty() {
            (self.section.image.as_str(), None)
        } else {
            match self.images.find(packages) {
                Ok(image) => (image, None),
                Err(_) if self.section.packages.claim.is_some() => {
                    (self.section.image.as_str(), Some(set_name(packages, &self.section)))
                }
                Err(error) => return Err(ToolFailure::NotPermitted { reason: error.to_string() }),
            }
        };
        let (call, set) = (&context.tool_call_id, package_set.as_deref());
        let pod = build_pod(script, call, &context.agent, image, set, &self.section)
            .map_err(|error| ToolFailure::invalid(error.to_string()))?;
        Ok(PreparedPod { pod, needs_packages: package_set.is_some() })
    }

    /// Installs the script's packages, if necessary, within the call's deadline.
    async fn install_packages(
        &self,
        script: &Script,
        context: &ToolContext,
    ) -> Result<(), ToolFailure> {
        let started = Instant::now();
        tokio::select! {
            biased;
            () = context.cancellation.cancelled() => {
                Err(ToolFailure::Cancelled { executed: Executed::No })
            }
            installed = self.package_sets.provide(script.packages()) => installed,
            () = sleep_until(context.deadline) => Err(ToolFailure::TimedOut {
                after: context.deadline.saturating_duration_since(started),
                executed: Executed::No,
                repeatable: true,
            }),
        }
    }

    async fn execute(
        &self,
        script: &Script,
        context: &ToolContext,
    ) -> Result<ScriptOutcome, ToolFailure> {
        let PreparedPod { pod, needs_packages } = self.pod(script, context)?;
        let started = Instant::now();
        let guard = PodGuard::new(&self.deletions, &self.is_detaching, &pod);
        let isolation = self.isolation();
        let adopt_only = context.may_have_run && !isolation.is_complete();
        if needs_packages && !adopt_only {
            self.install_packages(script, context).await?;
        }
        let span = info_span!(
            target: trace::TARGET,
            "run_script",
            otel.kind = "client",
            k8s.pod.name = pod.metadata.name.as_deref(),
        );
        let name = pod.metadata.name.clone().unwrap_or_default();
        let log = PodLog::new(self.pods.clone(), name, self.section.max_output_bytes);
        let run = Run {
            pods: &self.pods,
            section: &self.section,
            isolation,
            script,
            guard: &guard,
            log: &log,
            context,
            adopt_only,
        };
        let result = tokio::select! {
            biased;
            result = run.execute(&pod).instrument(span) => result,
            () = context.cancellation.cancelled() => {
                Err(ToolFailure::Cancelled { executed: guard.executed() })
            }
            () = sleep_until(context.deadline) => Err(ToolFailure::TimedOut {
                after: context.deadline.saturating_duration_since(started),
                executed: guard.executed(),
                repeatable: false,
            }),
        };
        guard.mark_finished();
        result.map_err(|failure| match failure {
            ToolFailure::TimedOut { .. } | ToolFailure::Cancelled { .. } => {
                with_output(failure, &log.followed().into_text(), "")
            }
            other => other,
        })
    }
}

impl ScriptRunner for KubernetesRunner {
    fn run<'a>(
        &'a self,
        script: &'a Script,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ScriptOutcome, ToolFailure>> {
        Box::pin(self.execute(script, context))
    }
}

impl std::fmt::Debug for KubernetesRunner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KubernetesRunner").field("section", &self.section).finish_non_exhaustive()
    }
}
