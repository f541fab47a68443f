//! Deletion of pods in the background.

use std::time::Duration;

use backon::{ExponentialBuilder, Retryable};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, Preconditions};
use tokio::{
    sync::{Mutex, mpsc},
    task::{JoinHandle, JoinSet},
    time::timeout,
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::api::{FailureKind, request};

/// The most pods that wait to be deleted. Others are left to the sweep.
const MAX_WAITING: usize = 4096;
const CONCURRENCY: usize = 16;
const MAX_RETRIES: usize = 5;
const MIN_PAUSE: Duration = Duration::from_millis(100);

/// A pod to delete.
#[derive(Debug, Clone)]
pub(crate) struct PodDeletion {
    pub(crate) name: String,
    /// Restricts the deletion to this pod; any pod of the name if absent.
    pub(crate) uid: Option<String>,
    /// Deletes without waiting for the node, which may be lost. Otherwise the pod exists, and counts
    /// towards the quota, until its processes have exited.
    pub(crate) forced: bool,
}

/// A queue of pods that a task deletes.
#[derive(Debug)]
pub(crate) struct DeletionQueue {
    queue: mpsc::Sender<PodDeletion>,
    stop: CancellationToken,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl DeletionQueue {
    pub(crate) fn start(pods: Api<Pod>) -> Self {
        let (queue, waiting) = mpsc::channel(MAX_WAITING);
        let stop = CancellationToken::new();
        let task = tokio::spawn(run(pods, waiting, stop.clone()));
        Self { queue, stop, task: Mutex::new(Some(task)) }
    }

    /// Queues a deletion. Does not block.
    pub(crate) fn enqueue(&self, deletion: PodDeletion) {
        if let Err(error) = self.queue.try_send(deletion) {
            debug!(%error, "pod deletion not queued; pod left to the sweep");
        }
    }

    /// Closes the queue and deletes the queued pods within `grace`.
    pub(crate) async fn stop(&self, grace: Duration) {
        self.stop.cancel();
        if let Some(mut task) = self.task.lock().await.take()
            && timeout(grace, &mut task).await.is_err()
        {
            warn!("pod deletions unfinished at shutdown; left to the sweep");
            task.abort();
        }
    }
}

impl Drop for DeletionQueue {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

async fn run(pods: Api<Pod>, mut queue: mpsc::Receiver<PodDeletion>, stop: CancellationToken) {
    let mut tasks = JoinSet::new();
    loop {
        while tasks.len() >= CONCURRENCY {
            tasks.join_next().await;
        }
        let deletion = tokio::select! {
            biased;
            deletion = queue.recv() => deletion,
            Some(_) = tasks.join_next() => continue,
            () = stop.cancelled(), if !queue.is_closed() => {
                queue.close();
                continue;
            }
        };
        let Some(deletion) = deletion else { break };
        tasks.spawn(delete(pods.clone(), deletion));
    }
    while tasks.join_next().await.is_some() {}
}

/// Deletes a pod. Its first process exits at once on SIGTERM, and all others are killed with it.
async fn delete(pods: Api<Pod>, deletion: PodDeletion) {
    let PodDeletion { name, uid, forced } = deletion;
    let params = DeleteParams {
        preconditions: uid.map(|uid| Preconditions { uid: Some(uid), resource_version: None }),
        ..DeleteParams::default().grace_period(u32::from(!forced))
    };
    let pauses = ExponentialBuilder::default()
        .with_min_delay(MIN_PAUSE)
        .with_factor(3.0)
        .with_max_times(MAX_RETRIES);
    let deleted = (|| async { request(pods.delete(&name, &params)).await.map(drop) })
        .retry(pauses)
        .when(|error| {
            let kind = error.kind();
            !matches!(kind, FailureKind::NotFound | FailureKind::Conflict | FailureKind::Rejected)
        })
        .notify(|error, _| debug!(%error, pod = name, "pod deletion attempt failed"))
        .await;
    let Err(error) = deleted else { return };
    match error.kind() {
        // It was deleted already, or another pod has its name.
        FailureKind::NotFound | FailureKind::Conflict => {}
        FailureKind::Rejected => {
            warn!(%error, pod = name, "pod deletion rejected; check the manager's permissions");
        }
        _ => warn!(%error, pod = name, "pod deletion failed; pod left to the sweep"),
    }
}
