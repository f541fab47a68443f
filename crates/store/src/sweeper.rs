//! Background removal of expired entries.

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use tokio::{
    task::JoinHandle,
    time::{MissedTickBehavior, interval},
};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{
    log::Log,
    port::{Store, StoreError},
};

/// The maximum number of entries that are removed at once, so that other writes are not blocked.
const BATCH: usize = 500;

/// A task that sweeps a store or logs. Dropping the handle stops the task.
///
/// Expired entries are absent without it; sweeping only frees their space. Sweepers of several processes
/// do not conflict.
#[derive(Debug)]
pub struct Sweeper {
    task: JoinHandle<Option<()>>,
    stop: DropGuard,
}

impl Sweeper {
    /// Sweeps the store at once and then at an `interval` (at least a millisecond) until it is closed.
    ///
    /// # Panics
    /// Outside a Tokio runtime.
    #[must_use]
    pub fn start(store: Arc<dyn Store>, interval: Duration) -> Self {
        Self::spawn(interval, move || {
            let store = store.clone();
            Box::pin(async move { store.sweep(BATCH).await })
        })
    }

    /// Sweeps logs at once and then at an `interval` (at least a millisecond) until they are closed.
    ///
    /// # Panics
    /// Outside a Tokio runtime.
    #[must_use]
    pub fn start_for_logs(log: Arc<dyn Log>, interval: Duration) -> Self {
        Self::spawn(interval, move || {
            let log = log.clone();
            Box::pin(async move { log.sweep(BATCH).await })
        })
    }

    fn spawn(
        interval: Duration,
        batch: impl Fn() -> BoxFuture<'static, Result<u64, StoreError>> + Send + 'static,
    ) -> Self {
        let stop = CancellationToken::new();
        let task = tokio::spawn(stop.clone().run_until_cancelled_owned(sweep(batch, interval)));
        Self { task, stop: stop.drop_guard() }
    }

    /// Stops the task and waits for its end.
    pub async fn stop(self) {
        drop(self.stop);
        // A panicked task has ended, too.
        let _ = self.task.await;
    }
}

async fn sweep(batch: impl Fn() -> BoxFuture<'static, Result<u64, StoreError>>, period: Duration) {
    let mut tick = interval(period.max(Duration::from_millis(1)));
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        loop {
            match batch().await {
                Ok(swept) if swept < BATCH as u64 => break,
                Ok(_) => {}
                Err(StoreError::Closed) => return,
                Err(error) => {
                    tracing::warn!(%error, "sweep failed; retrying at the next interval");
                    break;
                }
            }
        }
    }
}
