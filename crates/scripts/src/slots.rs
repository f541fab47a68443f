//! Who may run a script now, and who may wait for that.

use std::sync::Arc;

use rockbot_tools::ToolFailure;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// So many at once, and so many more that wait.
#[derive(Debug)]
pub(crate) struct Slots {
    all: Arc<Semaphore>,
    running: Arc<Semaphore>,
    at_once: u32,
}

/// A place to run; free again when dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    _running: OwnedSemaphorePermit,
    _one_of_all: OwnedSemaphorePermit,
}

impl Slots {
    pub(crate) fn new(at_once: usize, waiting: usize) -> Self {
        let of = |permits: usize| Arc::new(Semaphore::new(permits.min(Semaphore::MAX_PERMITS)));
        let at_once = u32::try_from(at_once).unwrap_or(u32::MAX).max(1);
        let running = at_once as usize;
        Self { all: of(running.saturating_add(waiting)), running: of(running), at_once }
    }

    /// Waits for a place, unless too many do.
    pub(crate) async fn take(&self) -> Result<Slot, ToolFailure> {
        let full = || ToolFailure::Overloaded { message: "too many scripts wait".to_owned() };
        let one_of_all = self.all.clone().try_acquire_owned().map_err(|_| full())?;
        let running = self.running.clone().acquire_owned().await.map_err(|_| full())?;
        Ok(Slot { _running: running, _one_of_all: one_of_all })
    }

    /// Waits until nobody runs.
    pub(crate) async fn idle(&self) {
        drop(self.running.acquire_many(self.at_once).await);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use rockbot_contracts::ToolErrorCode;

    use super::*;

    #[tokio::test]
    async fn a_few_run_a_few_wait_and_the_others_are_refused() {
        let slots = Slots::new(1, 1);
        let running = slots.take().await.unwrap();
        let mut waiting = Box::pin(slots.take());
        assert!(waiting.as_mut().now_or_never().is_none());
        assert_eq!(slots.take().await.unwrap_err().code(), ToolErrorCode::Overloaded);
        drop(running);
        waiting.await.unwrap();
    }
}
