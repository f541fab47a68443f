//! Whether a process can do its work, for whoever sends it some.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures_util::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use metrics::gauge;
use serde::Serialize;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::telemetry::Metrics;

/// How long a need may take to say whether it is met. Below the second or more that probes wait.
const PATIENCE: Duration = Duration::from_millis(800);

/// Where a process is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// It prepares, and takes no work yet.
    Starting,
    /// It takes work, if what it needs is there.
    Serving,
    /// It finishes what it has, and takes no more.
    Stopping,
}

/// What a process needs for its work, and where it is in its life. Clones share it.
#[derive(Clone)]
pub struct Health {
    inner: Arc<Mutex<Inner>>,
    stopping: CancellationToken,
    metrics: Option<Metrics>,
}

#[derive(Default)]
struct Inner {
    is_serving: bool,
    needs: BTreeMap<&'static str, Need>,
}

/// Says whether something is there; else why not, in words for an operator, without secrets.
type Need = Arc<dyn Fn() -> BoxFuture<'static, Result<(), String>> + Send + Sync>;

/// What a probe is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Readiness {
    /// Whether to send work.
    pub ready: bool,
    /// Where the process is in its life.
    pub stage: Stage,
    /// What it needs, by name: `ok`, or why it is not there.
    pub needs: BTreeMap<&'static str, String>,
}

impl Health {
    /// Of a process that starts. It stops when `stopping` is cancelled.
    #[must_use]
    pub fn new(stopping: CancellationToken) -> Self {
        Self { inner: Arc::default(), stopping, metrics: None }
    }

    /// The same of a process that counts.
    #[must_use]
    pub fn counted(self, metrics: Metrics) -> Self {
        Self { metrics: Some(metrics), ..self }
    }

    /// Registers `refresh`, which is called before each response of `/metrics` to set gauges
    /// (`metrics::gauge!`). It must not block.
    pub fn refresh_with(&self, refresh: impl Fn() + Send + Sync + 'static) {
        if let Some(metrics) = &self.metrics {
            metrics.refresh_with(refresh);
        }
    }

    /// The process needs something for its work. `check` says whether it is there, else why not, in
    /// words for an operator and without secrets. It is asked at each probe, and has 800 ms. A
    /// second one of the same name takes the first one's place.
    pub fn needs(
        &self,
        name: &'static str,
        need: impl Fn() -> BoxFuture<'static, Result<(), String>> + Send + Sync + 'static,
    ) {
        self.lock().needs.insert(name, Arc::new(need));
    }

    /// What the process counts, in Prometheus' text format, and among it whether it is ready; `None`
    /// for one that does not count.
    pub async fn counts(&self) -> Option<String> {
        let metrics = self.metrics.as_ref()?;
        gauge!("rockbot_ready").set(f64::from(u8::from(self.readiness().await.ready)));
        Some(metrics.text())
    }

    /// The process takes work from now on.
    pub fn serving(&self) {
        self.lock().is_serving = true;
    }

    /// Looks at everything that is needed, all at once.
    ///
    /// # Cancellation
    /// Dropping the future stops looking.
    pub async fn readiness(&self) -> Readiness {
        let (is_serving, needs) = {
            let inner = self.lock();
            (inner.is_serving, inner.needs.clone())
        };
        let mut checks: FuturesUnordered<_> = needs
            .into_iter()
            .map(|(name, need)| async move {
                let met = timeout(PATIENCE, need()).await;
                (name, met.unwrap_or_else(|_| Err("no answer in time".to_owned())))
            })
            .collect();
        let mut told = BTreeMap::new();
        let mut all_met = true;
        while let Some((name, met)) = checks.next().await {
            all_met &= met.is_ok();
            told.insert(name, met.err().unwrap_or_else(|| "ok".to_owned()));
        }
        let stage = match is_serving {
            _ if self.stopping.is_cancelled() => Stage::Stopping,
            true => Stage::Serving,
            false => Stage::Starting,
        };
        Readiness { ready: stage == Stage::Serving && all_met, stage, needs: told }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = self.lock();
        f.debug_struct("Health")
            .field("is_serving", &inner.is_serving)
            .field("needs", &inner.needs.keys())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    fn is(met: bool) -> BoxFuture<'static, Result<(), String>> {
        let told = if met { Ok(()) } else { Err("gone".to_owned()) };
        Box::pin(std::future::ready(told))
    }

    #[tokio::test]
    async fn a_process_is_ready_between_its_start_and_its_stop_while_it_has_what_it_needs() {
        let stopping = CancellationToken::new();
        let health = Health::new(stopping.clone());
        let there = Arc::new(AtomicBool::new(true));
        let need = there.clone();
        health.needs("bus", move || is(need.load(Ordering::SeqCst)));
        let state = async || {
            let told = health.readiness().await;
            (told.ready, told.stage)
        };
        assert_eq!(state().await, (false, Stage::Starting));
        health.serving();
        assert_eq!(state().await, (true, Stage::Serving));
        there.store(false, Ordering::SeqCst);
        assert_eq!(state().await, (false, Stage::Serving));
        assert_eq!(health.readiness().await.needs, [("bus", "gone".to_owned())].into());
        there.store(true, Ordering::SeqCst);
        stopping.cancel();
        assert_eq!(state().await, (false, Stage::Stopping));
    }

    #[tokio::test(start_paused = true)]
    async fn what_does_not_answer_is_not_there() {
        let health = Health::new(CancellationToken::new());
        health.needs("store", || Box::pin(std::future::pending()));
        health.needs("bus", || is(true));
        health.serving();
        let told = health.readiness().await;
        assert!(!told.ready);
        let needs = [("bus", "ok".to_owned()), ("store", "no answer in time".to_owned())];
        assert_eq!(told.needs, needs.into());
    }
}
