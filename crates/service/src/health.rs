//! Health of a process: its phase and the checks of what it needs.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use futures_util::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use metrics::gauge;
use parking_lot::{Mutex, MutexGuard};
use serde::Serialize;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::telemetry::Metrics;

/// Time limit of a check. Below the timeout of a probe, which is 1 s or more.
const CHECK_TIMEOUT: Duration = Duration::from_millis(800);

/// Phase of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// It is being prepared and accepts no work yet.
    Starting,
    /// It accepts work while its checks pass.
    Serving,
    /// It finishes its work and accepts no more.
    Stopping,
}

/// Health of a process. Clones share it.
#[derive(Clone)]
pub struct Health {
    inner: Arc<Mutex<Inner>>,
    stopping: CancellationToken,
    metrics: Option<Metrics>,
}

#[derive(Default)]
struct Inner {
    is_serving: bool,
    checks: BTreeMap<&'static str, Check>,
}

/// Checks whether a resource is available; an error is a reason for an operator, without secrets.
type Check = Arc<dyn Fn() -> BoxFuture<'static, Result<(), String>> + Send + Sync>;

/// Response to a readiness probe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Readiness {
    /// `true` if the process is ready for work.
    pub ready: bool,
    /// Phase of the process.
    pub stage: Stage,
    /// Result of each check by name: `ok`, or the reason why the resource is unavailable.
    pub needs: BTreeMap<&'static str, String>,
}

impl Health {
    /// Creates the health of a starting process, which stops when `stopping` is cancelled.
    #[must_use]
    pub fn new(stopping: CancellationToken) -> Self {
        Self { inner: Arc::default(), stopping, metrics: None }
    }

    /// Adds the metrics of the process.
    #[must_use]
    pub fn with_metrics(self, metrics: Metrics) -> Self {
        Self { metrics: Some(metrics), ..self }
    }

    /// Registers `refresh`, which is called before each response of `/metrics` to set gauges
    /// (`metrics::gauge!`). It must not block.
    pub fn refresh_with(&self, refresh: impl Fn() + Send + Sync + 'static) {
        if let Some(metrics) = &self.metrics {
            metrics.refresh_with(refresh);
        }
    }

    /// Adds a check of a resource that the process needs. Its error is a reason for an operator, without
    /// secrets. It runs at each probe, for at most 800 ms. A second check of the same name replaces the
    /// first.
    pub fn needs(
        &self,
        name: &'static str,
        check: impl Fn() -> BoxFuture<'static, Result<(), String>> + Send + Sync + 'static,
    ) {
        self.lock().checks.insert(name, Arc::new(check));
    }

    /// Returns the metrics in Prometheus' text format, including readiness; `None` for a process
    /// without metrics.
    pub async fn metrics_text(&self) -> Option<String> {
        let metrics = self.metrics.as_ref()?;
        gauge!("rockbot_ready").set(f64::from(u8::from(self.readiness().await.ready)));
        Some(metrics.text())
    }

    /// Marks the process as ready for work.
    pub fn serving(&self) {
        self.lock().is_serving = true;
    }

    /// Runs all checks concurrently and returns the result.
    ///
    /// # Cancellation
    /// Dropping the future cancels the checks.
    pub async fn readiness(&self) -> Readiness {
        let (is_serving, checks) = {
            let inner = self.lock();
            (inner.is_serving, inner.checks.clone())
        };
        let mut running: FuturesUnordered<_> = checks
            .into_iter()
            .map(|(name, check)| async move {
                let result = timeout(CHECK_TIMEOUT, check()).await;
                (name, result.unwrap_or_else(|_| Err("check timed out".to_owned())))
            })
            .collect();
        let mut needs = BTreeMap::new();
        let mut all_passed = true;
        while let Some((name, result)) = running.next().await {
            all_passed &= result.is_ok();
            needs.insert(name, result.err().unwrap_or_else(|| "ok".to_owned()));
        }
        let stage = if self.stopping.is_cancelled() {
            Stage::Stopping
        } else if is_serving {
            Stage::Serving
        } else {
            Stage::Starting
        };
        Readiness { ready: stage == Stage::Serving && all_passed, stage, needs }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }
}

impl fmt::Debug for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = self.lock();
        f.debug_struct("Health")
            .field("is_serving", &inner.is_serving)
            .field("checks", &inner.checks.keys())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    fn result(passed: bool) -> BoxFuture<'static, Result<(), String>> {
        let result = if passed { Ok(()) } else { Err("gone".to_owned()) };
        Box::pin(std::future::ready(result))
    }

    #[tokio::test]
    async fn process_is_ready_while_serving_and_checks_pass() {
        let stopping = CancellationToken::new();
        let health = Health::new(stopping.clone());
        let available = Arc::new(AtomicBool::new(true));
        let bus = available.clone();
        health.needs("bus", move || result(bus.load(Ordering::SeqCst)));
        let state = async || {
            let readiness = health.readiness().await;
            (readiness.ready, readiness.stage)
        };
        assert_eq!(state().await, (false, Stage::Starting));
        health.serving();
        assert_eq!(state().await, (true, Stage::Serving));
        available.store(false, Ordering::SeqCst);
        assert_eq!(state().await, (false, Stage::Serving));
        assert_eq!(health.readiness().await.needs, [("bus", "gone".to_owned())].into());
        available.store(true, Ordering::SeqCst);
        stopping.cancel();
        assert_eq!(state().await, (false, Stage::Stopping));
    }

    #[tokio::test(start_paused = true)]
    async fn check_without_result_times_out() {
        let health = Health::new(CancellationToken::new());
        health.needs("store", || Box::pin(std::future::pending()));
        health.needs("bus", || result(true));
        health.serving();
        let readiness = health.readiness().await;
        assert!(!readiness.ready);
        let needs = [("bus", "ok".to_owned()), ("store", "check timed out".to_owned())];
        assert_eq!(readiness.needs, needs.into());
    }
}
