//! A broker of a test's own, whose every act is done outside the runtime.

use std::sync::{Arc, Mutex};

use anyhow::Result;

/// A broker or a cluster that blocks when it is told something.
pub(crate) struct Own<T>(Arc<Mutex<T>>);

impl<T: Send + 'static> Own<T> {
    /// Starts it.
    pub(crate) async fn start(start: impl FnOnce() -> Result<T> + Send + 'static) -> Self {
        let started = tokio::task::spawn_blocking(start).await.expect("no panic");
        Self(Arc::new(Mutex::new(started.expect("it starts"))))
    }

    /// Does something to it, and waits until that is done.
    pub(crate) async fn act<R: Send + 'static>(
        &self,
        act: impl FnOnce(&mut T) -> Result<R> + Send + 'static,
    ) -> R {
        let broker = self.0.clone();
        let acted = tokio::task::spawn_blocking(move || act(&mut broker.lock().expect("alive")));
        acted.await.expect("no panic").expect("the broker obeys")
    }
}
