//! Journal records that a call leaves behind when the store fails.
//!
//! A write whose response is lost may still be executed, and the end of a call may not be recorded. The
//! record then says that the call runs in this process, which lives: other handlers would wait for it. So
//! the record is completed once the store responds again.

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use rockbot_store::StoreError;
use tokio::{sync::Semaphore, time::sleep};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::debug;

/// Pause before each attempt.
const RETRY_DELAY: Duration = Duration::from_secs(2);
/// Attempts for one record: two minutes.
const MAX_ATTEMPTS: u32 = 60;
/// Attempts that find no record after which none was written.
const MAX_ABSENT: u32 = 3;
/// Maximum number of records that wait to be completed.
const MAX_RECORDS: usize = 1000;

/// Result of an attempt to complete a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Attempt {
    /// The record is complete, or belongs to a later start of the call.
    Settled,
    /// There is no record, so far.
    Absent,
}

/// Completes records in the background, until stopped or dropped.
#[derive(Debug)]
pub(super) struct RecordSettler {
    tasks: TaskTracker,
    stop: CancellationToken,
    permits: Arc<Semaphore>,
}

impl RecordSettler {
    pub(super) fn new() -> Self {
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        Self { tasks, stop, permits: Arc::new(Semaphore::new(MAX_RECORDS)) }
    }

    /// Repeats `attempt` until the record is settled. Does nothing while too many others wait.
    pub(super) fn settle(
        &self,
        attempt: impl Fn() -> BoxFuture<'static, Result<Attempt, StoreError>> + Send + 'static,
    ) {
        let Ok(permit) = self.permits.clone().try_acquire_owned() else {
            debug!("too many journal records wait to be completed");
            return;
        };
        let stop = self.stop.clone();
        self.tasks.spawn(async move {
            let _permit = permit;
            stop.run_until_cancelled(repeat(attempt)).await
        });
    }

    /// Stops completing records, and waits for the tasks to end.
    pub(super) async fn stop(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

impl Drop for RecordSettler {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

async fn repeat(attempt: impl Fn() -> BoxFuture<'static, Result<Attempt, StoreError>> + Send) {
    let mut absent = 0;
    for _ in 0..MAX_ATTEMPTS {
        sleep(RETRY_DELAY).await;
        match attempt().await {
            Ok(Attempt::Settled) => return,
            Ok(Attempt::Absent) => absent += 1,
            Err(error) => debug!(%error, "journal record not completed; retrying"),
        }
        if absent == MAX_ABSENT {
            return;
        }
    }
    debug!("journal record not completed in time");
}
