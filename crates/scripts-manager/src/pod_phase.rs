//! The phase of a script, from the status of its pod.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ContainerStateTerminated, Pod};
use rockbot_contracts::Executed;

use crate::pod_parts::CONTAINER;

/// The phase of a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PodPhase {
    /// The pod has no node, or its container was not created yet.
    Pending {
        /// Set when it has a node. Then it may be running without a report of the node yet.
        assigned: bool,
        /// The reason of the scheduler.
        reason: Option<String>,
    },
    /// The container can't be created or started, and waiting does not help.
    Broken {
        /// The reason of the cluster.
        reason: String,
    },
    /// The script runs.
    Running,
    /// The container has exited.
    Exited(ContainerExit),
    /// The cluster terminated or rejected the pod.
    Terminated {
        /// The reason of the cluster.
        reason: String,
        /// The details of the cluster.
        message: String,
        /// Set when the container was started, as far as the node reported.
        started: bool,
    },
}

/// The exit of a container.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ContainerExit {
    pub(crate) code: i32,
    /// The kernel killed its first process because of its memory.
    pub(crate) out_of_memory: bool,
    /// The termination message.
    pub(crate) message: String,
    /// Set when the pod was deleted before the exit.
    pub(crate) was_deleted: bool,
    /// The run time, in whole seconds.
    pub(crate) elapsed: Duration,
}

/// Waiting reasons of containers that will never run.
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
/// Exit reasons of containers that never ran.
const NOT_STARTED: [&str; 2] = ["ContainerCannotRun", "StartError"];

impl PodPhase {
    pub(crate) fn from_pod(pod: &Pod) -> Self {
        let status = pod.status.clone().unwrap_or_default();
        let container = status.container_statuses.unwrap_or_default().into_iter();
        let state = container.filter(|one| one.name == CONTAINER).find_map(|one| one.state);
        let state = state.unwrap_or_default();
        let terminated = match (status.phase.as_deref(), status.reason) {
            (Some("Failed"), reason) => reason,
            _ => None,
        };
        if let Some(reason) = terminated {
            // A pod whose container exited has no reason.
            let started = state.running.is_some()
                || state.terminated.is_some_and(|end| end.started_at.is_some());
            return Self::Terminated {
                reason,
                message: status.message.unwrap_or_default(),
                started,
            };
        }
        if let Some(end) = state.terminated {
            return match &end.reason {
                Some(reason) if NOT_STARTED.contains(&reason.as_str()) => {
                    Self::Broken { reason: describe(reason, end.message.as_deref()) }
                }
                _ => Self::Exited(container_exit(end, pod.metadata.deletion_timestamp.is_some())),
            };
        }
        if state.running.is_some() {
            return Self::Running;
        }
        if status.phase.as_deref() == Some("Failed") {
            let message = status.message.unwrap_or_default();
            let reason = "Failed".to_owned();
            return Self::Terminated { reason, message, started: false };
        }
        if let Some(waiting) = state.waiting
            && let Some(reason) = waiting.reason
            && BROKEN.contains(&reason.as_str())
        {
            return Self::Broken { reason: describe(&reason, waiting.message.as_deref()) };
        }
        let assigned = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
        let conditions = status.conditions.unwrap_or_default().into_iter();
        let reason = conditions
            .filter(|condition| condition.type_ == "PodScheduled" && condition.status == "False")
            .find_map(|condition| Some(describe(&condition.reason?, condition.message.as_deref())));
        Self::Pending { assigned, reason }
    }

    /// Returns whether the script ran, given whether it was observed running before.
    pub(crate) fn executed(&self, was_running: bool) -> Executed {
        match self {
            Self::Pending { assigned: false, .. } | Self::Broken { .. } => Executed::No,
            Self::Pending { assigned: true, .. } => Executed::Unknown,
            Self::Running | Self::Exited(_) => Executed::Yes,
            Self::Terminated { started, .. } if *started || was_running => Executed::Yes,
            Self::Terminated { .. } => Executed::Unknown,
        }
    }
}

fn container_exit(end: ContainerStateTerminated, was_deleted: bool) -> ContainerExit {
    let elapsed = match (end.started_at, end.finished_at) {
        (Some(from), Some(to)) => u64::try_from(to.0.as_second() - from.0.as_second()).unwrap_or(0),
        _ => 0,
    };
    ContainerExit {
        code: end.exit_code,
        out_of_memory: end.reason.as_deref() == Some("OOMKilled"),
        message: end.message.unwrap_or_default(),
        was_deleted,
        elapsed: Duration::from_secs(elapsed),
    }
}

fn describe(reason: &str, message: Option<&str>) -> String {
    match message {
        Some(message) => format!("{reason}: {message}"),
        None => reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn phase(node: Option<&str>, status: &Value) -> PodPhase {
        let spec = json!({"containers": [], "nodeName": node});
        PodPhase::from_pod(
            &serde_json::from_value(json!({"spec": spec, "status": status})).unwrap(),
        )
    }

    fn container(state: &Value) -> Value {
        json!([{
            "name": CONTAINER, "image": "i", "imageID": "", "ready": false, "restartCount": 0,
            "state": state,
        }])
    }

    #[test]
    fn pending_pod_has_scheduler_reason() {
        let pending = |assigned, reason: Option<&str>| PodPhase::Pending {
            assigned,
            reason: reason.map(ToOwned::to_owned),
        };
        assert_eq!(phase(None, &json!({})), pending(false, None));
        let condition = json!({"type": "PodScheduled", "status": "False",
            "reason": "Unschedulable", "message": "0/1 nodes are available"});
        assert_eq!(
            phase(None, &json!({"phase": "Pending", "conditions": [condition]})),
            pending(false, Some("Unschedulable: 0/1 nodes are available"))
        );
        let creating = container(&json!({"waiting": {"reason": "ContainerCreating"}}));
        assert_eq!(
            phase(Some("n"), &json!({"phase": "Pending", "containerStatuses": creating})),
            pending(true, None)
        );
    }

    #[test]
    fn unstartable_container_is_broken() {
        for reason in BROKEN {
            let waiting = container(&json!({"waiting": {"reason": reason, "message": "no"}}));
            let seen = phase(Some("n"), &json!({"phase": "Pending", "containerStatuses": waiting}));
            assert_eq!(seen, PodPhase::Broken { reason: format!("{reason}: no") });
        }
        let unstarted =
            container(&json!({"terminated": {"reason": "StartError", "exitCode": 128}}));
        let seen = phase(Some("n"), &json!({"phase": "Failed", "containerStatuses": unstarted}));
        assert_eq!(seen, PodPhase::Broken { reason: "StartError".to_owned() });
    }

    #[test]
    fn exited_container_has_code_message_and_time() {
        let end = json!({"exitCode": 3, "reason": "Error", "message": "text",
            "startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:00:02Z"});
        let status = |end: &Value| json!({"phase": "Failed", "containerStatuses": container(end)});
        assert_eq!(
            phase(Some("n"), &status(&json!({"terminated": end}))),
            PodPhase::Exited(ContainerExit {
                code: 3,
                out_of_memory: false,
                message: "text".to_owned(),
                was_deleted: false,
                elapsed: Duration::from_secs(2),
            })
        );
        let end = json!({"terminated": {"exitCode": 137, "reason": "OOMKilled"}});
        let PodPhase::Exited(exit) = phase(Some("n"), &status(&end)) else {
            panic!("the container exited")
        };
        assert!(exit.out_of_memory);
    }

    #[test]
    fn terminated_pod_has_reason() {
        let end = json!({"terminated": {"exitCode": 137, "startedAt": "2026-01-01T00:00:00Z"}});
        for (container, started) in [(container(&end), true), (json!(null), false)] {
            let status = json!({"phase": "Failed", "reason": "Evicted", "message": "too much",
                "containerStatuses": container});
            let (reason, message) = ("Evicted".to_owned(), "too much".to_owned());
            assert_eq!(
                phase(Some("n"), &status),
                PodPhase::Terminated { reason, message, started }
            );
        }
    }
}
