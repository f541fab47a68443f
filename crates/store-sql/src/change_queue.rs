//! A bounded queue of changes to the task that makes them.

use std::{fmt, time::Duration};

use rockbot_store::StoreError;
use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};

/// The capacity of a queue, and the maximum number of changes that its task receives at once.
const CAPACITY: usize = 256;
/// The timeout for queueing a change.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(10);
/// The timeout for the outcome of a queued change.
const COMMIT_TIMEOUT: Duration = Duration::from_secs(30);

/// A handle to the task of a queue. When it is dropped, the task completes the queued changes.
pub(crate) struct ChangeQueue<C> {
    queue: mpsc::Sender<C>,
    stop: CancellationToken,
    task: TaskTracker,
    _stop_on_drop: DropGuard,
}

impl<C: Send + 'static> ChangeQueue<C> {
    /// Starts the task that `run` returns. It ends when there are no more changes.
    pub(crate) fn start<F>(run: impl FnOnce(QueuedChanges<C>) -> F) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (queue, changes) = mpsc::channel(CAPACITY);
        let stop = CancellationToken::new();
        let task = TaskTracker::new();
        task.spawn(run(QueuedChanges { changes, stop: stop.clone() }));
        task.close();
        Self { queue, stop: stop.clone(), task, _stop_on_drop: stop.drop_guard() }
    }

    /// Queues the change that `change` returns, and waits for its outcome.
    pub(crate) async fn submit<T>(
        &self,
        change: impl FnOnce(Reply<T>) -> C,
    ) -> Result<T, StoreError> {
        let (sender, receiver) = oneshot::channel();
        let permit = timeout(QUEUE_TIMEOUT, self.queue.reserve()).await.map_err(|_| {
            let seconds = QUEUE_TIMEOUT.as_secs();
            StoreError::Unavailable { reason: format!("the write queue was full for {seconds} s") }
        })?;
        if self.stop.is_cancelled() {
            return Err(StoreError::Closed);
        }
        permit.map_err(|_| StoreError::Closed)?.send(change(Reply { sender, result: None }));
        match timeout(COMMIT_TIMEOUT, receiver).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) => unconfirmed("the writer task ended"),
            Err(_) => unconfirmed("no response in time"),
        }
    }

    /// Completes the queued changes and stops the task.
    pub(crate) async fn close(&self) {
        self.stop.cancel();
        self.task.wait().await;
    }
}

// Changes hold private values.
impl<C> fmt::Debug for ChangeQueue<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChangeQueue").field("stop", &self.stop).finish_non_exhaustive()
    }
}

/// The receiving end of a queue.
pub(crate) struct QueuedChanges<C> {
    changes: mpsc::Receiver<C>,
    stop: CancellationToken,
}

impl<C> QueuedChanges<C> {
    /// Waits for changes, and returns all that are queued: at least one, at most 256. Returns `None` when
    /// the queue is closed and empty.
    pub(crate) async fn next_batch(&mut self) -> Option<Vec<C>> {
        let mut batch = Vec::new();
        loop {
            tokio::select! {
                biased;
                count = self.changes.recv_many(&mut batch, CAPACITY) => {
                    return (count > 0).then_some(batch);
                }
                // Changes that are already queued are still received.
                () = self.stop.cancelled(), if !self.changes.is_closed() => self.changes.close(),
            }
        }
    }
}

/// The reply to the caller of a change.
pub(crate) struct Reply<T> {
    sender: oneshot::Sender<Result<T, StoreError>>,
    /// The result, valid once it is committed.
    pub(crate) result: Option<T>,
}

impl<T> Reply<T> {
    /// Sends the result, or the error of its commit.
    pub(crate) fn send(self, committed: Result<(), StoreError>) {
        let outcome = committed.and_then(|()| self.result.map_or_else(|| unconfirmed("lost"), Ok));
        // The caller may have dropped its future.
        let _ = self.sender.send(outcome);
    }

    /// Returns whether the caller no longer waits.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.sender.is_closed()
    }
}

fn unconfirmed<T>(reason: &str) -> Result<T, StoreError> {
    Err(StoreError::Unconfirmed { reason: reason.to_owned() })
}
