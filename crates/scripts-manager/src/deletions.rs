//! Pods that are to go: deleted by a task of their own, so that nobody waits for it.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, Preconditions};
use tokio::{
    sync::{Mutex, mpsc},
    task::{JoinHandle, JoinSet},
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::api::{Meaning, ask};

/// Most pods that wait to be deleted. The sweep finds what finds no place.
const WAITING: usize = 4096;
const AT_ONCE: usize = 16;
const TRIES: u32 = 6;

/// A pod that is to go.
#[derive(Debug, Clone)]
pub(crate) struct Doomed {
    pub(crate) name: String,
    /// That one and no other of its name; any when absent.
    pub(crate) uid: Option<String>,
    /// Whether not to wait for its node, which may be gone. Else the pod is there, and is counted,
    /// until its processes are not.
    pub(crate) forced: bool,
}

/// Deletes pods until it is stopped.
#[derive(Debug)]
pub(crate) struct Deletions {
    queue: mpsc::Sender<Doomed>,
    stop: CancellationToken,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Deletions {
    pub(crate) fn start(pods: Api<Pod>) -> Self {
        let (queue, waiting) = mpsc::channel(WAITING);
        let stop = CancellationToken::new();
        let task = tokio::spawn(carry_out(pods, waiting, stop.clone()));
        Self { queue, stop, task: Mutex::new(Some(task)) }
    }

    /// Has a pod deleted soon. Does not block.
    pub(crate) fn ask(&self, doomed: Doomed) {
        if let Err(error) = self.queue.try_send(doomed) {
            debug!(%error, "a pod is left to the sweep");
        }
    }

    /// Takes no more, and deletes those that wait, within `grace`.
    pub(crate) async fn stop(&self, grace: Duration) {
        self.stop.cancel();
        if let Some(mut task) = self.task.lock().await.take()
            && timeout(grace, &mut task).await.is_err()
        {
            warn!("pods of scripts are left to the sweep");
            task.abort();
        }
    }
}

impl Drop for Deletions {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

async fn carry_out(pods: Api<Pod>, mut waiting: mpsc::Receiver<Doomed>, stop: CancellationToken) {
    let mut tasks = JoinSet::new();
    loop {
        while tasks.len() >= AT_ONCE {
            tasks.join_next().await;
        }
        let doomed = tokio::select! {
            biased;
            doomed = waiting.recv() => doomed,
            Some(_) = tasks.join_next() => continue,
            () = stop.cancelled(), if !waiting.is_closed() => {
                waiting.close();
                continue;
            }
        };
        let Some(doomed) = doomed else { break };
        tasks.spawn(delete(pods.clone(), doomed));
    }
    while tasks.join_next().await.is_some() {}
}

/// Deletes a pod. Its first process ends at once when it is asked to, and all others with it.
async fn delete(pods: Api<Pod>, doomed: Doomed) {
    let Doomed { name, uid, forced } = doomed;
    let now = DeleteParams {
        preconditions: uid.map(|uid| Preconditions { uid: Some(uid), resource_version: None }),
        ..DeleteParams::default().grace_period(u32::from(!forced))
    };
    let mut pause = Duration::from_millis(100);
    for _ in 0..TRIES {
        let Err(error) = ask(pods.delete(&name, &now)).await else { return };
        match error.meaning() {
            // It is gone, or another one has its name.
            Meaning::Missing | Meaning::Conflict => return,
            Meaning::Refused => {
                warn!(%error, pod = name, "a pod can't be deleted; may the manager delete pods?");
                return;
            }
            _ => debug!(%error, pod = name, "a pod is not deleted yet"),
        }
        sleep(pause).await;
        pause *= 3;
    }
    warn!(pod = name, "a pod is left to the sweep");
}
