//! A run of a script in its pod, from creation to outcome.

use std::time::Duration;

use backon::BackoffBuilder;
use futures_util::future::OptionFuture;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, PostParams};
use rockbot_contracts::Executed;
use rockbot_scripts::{Isolation, OutputProgress, Script, ScriptOutcome};
use rockbot_tools::{ToolContext, ToolFailure};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tracing::{debug, error, info, warn};

use crate::{
    api::{ApiError, FailureKind, MAX_PAUSE, request, retry_pauses},
    outcome::{NO_CAPACITY, OutcomeBuilder, pod_lost, timed_out},
    output::{LogFollower, PodLog},
    pod::runs_same_script,
    pod_guard::PodGuard,
    pod_phase::PodPhase,
    pod_watch::{PodChange, PodWatch},
    section::PodsSection,
    timing::RunTiming,
};

/// The time beyond a script's timeout after which its pod is deleted: the wrapper in the pod stops the
/// script, and the cluster reports the exit some seconds later.
const EXIT_REPORT_MARGIN: Duration = Duration::from_secs(15);
/// Maximum wait for the rest of the log of a pod that the cluster terminated.
const LOG_DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

pub(crate) struct Run<'a> {
    pub(crate) pods: &'a Api<Pod>,
    pub(crate) section: &'a PodsSection,
    pub(crate) isolation: Isolation,
    pub(crate) script: &'a Script,
    pub(crate) guard: &'a PodGuard<'a>,
    pub(crate) log: &'a PodLog,
    pub(crate) context: &'a ToolContext,
    /// Permits only an existing pod, because the script may have run with effects.
    pub(crate) adopt_only: bool,
}

impl Run<'_> {
    /// Creates the pod, or adopts the existing one, and follows it until its script has finished.
    pub(crate) async fn execute(&self, spec: &Pod) -> Result<ScriptOutcome, ToolFailure> {
        let mut timing = RunTiming::start();
        let start_deadline = Instant::now() + self.section.start_timeout();
        let pod = if self.adopt_only {
            self.adopt(spec, start_deadline).await?
        } else {
            self.create_or_adopt(spec, start_deadline).await?
        };
        self.guard.mark_created(&pod);
        let name = pod.metadata.name.clone().unwrap_or_default();
        let mut watch = PodWatch::new(self.pods.clone(), name, pod.metadata.uid.clone());
        let mut phase = PodPhase::from_pod(&pod);
        let mut running_since: Option<Instant> = None;
        let mut follower: Option<LogFollower> = None;
        loop {
            self.guard.set_executed(phase.executed(running_since.is_some()));
            let run_time = running_since.map_or(Duration::ZERO, |since| since.elapsed());
            match &phase {
                PodPhase::Pending { .. } => {}
                PodPhase::Broken { reason } => return Err(broken(reason)),
                PodPhase::Running if running_since.is_none() => {
                    running_since = Some(Instant::now());
                    follower = Some(self.log.follow(OutputProgress::new(self.context)));
                    debug!(after = ?timing.mark_running(), "script running");
                }
                PodPhase::Running => {}
                PodPhase::Exited(_) | PodPhase::Terminated { .. } => {
                    // Reading the log of an exited container is faster than following it to its end,
                    // and is not necessary if all of it was followed.
                    let drain = match phase {
                        PodPhase::Exited(_) => Duration::ZERO,
                        _ => LOG_DRAIN_TIMEOUT,
                    };
                    if let Some(mut follower) = follower.take() {
                        let _ = timeout(drain, follower.read_to_end()).await;
                    }
                    let outcome = self.outcome(run_time);
                    return match phase {
                        PodPhase::Exited(exit) => outcome.describe_exit(exit).await,
                        PodPhase::Terminated { reason, message, started } => {
                            let started = started || running_since.is_some();
                            outcome.describe_termination(&reason, &message, started).await
                        }
                        _ => Err(pod_lost(self.guard.executed())),
                    };
                }
            }
            let limit = match running_since {
                Some(since) => since + self.script.timeout() + EXIT_REPORT_MARGIN,
                None => start_deadline,
            };
            tokio::select! {
                change = watch.next() => match change {
                    PodChange::Updated(pod) => phase = PodPhase::from_pod(&pod),
                    PodChange::Deleted => return Err(pod_lost(self.guard.executed())),
                },
                Some(()) = OptionFuture::from(follower.as_mut().map(LogFollower::read_to_end)) => {
                    follower = None;
                    if self.log.followed().is_over_limit {
                        return Ok(self.outcome(run_time).describe_output_limit().await);
                    }
                }
                () = sleep_until(limit) => return Err(match phase {
                    PodPhase::Pending { assigned, reason } => start_overdue(assigned, reason),
                    _ => timed_out(self.script),
                }),
            }
        }
    }

    /// Finds the pod that was created for this call before. Without it, the outcome is unknown.
    async fn adopt(&self, spec: &Pod, start_deadline: Instant) -> Result<Pod, ToolFailure> {
        let name = spec.metadata.name.as_deref().unwrap_or_default();
        let mut pauses = retry_pauses().build();
        self.guard.mark_requested();
        loop {
            match request(self.pods.get_opt(name)).await {
                Ok(Some(pod)) if !runs_same_script(&pod, spec) => {
                    self.guard.mark_absent();
                    return Err(id_in_use());
                }
                Ok(Some(pod)) if pod.metadata.deletion_timestamp.is_none() => {
                    info!(pod = name, "running script adopted");
                    return Ok(pod);
                }
                Err(error)
                    if error.kind() != FailureKind::Rejected && Instant::now() < start_deadline =>
                {
                    debug!(%error, pod = name, "pod request failed; retrying");
                }
                Ok(_) => return Err(pod_lost(Executed::Unknown)),
                Err(error) => {
                    warn!(%error, pod = name, "pod request failed");
                    let message = "the cluster did not report whether the script's pod exists";
                    return Err(ToolFailure::OutcomeUnknown { message: message.to_owned() });
                }
            }
            sleep(pauses.next().unwrap_or(MAX_PAUSE)).await;
        }
    }

    /// Creates the pod of this call, or finds the one that was created before.
    async fn create_or_adopt(
        &self,
        spec: &Pod,
        start_deadline: Instant,
    ) -> Result<Pod, ToolFailure> {
        let name = spec.metadata.name.as_deref().unwrap_or_default();
        let mut pauses = retry_pauses().build();
        loop {
            self.guard.mark_requested();
            let failure = match request(self.pods.create(&PostParams::default(), spec)).await {
                Ok(pod) => return Ok(pod),
                Err(failure) => failure,
            };
            let kind = failure.kind();
            if let FailureKind::Conflict | FailureKind::Throttled | FailureKind::Unknown = kind {
                debug!(error = %failure, pod = name, "pod creation failed; retrying");
            } else {
                // Quota, permissions and policies are checked before the name: whatever the reason of
                // the rejection, the pod may exist.
                match request(self.pods.get_opt(name)).await {
                    Ok(Some(pod)) if !runs_same_script(&pod, spec) => {
                        self.guard.mark_absent();
                        return Err(id_in_use());
                    }
                    // A pod that is being deleted soon frees its name.
                    Ok(Some(pod)) if pod.metadata.deletion_timestamp.is_none() => {
                        info!(pod = name, "running script adopted");
                        return Ok(pod);
                    }
                    Ok(None) if kind != FailureKind::Exists => {
                        self.guard.mark_absent();
                        return Err(rejected(&failure, &kind));
                    }
                    Ok(_) => {}
                    Err(error) if error.kind() == FailureKind::Rejected => {
                        self.guard.mark_absent();
                        return Err(forbidden(&failure, Executed::Unknown));
                    }
                    Err(error) => debug!(%error, pod = name, "pod request failed; retrying"),
                }
            }
            let pause = pauses.next().unwrap_or(MAX_PAUSE);
            if Instant::now() + pause >= start_deadline {
                warn!(error = %failure, "pod creation failed");
                let message = "the cluster does not respond; try again later".to_owned();
                return Err(ToolFailure::Unavailable { message, executed: Executed::Unknown });
            }
            sleep(pause).await;
        }
    }

    fn outcome(&self, run_time: Duration) -> OutcomeBuilder<'_> {
        let isolation = self.isolation.clone();
        OutcomeBuilder { script: self.script, isolation, log: self.log, run_time }
    }
}

fn id_in_use() -> ToolFailure {
    ToolFailure::NotPermitted { reason: "another script has this call id".to_owned() }
}

/// The pod does not exist, and the cluster rejects its creation.
pub(crate) fn rejected(failure: &ApiError, kind: &FailureKind) -> ToolFailure {
    if *kind == FailureKind::QuotaFull {
        info!(error = %failure, "namespace quota exhausted");
        return ToolFailure::Overloaded { message: NO_CAPACITY.to_owned() };
    }
    forbidden(failure, Executed::No)
}

/// The cluster rejects such pods, for reasons that a model can't change.
fn forbidden(failure: &ApiError, executed: Executed) -> ToolFailure {
    error!(
        error = %failure,
        "pod creation rejected; check that the namespace exists, that the manager may create, get, \
         list, watch and delete pods and get pods/log in it, and that quotas, limits and policies of \
         the namespace allow such pods"
    );
    let message = "the cluster rejects script pods; ask an operator to check the log".to_owned();
    ToolFailure::Unavailable { message, executed }
}

fn broken(reason: &str) -> ToolFailure {
    error!(reason, "script container start failed; check its image and runtime class");
    let message = "the script's container can't be started".to_owned();
    ToolFailure::Unavailable { message, executed: Executed::No }
}

fn start_overdue(assigned: bool, reason: Option<String>) -> ToolFailure {
    if assigned {
        warn!("assigned script pod did not start in time");
        let message = "the script's pod did not start in time; try again later".to_owned();
        return ToolFailure::Unavailable { message, executed: Executed::Unknown };
    }
    warn!(reason = reason.unwrap_or_default(), "script pod could not be scheduled");
    ToolFailure::Overloaded { message: NO_CAPACITY.to_owned() }
}
