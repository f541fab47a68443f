//! Permits that limit how many scripts run and how many wait.

use std::sync::Arc;

use rockbot_tools::ToolFailure;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Admits a number of running scripts and a number of waiting ones.
#[derive(Debug)]
pub(crate) struct RunPermits {
    admitted: Arc<Semaphore>,
    running: Arc<Semaphore>,
    concurrency: u32,
}

/// The right to run one script. Released when dropped.
#[derive(Debug)]
pub(crate) struct RunPermit {
    _running: OwnedSemaphorePermit,
    _admitted: OwnedSemaphorePermit,
}

impl RunPermits {
    pub(crate) fn new(concurrency: usize, waiting: usize) -> Self {
        let semaphore =
            |permits: usize| Arc::new(Semaphore::new(permits.min(Semaphore::MAX_PERMITS)));
        let concurrency = u32::try_from(concurrency).unwrap_or(u32::MAX).max(1);
        let running = concurrency as usize;
        let admitted = semaphore(running.saturating_add(waiting));
        Self { admitted, running: semaphore(running), concurrency }
    }

    /// Waits for a permit. Fails at once if too many scripts wait already.
    pub(crate) async fn acquire(&self) -> Result<RunPermit, ToolFailure> {
        let overloaded = || ToolFailure::Overloaded {
            message: "too many scripts are waiting; try again later".to_owned(),
        };
        let admitted = self.admitted.clone().try_acquire_owned().map_err(|_| overloaded())?;
        let running = self.running.clone().acquire_owned().await.map_err(|_| overloaded())?;
        Ok(RunPermit { _running: running, _admitted: admitted })
    }

    /// Waits until no script runs.
    pub(crate) async fn wait_idle(&self) {
        drop(self.running.acquire_many(self.concurrency).await);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use rockbot_contracts::ToolErrorCode;

    use super::*;

    #[tokio::test]
    async fn surplus_scripts_are_rejected_as_overloaded() {
        let permits = RunPermits::new(1, 1);
        let running = permits.acquire().await.unwrap();
        let mut waiting = Box::pin(permits.acquire());
        assert!(waiting.as_mut().now_or_never().is_none());
        assert_eq!(permits.acquire().await.unwrap_err().code(), ToolErrorCode::Overloaded);
        drop(running);
        waiting.await.unwrap();
    }
}
