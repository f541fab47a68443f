//! A private broker or cluster, controlled from outside of the async runtime.

use std::sync::{Arc, Mutex};

use anyhow::Result;

/// A broker or cluster whose control operations block.
pub(crate) struct TestBroker<T>(Arc<Mutex<T>>);

impl<T: Send + 'static> TestBroker<T> {
    /// Starts the broker on a blocking thread.
    pub(crate) async fn start(start: impl FnOnce() -> Result<T> + Send + 'static) -> Self {
        let started = tokio::task::spawn_blocking(start).await.expect("no panic");
        Self(Arc::new(Mutex::new(started.expect("started"))))
    }

    /// Runs a control operation on a blocking thread and waits for it.
    pub(crate) async fn act<R: Send + 'static>(
        &self,
        operation: impl FnOnce(&mut T) -> Result<R> + Send + 'static,
    ) -> R {
        let broker = self.0.clone();
        let done =
            tokio::task::spawn_blocking(move || operation(&mut broker.lock().expect("alive")));
        done.await.expect("no panic").expect("the operation succeeds")
    }
}
