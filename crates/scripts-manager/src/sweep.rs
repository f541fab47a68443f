//! Pods that nobody waits for any more: those of a manager that died, or that could not be deleted.

use std::{sync::Arc, time::Duration};

use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use kube::api::{Api, ListParams};
use tokio::{task::JoinHandle, time::interval};
use tracing::{info, warn};

use crate::{
    api::{ApiError, ask},
    deletions::{Deletions, Doomed},
    pod::OURS,
};

const EVERY: Duration = Duration::from_secs(60);
/// How long a pod that ended may be kept, so that whoever is asked again finds its result.
const KEPT_SECONDS: i64 = 60;
/// Clocks differ.
const SLACK_SECONDS: i64 = 60;
/// A pod has up to 256 KiB.
const PAGE: u32 = 50;

/// Looks for such pods now and every minute, until dropped.
#[derive(Debug)]
pub(crate) struct Sweep(JoinHandle<()>);

impl Sweep {
    pub(crate) fn start(pods: Api<Pod>, deletions: Arc<Deletions>) -> Self {
        Self(tokio::spawn(async move {
            let mut look = interval(EVERY);
            loop {
                look.tick().await;
                match sweep(&pods, &deletions, Timestamp::now()).await {
                    Ok(0) => {}
                    Ok(swept) => info!(swept, "deleted pods of scripts that nobody waits for"),
                    Err(error) => warn!(%error, "pods of scripts can't be listed"),
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

async fn sweep(pods: &Api<Pod>, deletions: &Deletions, now: Timestamp) -> Result<usize, ApiError> {
    let mut page = ListParams::default().labels(OURS).limit(PAGE);
    let mut swept = 0;
    loop {
        let found = ask(pods.list(&page)).await?;
        for pod in found.items.into_iter().filter(|pod| is_orphan(pod, now)) {
            let Some(name) = pod.metadata.name else { continue };
            deletions.ask(Doomed { name, uid: pod.metadata.uid, forced: true });
            swept += 1;
        }
        match found.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => return Ok(swept),
        }
    }
}

/// Whether a pod is past its own deadline, or ended or was deleted some time ago.
fn is_orphan(pod: &Pod, now: Timestamp) -> bool {
    let Some(created) = &pod.metadata.creation_timestamp else { return false };
    let age = now.as_second() - created.0.as_second();
    let deadline = pod.spec.as_ref().and_then(|spec| spec.active_deadline_seconds).unwrap_or(0);
    if age > deadline + SLACK_SECONDS {
        return true;
    }
    let is_old = |then: &Time| now.as_second() - then.0.as_second() > KEPT_SECONDS;
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
        is_orphan(&serde_json::from_value(pod).unwrap(), now)
    }

    #[test]
    fn pods_past_their_deadline_are_swept_and_no_others() {
        let spec = |deadline: i64| json!({"containers": [], "activeDeadlineSeconds": deadline});
        assert!(is_swept(&spec(100), &json!({})));
        assert!(!is_swept(&spec(130), &json!({})));
    }

    #[test]
    fn a_pod_that_ended_is_kept_for_a_minute() {
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
