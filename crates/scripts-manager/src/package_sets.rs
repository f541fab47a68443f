//! Package sets in the volume of a claim, installed by pods and reused by later scripts.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
    time::Duration,
};

use backon::BackoffBuilder;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, PostParams};
use parking_lot::Mutex;
use rockbot_contracts::Executed;
use rockbot_scripts::Requirements;
use rockbot_tools::ToolFailure;
use tokio::{
    sync::{Mutex as AsyncMutex, Semaphore},
    time::{Instant, sleep, sleep_until},
};
use tracing::{debug, info, warn};

use crate::{
    api::{FailureKind, MAX_PAUSE, request, retry_pauses},
    deletions::{DeletionQueue, PodDeletion},
    install_pod::{build_install_pod, set_name},
    outcome::NO_CAPACITY,
    pod_phase::{ContainerExit, PodPhase},
    pod_watch::{PodChange, PodWatch},
    run::rejected,
    section::PodsSection,
};

/// The time for which a set counts as complete without another check. Sets are kept for at least a day.
const VERIFIED_FOR: Duration = Duration::from_secs(60 * 60);
/// The installations of this manager at the same time. Further ones wait.
const CONCURRENCY: usize = 4;
/// The attempts after a pod was deleted, such as by another manager that had the result.
const MAX_ATTEMPTS: usize = 3;
/// The exit code of `install.py` for packages that can't be installed.
const FAILED: i32 = 3;

/// The package sets of the configured claim.
pub(crate) struct PackageSets {
    pods: Api<Pod>,
    section: PodsSection,
    deletions: Arc<DeletionQueue>,
    permits: Semaphore,
    /// The time of the last check of each complete set.
    verified: Mutex<HashMap<String, Instant>>,
    /// Locked during an installation, so that concurrent requests for a set install it once.
    installing: Mutex<HashMap<String, Weak<AsyncMutex<()>>>>,
}

impl PackageSets {
    pub(crate) fn new(pods: Api<Pod>, section: PodsSection, deletions: Arc<DeletionQueue>) -> Self {
        let permits = Semaphore::new(CONCURRENCY);
        let (verified, installing) = (Mutex::default(), Mutex::default());
        Self { pods, section, deletions, permits, verified, installing }
    }

    /// Returns when the set of these packages is complete. Installs it if it is missing.
    ///
    /// # Cancellation
    /// Dropping the future deletes the pod that installs the set; another request for it starts again.
    pub(crate) async fn provide(&self, packages: &Requirements) -> Result<(), ToolFailure> {
        let name = set_name(packages, &self.section);
        let installing = self.lock_of(&name);
        let _installing = installing.lock().await;
        if self.is_verified(&name) {
            return Ok(());
        }
        let _permit = self.permits.acquire().await;
        let exit = self.install(packages).await?;
        debug!(set = name, code = exit.code, elapsed = ?exit.elapsed, "package installation ended");
        self.check(packages, &exit)?;
        let mut verified = self.verified.lock();
        verified.retain(|_, checked_at| checked_at.elapsed() < VERIFIED_FOR);
        verified.insert(name, Instant::now());
        Ok(())
    }

    fn is_verified(&self, name: &str) -> bool {
        self.verified.lock().get(name).is_some_and(|at| at.elapsed() < VERIFIED_FOR)
    }

    fn lock_of(&self, name: &str) -> Arc<AsyncMutex<()>> {
        let mut installing = self.installing.lock();
        installing.retain(|_, lock| lock.strong_count() > 0);
        if let Some(lock) = installing.get(name).and_then(Weak::upgrade) {
            return lock;
        }
        let lock = Arc::new(AsyncMutex::new(()));
        installing.insert(name.to_owned(), Arc::downgrade(&lock));
        lock
    }

    /// Runs the pod to its end. A pod that finds the set complete ends at once.
    async fn install(&self, packages: &Requirements) -> Result<ContainerExit, ToolFailure> {
        let spec = build_install_pod(packages, &self.section);
        let mut replaces_failed = true;
        for _ in 0..MAX_ATTEMPTS {
            let start_deadline = Instant::now() + self.section.start_timeout();
            let (pod, is_adopted) = self.create_or_adopt(&spec, start_deadline).await?;
            let guard = InstallPod::new(&self.deletions, &pod);
            // The cause may be gone since another manager's attempt.
            if is_adopted && replaces_failed && has_failed(&pod) {
                replaces_failed = false;
                drop(guard);
                self.wait_until_deleted(pod, start_deadline).await?;
                continue;
            }
            if let Some(exit) = self.follow(pod, start_deadline).await? {
                return Ok(exit);
            }
        }
        warn!("package installation lost its pod repeatedly");
        Err(unavailable("the installation of packages was interrupted; try again later"))
    }

    /// Creates the pod, or finds that of another manager. Returns whether it was found.
    async fn create_or_adopt(
        &self,
        spec: &Pod,
        deadline: Instant,
    ) -> Result<(Pod, bool), ToolFailure> {
        let name = spec.metadata.name.as_deref().unwrap_or_default();
        let mut pauses = retry_pauses().build();
        loop {
            let failure = match request(self.pods.create(&PostParams::default(), spec)).await {
                Ok(pod) => return Ok((pod, false)),
                Err(failure) => failure,
            };
            match failure.kind() {
                FailureKind::Exists => match request(self.pods.get_opt(name)).await {
                    Ok(Some(pod)) if pod.metadata.deletion_timestamp.is_none() => {
                        return Ok((pod, true));
                    }
                    // A pod that is being deleted soon frees its name.
                    Ok(_) => {}
                    Err(error) => debug!(%error, pod = name, "pod request failed; retrying"),
                },
                FailureKind::Conflict | FailureKind::Throttled | FailureKind::Unknown => {
                    debug!(error = %failure, pod = name, "pod creation failed; retrying");
                }
                kind => return Err(rejected(&failure, &kind)),
            }
            let pause = pauses.next().unwrap_or(MAX_PAUSE);
            if Instant::now() + pause >= deadline {
                warn!(error = %failure, pod = name, "pod creation failed");
                return Err(unavailable("the cluster does not respond; try again later"));
            }
            sleep(pause).await;
        }
    }

    /// Waits until a pod is gone, whose deletion was requested.
    async fn wait_until_deleted(&self, pod: Pod, deadline: Instant) -> Result<(), ToolFailure> {
        let name = pod.metadata.name.unwrap_or_default();
        let mut watch = PodWatch::new(self.pods.clone(), name, pod.metadata.uid);
        let deleted = async { while !matches!(watch.next().await, PodChange::Deleted) {} };
        tokio::select! {
            () = deleted => Ok(()),
            () = sleep_until(deadline) => {
                warn!("failed pod of a package installation was not deleted in time");
                Err(unavailable("the installation of packages was interrupted; try again later"))
            }
        }
    }

    /// Waits for the exit of the pod; `None` if it was deleted.
    async fn follow(
        &self,
        mut pod: Pod,
        start_deadline: Instant,
    ) -> Result<Option<ContainerExit>, ToolFailure> {
        let name = pod.metadata.name.clone().unwrap_or_default();
        let mut watch = PodWatch::new(self.pods.clone(), name, pod.metadata.uid.clone());
        loop {
            let limit = match PodPhase::from_pod(&pod) {
                PodPhase::Exited(exit) => return Ok(Some(exit)),
                PodPhase::Broken { reason } => {
                    warn!(
                        reason,
                        "package installation start failed; check the image and the claim"
                    );
                    return Err(unavailable("packages can't be installed here"));
                }
                PodPhase::Terminated { reason, message, .. } => {
                    warn!(reason, message, "package installation terminated by the cluster");
                    return Err(unavailable("the cluster ended the installation of packages"));
                }
                PodPhase::Pending { .. } => start_deadline,
                // The pod's own limit ends it before.
                PodPhase::Running => {
                    start_deadline + self.section.packages.timeout + self.section.start_timeout()
                }
            };
            tokio::select! {
                change = watch.next() => match change {
                    PodChange::Updated(updated) => pod = *updated,
                    PodChange::Deleted => return Ok(None),
                },
                () = sleep_until(limit) => {
                    warn!("package installation did not end in time; check the claim and its quota");
                    return Err(ToolFailure::Overloaded { message: NO_CAPACITY.to_owned() });
                }
            }
        }
    }

    fn check(&self, packages: &Requirements, exit: &ContainerExit) -> Result<(), ToolFailure> {
        let reason = exit.message.trim();
        match exit.code {
            0 => Ok(()),
            // Both a wrong name and an unreachable index end here; the installer's message has the cause.
            FAILED => {
                info!("packages could not be installed");
                Err(ToolFailure::invalid(format!(
                    "the packages {packages} could not be installed:\n{reason}"
                )))
            }
            _ if exit.out_of_memory => {
                let memory = &self.section.packages.memory;
                warn!(memory, "package installation exceeded scripts.packages.memory");
                Err(unavailable("the installation of the packages needs too much memory"))
            }
            code => {
                warn!(code, reason, "package installation failed; check the claim and the image");
                Err(unavailable("packages can't be installed here at the moment; try again later"))
            }
        }
    }
}

/// Returns whether the installation of a pod ended without a complete set.
fn has_failed(pod: &Pod) -> bool {
    match PodPhase::from_pod(pod) {
        PodPhase::Exited(exit) => exit.code != 0,
        PodPhase::Broken { .. } | PodPhase::Terminated { .. } => true,
        PodPhase::Pending { .. } | PodPhase::Running => false,
    }
}

/// Deletes the pod of an installation when dropped.
struct InstallPod<'a> {
    deletions: &'a DeletionQueue,
    pod: PodDeletion,
}

impl<'a> InstallPod<'a> {
    fn new(deletions: &'a DeletionQueue, pod: &Pod) -> Self {
        let name = pod.metadata.name.clone().unwrap_or_default();
        let pod = PodDeletion { name, uid: pod.metadata.uid.clone(), forced: false };
        Self { deletions, pod }
    }
}

impl Drop for InstallPod<'_> {
    fn drop(&mut self) {
        self.deletions.enqueue(self.pod.clone());
    }
}

fn unavailable(message: &str) -> ToolFailure {
    ToolFailure::Unavailable { message: message.to_owned(), executed: Executed::No }
}
