//! One pod, kept in sight: a watch that survives its own end.

use std::time::Duration;

use futures_util::{
    StreamExt,
    stream::{BoxStream, TryStreamExt},
};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, WatchEvent, WatchParams};
use tokio::time::{sleep, timeout};
use tracing::debug;

use crate::api::{ANSWER, ask};

/// How long the API server keeps one watch open, in seconds. Short, so that a connection that died
/// without a word is found out.
const WATCH_SECONDS: u32 = 60;
const MAX_PAUSE: Duration = Duration::from_secs(2);

/// A pod that is looked at. Asking for what comes next can be given up and taken up again.
pub(crate) struct Sight {
    pods: Api<Pod>,
    name: String,
    uid: Option<String>,
    /// From where to watch; nothing when the pod must be fetched first.
    version: Option<String>,
    events: Option<BoxStream<'static, kube::Result<WatchEvent<Pod>>>>,
    pause: Duration,
}

/// What is seen.
#[derive(Debug)]
pub(crate) enum Seen {
    /// The pod, as it is now.
    Pod(Box<Pod>),
    /// It is no more.
    Gone,
}

enum Look {
    Seen(Seen),
    Again,
    Pause,
}

impl Sight {
    /// Looks at a pod from the state `pod` on.
    pub(crate) fn of(pods: Api<Pod>, name: String, pod: &Pod) -> Self {
        let uid = pod.metadata.uid.clone();
        let version = pod.metadata.resource_version.clone();
        Self { pods, name, uid, version, events: None, pause: Duration::ZERO }
    }

    /// The next state, as soon as there is one. Waits for ever when the cluster is out of reach.
    pub(crate) async fn next(&mut self) -> Seen {
        loop {
            match self.look().await {
                Look::Seen(seen) => {
                    self.pause = Duration::ZERO;
                    return seen;
                }
                Look::Again => {}
                Look::Pause => {
                    self.events = None;
                    self.version = None;
                    self.pause = (self.pause * 2).clamp(Duration::from_millis(50), MAX_PAUSE);
                    sleep(self.pause).await;
                }
            }
        }
    }

    async fn look(&mut self) -> Look {
        if let Some(events) = &mut self.events {
            let idle = Duration::from_secs(WATCH_SECONDS.into()) + ANSWER;
            let event = timeout(idle, events.next()).await;
            return match event {
                Ok(Some(Ok(event))) => self.take(event),
                // It ran out: what was missed is found by fetching the pod.
                Ok(None) => {
                    self.events = None;
                    self.version = None;
                    Look::Again
                }
                Ok(Some(Err(error))) => {
                    debug!(%error, pod = self.name, "a watch broke");
                    Look::Pause
                }
                Err(_) => Look::Pause,
            };
        }
        let Some(version) = &self.version else { return self.fetch().await };
        let only = WatchParams::default()
            .fields(&format!("metadata.name={}", self.name))
            .timeout(WATCH_SECONDS);
        let opened = ask(self.pods.watch(&only, version)).await;
        match opened {
            Ok(events) => {
                self.events = Some(events.into_stream().boxed());
                Look::Again
            }
            Err(error) => {
                debug!(%error, pod = self.name, "a watch does not begin");
                Look::Pause
            }
        }
    }

    async fn fetch(&mut self) -> Look {
        match ask(self.pods.get_opt(&self.name)).await {
            Ok(Some(pod)) => self.take(WatchEvent::Modified(pod)),
            Ok(None) => Look::Seen(Seen::Gone),
            Err(error) => {
                debug!(%error, pod = self.name, "a pod can't be fetched");
                Look::Pause
            }
        }
    }

    fn take(&mut self, event: WatchEvent<Pod>) -> Look {
        match event {
            WatchEvent::Added(pod) | WatchEvent::Modified(pod) => {
                // Another pod that has its name now.
                if pod.metadata.uid != self.uid {
                    return Look::Seen(Seen::Gone);
                }
                self.version = pod.metadata.resource_version.clone();
                Look::Seen(Seen::Pod(Box::new(pod)))
            }
            WatchEvent::Deleted(_) => Look::Seen(Seen::Gone),
            WatchEvent::Bookmark(_) => Look::Again,
            // Most often that the version is too old.
            WatchEvent::Error(status) => {
                debug!(%status, pod = self.name, "a watch ended");
                Look::Pause
            }
        }
    }
}
