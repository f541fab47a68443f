//! Background removal of expired entries.

use std::{sync::Arc, time::Duration};

use tokio::{
    task::JoinHandle,
    time::{MissedTickBehavior, interval},
};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::port::{Store, StoreError};

/// The maximum number of entries that are removed at once, so that other writes are not blocked.
const BATCH: usize = 500;

/// A task that sweeps a store. Dropping the handle stops the task.
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
        let stop = CancellationToken::new();
        let task = tokio::spawn(stop.clone().run_until_cancelled_owned(sweep(store, interval)));
        Self { task, stop: stop.drop_guard() }
    }

    /// Stops the task and waits for its end.
    pub async fn stop(self) {
        drop(self.stop);
        // A panicked task has ended, too.
        let _ = self.task.await;
    }
}

async fn sweep(store: Arc<dyn Store>, period: Duration) {
    let mut tick = interval(period.max(Duration::from_millis(1)));
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        loop {
            match store.sweep(BATCH).await {
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
