//! What a pod's status says about its script.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ContainerStateTerminated, Pod};

use crate::pod::CONTAINER;

/// How far a script is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It has no node, or its container was not made yet.
    Pending {
        /// Whether it has a node. Then it may run already, and the node did not say so yet.
        assigned: bool,
        /// What the scheduler says.
        why: Option<String>,
    },
    /// Its container can't be made or started, and waiting does not help.
    Broken {
        /// In the words of the cluster.
        why: String,
    },
    /// It runs.
    Running,
    /// Its container ended.
    Exited(Exit),
    /// The cluster ended it, or did not take it after all.
    Ended {
        /// In one word of the cluster.
        by: String,
        /// In more words.
        why: String,
        /// Whether its container was ever started, as far as the node said.
        started: bool,
    },
}

/// How a container ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Exit {
    pub(crate) code: i32,
    /// The kernel ended its first process for its memory.
    pub(crate) out_of_memory: bool,
    /// What it left in its status.
    pub(crate) message: String,
    /// The pod was deleted before that, or while it ran.
    pub(crate) was_deleted: bool,
    /// From its start to its end, in whole seconds.
    pub(crate) elapsed: Duration,
}

/// Reasons for which a container that waits will not run.
const BROKEN: [&str; 10] = [
    "CreateContainerConfigError",
    "CreateContainerError",
    "ErrImageNeverPull",
    "ErrImagePull",
    "ImageInspectError",
    "ImagePullBackOff",
    "InvalidImageName",
    "RegistryUnavailable",
    "RunContainerError",
    "SignatureValidationFailed",
];
/// Reasons for which a container that ended never ran.
const NOT_STARTED: [&str; 2] = ["ContainerCannotRun", "StartError"];

impl Stage {
    pub(crate) fn of(pod: &Pod) -> Self {
        let status = pod.status.clone().unwrap_or_default();
        let container = status.container_statuses.unwrap_or_default().into_iter();
        let state = container.filter(|one| one.name == CONTAINER).find_map(|one| one.state);
        let state = state.unwrap_or_default();
        let ended = match (status.phase.as_deref(), status.reason) {
            (Some("Failed"), reason) => reason,
            _ => None,
        };
        if let Some(by) = ended {
            // A pod that ended by itself gives no reason.
            let started = state.running.is_some()
                || state.terminated.is_some_and(|end| end.started_at.is_some());
            return Self::Ended { by, why: status.message.unwrap_or_default(), started };
        }
        if let Some(end) = state.terminated {
            return match &end.reason {
                Some(reason) if NOT_STARTED.contains(&reason.as_str()) => {
                    Self::Broken { why: words(reason, end.message.as_deref()) }
                }
                _ => Self::Exited(exit(end, pod.metadata.deletion_timestamp.is_some())),
            };
        }
        if state.running.is_some() {
            return Self::Running;
        }
        if status.phase.as_deref() == Some("Failed") {
            let why = status.message.unwrap_or_default();
            return Self::Ended { by: "Failed".to_owned(), why, started: false };
        }
        if let Some(waiting) = state.waiting
            && let Some(reason) = waiting.reason
            && BROKEN.contains(&reason.as_str())
        {
            return Self::Broken { why: words(&reason, waiting.message.as_deref()) };
        }
        let assigned = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
        let conditions = status.conditions.unwrap_or_default().into_iter();
        let why = conditions
            .filter(|condition| condition.type_ == "PodScheduled" && condition.status == "False")
            .find_map(|condition| Some(words(&condition.reason?, condition.message.as_deref())));
        Self::Pending { assigned, why }
    }
}

fn exit(end: ContainerStateTerminated, was_deleted: bool) -> Exit {
    let elapsed = match (end.started_at, end.finished_at) {
        (Some(from), Some(to)) => u64::try_from(to.0.as_second() - from.0.as_second()).unwrap_or(0),
        _ => 0,
    };
    Exit {
        code: end.exit_code,
        out_of_memory: end.reason.as_deref() == Some("OOMKilled"),
        message: end.message.unwrap_or_default(),
        was_deleted,
        elapsed: Duration::from_secs(elapsed),
    }
}

fn words(reason: &str, message: Option<&str>) -> String {
    match message {
        Some(message) => format!("{reason}: {message}"),
        None => reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn stage(node: Option<&str>, status: &Value) -> Stage {
        let spec = json!({"containers": [], "nodeName": node});
        Stage::of(&serde_json::from_value(json!({"spec": spec, "status": status})).unwrap())
    }

    fn container(state: &Value) -> Value {
        json!([{
            "name": CONTAINER, "image": "i", "imageID": "", "ready": false, "restartCount": 0,
            "state": state,
        }])
    }

    #[test]
    fn a_pod_that_waits_says_for_what() {
        let pending = |assigned, why: Option<&str>| Stage::Pending {
            assigned,
            why: why.map(ToOwned::to_owned),
        };
        assert_eq!(stage(None, &json!({})), pending(false, None));
        let condition = json!({"type": "PodScheduled", "status": "False",
            "reason": "Unschedulable", "message": "0/1 nodes are available"});
        assert_eq!(
            stage(None, &json!({"phase": "Pending", "conditions": [condition]})),
            pending(false, Some("Unschedulable: 0/1 nodes are available"))
        );
        let creating = container(&json!({"waiting": {"reason": "ContainerCreating"}}));
        assert_eq!(
            stage(Some("n"), &json!({"phase": "Pending", "containerStatuses": creating})),
            pending(true, None)
        );
    }

    #[test]
    fn what_can_not_start_is_not_waited_for() {
        for reason in BROKEN {
            let waiting = container(&json!({"waiting": {"reason": reason, "message": "no"}}));
            let seen = stage(Some("n"), &json!({"phase": "Pending", "containerStatuses": waiting}));
            assert_eq!(seen, Stage::Broken { why: format!("{reason}: no") });
        }
        let unstarted =
            container(&json!({"terminated": {"reason": "StartError", "exitCode": 128}}));
        let seen = stage(Some("n"), &json!({"phase": "Failed", "containerStatuses": unstarted}));
        assert_eq!(seen, Stage::Broken { why: "StartError".to_owned() });
    }

    #[test]
    fn a_container_that_ended_gives_code_message_and_time() {
        let end = json!({"exitCode": 3, "reason": "Error", "message": "words",
            "startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:00:02Z"});
        let status = |end: &Value| json!({"phase": "Failed", "containerStatuses": container(end)});
        assert_eq!(
            stage(Some("n"), &status(&json!({"terminated": end}))),
            Stage::Exited(Exit {
                code: 3,
                out_of_memory: false,
                message: "words".to_owned(),
                was_deleted: false,
                elapsed: Duration::from_secs(2),
            })
        );
        let end = json!({"terminated": {"exitCode": 137, "reason": "OOMKilled"}});
        let Stage::Exited(exit) = stage(Some("n"), &status(&end)) else { panic!("it ended") };
        assert!(exit.out_of_memory);
    }

    #[test]
    fn a_pod_that_the_cluster_ended_says_why() {
        let end = json!({"terminated": {"exitCode": 137, "startedAt": "2026-01-01T00:00:00Z"}});
        for (container, started) in [(container(&end), true), (json!(null), false)] {
            let status = json!({"phase": "Failed", "reason": "Evicted", "message": "too much",
                "containerStatuses": container});
            let (by, why) = ("Evicted".to_owned(), "too much".to_owned());
            assert_eq!(stage(Some("n"), &status), Stage::Ended { by, why, started });
        }
    }
}
