//! Removes what has expired, now and then.

use std::{sync::Arc, time::Duration};

use tokio::{
    task::JoinHandle,
    time::{MissedTickBehavior, interval},
};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::port::{Store, StoreError};

/// Most entries that are removed at once: others want to write, too.
const PORTION: usize = 500;

/// The task that sweeps a store. Dropping it ends the task.
///
/// What has expired is absent without it; sweeping only frees the room. One for each process is
/// fine: those of several processes do each other no harm.
#[derive(Debug)]
pub struct Sweeper {
    task: JoinHandle<Option<()>>,
    stop: DropGuard,
}

impl Sweeper {
    /// Sweeps the store now and then `every` so often (at least a millisecond) until it is closed.
    /// Must be called inside a Tokio runtime.
    #[must_use]
    pub fn start(store: Arc<dyn Store>, every: Duration) -> Self {
        let stop = CancellationToken::new();
        let task = tokio::spawn(stop.clone().run_until_cancelled_owned(sweep(store, every)));
        Self { task, stop: stop.drop_guard() }
    }

    /// Ends the task, and returns when it has ended.
    pub async fn stop(self) {
        drop(self.stop);
        // A sweep that panicked has ended, too.
        let _ = self.task.await;
    }
}

async fn sweep(store: Arc<dyn Store>, every: Duration) {
    let mut tick = interval(every.max(Duration::from_millis(1)));
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        loop {
            match store.sweep(PORTION).await {
                Ok(swept) if swept < PORTION as u64 => break,
                Ok(_) => {}
                Err(StoreError::Closed) => return,
                Err(error) => {
                    tracing::warn!(%error, "expired entries are not removed; trying again later");
                    break;
                }
            }
        }
    }
}
