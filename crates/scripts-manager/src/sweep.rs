//! A sweep of abandoned pods: those of a manager that died, and those that could not be deleted.

use std::{sync::Arc, time::Duration};

use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use kube::api::{Api, ListParams};
use tokio::{task::JoinHandle, time::interval};
use tracing::{info, warn};

use crate::{
    api::{ApiError, request},
    deletions::{DeletionQueue, PodDeletion},
    pod::MANAGED_BY_SELECTOR,
};

const INTERVAL: Duration = Duration::from_secs(60);
/// Retention of the pods of finished scripts, so that a redelivered request finds its result.
const RETENTION_SECONDS: i64 = 60;
/// The tolerated difference between clocks.
const CLOCK_SKEW_SECONDS: i64 = 60;
/// The pods in one response, of up to 256 KiB each.
const PAGE_SIZE: u32 = 50;

/// A task that sweeps now and every minute, until dropped.
#[derive(Debug)]
pub(crate) struct Sweep(JoinHandle<()>);

impl Sweep {
    pub(crate) fn start(pods: Api<Pod>, deletions: Arc<DeletionQueue>) -> Self {
        Self(tokio::spawn(async move {
            let mut ticks = interval(INTERVAL);
            loop {
                ticks.tick().await;
                match sweep(&pods, &deletions, Timestamp::now()).await {
                    Ok(0) => {}
                    Ok(swept) => info!(swept, "abandoned script pods deleted"),
                    Err(error) => warn!(%error, "script pod sweep failed"),
                }
            }
        }))
    }
}

impl Drop for Sweep {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn sweep(
    pods: &Api<Pod>,
    deletions: &DeletionQueue,
    now: Timestamp,
) -> Result<usize, ApiError> {
    let mut page = ListParams::default().labels(MANAGED_BY_SELECTOR).limit(PAGE_SIZE);
    let mut swept = 0;
    loop {
        let found = request(pods.list(&page)).await?;
        for pod in found.items.into_iter().filter(|pod| is_abandoned(pod, now)) {
            let Some(name) = pod.metadata.name else { continue };
            deletions.enqueue(PodDeletion { name, uid: pod.metadata.uid, forced: true });
            swept += 1;
        }
        match found.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => return Ok(swept),
        }
    }
}

/// Returns whether a pod is past its deadline, or exited or was deleted some time ago.
fn is_abandoned(pod: &Pod, now: Timestamp) -> bool {
    let Some(created) = &pod.metadata.creation_timestamp else { return false };
    let age = now.as_second() - created.0.as_second();
    let deadline = pod.spec.as_ref().and_then(|spec| spec.active_deadline_seconds).unwrap_or(0);
    if age > deadline + CLOCK_SKEW_SECONDS {
        return true;
    }
    let is_old = |then: &Time| now.as_second() - then.0.as_second() > RETENTION_SECONDS;
    if pod.metadata.deletion_timestamp.as_ref().is_some_and(is_old) {
        return true;
    }
    let containers =
        pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    let mut ends = containers.filter_map(|container| {
        container.state.as_ref()?.terminated.as_ref()?.finished_at.as_ref()
    });
    ends.any(is_old)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn is_swept(spec: &Value, status: &Value) -> bool {
        let pod = json!({
            "metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": spec, "status": status,
        });
        let now = "2026-01-01T00:03:00Z".parse().unwrap();
        is_abandoned(&serde_json::from_value(pod).unwrap(), now)
    }

    #[test]
    fn pods_past_deadline_are_swept() {
        let spec = |deadline: i64| json!({"containers": [], "activeDeadlineSeconds": deadline});
        assert!(is_swept(&spec(100), &json!({})));
        assert!(!is_swept(&spec(130), &json!({})));
    }

    #[test]
    fn exited_pod_is_kept_for_a_minute() {
        let spec = json!({"containers": [], "activeDeadlineSeconds": 1000});
        let ended = |at: &str| {
            json!({"containerStatuses": [{
                "name": "script", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
                "state": {"terminated": {"exitCode": 0, "finishedAt": at}},
            }]})
        };
        assert!(is_swept(&spec, &ended("2026-01-01T00:01:59Z")));
        assert!(!is_swept(&spec, &ended("2026-01-01T00:02:01Z")));
    }
}
