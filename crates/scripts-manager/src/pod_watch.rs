//! A watch of one pod, which survives disconnects.

use std::time::Duration;

use futures_util::{StreamExt, stream::BoxStream};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    api::Api,
    runtime::{
        WatchStreamExt,
        watcher::{Config, Error, Event, ExponentialBackoff, watcher},
    },
};
use tokio::time::timeout;
use tracing::debug;

use crate::api::{REQUEST_TIMEOUT, retry_pauses};

/// The time that the API server keeps a watch open, in seconds. Short, so that a dead connection is
/// detected.
const WATCH_SECONDS: u32 = 60;
/// The time without events after which the watch is restarted. Also limits the watcher's own requests.
const IDLE_TIMEOUT: Duration =
    Duration::from_secs(WATCH_SECONDS as u64).saturating_add(REQUEST_TIMEOUT);

/// Watches one pod. Cancel safe.
pub(crate) struct PodWatch {
    pods: Api<Pod>,
    name: String,
    uid: Option<String>,
    events: BoxStream<'static, Result<Event<Pod>, Error>>,
    /// Set when the initial list of a watch contains the pod.
    is_listed: bool,
}

/// A change of the watched pod.
#[derive(Debug)]
pub(crate) enum PodChange {
    /// The current state of the pod.
    Updated(Box<Pod>),
    /// The pod no longer exists.
    Deleted,
}

impl PodWatch {
    pub(crate) fn new(pods: Api<Pod>, name: String, uid: Option<String>) -> Self {
        let events = watch(&pods, &name);
        Self { pods, name, uid, events, is_listed: false }
    }

    /// Waits for the next change. Never returns while the cluster is unreachable.
    pub(crate) async fn next(&mut self) -> PodChange {
        loop {
            let change = match timeout(IDLE_TIMEOUT, self.events.next()).await {
                Ok(Some(Ok(event))) => self.apply(event),
                Ok(Some(Err(error))) => {
                    debug!(%error, pod = self.name, "pod watch failed; retrying");
                    None
                }
                Ok(None) | Err(_) => {
                    self.events = watch(&self.pods, &self.name);
                    None
                }
            };
            if let Some(change) = change {
                return change;
            }
        }
    }

    fn apply(&mut self, event: Event<Pod>) -> Option<PodChange> {
        match event {
            Event::Init => {
                self.is_listed = false;
                None
            }
            Event::InitApply(pod) => {
                self.is_listed = true;
                Some(self.updated(pod))
            }
            Event::Apply(pod) => Some(self.updated(pod)),
            Event::InitDone if self.is_listed => None,
            Event::InitDone | Event::Delete(_) => Some(PodChange::Deleted),
        }
    }

    fn updated(&self, pod: Pod) -> PodChange {
        // Another pod may have the name by now.
        if pod.metadata.uid == self.uid {
            PodChange::Updated(Box::new(pod))
        } else {
            PodChange::Deleted
        }
    }
}

fn watch(pods: &Api<Pod>, name: &str) -> BoxStream<'static, Result<Event<Pod>, Error>> {
    // Pauses of 2 s at most instead of the default 30 s: the exit of a script while the API server is
    // unavailable must be detected within the time limit of the script.
    let config = Config::default().fields(&format!("metadata.name={name}")).timeout(WATCH_SECONDS);
    watcher(pods.clone(), config).backoff(ExponentialBackoff::from(retry_pauses())).boxed()
}
