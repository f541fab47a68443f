//! One script in its pod, from the asking to the end.

use std::time::Duration;

use futures_util::future::OptionFuture;
use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use rockbot_contracts::Executed;
use rockbot_scripts::{Script, ScriptOutcome};
use rockbot_tools::ToolFailure;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tracing::{debug, error, info, warn};

use crate::{
    api::{ApiError, Meaning, ask},
    ending::{Ending, NO_ROOM, timed_out, vanished},
    output::{Following, Log, Output},
    phases::Phases,
    pod::runs_the_same,
    runner::{Held, KubernetesRunner},
    sight::{Seen, Sight},
    stage::Stage,
};

/// How much longer than its time-out a script may take before its pod is deleted: the process beside
/// it in the pod ends it, and the cluster's word of it takes some seconds.
const WORD_OF_THE_END: Duration = Duration::from_secs(15);
/// How long the log of a script whose pod the cluster ended may go on.
const LAST_LINES: Duration = Duration::from_secs(2);

/// Between two questions that were not answered.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const MAX_PAUSE: Duration = Duration::from_secs(2);

pub(crate) struct Run<'a> {
    pub(crate) runner: &'a KubernetesRunner,
    pub(crate) script: &'a Script,
    pub(crate) held: &'a Held<'a>,
    /// Whether only a pod that is there counts: the script may have run and done something.
    pub(crate) only_takes_on: bool,
}

impl Run<'_> {
    /// Makes the pod, or takes the one that is there, and stays with it to its end.
    pub(crate) async fn to_its_end(&self, wanted: &Pod) -> Result<ScriptOutcome, ToolFailure> {
        let mut phases = Phases::begin();
        let in_time = Instant::now() + self.runner.section.start();
        let pod = match self.only_takes_on {
            true => self.taken_on(wanted, in_time).await?,
            false => self.pod(wanted, in_time).await?,
        };
        self.held.made(&pod);
        let pods = self.runner.pods.clone();
        let name = pod.metadata.name.clone().unwrap_or_default();
        let log = Log::of(pods.clone(), name.clone(), self.runner.section.max_output_bytes);
        let mut sight = Sight::of(pods, name, &pod);
        let mut stage = Stage::of(&pod);
        let mut since = None;
        let mut followed = Output::default();
        let mut following: Option<Following> = None;
        loop {
            self.held.saw(match &stage {
                Stage::Pending { assigned: false, .. } | Stage::Broken { .. } => Executed::No,
                Stage::Pending { assigned: true, .. } => Executed::Unknown,
                Stage::Running | Stage::Exited(_) => Executed::Yes,
                Stage::Ended { started, .. } if *started || since.is_some() => Executed::Yes,
                Stage::Ended { .. } => Executed::Unknown,
            });
            let ran_for = since.map_or(Duration::ZERO, |since: Instant| since.elapsed());
            match &stage {
                Stage::Pending { .. } => {}
                Stage::Broken { why } => return Err(broken(why)),
                Stage::Running if since.is_none() => {
                    since = Some(Instant::now());
                    following = Some(log.follow());
                    debug!(after = ?phases.runs(), "a script runs");
                }
                Stage::Running => {}
                Stage::Exited(_) | Stage::Ended { .. } => {
                    // The log of a container that ended is read faster than followed to its end, and
                    // need not be read when all of it was followed.
                    let patience = match stage {
                        Stage::Exited(_) => Duration::ZERO,
                        _ => LAST_LINES,
                    };
                    if let Some(mut last) = following.take() {
                        let _ = timeout(patience, last.read_to_its_end()).await;
                        followed = last.output();
                    }
                    let ending = self.ending(&log, followed, ran_for);
                    return match stage {
                        Stage::Exited(exit) => ending.exited(exit).await,
                        Stage::Ended { by, why, started } => {
                            ending.ended(&by, &why, started || since.is_some()).await
                        }
                        _ => Err(vanished(self.held.executed())),
                    };
                }
            }
            let limit = match since {
                Some(since) => since + self.script.timeout() + WORD_OF_THE_END,
                None => in_time,
            };
            tokio::select! {
                seen = sight.next() => match seen {
                    Seen::Pod(pod) => stage = Stage::of(&pod),
                    Seen::Gone => return Err(vanished(self.held.executed())),
                },
                Some(()) = OptionFuture::from(following.as_mut().map(Following::read_to_its_end)) => {
                    followed = following.take().map(Following::output).unwrap_or_default();
                    if followed.is_over {
                        return Ok(self.ending(&log, followed, ran_for).printed_too_much().await);
                    }
                }
                () = sleep_until(limit) => return Err(match stage {
                    Stage::Pending { assigned, why } => late(assigned, why),
                    _ => timed_out(self.script),
                }),
            }
        }
    }

    /// The pod that was made for this call before; without it nobody knows what became of the call.
    async fn taken_on(&self, wanted: &Pod, in_time: Instant) -> Result<Pod, ToolFailure> {
        let pods = &self.runner.pods;
        let name = wanted.metadata.name.as_deref().unwrap_or_default();
        let mut pause = FIRST_PAUSE;
        self.held.asked();
        loop {
            match ask(pods.get_opt(name)).await {
                Ok(Some(pod)) if !runs_the_same(&pod, wanted) => {
                    self.held.refused();
                    return Err(another_has_its_id());
                }
                Ok(Some(pod)) if pod.metadata.deletion_timestamp.is_none() => {
                    info!(pod = name, "a script is taken on where it runs");
                    return Ok(pod);
                }
                Err(error) if error.meaning() != Meaning::Refused && Instant::now() < in_time => {
                    debug!(%error, pod = name, "a pod can't be fetched");
                }
                Ok(_) => return Err(vanished(Executed::Unknown)),
                Err(error) => {
                    warn!(%error, pod = name, "a pod can't be fetched");
                    return Err(vanished(Executed::Unknown));
                }
            }
            sleep(pause).await;
            pause = (pause * 2).min(MAX_PAUSE);
        }
    }

    /// The pod for this call: a new one, or the one that was made for it before.
    async fn pod(&self, wanted: &Pod, in_time: Instant) -> Result<Pod, ToolFailure> {
        let pods = &self.runner.pods;
        let name = wanted.metadata.name.as_deref().unwrap_or_default();
        let mut pause = FIRST_PAUSE;
        loop {
            self.held.asked();
            let refusal = match ask(pods.create(&PostParams::default(), wanted)).await {
                Ok(pod) => return Ok(pod),
                Err(refusal) => refusal,
            };
            let meaning = refusal.meaning();
            if let Meaning::Conflict | Meaning::NotNow | Meaning::Unheard = meaning {
                debug!(error = %refusal, pod = name, "a pod is not made yet");
            } else {
                // Quota, rights and policies are looked at before the name: whatever a pod is refused
                // for, it may be there already.
                match ask(pods.get_opt(name)).await {
                    Ok(Some(pod)) if !runs_the_same(&pod, wanted) => {
                        self.held.refused();
                        return Err(another_has_its_id());
                    }
                    // One that is being deleted makes room soon.
                    Ok(Some(pod)) if pod.metadata.deletion_timestamp.is_none() => {
                        info!(pod = name, "a script is taken on where it runs");
                        return Ok(pod);
                    }
                    Ok(None) if meaning != Meaning::Exists => {
                        self.held.refused();
                        return Err(refused(&refusal, &meaning));
                    }
                    Ok(_) => {}
                    Err(error) if error.meaning() == Meaning::Refused => {
                        self.held.refused();
                        return Err(forbidden(&refusal, Executed::Unknown));
                    }
                    Err(error) => debug!(%error, pod = name, "a pod can't be fetched"),
                }
            }
            if Instant::now() + pause >= in_time {
                warn!(error = %refusal, "the pod of a script can't be made");
                let message = "the cluster does not answer".to_owned();
                return Err(ToolFailure::Unavailable { message, executed: Executed::Unknown });
            }
            sleep(pause).await;
            pause = (pause * 2).min(MAX_PAUSE);
        }
    }

    fn ending<'a>(&'a self, log: &'a Log, followed: Output, ran_for: Duration) -> Ending<'a> {
        let isolation = self.runner.isolation();
        Ending { script: self.script, isolation, log, followed, ran_for }
    }
}

fn another_has_its_id() -> ToolFailure {
    ToolFailure::NotPermitted { reason: "another script has this id".to_owned() }
}

/// There is no pod, and the cluster makes none.
fn refused(refusal: &ApiError, meaning: &Meaning) -> ToolFailure {
    if *meaning == Meaning::QuotaFull {
        info!(error = %refusal, "the quota of the namespace is full");
        return ToolFailure::Overloaded { message: NO_ROOM.to_owned() };
    }
    forbidden(refusal, Executed::No)
}

/// The cluster takes no such pod: nothing that a model could change.
fn forbidden(refusal: &ApiError, executed: Executed) -> ToolFailure {
    error!(
        error = %refusal,
        "the cluster refuses the pods of scripts: see that the namespace is there, that the manager \
         may create, get, list, watch and delete pods and get pods/log in it, and that quota, limits \
         and policies of the namespace allow such pods"
    );
    let message = "the cluster refuses to run scripts".to_owned();
    ToolFailure::Unavailable { message, executed }
}

fn broken(why: &str) -> ToolFailure {
    error!(why, "the container of a script can't be started: see to its image and runtime class");
    let message = "the script's container can't be started".to_owned();
    ToolFailure::Unavailable { message, executed: Executed::No }
}

fn late(assigned: bool, why: Option<String>) -> ToolFailure {
    let why = why.unwrap_or_default();
    if assigned {
        warn!("the pod of a script did not start in time, though it has a node");
        let message = "the script's pod did not start in time".to_owned();
        return ToolFailure::Unavailable { message, executed: Executed::Unknown };
    }
    warn!(why, "no node takes the pod of a script");
    ToolFailure::Overloaded { message: NO_ROOM.to_owned() }
}
